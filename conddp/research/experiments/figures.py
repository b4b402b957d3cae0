"""The figures, in the paper's form: mean and one standard deviation against epsilon, on logarithmic axes."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from conddp.research.experiments.rows import Row
from conddp.research.experiments.tables import list_epsilons, list_sets, show_epsilon

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_rows", "draw_spectra", "render_svg"]

# Okabe and Ito's colour-blind safe palette; markers differ too.
STYLES = {
    "DPSGD": ("#d55e00", "s"),
    "DPSGD, columns scaled": ("#e69f00", "v"),
    "Cond-DP": ("#0072b2", "o"),
    "Switch-Cond-DP": ("#56b4e9", "P"),
    "RR-on-Bins": ("#cc79a7", "^"),
    "Weighted-LLP": ("#999999", "x"),
    "default": ("#009e73", "D"),
    "default, linear head": ("#000000", "d"),
    "default, learned features": ("#f0e442", "X"),
}
HIGHEST = 1.6  # times the error of the mean: larger values are off the chart, so that the rest can be read


def _subplots(number: int, *, columns: int) -> "tuple[Figure, list[Axes]]":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(columns, number)
    height = -(-number // columns)
    figure = Figure(figsize=(5.4 * columns, 4.2 * height + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(height, columns, squeeze=False).ravel()
    for panel in panels[number:]:
        panel.set_visible(False)
    return figure, list(panels[:number])


def draw_rows(rows: Sequence[Row], title: str) -> "Figure":
    """A panel per data set. Solid: ours; dashed: the paper's numbers in the same colour."""
    sets = list_sets(rows)
    figure, panels = _subplots(len(sets), columns=2)
    positions = {epsilon: place for place, epsilon in enumerate(list_epsilons(rows))}
    handles: dict[str, Any] = {}
    for panel, data in zip(panels, sets, strict=True):
        chosen = [row for row in rows if row.data == data]
        for method in dict.fromkeys(row.method for row in chosen):
            colour, marker = STYLES[method]
            curve = [row for row in chosen if row.method == method]
            kind = "untuned" if all(math.isnan(row.tuned.mse) for row in curve) else "tuned"
            _draw_curve(panel, positions, curve, kind, color=colour, marker=marker, label=method)
            _draw_curve(panel, positions, curve, "paper", color=colour, marker="", label="")
        panel.axhline(chosen[0].optimum, color="black", linewidth=1, linestyle=":", label="least squares, not private")
        panel.axhline(chosen[0].constant, color="grey", linewidth=1, linestyle="-.", label="the mean, not private")
        panel.set_yscale("log")
        shown = [error for row in chosen for error in (row.tuned.mse, row.untuned.mse, row.paper.mse) if error > 0]
        panel.set_ylim(0.93 * min(shown), HIGHEST * chosen[0].constant)
        _label_log_axis(panel)
        panel.set_xticks(list(positions.values()), [show_epsilon(epsilon) for epsilon in positions])
        panel.set_xlabel("epsilon")
        panel.set_ylabel("test MSE")
        panel.set_title(data, loc="left", fontsize="medium")
        panel.grid(alpha=0.25)
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    untuned = [row.method for row in rows if math.isnan(row.tuned.mse) and not math.isnan(row.untuned.mse)]
    listed = ", ".join(dict.fromkeys(untuned))
    note = f"Ours, tuned as the paper did; {listed}: nothing tuned, REPLACE."
    if not all(math.isnan(row.paper.mse) for row in rows):
        note += " Dashed: the paper."
    figure.suptitle(
        f"{title}. {note}\nErrors above {HIGHEST:g} times that of the mean are off the chart.",
        fontsize="small",
        x=0.01,
        ha="left",
    )
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, fontsize="small")
    return figure


def _draw_curve(
    panel: "Axes",
    positions: Mapping[float, int],
    curve: Sequence[Row],
    kind: str,
    *,
    color: str,
    marker: str,
    label: str,
) -> None:
    x = np.array([positions[row.epsilon] for row in curve], dtype=float)
    mse = np.array([getattr(row, kind).mse for row in curve])
    std = np.nan_to_num(np.array([getattr(row, kind).std for row in curve]))
    seen = np.isfinite(mse)
    if not seen.any():
        return
    x, mse, std = x[seen], mse[seen], std[seen]
    if kind == "paper":
        panel.plot(x, mse, color=color, linestyle="--", linewidth=1.2, alpha=0.9)
        return
    panel.plot(x, mse, color=color, marker=marker, markersize=5, linewidth=1.8, label=label)
    panel.fill_between(x, np.maximum(mse - std, mse / 4), mse + std, color=color, alpha=0.18, linewidth=0)


def draw_spectra(spectra: Mapping[str, Sequence[float]], *, columns: int = 4) -> "Figure":
    """Singular values of the public features, a panel per data set."""
    figure, panels = _subplots(len(spectra), columns=columns)
    for panel, (data, values) in zip(panels, spectra.items(), strict=True):
        panel.plot(np.arange(1, len(values) + 1), values, color="#0072b2", marker="o", markersize=3, linewidth=1.2)
        panel.set_yscale("log")
        panel.set_title(data, loc="left", fontsize="medium")
        panel.set_xlabel("direction")
        panel.set_ylabel("singular value")
        panel.grid(alpha=0.25)
    return figure


def _label_log_axis(panel: "Axes") -> None:
    """Label a logarithmic axis with plain numbers at 1, 2 and 5 of every decade, or closer if it spans less."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = panel.get_ylim()
    panel.yaxis.set_major_locator(
        LogLocator(subs=(1.0, 2.0, 5.0)) if high > 6 * low else MaxNLocator(nbins=6, steps=[1, 2, 5, 10])
    )
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())


def render_svg(figure: "Figure") -> str:
    """The figure as a piece of SVG for a page."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "conddp", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
