"""Time of a step of DPSGD with an MLP, on one process and on two ranks.

    python benchmarks/ranks.py                                              # one process, one and two threads
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 benchmarks/ranks.py       # two ranks of one thread each

Rank 0 prints seconds per step: the median and the fastest of the steps after the first.
"""

import os
import time

import numpy as np
from threadpoolctl import threadpool_limits

from conddp import DPSGD, MLP, Bounds, Labels, PrivacyBudget, PublicFeatures, Records
from conddp.distributed import use_ranks
from conddp.training.loop import StepCounter

NUM_RECORDS, NUM_COLUMNS, NUM_STEPS = 200_000, 100, 12
HEAD = MLP(hidden=(128, 64))


def measure_step(batch_size: int | None) -> list[float]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(NUM_RECORDS, NUM_COLUMNS))
    records = Records(PublicFeatures(X), None, Labels(np.tanh(X[:, 0] * X[:, 1]), Bounds(-1, 1)))
    times: list[float] = []
    counter = StepCounter(lambda done, total: times.append(time.perf_counter()))
    DPSGD(num_steps=NUM_STEPS, batch_size=batch_size).fit(
        records, PrivacyBudget(4.0, 1e-6), head=HEAD, callback=counter
    )
    return np.diff(times).tolist()


def main() -> None:
    print_from = os.environ.get("RANK", "0") == "0"
    several = int(os.environ.get("WORLD_SIZE", "1"))
    for batch_size in (8192, 65536, None):
        for threads in (1,) if several > 1 else (1, 2):
            with threadpool_limits(threads), use_ranks():
                times = measure_step(batch_size)
            if print_from:
                size = batch_size or NUM_RECORDS
                print(
                    f"batch {size:7,}, {several} rank(s) of {threads} thread(s): median {np.median(times):.3f} s, "
                    f"fastest {min(times):.3f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
