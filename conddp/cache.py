"""Calibrations kept on disk, because a Poisson calibration takes seconds and depends on public numbers only."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CalibrationCache"]


@dataclass(frozen=True)
class CalibrationCache:
    """Append-only JSON lines of (request, noise multiplier); what cannot be read is ignored and made anew.

    Parameters
    ----------
    path : Path
        The file. It and its folder are made at the first write; where that is not allowed, nothing is kept.
    """

    path: Path

    @classmethod
    def default(cls) -> "CalibrationCache":
        """The cache in ``CONDDP_CACHE``, or else in the user's cache folder."""
        folder = os.environ.get("CONDDP_CACHE")
        if folder is None:
            folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "conddp")
        return cls(Path(folder) / "calibrations-v1.jsonl")

    def get(self, key: Mapping[str, object]) -> float | None:
        """The noise multiplier stored for exactly this request, or None."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except OSError:
            return None
        for line in reversed(lines):
            try:
                entry = json.loads(line)
                content = entry["content"]
                if content["key"] == dict(key) and entry["digest"] == _digest(content):
                    return float(content["noise_multiplier"])
            except (ValueError, KeyError, TypeError):
                continue
        return None

    def put(self, key: Mapping[str, object], noise_multiplier: float) -> None:
        """Store one calibration; a cache that cannot be written is no error."""
        content = {"key": dict(key), "noise_multiplier": noise_multiplier}
        line = json.dumps({"content": content, "digest": _digest(content)})
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            return


def _digest(content: Mapping[str, object]) -> str:
    """Tells a damaged line from a whole one. No defence against someone who may write to the folder."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
