"""Rows as tables: Markdown for files, rich for the terminal."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conddp.research.experiments.rows import KINDS, Measure, Row

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["KIND_NAMES", "TableLine", "make_lines", "make_rich_table", "render_markdown"]

KIND_NAMES = {
    "paper": "paper",
    "tuned": "ours, as the paper: ZERO_OUT, tuned on the test loss",
    "untuned": "ours, REPLACE, nothing tuned",
}


@dataclass(frozen=True)
class TableLine:
    """A method under one accounting. A cell is an MSE with its standard deviation, and a ratio."""

    method: str
    kind: str
    cells: tuple[tuple[str, str], ...]


def list_sets(rows: Sequence[Row]) -> list[str]:
    """Data sets in the order of the rows."""
    return list(dict.fromkeys(row.data for row in rows))


def list_epsilons(rows: Sequence[Row]) -> list[float]:
    """Epsilons in increasing order."""
    return sorted({row.epsilon for row in rows})


def make_lines(rows: Sequence[Row], data: str) -> Iterator[TableLine]:
    """All lines of the table of one data set, except those that were neither printed nor measured."""
    epsilons = list_epsilons(rows)
    chosen = {(row.method, row.epsilon): row for row in rows if row.data == data}
    for method in dict.fromkeys(method for method, _ in chosen):
        for kind in KINDS:
            cells = []
            for epsilon in epsilons:
                row = chosen.get((method, epsilon))
                measure: Measure = getattr(row, kind) if row else Measure()
                cells.append(("", "") if math.isnan(measure.mse) else (_show(measure), f"{measure.ratio:.3f}"))
            if any(mse for mse, _ in cells):
                yield TableLine(method, kind, tuple(cells))


def render_markdown(rows: Sequence[Row]) -> str:
    """A table per data set: MSE (standard deviation), then the ratio to the non-private optimum."""
    parts = []
    epsilons = list_epsilons(rows)
    for data in list_sets(rows):
        first = next(row for row in rows if row.data == data)
        heads = " | ".join(show_epsilon(epsilon) for epsilon in epsilons)
        lines = [
            f"### {data}",
            "",
            f"Not private: least squares {first.optimum:.4g}, the mean alone {first.constant:.4g}.",
            "",
            f"| method | | {heads} |",
            "|---" * (len(epsilons) + 2) + "|",
        ]
        for line in make_lines(rows, data):
            cells = " | ".join(f"{mse}<br>{ratio}" if mse else "" for mse, ratio in line.cells)
            lines.append(f"| {line.method} | {KIND_NAMES[line.kind]} | {cells} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def make_rich_table(rows: Sequence[Row], data: str) -> "Table":
    """The table of one data set for a terminal, with ratios only, to fit its width."""
    from rich.table import Table

    first = next(row for row in rows if row.data == data)
    table = Table(
        title=f"{data}: test MSE over the non-private optimum",
        title_justify="left",
        caption=f"tuned: on the test loss, ZERO_OUT, as the paper did; untuned: defaults, REPLACE\n"
        f"not private: least squares {first.optimum:.4g}, the mean alone {first.constant:.4g}",
        caption_justify="left",
    )
    table.add_column("method")
    table.add_column("", style="dim")
    for epsilon in list_epsilons(rows):
        table.add_column(show_epsilon(epsilon), justify="right")
    names = {"paper": "paper", "tuned": "ours, tuned", "untuned": "ours, untuned"}
    last = ""
    for line in make_lines(rows, data):
        if last and line.method != last:
            table.add_section()
        table.add_row(line.method if line.method != last else "", names[line.kind], *(ratio for _, ratio in line.cells))
        last = line.method
    return table


def show_epsilon(epsilon: float) -> str:
    """Epsilon as it is printed."""
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"


def _show(measure: Measure) -> str:
    return f"{measure.mse:.4g}" if math.isnan(measure.std) else f"{measure.mse:.4g} ({measure.std:.2g})"
