"""The figure of the page on curves: true curves and those of an additive model at epsilon 1, with 95 % bands.

python benchmarks/curves_figure.py [--out docs/assets/curves.svg]
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from speed.drawing import COLOURS, FAINT, TEXT, style, write_svg

from conddp import PrivateRegressor
from conddp.models import Curves

PAGE = Path(__file__).parents[1] / "docs" / "assets" / "curves.svg"
BAND = 1.96
TRUTH: dict[str, Callable[[Any], Any]] = {
    "wave": lambda x: np.sin(6 * x),
    "slope": lambda x: x,
    "kink": lambda x: 2 * np.abs(x - 0.5),
    "jump": lambda x: 0.8 * (x > 0.6),
    "nothing": lambda x: 0.0 * x,
}


def fit() -> Curves:
    """Fit 10,000 simulated records."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(10_000, len(TRUTH)))
    label = sum(function(X[:, place]) for place, function in enumerate(TRUTH.values())) + rng.normal(size=len(X))
    model = PrivateRegressor(1.0, label_bounds=(-5, 7), head="additive", random_state=0)
    curves: Curves = model.fit(X, label).curves_
    return curves


def draw(curves: Curves) -> Figure:
    """One panel for each column, on a common scale."""
    figure = Figure(figsize=(7.2, 2.5), facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(TRUTH), sharey=True)
    figure.subplots_adjust(left=0.06, right=0.99, top=0.74, bottom=0.13, wspace=0.12)
    x = np.linspace(0, 1, 400)
    for place, (panel, (name, function)) in enumerate(zip(panels, TRUTH.items(), strict=True)):
        curve, truth = curves[f"x{place}"], function(x)
        low, high = (curve.effect + sign * BAND * curve.std for sign in (-1, 1))
        panel.fill_between(curve.values, low, high, color=COLOURS[0], alpha=0.25, linewidth=0)
        panel.plot(x, truth - truth.mean(), color=FAINT, linewidth=1.4, linestyle=(0, (4, 2)))
        panel.plot(curve.values, curve.effect, color=COLOURS[0], linewidth=2)
        style(panel, grid="y")
        panel.set_title(name, fontsize=11, color=TEXT, loc="left", pad=5)
        panel.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    figure.text(
        0.012, 0.925, "Curves with 95 % bands, epsilon 1, 10,000 records", color=TEXT, fontsize=12.5, weight="bold"
    )
    figure.text(0.76, 0.925, "dashed: the truth", color=FAINT, fontsize=10.5)
    return figure


def main() -> None:
    """Fit and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=PAGE)
    write_svg(partial(draw, fit()), parser.parse_args().out)


if __name__ == "__main__":
    main()
