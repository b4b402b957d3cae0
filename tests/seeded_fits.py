"""Seeded fits of every algorithm and head, and what they predict: `python -m tests.seeded_fits` writes the numbers.

A change of the code that should not change results must leave them alone. One that should says so in the changelog and
writes them anew.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from conddp import MLP, Auto, CondDP, CondNewton, FactorizationMachine, PrivateRegressor, SwitchCondDP, Wide
from conddp.algorithms import DPSGD
from conddp.data.parts import PublicFeatures
from conddp.planning.comparison import compare_algorithms

STORED = Path(__file__).with_name("seeded_fits.json")

HEADS: dict[str, Any] = {
    "linear": "linear",
    "mlp": MLP(hidden=(5, 4), embedding=3),
    "fm": FactorizationMachine(rank=3),
    "wide": Wide(width=20),
}
LABEL_ONLY = ("rr-on-bins", "unbiased-rr", "binary-rr", "laplace", "staircase")
LINEAR_ONLY = ("one-shot", "weighted-llp", "mean")
PRIVATE = {1: (-2.0, 2.0), 3: (0.0, 1.0)}


def _make_data() -> tuple[Any, Any]:
    rng = np.random.default_rng(20261117)
    X = rng.normal(size=(300, 5)) * [1.0, 1.0, 30.0, 0.3, 1.0] + [0.0, 0.0, 500.0, 0.5, 0.0]
    y = 3 + X[:, 0] + 0.05 * (X[:, 2] - 500) + X[:, 1] * X[:, 3] + rng.standard_t(3, size=300)
    return X, y


def list_cases() -> dict[str, dict[str, Any]]:
    """Arguments of the estimator by the name of the case."""
    cases: dict[str, dict[str, Any]] = {}
    for head_name, head in HEADS.items():
        for algorithm in ("cond-newton", "cond-dp", "switch-cond-dp", "dpsgd", "non-private", *LABEL_ONLY):
            cases[f"{algorithm} {head_name}"] = {"algorithm": algorithm, "head": head}
        for algorithm in ("cond-dp", "switch-cond-dp", "dpsgd", "non-private"):
            cases[f"{algorithm} {head_name} private"] = {
                "algorithm": algorithm,
                "head": head,
                "private_columns": PRIVATE,
            }
        if head_name in ("mlp", "fm"):
            continue  # takes seconds, and differs from the case above in nothing else
        cases[f"cond-newton {head_name} no-intercept"] = {
            "algorithm": CondNewton(),
            "head": head,
            "fit_intercept": False,
        }
    for algorithm in LINEAR_ONLY:
        cases[f"{algorithm} linear"] = {"algorithm": algorithm}
    for algorithm in ("cond-newton", "one-shot", "mean", "cond-dp"):
        cases[f"{algorithm} zero-out"] = {"algorithm": algorithm, "neighbouring": "zero-out"}
    for algorithm in ("cond-newton", "cond-dp", "mean", "auto"):
        cases[f"{algorithm} private columns"] = {"algorithm": algorithm, "private_columns": PRIVATE}
    for algorithm in ("one-shot", "cond-dp", "weighted-llp", "laplace"):
        cases[f"{algorithm} no-intercept"] = {"algorithm": algorithm, "fit_intercept": False}
    private_zero_out = {"neighbouring": "zero-out", "private_columns": PRIVATE}
    cases = {name: {"head": "linear", **settings} for name, settings in cases.items()}
    return cases | {
        "auto": {"head": "linear"},
        "auto simulated": {"head": "linear", "algorithm": Auto(num_simulations=1)},
        "cond-newton private zero-out": {"algorithm": "cond-newton", **private_zero_out},
        "cond-newton private no-intercept": {
            "algorithm": "cond-newton",
            "private_columns": PRIVATE,
            "fit_intercept": False,
        },
        "cond-dp sampled": {"algorithm": CondDP(num_steps=12, batch_size=50)},
        "cond-dp damped": {"algorithm": CondDP(exponent=0.5, damping=0.1, optimizer="adam")},
        "switch carry": {"algorithm": SwitchCondDP(optimizer_state="carry")},
        "dpsgd raw": {"algorithm": DPSGD(feature_scaling="none", clip_norm=0.1, num_steps=8)},
    }


# Thousands of steps on released labels amplify the last bits of the processor beyond any useful tolerance.
FEW_STEPS = 200


def compute_case(arguments: dict[str, Any]) -> list[float]:
    """Predictions for six records after a fit at epsilon 2 with seed 7."""
    X, y = _make_data()
    settings = {"epsilon": 2.0, "delta": 1e-4, "label_bounds": (-8.0, 14.0), "random_state": 7, **arguments}
    with patch("conddp.training.released.NUM_STEPS", FEW_STEPS):
        return [float(each) for each in PrivateRegressor(**settings).fit(X, y).predict(X[:6])]


def compute_comparison() -> list[float]:
    """Errors of algorithms on simulated labels."""
    X, _ = _make_data()
    compared = compare_algorithms(PublicFeatures(X), algorithms=("auto", "cond-dp", "mean"), epsilons=(1.0,))
    return [error for errors in compared.errors.values() for each in errors for error in each]


def compute_all() -> Iterator[tuple[str, list[float]]]:
    """All cases with their numbers."""
    for name, arguments in list_cases().items():
        yield name, compute_case(arguments)
    yield "comparison", compute_comparison()


if __name__ == "__main__":
    threadpool_limits(1)  # more threads add up in another order
    before = json.loads(STORED.read_text()) if STORED.exists() else {}
    after = dict(compute_all())
    for name, numbers in after.items():
        if before.get(name) != numbers:
            stored = np.array(before.get(name, np.nan))
            print(f"{name}: {'new' if name not in before else np.abs(stored - numbers).max()}")
    STORED.write_text(json.dumps(after, indent=1) + "\n")
