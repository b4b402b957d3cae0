"""Bias, coverage and width of private evaluations.

Each set is divided once. A linear model is fitted to one half with the default algorithm at epsilon 1. The other half
is the population. For each of 500 seeds, n records are drawn from it with replacement and evaluated, so that the
figures of the sample and of the population are both known exactly. REPLACE, delta 1e-6, intervals of 95 %.

Writes ``benchmarks/results/evaluation.csv``, and the tables of docs/evaluation.md. What is in the file is not measured
again.

    python benchmarks/evaluation.py run [--workers 2]
    python benchmarks/evaluation.py page
"""

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sets import load
from threadpoolctl import threadpool_limits

from conddp.algorithms import Auto
from conddp.bounds import Bounds
from conddp.data import Labels, PublicFeatures, Records
from conddp.evaluation import evaluate_model
from conddp.models.evaluation import Evaluation
from conddp.models.result import FitResult
from conddp.privacy import PrivacyBudget, RandomSource

RESULTS = Path(__file__).parent / "results" / "evaluation.csv"
PAGE = Path(__file__).parents[1] / "docs" / "evaluation.md"
SETS = ("wine", "ca_housing", "fair", "skewed", "heavy tails")
SIZES, EPSILONS, DELTA, SEEDS = (500, 2_000, 8_000), (0.25, 1.0, 4.0), 1e-6, 500
FIGURES = ("mse", "rmse", "mae", "r2", "bias", "slope", "bins")
FIELDS = (
    *("set", "n", "epsilon", "figure", "truth", "median", "mean_bias", "bias_error", "unknown"),
    *("covers_sample", "covers_population", "width_sample", "width_population", "width_without_noise"),
)
Vector = NDArray[np.float64]


def read(name: str) -> Records:
    """A set by name; the simulated ones have residuals whose spread depends on the columns."""
    if name not in ("skewed", "heavy tails"):
        return load(name)
    rng, n = np.random.default_rng(3), 40_000
    X = rng.normal(size=(n, 5))
    signal = X @ [1.0, -0.7, 0.5, 0.0, 0.3]
    if name == "skewed":
        label, bounds = np.exp(0.8 * signal + 0.5 * rng.normal(size=n)), Bounds(0, 50)
    else:
        label, bounds = signal + 0.5 * (1 + np.abs(X[:, 0])) * rng.standard_t(3, size=n), Bounds(-10, 10)
    return Records(PublicFeatures(X), None, Labels(label, bounds))


def prepare(name: str) -> tuple[FitResult, Records]:
    """A model, and the records that it was not fitted to."""
    training, rest = read(name).split(test_fraction=0.5, random_state=42)
    return Auto().fit(training, PrivacyBudget(1.0, DELTA), random_source=RandomSource.of(0)), rest


def compute_truth(predictions: Vector, labels: Vector) -> dict[str, float]:
    """All figures without noise, and standard deviations of their sampling errors by linearisation."""
    errors, g = labels - predictions, predictions - predictions.mean()
    mse, spread = float((errors**2).mean()), float(labels.var())
    return {
        "mse": mse,
        "rmse": math.sqrt(mse),
        "mae": float(np.abs(errors).mean()),
        "r2": 1 - mse / spread,
        "bias": float(errors.mean()),
        "slope": float(g @ labels / (g @ g)),
    }


def list_deviations(predictions: Vector, labels: Vector) -> dict[str, float]:
    """Standard deviation of one record's influence on each figure."""
    errors, g, centered = labels - predictions, predictions - predictions.mean(), labels - labels.mean()
    mse, spread = (errors**2).mean(), labels.var()
    slope = g @ labels / (g @ g)
    of = {
        "mse": errors**2,
        "rmse": errors**2 / (2 * math.sqrt(mse)),
        "mae": np.abs(errors),
        "r2": (errors**2 - mse / spread * centered**2) / spread,
        "bias": errors,
        "slope": g * (centered - slope * g) / (g**2).mean(),
    }
    return {name: float(each.std()) for name, each in of.items()}


def measure(name: str, n: int, epsilon: float) -> list[dict[str, Any]]:
    """Rows of the results for one set, sample size and budget."""
    with threadpool_limits(1):
        model, rest = prepare(name)
        bounds = rest.label.bounds
        predictions, labels = model.predict(rest.public), bounds.clamp(rest.label.values)
        population, deviations = compute_truth(predictions, labels), list_deviations(predictions, labels)
        found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        for seed in range(SEEDS):
            chosen = np.random.default_rng(seed).integers(len(labels), size=n)
            source = RandomSource.of(seed)
            made = evaluate_model(model, rest.take(chosen), PrivacyBudget(epsilon, DELTA), random_source=source)
            sample = compute_truth(predictions[chosen], labels[chosen])
            collect(found, made, sample, population, (predictions, labels), predictions[chosen], labels[chosen])
    rows = []
    for figure in FIGURES:
        values = np.array(found[figure], dtype=float)
        known = values[np.isfinite(values[:, 0])]
        errors = known[:, 0] - known[:, 1]
        rows.append(
            {
                "set": name,
                "n": n,
                "epsilon": epsilon,
                "figure": figure,
                "truth": population.get(figure, math.nan),
                "median": np.median(known[:, 0]) if len(known) else math.nan,
                "mean_bias": errors.mean() if len(known) else math.nan,
                "bias_error": errors.std() / math.sqrt(len(known)) if len(known) else math.nan,
                "unknown": 1 - len(known) / len(values),
                "covers_sample": values[:, 2].mean(),
                "covers_population": values[:, 3].mean(),
                "width_sample": np.median(values[:, 4]),
                "width_population": np.median(values[:, 5]),
                "width_without_noise": 2 * 1.96 * deviations.get(figure, math.nan) / math.sqrt(n),
            }
        )
    return rows


