"""Results kept on disk under what they were computed from: calibrations that take seconds, runs that take hours."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ContentCache", "cache_folder"]


LARGEST_FILE = 1 << 28  # bytes; a larger file is not read


def cache_folder() -> Path:
    """``CONDDP_CACHE``, or else ``conddp`` in the user's cache folder."""
    folder = os.environ.get("CONDDP_CACHE")
    return Path(folder or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "conddp"))


@dataclass(frozen=True)
class ContentCache:
    """Append-only JSON lines of (request, answer); what cannot be read is ignored and made anew.

    Only what depends on public numbers may be kept here. Anyone who may write to the folder can plant an answer, so an
    answer on which privacy depends must be verified.

    Parameters
    ----------
    path : Path
        The file. It and its folder are made at the first write; where that is not allowed, nothing is kept.
    """

    path: Path

    def get(self, key: Mapping[str, object]) -> Any:
        """What is stored for exactly this request, or None."""
        try:
            if not self.path.is_file() or self.path.stat().st_size > LARGEST_FILE:
                return None
            lines = self.path.read_bytes().splitlines()
        except OSError:
            return None
        for line in reversed(lines):
            try:
                entry = json.loads(line)
                content = entry["content"]
                if content["key"] == dict(key) and entry["digest"] == _digest(content):
                    return content["value"]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
        return None

    def put(self, key: Mapping[str, object], value: Any) -> None:
        """Store one answer; a cache that cannot be written is no error."""
        content = {"key": dict(key), "value": value}
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
