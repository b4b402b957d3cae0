"""Heads that learn their features, beside the other heads and beside models without privacy.

Ratio of test MSE to non-private least squares with intercept, predictions of both clamped to the label bounds; REPLACE,
delta 1e-6, nothing tuned on labels. Real sets: mean over splits random_state 42, 0 and 1 and three noise seeds.
Simulated functions, and tables of ``benchmarks/other_sets.py``: one split, three seeds. What is in
``benchmarks/results/learned_heads.csv`` is not measured again.

    python benchmarks/learned_heads.py run [--only real simulated others large] [--models mlp learned] [--workers 2]
    python benchmarks/learned_heads.py page
"""

import argparse
import csv
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from other_sets import HELD_OUT
from other_sets import load as load_other
from rivals import SEEDS, SPLITS
from sets import load
from speed.environments import find
from threadpoolctl import threadpool_limits

from conddp.algorithms import Auto
from conddp.bounds import Bounds
from conddp.data.parts import Labels, Matrix, PublicFeatures
from conddp.data.records import Records
from conddp.heads import MLP, Additive, AutoHead, Head, Learned, Linear, Wide
from conddp.planning.budgets import DELTA
from conddp.research.split import Split

RESULTS = Path(__file__).parent / "results" / "learned_heads.csv"
DEFAULTS = RESULTS.with_name("default.csv")
PAGE = Path(__file__).parents[1] / "docs" / "learned_features.md"
Cell = tuple[str, str, str, float]  # kind, data, model and epsilon; references have none
EPSILONS = (0.25, 1.0, 4.0)
REAL = ("ca_housing", "energy", "wine", "supercond", "toms_hardware")
FUNCTIONS = ("Friedman 1", "Friedman 2", "Friedman 3", "product", "step", "radial")
SIZES = (2_000, 20_000)
OTHERS = tuple(HELD_OUT)
HEADS: dict[str, Head] = {
    "linear": Linear(),
    "wide": Wide(),
    "mlp": MLP(),
    "additive": Additive(),
    "learned": Learned(),
    "auto": AutoHead(),
}
RIVAL, BEFORE = "dp-ebm", "best other"
REFERENCES = ("boosting", "network")
LARGE, KERNEL = 100.0, "kernel"  # epsilon at which noise hardly matters, and a further model to compare with there
AT_LARGE = ("ca_housing", "energy", "wine", "Friedman 1 2000", "radial 2000")
KERNEL_CENTERS, KERNEL_WIDTHS, KERNEL_RIDGES = 1500, (0.03, 0.1, 0.3, 1.0), (1e-4, 1e-3, 1e-2, 0.1, 1.0)
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
    if work.kind == "simulated" or work.data not in (*REAL, *OTHERS):
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
    if model == KERNEL:
        predictions = fit_kernel(X, y, split.test.public.values)
    elif model == "boosting":
        predictions = HistGradientBoostingRegressor(random_state=0).fit(X, y).predict(split.test.public.values)
    else:
        network = MLPRegressor(hidden_layer_sizes=(64, 32), early_stopping=True, max_iter=500, random_state=0)
        pipe = make_pipeline(StandardScaler(), network)
        scale, middle = label.bounds.width, label.bounds.midpoint
        predictions = pipe.fit(X, (y - middle) / scale).predict(split.test.public.values) * scale + middle
    return split.compute_error(label.bounds.clamp(predictions))


