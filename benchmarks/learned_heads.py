"""Heads that learn their features, beside the other heads and beside models without privacy.

Ratio of test MSE to non-private least squares with intercept, predictions of both clamped to the label bounds; REPLACE,
delta 1e-6, nothing tuned on labels. Real sets: mean over splits random_state 42, 0 and 1 and three noise seeds.
Simulated functions, and tables of ``benchmarks/other_sets.py``: one split, three seeds. What is in
``benchmarks/results/learned_heads.csv`` is not measured again.

    python benchmarks/learned_heads.py run [--only real simulated others] [--models mlp learned] [--workers 2]
    python benchmarks/learned_heads.py show
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from other_sets import SETS
from other_sets import load as load_other
from rivals import SEEDS, SPLITS
from sets import load
from threadpoolctl import threadpool_limits

from conddp.algorithms import Auto
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.heads import MLP, Additive, Head, Learned, Linear, Wide
from conddp.research.split import Split

RESULTS = Path(__file__).parent / "results" / "learned_heads.csv"
EPSILONS = (0.25, 1.0, 4.0)
REAL = ("ca_housing", "energy", "wine", "supercond", "toms_hardware")
FUNCTIONS = ("Friedman 1", "Friedman 2", "Friedman 3", "product", "step", "radial")
SIZES = (2_000, 20_000)
OTHERS = tuple(SETS)
HEADS: dict[str, Head] = {
    "linear": Linear(),
    "wide": Wide(),
    "mlp": MLP(),
    "additive": Additive(),
    "learned": Learned(),
}
REFERENCES = ("boosting", "network")
FORMER = "mlp before"  # by random features and Gauss-Newton steps; cannot be measured any more
FIELDS = ("kind", "data", "n", "d", "model", "epsilon", "ratio", "floor")


@dataclass(frozen=True)
class Work:
    """One model on one set at one budget; references have no budget."""

    kind: str
    data: str
    model: str
    epsilon: float


def simulate(name: str, n: int) -> tuple[Records, float]:
    """Records of a known function, with a quarter more for the test, and the variance of the noise in their labels."""
    rng, total = np.random.default_rng(7), n * 5 // 4
    if name == "Friedman 1":
        X, noise, bounds = rng.uniform(size=(total, 10)), 1.0, (-5.0, 35.0)
        f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    elif name in ("Friedman 2", "Friedman 3"):
        low, high = np.array([0, 40 * np.pi, 0, 1]), np.array([100, 560 * np.pi, 1, 11])
        X = rng.uniform(low, high, size=(total, 4))
        inner = X[:, 1] * X[:, 2] - 1 / (X[:, 1] * X[:, 3])
        f, noise, bounds = np.hypot(X[:, 0], inner), 125.0, (-500.0, 2300.0)
        if name == "Friedman 3":
            f, noise, bounds = np.arctan(inner / X[:, 0]), 0.1, (-2.0, 2.0)
    elif name == "product":
        X, noise, bounds = rng.normal(size=(total, 8)), 0.3, (-5.0, 5.0)
        f = X[:, 0] * X[:, 1]
    elif name == "step":
        X, noise, bounds = rng.uniform(size=(total, 20)), 0.2, (-1.0, 2.0)
        f = (X[:, 3] > 0.4).astype(float)
    else:
        X, noise, bounds = rng.normal(size=(total, 6)), 0.05, (-0.3, 1.3)
        f = np.exp(-(X**2).sum(axis=1) / 6)
    label = np.clip(f + noise * rng.normal(size=total), *bounds)
    return Records(PublicFeatures(X), None, Labels(label, Bounds(*bounds))), noise**2


def load_splits(work: Work) -> tuple[list[Split], float]:
    """Splits of a set, and the variance of the noise in its labels, if it is known."""
    if work.kind == "simulated":
        name, size = work.data.rsplit(" ", 1)
        records, noise = simulate(name, int(size))
        return [Split.of(records)], noise
    if work.kind == "others":
        return [Split.of(load_other(work.data))], 0.0
    return [Split.of(load(work.data), random_state=state) for state in SPLITS], 0.0


def fit_reference(model: str, split: Split) -> float:
    """Test MSE of a model without privacy."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, label = split.train.public.values, split.train.label
    y: NDArray[np.float64] = label.bounds.clamp(label.values)
    if model == "boosting":
        predictions = HistGradientBoostingRegressor(random_state=0).fit(X, y).predict(split.test.public.values)
    else:
        network = MLPRegressor(hidden_layer_sizes=(64, 32), early_stopping=True, max_iter=500, random_state=0)
        pipe = make_pipeline(StandardScaler(), network)
        scale, middle = label.bounds.width, label.bounds.midpoint
        predictions = pipe.fit(X, (y - middle) / scale).predict(split.test.public.values) * scale + middle
    return split.compute_error(label.bounds.clamp(predictions))


