"""Results on disk: a file per section, written again after every work, so that a run can be resumed."""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .machine import get_load
from .turns import Absent
from .workers import ROOT

__all__ = ["FOLDER", "Measured", "Scope", "Work", "load", "measure", "read_commit"]

FOLDER = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Scope:
    """How much to measure.

    Parameters
    ----------
    threads : int
        Of every contestant.
    quick : bool
        Small sizes and few turns, for a look within minutes.
    tiny : bool
        Sizes for tests of the harness; the numbers mean nothing.
    """

    threads: int = 1
    quick: bool = False
    tiny: bool = False

    def pick(self, full: Any, quick: Any, tiny: Any) -> Any:
        """One of three settings."""
        return tiny if self.tiny else quick if self.quick else full

    @property
    def turns(self) -> int:
        """Turns of short works."""
        return int(self.pick(15, 5, 2))

    @property
    def seconds(self) -> float:
        """Aimed at per contestant and turn of short works."""
        return float(self.pick(0.2, 0.1, 0.001))


@dataclass(frozen=True)
class Measured:
    """Rows of a table, the contestants that are absent with the reason, and facts about the work."""

    rows: list[dict[str, Any]]
    absent: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


Work = Callable[[], Measured]


def read_commit() -> str:
    """The commit that is measured, with a plus if files differ from it."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=8"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def load(section: str, *, quick: bool, folder: Path = FOLDER) -> dict[str, Any] | None:
    """Stored results of a section, or None."""
    path = _locate(section, quick, folder)
    return dict(json.loads(path.read_text())) if path.is_file() else None


def measure(
    section: str, works: Mapping[str, Work], scope: Scope, *, resume: bool, folder: Path = FOLDER
) -> dict[str, Any]:
    """Do works one by one and store each; with ``resume``, those that are stored for the same commit are kept."""
    commit = read_commit()
    stored = load(section, quick=scope.quick, folder=folder) or {"section": section, "works": {}}
    for title, work in works.items():
        key = f"{title}, threads {scope.threads}"
        if resume and stored["works"].get(key, {}).get("commit") == commit:
            continue
        print(f"{section}: {key}", flush=True)
        before = get_load()
        try:
            measured = work()
        except Absent as absent:
            measured = Measured([], {"all": str(absent)})
        stored["works"][key] = {
            "title": title,
            "threads": scope.threads,
            "rows": measured.rows,
            "absent": dict(measured.absent),
            "facts": dict(measured.facts),
            "load": [before, get_load()],
            "commit": commit,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        folder.mkdir(parents=True, exist_ok=True)
        _locate(section, scope.quick, folder).write_text(json.dumps(stored, indent=1) + "\n")
    return stored


def _locate(section: str, quick: bool, folder: Path) -> Path:
    return folder / f"speed_{'quick_' if quick else ''}{section}.json"
