"""What has been spent: an append-only record, written to disk before private data are read."""

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

from conddp.errors import BudgetExceeded, LedgerError, PrivacyError
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["LedgerEntry", "PrivacyLedger", "Receipt"]

FORMAT_VERSION = 1


@dataclass(frozen=True)
class LedgerEntry:
    """One use of the data: what was done, what it cost, and why it cost that.

    Parameters
    ----------
    what : str
        Name of the algorithm or computation.
    cost : PrivacyBudget
        Zero for what reads public data only.
    reason : str
        The argument in a sentence.
    details : mapping
        The mechanism's public settings.
    time : str
        When, in UTC.
    """

    what: str
    cost: PrivacyBudget
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


class PrivacyLedger:
    """A budget and what has been spent of it, in memory or in a file of JSON lines.

    Privacy
        :meth:`spend` writes and flushes its entry, then returns; only then may private data be read. A crash can
        therefore only over-count. Costs add up by basic composition, whatever the algorithms.

    Parameters
    ----------
    budget : PrivacyBudget
        The most that may be spent on this data set.
    neighbouring : Neighbouring
        The relation in which the budget is stated; a fit under another one is refused.
    path : path, optional
        File to keep the ledger in. It must not exist yet; :meth:`load` opens one that does.

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
        self.path = None if path is None else Path(path).resolve()
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
        """Open a ledger file."""
        ledger = cls.__new__(cls)
        ledger.path = Path(path).resolve()
        ledger._owner = os.getpid()
        ledger._lock = threading.RLock()
        ledger.is_copy = False
        ledger._entries = []
        ledger._receipts = []
        ledger._read()
        return ledger

    def write_copy(self, path: str | Path) -> None:
        """Write what is recorded to a file that can be read but not spent from: two ledgers would count apart."""
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
        """Everything recorded so far."""
        return tuple(self._entries)

    @property
    def spent(self) -> PrivacyBudget:
        """Sum of all costs."""
        return sum((entry.cost for entry in self._entries), PrivacyBudget(0.0, 0.0))

    @property
    def remaining(self) -> PrivacyBudget:
        """What may still be spent."""
        return self.budget.minus(self.spent)

    def check(self, what: str, cost: PrivacyBudget, neighbouring: Neighbouring) -> None:
        """Refuse what the budget does not cover; changes nothing.

        Raises
        ------
        BudgetExceeded
            If the cost does not fit into what remains.
        PrivacyError
            If the relation is not the ledger's.
        """
        if neighbouring is not self.neighbouring:
            raise PrivacyError(
                f"the ledger's budget is stated under neighbouring='{self.neighbouring}', but {what} was asked for "
                f"under '{neighbouring}'. Amounts under different relations do not add up: use one ledger for each."
            )
        with self._lock:
            if self.path is not None:
                self._read()
            spent = self.spent
        if self.is_copy:
            raise LedgerError(
                f"'{self.path}' is the copy of a ledger that is kept with a model, and nothing may be spent on it. "
                "Use the ledger itself."
            )
        if math.isinf(cost.epsilon) and not math.isinf(self.budget.epsilon):
            raise BudgetExceeded(f"{what} is not private at all, and no finite budget covers it.")
        if not self.budget.covers(spent + cost):
            raise BudgetExceeded(
                f"{what} needs {cost}, but {self.remaining} remains of {self.budget}. "
                "Lower epsilon, or open a new ledger if this is a different data set."
            )

    def spend(self, entry: LedgerEntry, *, neighbouring: Neighbouring | None = None) -> "Receipt":
        """Record an entry, on disk if the ledger has a file, or refuse it if the budget does not cover it.

        The receipt opens what was locked at the price of the entry.
        """
        if self.path is None and self._owner != os.getpid():
            raise LedgerError(
                "this ledger is a copy of one kept in memory, and spending on a copy would go uncounted. "
                "Keep the ledger in a file (path=...) to share it between processes."
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
        """Load budget and entries from the file."""
        assert self.path is not None
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise LedgerError(f"the ledger '{self.path}' cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise LedgerError(f"'{self.path}' is not a ledger: it does not hold text.") from None
        entries: list[LedgerEntry] = []
        number = 0
        try:
            for number, line in enumerate(text.splitlines(), start=1):
                content = json.loads(line)
                if number == 1:
                    version = content["conddp_ledger"]
                    if version > FORMAT_VERSION:
                        raise LedgerError(
                            f"the ledger '{self.path}' has format {version}, newer than this conddp reads "
                            f"({FORMAT_VERSION}). Install a newer conddp."
                        )
                    self.is_copy = bool(content.get("copy", False))
                    self.budget = PrivacyBudget(**content["budget"])
                    self.neighbouring = Neighbouring(content["neighbouring"])
                else:
                    content["cost"] = PrivacyBudget(**content["cost"])
                    entries.append(LedgerEntry(**content))
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
            if isinstance(error, LedgerError):
                raise
            raise LedgerError(
                f"line {number} of the ledger '{self.path}' is damaged. Nothing is spent on a ledger that cannot be "
                "read: restore it, or remove the line if it is an incomplete last one."
            ) from None
        if number == 0 or not text.endswith("\n"):
            raise LedgerError(f"the ledger '{self.path}' is empty or ends within a line. Restore it.")
        if len(entries) < len(self._entries):
            raise LedgerError(f"the ledger '{self.path}' has lost entries since it was opened. Restore it.")
        self._entries = entries

    def __deepcopy__(self, memo: dict[int, Any]) -> "PrivacyLedger":
        return self  # clones of an estimator must go on spending from the same budget

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
        What was recorded.
    ledger : PrivacyLedger
        Where.
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
    """The file, open for appending, held against other processes where the system can do that."""
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
