"""Append-only record of the budget spent, written to disk before private data are read."""

import json
import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from conddp.errors import BudgetExceeded, LedgerError, PrivacyError, SchemaError
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.stored import decode_settings, read_bytes

__all__ = ["LedgerEntry", "PrivacyLedger", "Receipt"]

FORMAT_VERSION = 1
LARGEST_LEDGER = 1 << 30  # bytes


@dataclass(frozen=True)
class LedgerEntry:
    """One use of the data: the computation, its cost, and the reason for that cost.

    Parameters
    ----------
    what : str
        Name of the algorithm or computation.
    cost : PrivacyBudget
        Privacy cost; zero if the computation reads public data only.
    reason : str
        One sentence that justifies the cost.
    details : mapping
        Public settings of the mechanism.
    time : str
        Time of the entry, in UTC.
    """

    what: str
    cost: PrivacyBudget
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def __post_init__(self) -> None:
        decode_settings(self.details, "details")
        if not isinstance(self.cost, PrivacyBudget) or not all(
            isinstance(text, str) for text in (self.what, self.reason, self.time)
        ):
            raise ValueError("an entry must have a cost, and text that says what was done, why and when.")


class PrivacyLedger:
    """A privacy budget and its expenses, kept in memory or in a JSON Lines file.

    Privacy
        :meth:`spend` writes and flushes its entry before it returns, and private data may be read only after that. A
        crash can therefore only over-count. Costs add up by basic composition, regardless of the algorithms.

    Parameters
    ----------
    budget : PrivacyBudget
        Total budget for this data set.
    neighbouring : Neighbouring
        Neighbouring relation under which the budget is stated. Fits under another relation are refused.
    path : path, optional
        File in which to keep the ledger. It must not exist yet; use :meth:`load` to open an existing ledger.

    Examples
    --------
    >>> ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    >>> receipt = ledger.spend(LedgerEntry("a fit", PrivacyBudget(0.4, 5e-7)))
    >>> print(ledger.remaining)
    epsilon=0.6 at delta=5e-07
    """

    def __init__(
        self,
        budget: PrivacyBudget,
        *,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
        path: str | Path | None = None,
    ) -> None:
        self.budget = budget
        self.neighbouring = neighbouring
        self.path = None if path is None else Path(os.path.realpath(path))
        self.is_copy = False
        self._entries: list[LedgerEntry] = []
        self._receipts: list[Receipt] = []
        self._owner: int | None = os.getpid()
        self._lock = threading.RLock()
        if self.path is not None:
            try:
                with self.path.open("x", encoding="utf-8") as file:
                    _append(file, self._header())
            except FileExistsError:
                raise LedgerError(
                    f"the ledger '{self.path}' exists already. Open it with PrivacyLedger.load(path)."
                ) from None
            except OSError as error:
                raise LedgerError(f"the ledger '{self.path}' cannot be written: {error.strerror}.") from None

    @classmethod
    def load(cls, path: str | Path) -> "PrivacyLedger":
        """Open an existing ledger file."""
        ledger = cls.__new__(cls)
        ledger.path = Path(os.path.realpath(path))
        ledger._owner = os.getpid()
        ledger._lock = threading.RLock()
        ledger.is_copy = False
        ledger._entries = []
        ledger._receipts = []
        ledger._read()
        return ledger

    def write_copy(self, path: str | Path) -> None:
        """Write a read-only copy to a file. The copy cannot be spent from, since two ledgers would count separately."""
        with Path(path).open("x", encoding="utf-8") as file:
            _append(file, {**self._header(), "copy": True})
            for entry in self._entries:
                _append(file, asdict(entry))

    def _header(self) -> dict[str, Any]:
        return {
            "conddp_ledger": FORMAT_VERSION,
            "budget": asdict(self.budget),
            "neighbouring": self.neighbouring.value,
        }

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries recorded so far."""
        return tuple(self._entries)

    @property
    def spent(self) -> PrivacyBudget:
        """Sum of all costs."""
        return sum((entry.cost for entry in self._entries), PrivacyBudget(0.0, 0.0))

    @property
    def remaining(self) -> PrivacyBudget:
        """Budget that is left to spend."""
        return self.budget.minus(self.spent)

    def check(self, what: str, cost: PrivacyBudget, neighbouring: Neighbouring) -> None:
        """Raise if the budget does not cover a cost. Records nothing.

        Raises
        ------
        BudgetExceeded
            If the cost exceeds the remaining budget.
        PrivacyError
            If the neighbouring relation differs from that of the ledger.
        """
        if neighbouring is not self.neighbouring:
            raise PrivacyError(
                f"the ledger's budget is stated under neighbouring='{self.neighbouring}', but {what} was requested "
                f"under '{neighbouring}'. Costs under different relations do not add up: use one ledger for each."
            )
        with self._lock:
            if self.path is not None:
                self._read()
            spent = self.spent
        if self.is_copy:
            raise LedgerError(
                f"'{self.path}' is the copy of a ledger that was saved with a model, and nothing can be spent on it. "
                "Use the original ledger."
            )
        if math.isinf(cost.epsilon) and not math.isinf(self.budget.epsilon):
            raise BudgetExceeded(f"{what} is not private at all, and no finite budget covers it.")
        if not self.budget.covers(spent + cost):
            raise BudgetExceeded(
                f"{what} needs {cost}, but {self.remaining} remains of {self.budget}. "
                "Lower epsilon, or open a new ledger if this is a different data set."
            )

    def spend(self, entry: LedgerEntry, *, neighbouring: Neighbouring | None = None) -> "Receipt":
        """Record an entry and return its receipt. Raise if the budget does not cover the cost.

        If the ledger has a file, the entry is written to disk first. The receipt unlocks private data whose price the
        entry covers.
        """
        if self.path is None and self._owner != os.getpid():
            raise LedgerError(
                "this ledger is a copy of an in-memory ledger from another process, which would not see what is spent "
                "on the copy. Keep the ledger in a file (path=...) to share it between processes."
            )
        relation = self.neighbouring if neighbouring is None else neighbouring
        with self._lock:
            if self.path is None:
                self.check(entry.what, entry.cost, relation)
            else:
                with _locked(self.path) as file:
                    self.check(entry.what, entry.cost, relation)
                    _append(file, asdict(entry))
            self._entries.append(entry)
            receipt = Receipt(entry, self)
            self._receipts.append(receipt)
        return receipt

    def redeem(self, receipt: "Receipt") -> bool:
        """Whether a receipt was issued by this ledger and has not been redeemed before; it cannot be used again."""
        with self._lock:
            held = [each for each in self._receipts if each is receipt]
            self._receipts = [each for each in self._receipts if each is not receipt]
        return bool(held)

    def _read(self) -> None:
        """Read the budget and the entries from the file."""
        assert self.path is not None
        try:
            text = read_bytes(self.path, at_most=LARGEST_LEDGER).decode("utf-8")
        except SchemaError as error:
            raise LedgerError(f"the ledger {error}") from None
        except UnicodeDecodeError:
            raise LedgerError(f"'{self.path}' is not a ledger: it is not a text file.") from None
        entries: list[LedgerEntry] = []
        number = 0
        try:
            for number, line in enumerate(text.splitlines(), start=1):
                content = json.loads(line)
                if number == 1:
                    version = content["conddp_ledger"]
                    if version > FORMAT_VERSION:
                        raise LedgerError(
                            f"the ledger '{self.path}' has format {version}, newer than the latest format that this "
                            f"version can read ({FORMAT_VERSION}). Install a newer conddp."
                        )
                    self.is_copy = bool(content.get("copy", False))
                    self.budget = PrivacyBudget(**content["budget"])
                    self.neighbouring = Neighbouring(content["neighbouring"])
                else:
                    content["cost"] = PrivacyBudget(**content["cost"])
                    entries.append(LedgerEntry(**content))
            sum((entry.cost for entry in entries), PrivacyBudget(0.0, 0.0))  # deltas that add up to 1 are damage
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            if isinstance(error, LedgerError):
                raise
            raise LedgerError(
                f"line {number} of the ledger '{self.path}' is damaged. Nothing can be spent on a damaged ledger. "
                "Restore the file, or remove the line if it is an incomplete last line."
            ) from None
        if number == 0 or not text.endswith("\n"):
            raise LedgerError(f"the ledger '{self.path}' is empty or its last line is incomplete. Restore the file.")
        if len(entries) < len(self._entries):
            raise LedgerError(f"the ledger '{self.path}' has lost entries since it was opened. Restore the file.")
        self._entries = entries

    def __deepcopy__(self, memo: dict[int, Any]) -> "PrivacyLedger":
        return self  # clones of an estimator must keep spending from the same budget

    def __copy__(self) -> "PrivacyLedger":
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_owner": None, "_lock": None, "_receipts": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else f"'{self.path}'"
        return f"PrivacyLedger({place}, spent {self.spent} of {self.budget}, {self.neighbouring})"


@dataclass(frozen=True, eq=False)
class Receipt:
    """Proof that an entry has been recorded, good for one use. Only :meth:`PrivacyLedger.spend` issues valid ones.

    Parameters
    ----------
    entry : LedgerEntry
        The recorded entry.
    ledger : PrivacyLedger
        Ledger that holds the entry.
    """

    entry: LedgerEntry
    ledger: PrivacyLedger


def _append(file: IO[str], content: Mapping[str, Any]) -> None:
    """Write one line and force it to disk."""
    file.write(json.dumps(content) + "\n")
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _locked(path: Path) -> Iterator[IO[str]]:
    """Open the file for appending and lock it against other processes, where the operating system supports it."""
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise LedgerError(f"the ledger '{path}' cannot be written: {error.strerror}.") from None
    with file:
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield file
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