def measure(work: Work) -> list[object]:
    """Measure the mean ratio, and the ratio that the noise in the labels alone would give."""
    splits, noise = load_splits(work)
    n, d = splits[0].train.public.shape
    with threadpool_limits(1):
        if work.model in REFERENCES:
            ratios = [fit_reference(work.model, split) / split.optimum for split in splits]
        else:
            head = HEADS[work.model]
            ratios = [
                split.measure_fit(Auto(), work.epsilon, seed=seed, head=head) / split.optimum
                for split in splits
                for seed in SEEDS
            ]
        floor = noise / splits[0].optimum
    return [work.kind, work.data, n, d, work.model, work.epsilon, f"{np.mean(ratios):.4f}", f"{floor:.4f}"]


def list_work(kinds: list[str]) -> Iterator[Work]:
    """Everything that is to be measured."""
    names = {
        "real": REAL,
        "simulated": tuple(f"{name} {size}" for name, size in product(FUNCTIONS, SIZES)),
        "others": OTHERS,
    }
    for kind in kinds:
        for data in names[kind]:
            yield from (Work(kind, data, model, 0.0) for model in REFERENCES)
            for epsilon in EPSILONS if kind != "simulated" else EPSILONS[1:]:
                yield from (Work(kind, data, model, epsilon) for model in HEADS)


def run(kinds: list[str], models: list[str], workers: int) -> None:
    """Measure what is missing."""
    if not RESULTS.exists():
        RESULTS.write_text(",".join(FIELDS) + "\n")
    with RESULTS.open() as file:
        known = {(row["kind"], row["data"], row["model"], float(row["epsilon"])) for row in csv.DictReader(file)}
    wanted = [each for each in list_work(kinds) if each.model in models]
    missing = [each for each in wanted if (each.kind, each.data, each.model, each.epsilon) not in known]
    with ProcessPoolExecutor(workers) as pool:
        for row in pool.map(measure, missing):
            with RESULTS.open("a", newline="") as file:
                csv.writer(file).writerow(row)
            print(*row, flush=True)


def show() -> None:
    """Print the tables in Markdown."""
    with RESULTS.open() as file:
        rows = list(csv.DictReader(file))
    cells: dict[tuple[str, str], dict[tuple[str, float], float]] = defaultdict(dict)
    for row in rows:
        cells[row["kind"], row["data"]][row["model"], float(row["epsilon"])] = float(row["ratio"])
    for kind, epsilons in (("real", EPSILONS), ("simulated", EPSILONS[1:]), ("others", EPSILONS)):
        columns = [(model, epsilon) for epsilon in epsilons for model in (*HEADS, FORMER)]
        columns += [(each, 0.0) for each in REFERENCES]
        print(f"\n| {kind} | " + " | ".join(f"{model} {epsilon or ''}".strip() for model, epsilon in columns) + " |")
        print("|---" * (len(columns) + 1) + "|")
        for (of_kind, data), values in cells.items():
            if of_kind == kind:
                listed = (f"{values[each]:.3f}" if each in values else "" for each in columns)
                print(f"| {data} | " + " | ".join(listed) + " |")


def main() -> None:
    """Measure or show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("--only", nargs="+", default=["real", "simulated", "others"])
    parser.add_argument("--models", nargs="+", default=[*HEADS, *REFERENCES])
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments.only, arguments.models, arguments.workers)
    else:
        show()


if __name__ == "__main__":
    main()
