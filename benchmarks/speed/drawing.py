"""Figures as SVG files on a white background, which can be read on a dark page too."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

__all__ = ["COLOURS", "FAINT", "GRID", "TEXT", "style", "write_svg"]

FONTS = "font-family: 'Helvetica Neue', Helvetica, Arial, sans-serif"  # those of the reader, not of this machine
TEXT, FAINT, GRID = "#24292f", "#6e7781", "#d8dee4"
COLOURS = ("#009e73", "#d55e00", "#0072b2", "#cc79a7", "#e69f00", "#56b4e9")  # of Okabe and Ito


def style(panel: Any, *, grid: str) -> None:
    """Faint lines along one axis, and no box."""
    panel.grid(axis=grid, which="major", color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.tick_params(which="both", colors=TEXT, length=0, pad=6)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.spines["bottom"].set_color("#d0d7de")


def write_svg(draw: Callable[[], Figure], path: Path) -> None:
    """Draw and write a figure; the same figure gives the same file."""
    with matplotlib.rc_context({"font.size": 11, "svg.fonttype": "none", "svg.hashsalt": "conddp"}):
        figure, buffer = draw(), io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"font-family: [^;\"]+", FONTS, text[text.index("<svg") :])
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")
