"""Time of a step of DPSGD with an MLP, on one process and on two ranks.

    OMP_NUM_THREADS=1 python benchmarks/ranks.py                            # one process
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 benchmarks/ranks.py       # two ranks of one thread each

Rank 0 prints seconds per step after the first: processor time of rank 0 and time that has passed. On a busy machine
only the former can be compared: two processes then get twice the share of the processors that one process gets.
"""

import math
import os
import time

import numpy as np
from threadpoolctl import threadpool_limits

from conddp import DPSGD, MLP, Bounds, Labels, PrivacyBudget, PublicFeatures, Records
from conddp.distributed import use_ranks
from conddp.training.loop import StepCounter

NUM_RECORDS, NUM_COLUMNS, NUM_STEPS = 200_000, 100, 12
BATCH_SIZES = (8192, 65536)
HEAD = MLP(hidden=(128, 64))


def measure_step(batch_size: int) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(NUM_RECORDS, NUM_COLUMNS))
    records = Records(PublicFeatures(X), None, Labels(np.tanh(X[:, 0] * X[:, 1]), Bounds(-1, 1)))
    times: list[tuple[float, float]] = []
    counter = StepCounter(lambda done, total: times.append((time.process_time(), time.perf_counter())))
    DPSGD(num_steps=NUM_STEPS, batch_size=batch_size).fit(
        records, PrivacyBudget(4.0, 1e-6), head=HEAD, callback=counter
    )
    if not times:  # only rank 0 counts steps
        return math.nan, math.nan
    processor, passed = np.median(np.diff(times, axis=0), axis=0).tolist()
    return processor, passed


def main() -> None:
    size = os.environ.get("WORLD_SIZE", "1")
    with threadpool_limits(1), use_ranks() as rank:
        for batch_size in BATCH_SIZES:
            processor, passed = measure_step(batch_size)
            if rank == 0:
                print(
                    f"batch {batch_size:6,}, {size} rank(s): processor {processor:.3f} s, passed {passed:.3f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
