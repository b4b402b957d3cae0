"""File of a ledger: a header and one line per entry, chained by digests and remembered by a witness."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from conddp.errors import LedgerError
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.chain import FORMAT, Chain, append_line, create_file, lock_file, read_chain
from conddp.privacy.entry import LedgerEntry
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.witness import Witness

__all__ = ["Header", "LedgerFile"]

FORMAT_VERSION = 2
RESTORE = "Nothing can be spent on it. Restore the file from a copy."


@dataclass(frozen=True)
class Header:
    """First line of a ledger.

    Parameters
    ----------
    budget : PrivacyBudget
        Total budget.
    neighbouring : Neighbouring
        Relation under which it is stated.
    unit : str or None
        Public column that marks the rows of one person; None for one record.
    identity : str
        Random name of the ledger, by which its witness is found. A file of the first format has none before it is
        continued.
    is_copy : bool
        Whether this is the copy that was saved with a model.
    """

    budget: PrivacyBudget
    neighbouring: Neighbouring
    unit: str | None = None
    identity: str = ""
    is_copy: bool = False

    @classmethod
    def from_chain(cls, chain: Chain) -> "Header":
        """Read the header of a file. Raises ValueError, KeyError or TypeError if it is none."""
        first = chain.lines[0]
        version = first[FORMAT]
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError("no version")
        if version > 1 and chain.num_bare:
            raise ValueError("no digest")
        # The chain of a file of the first format starts at a later line, which then names the ledger.
        identity = first["id"] if version > 1 else (*chain.lines, {})[chain.num_bare].get("ledger", "")
        unit = first.get("unit")
        if not isinstance(identity, str) or not (unit is None or isinstance(unit, str)):
            raise ValueError("no text")
        relation = Neighbouring(first["neighbouring"])
        return cls(PrivacyBudget(**first["budget"]), relation, unit, identity, bool(first.get("copy", False)))

    def to_json(self) -> dict[str, Any]:
        """Return the header in its stored form."""
        stored = {
            FORMAT: FORMAT_VERSION,
            "id": self.identity,
            "budget": {"epsilon": self.budget.epsilon, "delta": self.budget.delta},
            "neighbouring": self.neighbouring.value,
            "unit": self.unit,
        }
        return {**stored, "copy": True} if self.is_copy else stored


class LedgerFile:
    """A ledger on disk, and what was last seen of it.

    Parameters
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._chain = Chain()
        self._identity = ""
        self._seen: Witness | None = None
        self._state: tuple[int, ...] = ()

    @property
    def num_unchained(self) -> int:
        """Number of entries from before the chain."""
        return max(0, self._chain.num_bare - 1)

    @property
    def has_changed(self) -> bool:
        """Whether the file has changed since it was last read, by its size and time. Nothing is spent on this alone."""
        return not self._state or self._state != self._describe()

    def _describe(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except OSError:  # reading it raises with an explanation
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def create(self, header: Header) -> None:
        """Write a new file with a header and no entry."""
        try:
            digest = create_file(self.path, [header.to_json()])
        except FileExistsError:
            raise LedgerError(
                f"the ledger '{self.path}' exists already. Open it with PrivacyLedger.load(path)."
            ) from None
        except OSError as error:
            raise LedgerError(f"the ledger '{self.path}' cannot be written: {error.strerror}.") from None
        self._identity = header.identity
        self._remember(Witness(1, digest))

    @contextmanager
    def lock(self) -> Iterator[IO[bytes]]:
        """Keep other processes from writing, until the end of the block."""
        with lock_file(self.path) as file:
            yield file

    def read(self) -> tuple[Header, list[LedgerEntry]]:
        """Read the header and all complete entries, and compare them with what was seen before.

        Raises
        ------
        LedgerError
            If the file is damaged, was changed, or has lost entries.
        """
        state = self._describe()  # before the first byte is read, so that no later change is overlooked
        chain = read_chain(self.path, newest=FORMAT_VERSION)
        header, entries = self._decode(chain)
        stored = None if header.is_copy else Witness.load(header.identity)
        if stored is not None and stored.num_lines > len(chain.lines):
            chain = read_chain(
                self.path, newest=FORMAT_VERSION
            )  # another process may have written after the first reading
            header, entries = self._decode(chain)
        here = Witness.path(header.identity)
        for witness, since in (
            (self._seen, "since it was opened"),
            (
                stored,
                f"since this machine last wrote to it, according to '{here}' (remove that file only if you know why "
                "the ledger is older)",
            ),
        ):
            if witness is not None and chain.digests[witness.num_lines - 1 : witness.num_lines] != (witness.digest,):
                fate = "has lost entries" if witness.num_lines > len(chain.lines) else "was changed"
                raise LedgerError(f"the ledger '{self.path}' {fate} {since}. {RESTORE}")
        self._chain, self._identity = chain, header.identity
        self._seen = Witness(len(chain.lines), chain.digest)
        self._state = state
        return header, entries

    def append(self, file: IO[bytes], entry: LedgerEntry) -> None:
        """Write an entry to the locked file, after what was read of it, and force it to disk."""
        content = entry.to_json()
        if not self._identity:  # a file of the first format: its chain starts here
            self._identity = content["ledger"] = secrets.token_hex(16)
        try:
            file.truncate(self._chain.num_bytes)  # removes a line whose writing was interrupted
            file.seek(max(0, self._chain.num_bytes - 1))
            if file.read(1) not in (b"", b"\n"):  # the last line break is missing
                file.write(b"\n")
            digest = append_line(file, content, self._chain.digest)
        except OSError as error:
            raise LedgerError(f"the ledger '{self.path}' cannot be written: {error.strerror}.") from None
        self._remember(Witness(len(self._chain.lines) + 1, digest))

    def _remember(self, seen: Witness) -> None:
        self._seen = seen
        seen.write(self._identity)

    def _decode(self, chain: Chain) -> tuple[Header, list[LedgerEntry]]:
        if not chain.lines:
            raise LedgerError(
                f"the ledger '{self.path}' is empty. If it was being created, nothing was spent: remove it and create "
                "it again. Otherwise restore the file from a copy."
            )
        number, entries = 1, []
        try:
            header = Header.from_chain(chain)
            for number, line in enumerate(chain.lines[1:], start=2):
                names_ledger = number == chain.num_bare + 1
                content = {name: value for name, value in line.items() if not (names_ledger and name == "ledger")}
                entries.append(LedgerEntry.from_json(content))
        except (ValueError, KeyError, TypeError, ArithmeticError, AttributeError):
            raise LedgerError(f"line {number} of the ledger '{self.path}' is damaged. {RESTORE}") from None
        return header, entries