def collect(
    found: dict[str, list[tuple[float, ...]]],
    made: Evaluation,
    sample: Mapping[str, float],
    population: Mapping[str, float],
    everything: tuple[Vector, Vector],
    predictions: Vector,
    labels: Vector,
) -> None:
    """Compare an evaluation with the truth of its sample and of the population."""
    for each in made.figures:
        found[each.name].append(
            (
                math.nan if each.estimate is None else each.estimate,
                sample[each.name],
                sample[each.name] in each.sample,
                population[each.name] in each.population,
                each.sample.width,
                each.population.width,
            )
        )
    edges = np.unique(np.quantile(predictions, np.arange(1, 10) / 10))
    places, all_places = (np.searchsorted(edges, each, side="right") for each in (predictions, everything[0]))
    used = np.unique(places)
    for place, each_bin in zip(used, made.bins, strict=True):
        here = float(labels[places == place].mean())
        # The mean prediction of a bin differs a little between sample and population, and the bin is about its error.
        error = float((everything[1] - everything[0])[all_places == place].mean())
        everywhere = error + each_bin.predicted
        found["bins"].append(
            (
                each_bin.actual,
                here,
                here in each_bin.sample,
                everywhere in each_bin.population,
                each_bin.sample.width,
                each_bin.population.width,
            )
        )


def run(num_workers: int) -> None:
    """Measure what is not in the results yet."""
    done = {(row["set"], int(row["n"]), float(row["epsilon"])) for row in read_results()}
    wanted = [cell for cell in product(SETS, SIZES, EPSILONS) if cell not in done]
    is_new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file, ProcessPoolExecutor(num_workers) as pool:
        writer = csv.DictWriter(file, FIELDS)
        if is_new:
            writer.writeheader()
        for rows in pool.map(measure, *zip(*wanted, strict=True)) if wanted else ():
            for row in rows:
                writer.writerow(
                    {key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()}
                )
            file.flush()
            print(rows[0]["set"], rows[0]["n"], rows[0]["epsilon"], flush=True)


def read_results() -> list[dict[str, str]]:
    """Rows of the results."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def make_coverage_table() -> Iterator[str]:
    """Coverage over all seeds, by set: the lowest and the highest of all sizes and budgets, and their mean."""
    yield "| set | target | MSE | MAE | R² | bias | slope | bins |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for name, target in product(SETS, ("sample", "population")):
        cells = []
        for figure in ("mse", "mae", "r2", "bias", "slope", "bins"):
            found = [
                100 * float(row[f"covers_{target}"])
                for row in read_results()
                if (row["set"], row["figure"]) == (name, figure)
            ]
            cells.append(f"{np.mean(found):.1f} ({min(found):.1f} to {max(found):.1f})")
        yield f"| {name} | {target} | {' | '.join(cells)} |"


def make_width_table() -> Iterator[str]:
    """Medians, biases and widths of R² and MSE."""
    heads = "set, n, epsilon, R², bias of R², R² unknown, half-width of R², without noise, bias of MSE"
    heads += ", half-width of RMSE, without noise"
    yield f"| {' | '.join(heads.split(', '))} |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    rows = {(row["set"], row["n"], row["epsilon"], row["figure"]): row for row in read_results()}
    for name, n, epsilon in product(SETS, SIZES, EPSILONS):
        r2, mse, rmse = (rows[name, str(n), f"{epsilon:.5g}", figure] for figure in ("r2", "mse", "rmse"))
        scale = float(rmse["truth"])

        def half(row: Mapping[str, str], kind: str, scale: float = 1.0) -> str:
            width = float(row[f"width_{kind}"]) / 2 / scale
            return "unbounded" if math.isinf(width) else f"{width:.3f}" if scale == 1.0 else f"{100 * width:.1f} %"

        of_r2 = f"{float(r2['mean_bias']):+.3f}" if float(r2["unknown"]) < 0.5 else "-"
        cells = (
            *(
                name,
                f"{n:,}",
                f"{epsilon:g}",
                f"{float(r2['truth']):.3f}",
                of_r2,
                f"{100 * float(r2['unknown']):.0f} %",
            ),
            *(half(r2, "population"), half(r2, "without_noise")),
            f"{100 * float(mse['mean_bias']) / float(mse['truth']):+.1f} %",
            *(half(rmse, "population", scale), half(rmse, "without_noise", scale)),
        )
        yield f"| {' | '.join(cells)} |"


def write_page() -> None:
    """Write the tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("coverage", make_coverage_table()), ("widths", make_width_table())):
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(start)
        _, after = rest.split(end)
        text = before + start + "\n" + "\n".join(lines) + "\n\n" + end + after
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Run the benchmark, or write its page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments.workers)
    else:
        write_page()


if __name__ == "__main__":
    main()
