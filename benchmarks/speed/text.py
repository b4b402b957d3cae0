"""Results as text: durations, and tables for the terminal."""

from pathlib import Path
from typing import Any

from .results import load
from .sections import SECTIONS

__all__ = ["print_section", "show_duration", "show_ratio"]


def show_duration(seconds: float) -> str:
    """A duration with three digits and a unit.

    Examples
    --------
    >>> show_duration(0.0000227), show_duration(0.32), show_duration(12.34), show_duration(1234.5)
    ('22.7 us', '320 ms', '12.3 s', '1,235 s')
    """
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:
            return f"{_round(seconds * factor)} {unit}"
    return f"{_round(seconds)} s"


def show_ratio(ratio: float) -> str:
    """A ratio with two or three digits.

    Examples
    --------
    >>> show_ratio(0.123), show_ratio(1.0), show_ratio(12.34), show_ratio(1234.5)
    ('0.12', '1.0', '12.3', '1,235')
    """
    return f"{ratio:.2f}" if ratio < 0.995 else f"{ratio:.1f}" if ratio < 99.95 else f"{ratio:,.0f}"


def _round(value: float) -> str:
    return (
        f"{value:.3f}"
        if value < 0.0995
        else f"{value:.2f}"
        if value < 9.995
        else f"{value:.1f}"
        if value < 99.95
        else f"{value:,.0f}"
    )


def print_section(name: str, *, quick: bool, folder: Path) -> None:
    """Print the tables of a section."""
    stored: dict[str, Any] | None = load(name, quick=quick, folder=folder)
    print(f"\n{SECTIONS[name].title}")
    for work in (stored or {"works": {}})["works"].values():
        print(f"  {work['title']} ({work['threads']} thread{'s' * (work['threads'] > 1)}, load {work['load'][0]})")
        for row in work["rows"]:
            error = f"  error {row['error']:.3f}" if "error" in row else ""
            memory = f"  memory {row['times_table']:.1f} x table" if "times_table" in row else ""
            ratio = f"{show_ratio(row['ratio']):>9} x" if "ratio" in row else ""
            print(f"    {row['name']:<50}{show_duration(row['seconds']):>12}{ratio}{error}{memory}")
        for absent, reason in work["absent"].items():
            print(f"    {absent:<50}{'absent':>12}  {reason}")
    print(flush=True)
