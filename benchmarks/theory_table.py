"""What the theory says conditioning gains on every data set at hand, beside what it was measured to gain.

Columns as they are and no intercept, as in the paper; training part of the split with random_state=42. "Actual"
factors and measured errors look at labels: they are not private. Measured: linear models, 128 full-batch epochs (1024
on synthetic data), epsilon 1, ZERO_OUT, tuned on the test loss, as in ``conddp reproduce linear-real``, with which it
shares its cache. Writes ``benchmarks/results/theory.csv`` and the table
between the marks in docs/theory.md.

    python benchmarks/theory_table.py
"""

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from conddp.cache import ContentCache, cache_folder
from conddp.data.parts import PublicFeatures
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.research.experiments.catalogue import EXPERIMENTS
from conddp.research.experiments.experiment import is_at_hand, is_sample, measure_cells
from conddp.research.experiments.reproduce import RESULTS
from conddp.research.experiments.spectra import SPECTRUM_SETS
from conddp.research.split import load_split
from conddp.theory import compute_improvement

RESULTS_FILE = Path(__file__).parent / "results" / "theory.csv"
PAGE = Path(__file__).parents[1] / "docs" / "theory.md"
START, END = "<!-- table: start -->", "<!-- table: end -->"
EPSILON = 1.0


@dataclass(frozen=True)
class Line:
    """One data set."""

    data: str
    n: int
    d: int
    condition_number: float
    largest_leverage: float
    paper_actual: float
    exact_best: float
    exact_worst: float
    exact_actual: float
    optimal_noise: float
    measured_mse: float
    measured_excess: float


def compute_noise(public: PublicFeatures, C: ConditioningMatrix) -> float:
    """Variance of predictions from the noise of one release, up to a common factor."""
    Z = C.transform(public)
    return float((Z**2).sum(axis=1).max() * np.trace(np.linalg.inv(Z.T @ Z)))


def measure(data: str) -> tuple[float, float]:
    """Test MSE of tuned DPSGD over that of tuned Cond-DP, and the same of their excess over least squares."""
    experiment = EXPERIMENTS["synthetic" if data.startswith("synthetic") else "linear-real"]
    methods = tuple(method for method in experiment.methods if method.name in ("DPSGD", "Cond-DP"))
    one = replace(experiment, sets=(data,), epsilons=(EPSILON,), methods=methods)
    cells = [cell for cell in one.cells() if cell.accounting == "paper"]
    results = measure_cells(cells, ContentCache(cache_folder() / RESULTS))
    errors = {cell.method.name: result for cell, result in results.items()}
    plain, conditioned = errors["DPSGD"], errors["Cond-DP"]
    excess = conditioned.mse - conditioned.optimum
    return plain.mse / conditioned.mse, (plain.mse - plain.optimum) / excess if excess > 0 else float("nan")


def make_line(data: str) -> Line:
    """Theory and measurement for one data set."""
    train = load_split(data, "paper").train
    spectrum = Spectrum.of(train.public, constant=False)
    C = ConditioningMatrix.from_spectrum(spectrum)
    found = compute_improvement(train.public, label=train.label.values.astype(np.float64))
    assert found.actual is not None and found.exact_actual is not None
    best = ConditioningMatrix.optimal(train.public, constant=False)
    leverage = float((C.transform(train.public) ** 2).sum(axis=1).max() / train.num_records)
    n, d = train.public.values.shape
    return Line(
        data + (" (a sample)" if is_sample(data) else ""),
        n,
        d,
        spectrum.condition_number,
        leverage,
        found.actual,
        found.exact_best,
        found.exact_worst,
        found.exact_actual,
        compute_noise(train.public, best) / compute_noise(train.public, C),
        *measure(data),
    )


def render(lines: list[Line]) -> str:
    """The table for the documentation."""
    heads = (
        "data set",
        "n x d",
        "condition number (paper's factor, best labels; worst: 1)",
        "largest leverage",
        "paper's factor, actual labels*",
        "exact factor, best / worst labels",
        "exact factor, actual labels*",
        "noise variance of optimal C over that of the paper's",
        "measured at epsilon 1*: MSE of DPSGD over Cond-DP",
        "the same of the excess over least squares",
    )
    rows = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for line in lines:
        excess = "-" if np.isnan(line.measured_excess) else f"{line.measured_excess:.3g}"
        cells = (
            line.data,
            f"{line.n} x {line.d}",
            f"{line.condition_number:.3g}",
            f"{line.largest_leverage:.2g}",
            f"{line.paper_actual:.3g}",
            f"{line.exact_best:.3g} / {line.exact_worst:.2g}",
            f"{line.exact_actual:.3g}",
            f"{line.optimal_noise:.2f}",
            f"{line.measured_mse:.3g}",
            excess,
        )
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def read_lines() -> list[Line]:
    """What was stored."""
    with RESULTS_FILE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        Line(row["data"], int(row["n"]), int(row["d"]), *(float(value) for value in list(row.values())[3:]))
        for row in rows
    ]


def main() -> None:
    lines = []
    for data in SPECTRUM_SETS:
        if is_at_hand(data):
            lines.append(make_line(data))
            print(lines[-1], flush=True)
    with RESULTS_FILE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Line.__dataclass_fields__)
        writer.writerows([line.data, *(f"{value:.6g}" for value in list(vars(line).values())[1:])] for line in lines)
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    PAGE.write_text(f"{before}{START}\n\n{render(lines)}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
