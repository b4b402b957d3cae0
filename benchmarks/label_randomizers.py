"""Time of optimal bins, of randomising many labels, and of the unbiased linear program.

The rival of the ratio iteration is the full dynamic program over all numbers of bins, on the same prior, in turns.

    python benchmarks/label_randomizers.py
"""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from conddp.bounds import Bounds
from conddp.labels.prior import LabelPrior
from conddp.labels.randomizers import compute_optimal_bins, make_response_on_bins, make_unbiased_response
from conddp.privacy.release import Curator


def full_program(prior: LabelPrior, epsilon: float) -> float:
    """Error of the best bins by a dynamic program with a layer for every number of bins."""
    a, p, y = math.expm1(epsilon), prior.weights, prior.grid - prior.mean
    S0, S1, S2 = (np.concatenate([[0.0], np.cumsum(p * y**power)]) for power in range(3))
    k = len(p)
    inside = S1[-1] + a * (S1[None, :] - S1[:, None])
    cost = S2[-1] + a * (S2[None, :] - S2[:, None]) - inside**2 / (1 + a * np.abs(S0[None, :] - S0[:, None]))
    cost[np.tril_indices(k + 1)] = np.inf
    layer, best = np.full(k + 1, np.inf), math.inf
    layer[0] = 0.0
    for d in range(1, k + 1):
        layer = (layer[:, None] + cost).min(axis=0)
        best = min(best, float(layer[k]) / (d - 1 + math.exp(epsilon)))
    return best


def seconds(work: Callable[[], object], turns: int = 5) -> float:
    """Median time of some turns."""
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Print a line per work."""
    for k in (401, 4001):
        grid = np.linspace(0, 1, k)
        prior = LabelPrior(grid, np.exp(-6 * grid))
        ours = seconds(partial(compute_optimal_bins, prior, 3.0))
        line = f"optimal bins, k = {k}: {ours:.3f} s"
        if k < 1000:
            full = seconds(partial(full_program, prior, 3.0), turns=3)
            line += f"; full dynamic program {full:.3f} s, {full / ours:.0f} times as long"
        print(line)
    rng = np.random.default_rng(0)
    labels = rng.exponential(80.0, size=1_386_177)
    randomizer = make_response_on_bins(LabelPrior(np.arange(401.0), np.exp(-np.arange(401) / 80)), 2.0)
    curator = Curator(rng, num_records=len(labels))
    print(f"randomise {len(labels)} labels: {seconds(lambda: randomizer.randomize(labels, curator)):.3f} s")
    grid = np.linspace(0, 1, 25)
    prior = LabelPrior(grid, np.exp(-6 * grid))
    taken = seconds(lambda: make_unbiased_response(prior, 1.0, bounds=Bounds(0, 1)), turns=3)
    print(f"unbiased linear program, k = 25: {taken:.2f} s")


if __name__ == "__main__":
    main()
