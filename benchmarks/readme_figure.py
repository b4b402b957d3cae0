"""The figure of the README: error against epsilon on the tables that had no part in the design of the default.

Draws, for three algorithms with their default settings, the geometric mean over the 18 ``HELD_OUT`` tables of the
ratio of test MSE to that of non-private least squares. Reads ``benchmarks/results/other_sets.csv``, which
``benchmarks/other_sets.py`` measures, and writes an SVG file on a white
background, which can be read on a dark page too.

    python benchmarks/readme_figure.py [--out docs/assets/error_against_epsilon.svg]
"""

import argparse
import csv
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from other_sets import HELD_OUT, RESULTS
from speed.drawing import FAINT, TEXT, style, write_svg

PAGE = Path(__file__).parents[1] / "docs" / "assets" / "error_against_epsilon.svg"
# Algorithm in the file: label, colour of Okabe and Ito, marker, then epsilon and offset in points of the label.
CURVES = {
    "DPSGD": ("DP-SGD", "#d55e00", "s", 1.0, (4, 8)),
    "Cond-DP": ("Cond-DP", "#0072b2", "o", 0.5, (7, 6)),
    "default": ("conddp (default)", "#009e73", "D", 0.25, (-3, -20)),
}


def read_means() -> dict[str, dict[float, float]]:
    """Geometric mean of the ratio over the held-out tables, by algorithm and epsilon."""
    with RESULTS.open() as file:
        rows = [row for row in csv.DictReader(file) if row["data"] in HELD_OUT]
    means: dict[str, dict[float, float]] = {}
    for algorithm in CURVES:
        for epsilon in sorted({float(row["epsilon"]) for row in rows}):
            ratios = [
                float(row["ratio"])
                for row in rows
                if row["algorithm"] == algorithm and float(row["epsilon"]) == epsilon
            ]
            if len(ratios) != len(HELD_OUT):
                raise ValueError(
                    f"{algorithm} at epsilon {epsilon:g}: expected {len(HELD_OUT)} tables, got {len(ratios)}."
                )
            means.setdefault(algorithm, {})[epsilon] = float(np.exp(np.mean(np.log(ratios))))
    return means


def draw(means: dict[str, dict[float, float]]) -> Figure:
    """One panel; curves are labelled where they are, without a legend."""
    figure = Figure(figsize=(7.2, 3.5), facecolor="white")
    FigureCanvasAgg(figure)
    panel = figure.add_axes((0.075, 0.155, 0.895, 0.63))
    for algorithm, (label, colour, marker, epsilon, offset) in CURVES.items():
        curve = means[algorithm]
        panel.plot(list(curve), list(curve.values()), color=colour, marker=marker, markersize=6, linewidth=2.2)
        panel.annotate(
            label,
            (epsilon, curve[epsilon]),
            xytext=offset,
            textcoords="offset points",
            color=colour,
            fontweight="bold",
        )
    epsilons = list(means["default"])
    panel.axhline(1, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
    panel.set_xscale("log")
    panel.set_xlim(epsilons[0] * 0.9, epsilons[-1] * 1.1)
    panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    panel.set_xticks([], minor=True)
    panel.set_ylim(0.82, 2.5)
    panel.set_yticks([1, 1.5, 2, 2.5], ["1", "1.5", "2", "2.5"])
    panel.set_xlabel("epsilon (smaller is more private)", color=TEXT)
    style(panel, grid="y")
    panel.text(epsilons[-1], 0.865, "non-private least squares", color=FAINT, fontsize=10, ha="right")
    figure.text(
        0.025, 0.915, "Test error relative to non-private least squares", color=TEXT, fontsize=13, weight="bold"
    )
    figure.text(
        0.025,
        0.845,
        f"Geometric mean over {len(HELD_OUT)} tables that had no part in the design. Default settings, nothing tuned.",
        color=FAINT,
        fontsize=10.5,
    )
    return figure


def main() -> None:
    """Write the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args()
    write_svg(partial(draw, read_means()), arguments.out)


if __name__ == "__main__":
    main()
