"""Witness of a ledger file: how many lines it had and the last digest, kept in the user's state folder.

A file that was cut at its end looks whole. The witness tells.
"""

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Witness", "state_folder"]


def state_folder() -> Path:
    """Return ``CONDDP_STATE``, or else ``conddp`` in the user's state folder."""
    folder = os.environ.get("CONDDP_STATE")
    default = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(folder or os.path.join(default, "conddp"))


@dataclass(frozen=True)
class Witness:
    """Number of lines and last digest of a ledger file when it was last written on this machine.

    Parameters
    ----------
    num_lines : int
        Number of lines, including the header.
    digest : str
        Digest of the last of them.
    """

    num_lines: int
    digest: str

    @staticmethod
    def path(ledger_id: str) -> Path:
        """Return the file of the witness."""
        return state_folder() / "ledgers" / f"{ledger_id}.json"

    @classmethod
    def load(cls, ledger_id: str) -> "Witness | None":
        """Return the witness of a ledger; None if there is none or it cannot be read."""
        if not re.fullmatch(r"[0-9a-f]{32}", ledger_id):
            return None
        try:
            stored = json.loads(cls.path(ledger_id).read_text(encoding="utf-8"))
            number, digest = stored["num_lines"], stored["digest"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if isinstance(number, bool) or not isinstance(number, int) or number < 1 or not isinstance(digest, str):
            return None
        return cls(number, digest)

    def write(self, ledger_id: str) -> None:
        """Replace the witness of a ledger. A folder that cannot be written is no error: then there is no witness."""
        path = self.path(ledger_id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{ledger_id}-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"num_lines": self.num_lines, "digest": self.digest}, file)
            os.replace(temporary, path)
        except OSError:
            return