def fit_kernel(X: Matrix, y: NDArray[np.float64], test: Matrix) -> NDArray[np.float64]:
    """Predictions of ridge regression on a Gaussian kernel, whose width and ridge are chosen by cross-validation."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    centers = min(KERNEL_CENTERS, len(X) // 2)
    pipe = make_pipeline(StandardScaler(), Nystroem(n_components=centers, random_state=0), Ridge())
    widths = [each / X.shape[1] for each in KERNEL_WIDTHS]
    search = GridSearchCV(pipe, {"nystroem__gamma": widths, "ridge__alpha": KERNEL_RIDGES}, cv=3)
    return np.asarray(search.fit(X, y).predict(test))


def fit_rival(split: Split, epsilon: float) -> list[float]:
    """Test MSE of DP-EBM with every seed."""
    train, test = split.train, split.test
    bounds = train.label.bounds
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        np.savez(
            file,
            X=train.public.values,
            y=bounds.clamp(train.label.values),
            test=test.public.values,
            y_test=bounds.clamp(test.label.values),
            label_bounds=[bounds.low, bounds.high],
        )
        file.flush()
        command = [find("interpret"), Path(__file__).parent / "dp_boosting.py", file.name, epsilon, DELTA, *SEEDS]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def measure(work: Work) -> list[object]:
    """Measure the mean ratio, and the ratio that the noise in the labels alone would give."""
    splits, noise = load_splits(work)
    n, d = splits[0].train.public.shape
    with threadpool_limits(1):
        if work.model in (*REFERENCES, KERNEL):
            ratios = [fit_reference(work.model, split) / split.optimum for split in splits]
        elif work.model == RIVAL:
            ratios = [error / split.optimum for split in splits for error in fit_rival(split, work.epsilon)]
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
        "large": AT_LARGE,
    }
    for kind in kinds:
        for data in names[kind]:
            if kind == "large":
                yield from (Work(kind, data, model, 0.0) for model in (*REFERENCES, KERNEL))
                yield Work(kind, data, "learned", LARGE)
                continue
            yield from (Work(kind, data, model, 0.0) for model in REFERENCES)
            for epsilon in EPSILONS if kind != "simulated" else EPSILONS[1:]:
                yield from (Work(kind, data, model, epsilon) for model in (*HEADS, RIVAL))


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


def read_ratios() -> tuple[dict[Cell, float], dict[str, int], dict[str, float]]:
    """Ratios by kind, data, model and epsilon; numbers of records and floors by data."""
    with RESULTS.open() as file:
        rows = list(csv.DictReader(file))
    ratios = {(row["kind"], row["data"], row["model"], float(row["epsilon"])): float(row["ratio"]) for row in rows}
    with DEFAULTS.open() as file:
        for data, head, algorithm, epsilon, ratio in csv.reader(file):
            cell = ("real", data, BEFORE, float(epsilon))
            if data in REAL and head in ("linear", "wide", "mlp") and algorithm in ("default", "before"):
                ratios[cell] = min(float(ratio), ratios.get(cell, np.inf))
    sizes = {row["data"]: int(row["n"]) for row in rows}
    return ratios, sizes, {row["data"]: float(row["floor"]) for row in rows}


def render_table(kind: str, models: Sequence[str], epsilons: Sequence[float], *, mean: bool = False) -> str:
    """A table in Markdown: a row for each set of data, and a column for each model at each epsilon."""
    ratios, sizes, floors = read_ratios()
    data = list(dict.fromkeys(name for of_kind, name, _, _ in ratios if of_kind == kind and name in sizes))
    references = (*REFERENCES, KERNEL)
    columns = [(model, epsilon) for epsilon in epsilons for model in models] + [(each, 0.0) for each in references]
    columns = [each for each in columns if any((kind, name, *each) in ratios for name in data)]
    extra = ["floor"] if kind == "simulated" else []
    names = [f"{model} {epsilon:g}" if epsilon else model for model, epsilon in columns] + extra
    lines = [f"| | n | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for name in data:
        cells = [f"{ratios[kind, name, *each]:.3f}" if (kind, name, *each) in ratios else "" for each in columns]
        cells += [f"{floors[name]:.3f}"] if extra else []
        label = name.rsplit(" ", 1)[0] if kind == "simulated" else name
        lines.append(f"| {label} | {sizes[name]:,} | {' | '.join(cells)} |")
    if mean:
        logs = [[np.log(ratios.get((kind, name, *each), np.nan)) for name in data] for each in columns]
        means = ["" if np.isnan(each).any() else f"**{np.exp(np.mean(each)):.3f}**" for each in logs]
        lines.append(f"| geometric mean | | {' | '.join(means)} |")
    return "\n".join(lines)


def write_page() -> None:
    """Write the tables of docs/learned_features.md."""
    tables = {
        "real": render_table("real", ["learned", BEFORE, RIVAL], EPSILONS),
        "simulated": render_table("simulated", ["mlp before", "learned"], EPSILONS[1:]),
        "others": render_table(
            "others", ["linear", "wide", "mlp before", "learned", "auto", RIVAL], EPSILONS, mean=True
        ),
        "large": render_table("large", ["learned"], [LARGE]),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        start, end = f"<!-- table {name} -->\n", "\n<!-- end -->"
        before, rest = text.split(start, 1)
        text = before + start + "\n" + table + "\n" + end + rest.split(end, 1)[1]
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "page"])
    parser.add_argument("--only", nargs="+", default=["real", "simulated", "others"])
    parser.add_argument("--models", nargs="+", default=[*HEADS, RIVAL, *REFERENCES, KERNEL])
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments.only, arguments.models, arguments.workers)
    else:
        write_page()


if __name__ == "__main__":
    main()
