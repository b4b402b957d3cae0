"""Sparse public features: time by stage and peak memory of the default and of Cond-DP, beside scikit-learn's Ridge.

python benchmarks/sparse.py [--records 1000000] [--columns 4000]
python benchmarks/sparse.py --groups

The first prints a table; every fit runs in a process of its own. The columns are 16 groups of levels with Zipf-like
frequencies and a number, so that each row has 17 values. The second measures what equal weights within groups of
directions cost: test errors with grouped weights over those with a weight for every direction.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

NUM_GROUPS = 16
LABEL_BOUNDS = (-10.0, 10.0)
SECONDS: dict[str, float] = defaultdict(float)


def make_table(n: int, d: int) -> tuple[sp.csr_array[Any, tuple[int, int]], NDArray[np.float64]]:
    """Make 16 groups of levels and a number, with labels that depend on all of them."""
    rng = np.random.default_rng(0)
    shares = np.geomspace(1, 100, NUM_GROUPS)
    sizes = np.maximum(2, (shares / shares.sum() * (d - 1)).astype(int))
    sizes[-1] += d - 1 - sizes.sum()
    positions = np.empty((n, NUM_GROUPS + 1), dtype=np.int32)
    start = 0
    for group, size in enumerate(sizes.tolist()):
        frequencies = 1 / np.arange(1.0, size + 1)
        positions[:, group] = start + rng.choice(size, size=n, p=frequencies / frequencies.sum())
        start += size
    positions[:, -1] = d - 1
    values = np.ones(positions.shape)
    values[:, -1] = 20_000 + rng.normal(size=n)
    X = sp.csr_array((values.ravel(), positions.ravel(), np.arange(n + 1) * (NUM_GROUPS + 1)), shape=(n, d))
    effects = np.append(rng.normal(scale=0.5, size=d - 1), 0.5)
    signal = X @ effects - 0.5 * 20_000
    return X, np.clip(signal - signal.mean() + rng.normal(size=n), *LABEL_BOUNDS)


def time_calls(owner: Any, name: str, stage: str) -> None:
    """Add the time of all calls of a function to a stage."""
    original = getattr(owner, name)

    def timed(*arguments: Any, **settings: Any) -> Any:
        began = time.perf_counter()
        try:
            return original(*arguments, **settings)
        finally:
            SECONDS[stage] += time.perf_counter() - began

    setattr(owner, name, timed)


def watch_stages() -> None:
    """Time the stages of a fit."""
    from conddp.algorithms import algorithm, descent
    from conddp.features import conditioned_rows, standardization
    from conddp.newton import run
    from conddp.privacy import fingerprint

    time_calls(standardization, "_sum_moments", "second moments")
    time_calls(np.linalg, "eigh", "eigenvectors")
    time_calls(np.linalg, "svd", "singular vectors")
    time_calls(conditioned_rows.ConditionedRows, "compute_squared_norms", "norms of rows")
    time_calls(run, "release_residuals", "Newton steps")
    time_calls(descent, "train", "gradient steps")
    time_calls(fingerprint.Fingerprint, "of", "fingerprint")
    time_calls(algorithm, "list_public", "identity")


def run_fit(name: str, n: int, d: int) -> None:
    """Fit once, and print seconds by stage, test error and peak memory in gigabytes."""
    X, y = make_table(n + n // 10, d)
    train, test = slice(0, n), slice(n, None)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    began, worked = time.perf_counter(), time.process_time()
    predict: Callable[[Any], NDArray[np.float64]]
    if name.startswith("ridge"):
        from sklearn.linear_model import Ridge

        predict = Ridge(alpha=1.0, solver=name.removeprefix("ridge ")).fit(X[train], y[train]).predict
    else:
        from conddp import Bounds, Labels, PrivacyBudget, PublicFeatures, Records
        from conddp.algorithms import ALGORITHMS

        watch_stages()
        began, worked = time.perf_counter(), time.process_time()
        records = Records(PublicFeatures(X[train]), None, Labels(y[train], Bounds(*LABEL_BOUNDS)))
        model = ALGORITHMS[name].fit(records, PrivacyBudget(1.0, 1e-7)).model

        def predict(rows: Any) -> NDArray[np.float64]:
            return model.predict(PublicFeatures(rows))

    fitted, busy = time.perf_counter() - began, time.process_time() - worked
    error = float(np.mean((predict(X[test]) - y[test]) ** 2) / y[test].var())
    predicted = time.perf_counter() - began - fitted
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in SECONDS.items())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{name:16} fit {fitted:7.1f} s ({busy:.1f} s of processor time), prediction {predicted:5.2f} s, "
        f"test R2 {1 - error:.4f}, peak memory {peak:.2f} GB ({own:.2f} GB before the fit)"
        + (f"\n{'':16} of which {stages}" if stages else ""),
        flush=True,
    )


def measure_groups() -> None:
    """Print the error of grouped weights over that of a weight for every direction, on a few tables."""
    from conddp import Bounds, Labels, PrivacyBudget, PublicFeatures, Records
    from conddp.algorithms import CondNewton
    from conddp.features import standardization
    from conddp.privacy.randomness import RandomSource

    limit = standardization.LARGEST_IN_MEMORY
    for n, d in ((5_000, 100), (20_000, 300)):
        X, y = make_table(2 * n, d)
        train, test = slice(0, n), slice(n, None)
        records = Records(PublicFeatures(X[train]), None, Labels(y[train], Bounds(*LABEL_BOUNDS)))
        for epsilon in (0.25, 1.0, 4.0):
            ratios, errors = [], []
            for seed in range(8):
                found = []
                for standardization.LARGEST_IN_MEMORY in (limit, 0):
                    budget, source = PrivacyBudget(epsilon, 1e-6), RandomSource.of(seed)
                    model = CondNewton().fit(records, budget, random_source=source).model
                    found.append(float(np.mean((model.predict(PublicFeatures(X[test])) - y[test]) ** 2)))
                standardization.LARGEST_IN_MEMORY = limit
                ratios.append(found[1] / found[0])
                errors.append(found[0] / y[test].var())
            print(
                f"{n:6} x {d:4}, epsilon {epsilon:4}: test R2 {1 - np.mean(errors):.3f}, error with groups over "
                f"without {np.mean(ratios):.4f} (standard error {np.std(ratios) / len(ratios) ** 0.5:.4f})",
                flush=True,
            )


def main() -> None:
    """Run every fit in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=4000)
    parser.add_argument("--fit", help="run this fit only, in this process")
    parser.add_argument("--groups", action="store_true")
    arguments = parser.parse_args()
    if arguments.groups:
        return measure_groups()
    if arguments.fit:
        return run_fit(arguments.fit, arguments.records, arguments.columns)
    sizes = [f"--records={arguments.records}", f"--columns={arguments.columns}"]
    for name in ("ridge sparse_cg", "ridge lsqr", "auto", "cond-dp"):
        subprocess.run([sys.executable, __file__, "--fit", name, *sizes], check=True)
    return None


if __name__ == "__main__":
    main()
