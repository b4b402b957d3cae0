"""Tables of the page."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from .chosen import Shown
from .text import show_duration, show_ratio

__all__ = ["list_absent", "list_conditions", "render_fits", "render_grid", "render_rows", "render_table"]

LEAST_SQUARES = {
    "numpy lstsq": "numpy lstsq",
    "scikit-learn LinearRegression": "scikit-learn LinearRegression",
    "scikit-learn Ridge": "scikit-learn Ridge",
    "diffprivlib": "diffprivlib (private)",
}


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: set[int] | None = None) -> str:
    """A table in Markdown.

    Examples
    --------
    >>> print(render_table(["a", "b"], [["1", "2"]], right={1}))
    | a | b |
    |---|---:|
    | 1 | 2 |
    """
    ends = ["---:" if number in (right or set()) else "---" for number in range(len(header))]
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(ends) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def render_grid(shown: Shown) -> Iterator[str]:
    """Contestants by works, with time and ratio; one table for each number of threads."""
    for threads in sorted({work["threads"] for work in shown.works}):
        works = [work for work in shown.works if work["threads"] == threads]
        names = list(dict.fromkeys(row["name"] for work in works for row in work["rows"]))
        header = [f"{threads} thread{'s' * (threads > 1)}"]
        for work in works:
            header += [work["title"], "ratio"]
        rows = []
        for name in names:
            cells = [name]
            for work in works:
                row = next((row for row in work["rows"] if row["name"] == name), None)
                cells += _show(shown, row)
            rows.append(cells)
        yield render_table(header, rows, right=set(range(1, len(header)))) + "\n"


def render_rows(shown: Shown, work: dict[str, Any]) -> str:
    """The table of one work, with the columns that it has."""
    header = ["", "processor time" if shown.is_busy else "time"]
    found = work["rows"]
    columns: list[tuple[str, str]] = [
        ("again", "again"),
        ("new_process", "new process"),
        ("ratio", "ratio"),
        ("error", "test error"),
        ("times_table", "memory"),
        ("training_r2", "R2"),
        ("noise_multiplier", "noise multiplier"),
    ]
    columns = [pair for pair in columns if any(pair[0] in row for row in found)]
    rows = []
    for row in found:
        cells = [row["name"], show_duration(shown.get_seconds(row))]
        for key, _ in columns:
            value = shown.get_ratio(row) if key == "ratio" else row.get(key)
            cells.append(_show_value(key, value))
        rows.append(cells)
    header += [title for _, title in columns]
    return render_table(header, rows, right=set(range(1, len(header))))


def render_fits(shown: Shown) -> Iterator[str]:
    """A line per size."""
    for threads in sorted({work["threads"] for work in shown.works}):
        works = [work for work in shown.works if work["threads"] == threads and work["rows"]]
        works.sort(key=lambda work: (work["facts"]["columns"], work["facts"]["rows"]))
        rows = []
        for work in works:
            by_name = {row["name"]: row for row in work["rows"]}
            ours = by_name["conddp"]
            cells = [work["title"], show_duration(shown.get_seconds(ours)), show_ratio(ours["times_table"])]
            for start in LEAST_SQUARES:
                row = next((row for name, row in by_name.items() if name.startswith(start)), None)
                cells.append("" if row is None else show_ratio(shown.get_ratio(row)))
            lstsq = next((row for name, row in by_name.items() if name.startswith("numpy")), None)
            cells.append("" if lstsq is None else show_ratio(lstsq["times_table"]))
            rows.append(cells)
        header = [
            f"{threads} thread{'s' * (threads > 1)}",
            "conddp",
            "its memory",
            *LEAST_SQUARES.values(),
            "memory of lstsq",
        ]
        yield render_table(header, rows, right=set(range(1, len(header)))) + "\n"


def list_absent(shown: Shown) -> Iterator[str]:
    """Contestants that did not take part, with the reason."""
    absent = {(work["title"], name): reason for work in shown.works for name, reason in work["absent"].items()}
    if absent:
        lines = [f"* {name}, {title}: {reason}" for (title, name), reason in absent.items()]
        yield "Absent:\n\n" + "\n".join(lines) + "\n"


def list_conditions(shown: Shown) -> str:
    """Repeats, load and what kind of time is shown."""
    turns = sorted({row["turns"] for work in shown.works for row in work["rows"] if row["turns"] > 1}) or [1]
    loads = [load for work in shown.works for load in work["load"]]
    repeats = f"{turns[0]}" if turns[0] == turns[-1] else f"{turns[0]} to {turns[-1]}"
    medians = "One turn" if turns[-1] == 1 else f"Medians of {repeats} turns"
    text = f"*{medians}; load of the machine {min(loads):g} to {max(loads):g}"
    if shown.is_busy:
        text += ", so processor time is shown"
    if shown.is_quick:
        text += "; a quick run"
    return text + ".*"


def _show(shown: Shown, row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["", ""]
    return [show_duration(shown.get_seconds(row)), show_ratio(shown.get_ratio(row))]


def _show_value(key: str, value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if key in ("again", "new_process"):
        return show_duration(value)
    if key in ("ratio", "times_table"):
        return show_ratio(value)
    if key == "noise_multiplier":
        return f"{value:.4g}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.0f}"
