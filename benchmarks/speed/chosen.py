"""What of the stored results goes onto the page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .results import load
from .sections import SECTIONS

__all__ = ["Shown", "read_shown"]

BUSY = 2.2  # load above which other programs had a share of the cores, as the benchmark itself adds one or two


@dataclass(frozen=True)
class Shown:
    """The works of a section.

    Times are those of the clock, or of the processor if other programs ran at the time: they are then less disturbed.
    """

    name: str
    works: list[dict[str, Any]]
    is_quick: bool

    @property
    def is_busy(self) -> bool:
        """Whether processor time is shown."""
        has_busy = all("busy_seconds" in row for work in self.works for row in work["rows"])
        return has_busy and max((max(work["load"]) for work in self.works), default=0.0) > BUSY

    def get_seconds(self, row: dict[str, Any]) -> float:
        """The time to show."""
        return float(row["busy_seconds" if self.is_busy else "seconds"])

    def get_ratio(self, row: dict[str, Any]) -> float:
        """The ratio to show."""
        ratio = row.get("busy_ratio") if self.is_busy else row.get("ratio")
        return float("nan") if ratio is None else float(ratio)

    def find(self, title: str, threads: int = 1) -> dict[str, Any] | None:
        """A work by the beginning of its title."""
        found = [work for work in self.works if work["title"].startswith(title) and work["threads"] == threads]
        return found[0] if found else None

    def find_row(self, title: str, name: str, threads: int = 1) -> dict[str, Any] | None:
        """A row by the beginning of its name."""
        work = self.find(title, threads)
        rows = [row for row in work["rows"] if row["name"].startswith(name)] if work else []
        return rows[0] if rows else None


def read_shown(folder: Path) -> dict[str, Shown]:
    """Sections that were measured; those without full results are shown with quick ones."""
    shown = {}
    for name in SECTIONS:
        stored, is_quick = load(name, quick=False, folder=folder), False
        if stored is None:
            stored, is_quick = load(name, quick=True, folder=folder), True
        if stored is not None:
            shown[name] = Shown(name, list(stored["works"].values()), is_quick)
    return shown
