"""The figure of the page on learned features: which columns matter, and how the error falls, from round to round.

python benchmarks/learned_figure.py [--out docs/assets/learned_features.svg]
"""

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
from learned_heads import simulate
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from speed.drawing import COLOURS, FAINT, TEXT, style, write_svg

from conddp import PrivacyBudget
from conddp.algorithms import CondNewton
from conddp.algorithms import learned_fit as fitting
from conddp.features.feature_families import Relevance
from conddp.heads import Head, Learned, Linear, Wide
from conddp.newton import rounds as running
from conddp.newton.rounds_setting import LENGTHS
from conddp.planning.budgets import DELTA
from conddp.privacy.randomness import RandomSource

PAGE = Path(__file__).parents[1] / "docs" / "assets" / "learned_features.svg"
NUM_RECORDS, NUM_SHOWN = 4_000, 1_000  # records, and those of which errors are shown
OPENING, NUM_STEPS = 2, 24  # releases before the first round, and steps of all rounds

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Course:
    """What a fit knew before each round, its error after each release, and the errors of other heads.

    Parameters
    ----------
    relevances : array of shape (rounds, d)
        Relevance of the columns.
    errors : array of shape (releases,)
        Mean squared error against the true function, relative to its variance.
    others : mapping
        The same of other heads, by name.
    """

    relevances: Vector
    errors: Vector
    others: dict[str, float]


def follow() -> Course:
    """Fit Friedman's first function at epsilon 1, and note what the rounds see."""
    records, _ = simulate("Friedman 1", NUM_RECORDS)
    X = records.public.values
    truth = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    relevances, courses = [np.ones(X.shape[1])], list[tuple[Vector, ...]]()
    original, run = Relevance.of, running.run_rounds

    def note(gradients: Vector, index: Vector | None = None) -> Relevance:
        found = original(gradients, index)
        relevances.append(found.columns)
        return found

    def keep(*arguments: object, **settings: object) -> running.RoundsResult:
        result: running.RoundsResult = run(*arguments, **settings)  # type: ignore[arg-type]  # passed on as they are
        courses.append(result.course)
        return result

    def fit(head: Head) -> Vector:
        budget = PrivacyBudget(1.0, DELTA)
        fitted = CondNewton().fit(records, budget, head=head, random_source=RandomSource.of(0))
        return fitted.model.predict(records.public)[:NUM_SHOWN]

    with patch.object(Relevance, "of", note), patch.object(fitting, "run_rounds", keep):
        fit(Learned())
    bounds, truth = records.label.bounds, truth[:NUM_SHOWN]

    def measure(predicted: Vector) -> float:
        return float(np.mean((predicted - truth) ** 2) / truth.var())

    errors = [measure(bounds.midpoint + bounds.width * each[:NUM_SHOWN]) for each in courses[0]]
    others = {"linear": measure(fit(Linear())), "wide": measure(fit(Wide()))}
    return Course(np.array(relevances), np.array(errors), others)


def draw(course: Course) -> Figure:
    """Relevances on the left, errors on the right."""
    figure = Figure(figsize=(7.2, 3.1), facecolor="white")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    figure.subplots_adjust(left=0.075, right=0.985, top=0.8, bottom=0.16, wspace=0.24)
    left.imshow(course.relevances.T, aspect="auto", cmap="Blues", vmin=0, vmax=1.1)
    number, d = course.relevances.shape
    left.set_xticks(range(number), [str(place + 1) for place in range(number)])
    left.set_yticks(range(d), [f"x{place}" for place in range(d)])
    left.set_xlabel("round", color=TEXT)
    style(left, grid="y")
    left.grid(visible=False)
    left.set_title("Relevance of the columns", fontsize=11, color=TEXT, loc="left", pad=6)
    releases = np.arange(1, len(course.errors) + 1)
    right.plot(releases, course.errors, color=COLOURS[0], linewidth=2)
    for place in np.cumsum(LENGTHS)[:-1] * NUM_STEPS / sum(LENGTHS):
        right.axvline(OPENING + place + 0.5, color="#e3e3e3", linewidth=1, zorder=0)
    for (name, error), side in zip(course.others.items(), ("bottom", "top"), strict=True):
        right.axhline(error, color=FAINT, linewidth=1.2, linestyle=(0, (4, 2)))
        right.annotate(
            name,
            (len(releases), error),
            xytext=(0, 3 if side == "bottom" else -3),
            textcoords="offset points",
            color=FAINT,
            fontsize=9.5,
            ha="right",
            va=side,
        )
    right.set_yscale("log")
    right.set_yticks([1, 0.3, 0.1, 0.03], ["1", "0.3", "0.1", "0.03"])
    right.minorticks_off()
    right.set_xlabel("release", color=TEXT)
    style(right, grid="y")
    right.set_title("Error, relative to the variance of the function", fontsize=11, color=TEXT, loc="left", pad=6)
    figure.text(
        0.012,
        0.93,
        f"Friedman's first function: five of ten columns matter; {NUM_RECORDS:,} records, epsilon 1",
        color=TEXT,
        fontsize=12,
        weight="bold",
    )
    return figure


def main() -> None:
    """Fit and write the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=PAGE)
    write_svg(partial(draw, follow()), parser.parse_args().out)


if __name__ == "__main__":
    main()
