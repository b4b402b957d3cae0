"""Figures of the page, drawn from stored results."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .chosen import Shown
from .drawing import COLOURS, FAINT, TEXT, style, write_svg
from .text import show_duration

__all__ = ["FIGURES", "write_figures"]

OURS, RIVAL, PLAIN = COLOURS[0], COLOURS[1], COLOURS[2]


def write_figures(shown: dict[str, Shown], folder: Path) -> list[Path]:
    """Write the figures whose sections were measured."""
    written = []
    for name, (section, draw) in FIGURES.items():
        if section in shown and shown[section].works:
            written.append(folder / f"{name}.svg")
            write_svg(partial(draw, shown[section]), written[-1])
    return written


def draw_target(shown: Shown) -> Figure:
    """Test error against time: every setting of the grid, and fits of one call."""
    figure = _make_figure(7.2, 3.9, "Test error over that of least squares, against time, at epsilon 1")
    panel = figure.add_axes((0.085, 0.14, 0.89, 0.70))
    work = shown.works[0]
    key = "busy_seconds" if shown.is_busy else "seconds"
    highest = 1.6
    tried = work["facts"]["tried"]
    errors = [min(each["error"], highest) for each in tried]
    panel.scatter([each[key] for each in tried], errors, s=22, color=RIVAL, alpha=0.45, linewidths=0)
    total = shown.get_seconds(work["rows"][0])
    panel.axvline(total, color=RIVAL, linewidth=1.4, linestyle=(0, (4, 3)))
    panel.annotate(f"whole grid: {show_duration(total)}", (total, highest), xytext=(-6, -6), **_beside(RIVAL, "right"))
    for name, label, colour, offset, side in (
        ("conddp, first", "conddp, first fit of a process", OURS, (9, 5), "left"),
        ("Opacus, one run", "Opacus, best of its grid", RIVAL, (-4, -16), "left"),
        ("scikit-learn", "least squares, not private", PLAIN, (-5, 20), "left"),
    ):
        row = next((row for row in work["rows"] if row["name"].startswith(name)), None)
        if row is not None:
            place = (shown.get_seconds(row), min(row["error"], highest))
            panel.scatter(*place, s=64, color=colour, marker="D", zorder=3)
            panel.annotate(label, place, xytext=offset, **_beside(colour, side))
    panel.text(max(each[key] for each in tried), 1.45, f"each of its {len(tried)} settings", color=RIVAL, ha="right")
    panel.set_xscale("log")
    panel.set_ylim(0.75, highest + 0.04)
    panel.set_yticks([0.8, 1.0, 1.2, 1.4, highest], ["0.8", "1", "1.2", "1.4", f"≥ {highest}"])
    panel.axhline(1, color=FAINT, linewidth=1.0)
    _name_durations(panel, [shown.get_seconds(row) for row in work["rows"] if row["seconds"] > 0])
    panel.set_xlabel(f"{_name_time(shown)}, accounting included", color=TEXT)
    style(panel, grid="y")
    return figure


def draw_steps(shown: Shown) -> Figure:
    """Time of a step over that of conddp, one panel per work."""
    works = [work for work in shown.works if work["threads"] == 1]
    figure = _make_figure(
        7.2, 0.9 + 2.3 * len(works), "Time of a private step, as a multiple of conddp's (logarithmic)"
    )
    height = 1 / len(works)
    for number, work in enumerate(works):
        bottom = (len(works) - 1 - number) * height * 0.93 + 0.035
        panel = figure.add_axes((0.36, bottom, 0.56, height * 0.93 - 0.075))
        rows = [row for row in work["rows"] if "float32" not in row["name"]][::-1]
        colours = [
            OURS if row["name"].startswith("conddp") else PLAIN if "not private" in row["name"] else RIVAL
            for row in rows
        ]
        ratios = [shown.get_ratio(row) for row in rows]
        panel.barh(range(len(rows)), ratios, color=colours, height=0.68)
        for place, (row, ratio) in enumerate(zip(rows, ratios, strict=True)):
            panel.text(
                ratio * 1.05,
                place,
                f"{ratio:.3g}  ({show_duration(shown.get_seconds(row))})",
                va="center",
                color=TEXT,
                fontsize=9.5,
            )
        panel.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=10)
        panel.set_xscale("log")
        panel.set_xlim(min(0.8, min(ratios) * 0.8), max(ratios) * 3.2)
        panel.set_xticks([], [])
        panel.set_xticks([], [], minor=True)
        title = work["title"][0].upper() + work["title"][1:]
        panel.set_title(title, loc="left", fontsize=10.5, color=FAINT, x=-0.62)
        style(panel, grid="x")
        panel.spines["bottom"].set_visible(False)
    return figure


def draw_fits(shown: Shown) -> Figure:
    """Time of fits against the number of rows, a panel for each number of columns."""
    columns = [10, 100]
    figure = _make_figure(7.2, 3.9, "Time of a fit against the number of rows, one thread")
    names = {
        "conddp": ("conddp, private", OURS, "D"),
        "numpy lstsq": ("numpy lstsq", PLAIN, "o"),
        "scikit-learn LinearRegression": ("LinearRegression", COLOURS[3], "s"),
        "scikit-learn Ridge": ("Ridge", COLOURS[4], "^"),
    }
    for number, d in enumerate(columns):
        panel = figure.add_axes((0.105 + 0.495 * number, 0.14, 0.38, 0.62))
        seen = []
        works = [work for work in shown.works if work["threads"] == 1 and work["facts"].get("columns") == d]
        works.sort(key=lambda work: work["facts"]["rows"])
        for start, (label, colour, marker) in names.items():
            points = [
                (work["facts"]["rows"], shown.get_seconds(row))
                for work in works
                for row in work["rows"]
                if row["name"].startswith(start)
            ]
            if points:
                panel.plot(
                    *zip(*points, strict=True), color=colour, marker=marker, markersize=5.5, linewidth=1.8, label=label
                )
                seen += [seconds for _, seconds in points]
        panel.set_xscale("log")
        panel.set_yscale("log")
        if seen:
            _name_durations(panel, seen, axis="y")
        panel.set_xlabel(f"rows ({d} columns)", color=TEXT)
        style(panel, grid="both")
        if number == 0:
            handles, labels = panel.get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="upper left", bbox_to_anchor=(0.015, 0.905), ncols=4, frameon=False, fontsize=10
            )
    return figure


FIGURES: dict[str, tuple[str, Callable[[Shown], Figure]]] = {
    "speed_target": ("target", draw_target),
    "speed_steps": ("steps", draw_steps),
    "speed_fits": ("fits", draw_fits),
}


def _make_figure(width: float, height: float, title: str) -> Figure:
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(0.02, 1 - 0.29 / height, title, color=TEXT, fontsize=13, weight="bold")
    return figure


def _beside(colour: str, side: str) -> dict[str, Any]:
    return {
        "textcoords": "offset points",
        "color": colour,
        "fontsize": 10,
        "ha": side,
        "va": "top",
        "fontweight": "bold",
    }


def _name_time(shown: Shown) -> str:
    return "processor time" if shown.is_busy else "time"


def _name_durations(panel: Any, seconds: list[float], axis: str = "x") -> None:
    """Powers of ten with their units."""
    powers = [10.0**power for power in range(-6, 5) if min(seconds) / 3 <= 10.0**power <= max(seconds) * 3]
    units = {1e-6: "1 us", 1e-5: "10 us", 1e-4: "100 us", 1e-3: "1 ms", 1e-2: "10 ms", 1e-1: "100 ms"}
    labels = [
        next((text for at, text in units.items() if abs(power / at - 1) < 0.1), f"{power:,.0f} s") for power in powers
    ]
    getattr(panel, f"set_{axis}ticks")(powers, labels)
    getattr(panel, f"set_{axis}ticks")([], [], minor=True)
