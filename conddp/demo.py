"""Private regression on data that need no download: ``python -m conddp.demo``.

Two data sets: the paper's synthetic design with a decaying spectrum, and the RAND Health Insurance Experiment, where
the terms of the insurance plan are public and the health and the doctor's visits of a person are not.
"""

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms import DPSGD, Auto, CondDP
from conddp.algorithms.algorithm import Algorithm
from conddp.data import Dataset
from conddp.datasets import DATASETS, load_dataset, make_synthetic
from conddp.evaluation import DELTA, Evaluation
from conddp.guarantee import Guarantee
from conddp.ledger import PrivacyBudget
from conddp.schema import Schema

__all__ = ["Comparison", "compare", "load_randhie", "main"]

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
ALGORITHMS: dict[str, Algorithm] = {"DPSGD": DPSGD(), "Cond-DP": CondDP(), "default": Auto()}

RANDHIE = Schema.of(
    label="mdvis",
    label_bounds=(0, 30),
    public=["lncoins", "idp", "lpi", "fmde"],
    private={"physlm": (0, 1), "disea": (0, 60), "hlthg": (0, 1), "hlthf": (0, 1), "hlthp": (0, 1)},
)


def load_randhie() -> Dataset:
    """RAND Health Insurance Experiment, 20,190 person-years, from the statsmodels package.

    The label is the number of outpatient visits to a doctor; the plan's terms are public, health is private.
    """
    from statsmodels.datasets import randhie

    return Dataset.from_frame(randhie.load_pandas().data, RANDHIE)


@dataclass(frozen=True)
class Comparison:
    """Test errors on one data set.

    Parameters
    ----------
    title : str
        The data set.
    optimum, constant : float
        Test MSE of non-private least squares and of the non-private mean.
    errors : dict
        Test MSE by algorithm, one row per epsilon and one column per noise seed.
    guarantee : Guarantee
        Of a default fit without a seed, at the largest epsilon.
    """

    title: str
    optimum: float
    constant: float
    errors: dict[str, NDArray[np.float64]]
    guarantee: Guarantee


def compare(title: str, dataset: Dataset, *, num_seeds: int) -> Comparison:
    """Fit every algorithm at every epsilon on one split, with several noise seeds."""
    evaluation = Evaluation.of(dataset)
    errors = {
        name: np.array([[evaluation.compute_error(each, e, seed) for seed in range(num_seeds)] for e in EPSILONS])
        for name, each in ALGORITHMS.items()
    }
    guarantee = Auto().fit(evaluation.train, PrivacyBudget(EPSILONS[-1], DELTA)).guarantee
    return Comparison(title, evaluation.optimum, evaluation.constant, errors, guarantee)


def print_table(comparison: Comparison) -> None:
    """Mean test MSE and its ratio to the non-private optimum."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=comparison.title, title_justify="left", caption_justify="left", min_width=72)
    table.add_column("epsilon", justify="right")
    for name in comparison.errors:
        table.add_column(f"{name}\ntest MSE", justify="right")
        table.add_column("over\noptimum", justify="right")
    for row, epsilon in enumerate(EPSILONS):
        cells = []
        for errors in comparison.errors.values():
            mean = errors[row].mean()
            cells += [f"{mean:.4g}", f"{mean / comparison.optimum:.3f}"]
        table.add_row(f"{epsilon:g}", *cells)
    table.caption = (
        f"not private: least squares {comparison.optimum:.4g}, the mean alone {comparison.constant:.4g}\n"
        f"REPLACE, delta {DELTA:g}, nothing tuned, mean of {next(iter(comparison.errors.values())).shape[1]} seeds"
    )
    Console().print(table)


def draw(comparisons: list[Comparison], path: Path) -> None:
    """Test MSE against epsilon, a panel per data set, mean and one standard deviation over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, panels = plt.subplots(1, len(comparisons), figsize=(5.2 * len(comparisons), 4.0), layout="constrained")
    for panel, comparison in zip(np.atleast_1d(panels), comparisons, strict=True):
        for (name, errors), colour, marker in zip(
            comparison.errors.items(), ("#b45309", "#1d4ed8", "#047857"), ("s", "o", "D"), strict=True
        ):
            mean, spread = errors.mean(axis=1), errors.std(axis=1)
            panel.plot(EPSILONS, mean, color=colour, marker=marker, markersize=5, label=name)
            panel.fill_between(EPSILONS, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
        panel.axhline(comparison.optimum, color="black", linestyle="--", label="least squares, not private")
        panel.axhline(comparison.constant, color="grey", linestyle=":", label="the mean alone, not private")
        panel.set_xscale("log", base=2)
        panel.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        if max(errors.max() for errors in comparison.errors.values()) > 4 * comparison.optimum:
            panel.set_yscale("log")
            panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_xlabel("epsilon")
        panel.set_ylabel("test MSE")
        panel.set_title(comparison.title, fontsize="medium", loc="left")
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Compare, print, draw."""
    parser = argparse.ArgumentParser(prog="python -m conddp.demo", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="noise seeds per cell")
    parser.add_argument("--data", nargs="*", choices=sorted(DATASETS), help="real data sets instead of the two")
    parser.add_argument("--out", type=Path, default=Path("demo_output"), help="folder for the figure")
    arguments = parser.parse_args()

    makers: dict[str, Callable[[], Dataset]] = {
        "Synthetic, spectrum 1/i, 4000 x 100, label private": lambda: make_synthetic(power=1.0),
        "RAND health insurance, 16152 x 9, visits and health private": load_randhie,
    }
    if arguments.data:
        makers = {f"{name}, label private": functools.partial(load_dataset, name) for name in arguments.data}
    comparisons = [compare(title, make(), num_seeds=arguments.seeds) for title, make in makers.items()]
    for comparison in comparisons:
        print_table(comparison)
    figure = arguments.out / "demo.png"
    draw(comparisons, figure)
    print(f"Figure: {figure}\n\nA fit of the default to the last one, without a seed, promises:")
    print(comparisons[-1].guarantee)


if __name__ == "__main__":
    main()
