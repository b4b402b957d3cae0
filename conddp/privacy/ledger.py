"""Append-only record of the budget spent, written to disk before private data are read."""

import math
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from conddp.errors import BudgetExceeded, LedgerError, PrivacyError
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.chain import create_file
from conddp.privacy.entry import LedgerEntry, Receipt
from conddp.privacy.fingerprint import Fingerprint
from conddp.privacy.ledger_file import Header, LedgerFile
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.sides import Side, WorstCost
from conddp.privacy.total import check_statement
from conddp.privacy.transcript import Transcript

__all__ = ["LedgerEntry", "PrivacyLedger", "Receipt"]

LARGEST_DELTA = 0.1  # of a ledger file, as of a fit
_SAME = 1e-3  # an exact total that is lower than the plain sum by less than this is reported as the plain sum


class PrivacyLedger:
    """A privacy budget and its expenses, kept in memory or in a JSON Lines file.

    Privacy
        :meth:`spend` writes and flushes its entry before it returns, and private data may be read only after that. A
        crash can therefore only over-count. The entries are composed exactly where their mechanisms are known
        (:mod:`conddp.privacy.total`), and a fit is accepted if the total stays within the budget. Every line of a file
        carries a digest of all lines before it, so that accidental or careless changes are noticed.

    Parameters
    ----------
    budget : PrivacyBudget
        Total budget for this data set.
    neighbouring : Neighbouring
        Neighbouring relation under which the budget is stated. Fits under another relation are refused.
    path : path, optional
        File in which to keep the ledger. It must not exist yet; use :meth:`load` to open an existing ledger.
    unit : str, optional
        Whom the budget protects: None for one record; otherwise the public column whose equal values mark the rows of
        one person. Fits for another unit are refused.

    Attributes
    ----------
    other_rows : bool
        Whether fits on other rows than those of earlier entries are accepted; see :meth:`load`.
    is_copy : bool
        Whether this is the copy that was saved with a model, on which nothing can be spent.

    Examples
    --------
    >>> from conddp.privacy.events import expect_event
    >>> ledger, cost = PrivacyLedger(PrivacyBudget(2.0, 1e-6)), PrivacyBudget(1.0, 1e-6)
    >>> for _ in range(3):
    ...     receipt = ledger.spend(LedgerEntry("a fit", cost, event=expect_event(cost)))
    >>> print(f"{ledger.spent.epsilon:.2f} of {ledger.budget.epsilon:g}; one more fit: {ledger.remaining.epsilon:.2f}")
    1.81 of 2; one more fit: 0.75
    """

    def __init__(
        self,
        budget: PrivacyBudget,
        *,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
        path: str | Path | None = None,
        unit: str | None = None,
    ) -> None:
        self._start(path)
        self.budget = budget
        self.neighbouring = neighbouring
        self.unit = unit
        self._identity = secrets.token_hex(16)
        if self._file is not None:
            if not budget.epsilon or budget.delta >= LARGEST_DELTA:
                raise ValueError(
                    f"a ledger needs an epsilon above 0 and a delta below {LARGEST_DELTA:g}, got {budget}. Choose "
                    "delta well below one over the number of records."
                )
            self._file.create(self._header())

    def _start(self, path: str | Path | None) -> None:
        """Set everything that does not depend on the header."""
        self.path = None if path is None else Path(os.path.realpath(path))
        self.is_copy = False
        self.other_rows = False
        self._file = None if self.path is None else LedgerFile(self.path)
        self._entries: list[LedgerEntry] = []
        self._receipts: list[Receipt] = []
        self._owner: int | None = os.getpid()
        self._lock = threading.RLock()

    @classmethod
    def load(cls, path: str | Path, *, other_rows: bool = False) -> "PrivacyLedger":
        """Open an existing ledger file.

        Parameters
        ----------
        path : path
            The file.
        other_rows : bool
            Whether to accept a fit on a table with other public columns or another number of records than those of
            earlier entries. Say so only if the same people are in it: one budget then covers all of these rows.

        Raises
        ------
        LedgerError
            If the file cannot be read, was changed, or has lost entries.
        """
        ledger = cls.__new__(cls)
        ledger._start(path)
        ledger.other_rows = other_rows
        ledger._read()
        return ledger

    def write_copy(self, path: str | Path) -> None:
        """Write a read-only copy to a file. The copy cannot be spent from, since two ledgers would count separately."""
        self._refresh()
        header = replace(self._header(), is_copy=True)
        create_file(Path(path), [header.to_json(), *(entry.to_json() for entry in self._entries)])

    def _header(self) -> Header:
        return Header(self.budget, self.neighbouring, self.unit, self._identity)

    def _read(self) -> None:
        """Read the budget and the entries from the file."""
        if self._file is None:
            return
        header, self._entries = self._file.read()
        self.budget, self.neighbouring, self.unit = header.budget, header.neighbouring, header.unit
        self._identity, self.is_copy = header.identity, self.is_copy or header.is_copy

    @property
    def identity(self) -> str:
        """Random name of the ledger; empty for a file of the first format without new entries."""
        return self._identity

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries recorded so far, by other processes too."""
        self._refresh()
        return tuple(self._entries)

    def _refresh(self) -> None:
        """Read entries that other handles or processes have written, if the file has changed."""
        if self._file is not None and not self.is_copy and self._file.has_changed:
            with self._lock:
                self._read()

    @property
    def num_unchained(self) -> int:
        """Number of entries from before the hash chain, written by versions that had none; 0 for new ledgers."""
        self._refresh()
        return 0 if self._file is None else self._file.num_unchained

    @property
    def joint(self) -> WorstCost:
        """All entries in the form in which they compose."""
        self._refresh()
        return WorstCost.of(((entry.cost, entry.event, entry.side) for entry in self._entries), self.neighbouring)

    @property
    def plain_sum(self) -> PrivacyBudget:
        """Sum of all costs, by basic composition: an upper bound that needs no knowledge of the mechanisms.

        Of the sides of a split, the one with the largest sum counts.
        """
        return self.joint.total

    @property
    def spent(self) -> PrivacyBudget:
        """What all entries cost together, at the delta of the ledger's budget.

        This is the exact composition of all entries whose mechanism is known, to which the costs of the others are
        added. If that does not save at least 0.1 %, the plain sum is returned, whose delta may be lower.
        """
        joint, plain = self.joint, self.plain_sum
        exact = joint.epsilon(self.budget.delta)
        if plain.epsilon <= exact * (1 + _SAME) and (self.budget.covers(plain) or math.isinf(exact)):
            return plain
        if math.isinf(exact):
            return plain
        return PrivacyBudget(exact, self.budget.delta)

    @property
    def remaining(self) -> PrivacyBudget:
        """What one more fit could still have: the largest epsilon of a Gaussian fit at the delta of the ledger.

        Full-batch fits, the default, are Gaussian. A fit with this epsilon and this delta is accepted; a fit with a
        lower delta is accepted up to a somewhat larger epsilon. Epsilon is 0 if nothing is left. For a budget with
        delta = 0 it is the largest epsilon of one more pure fit.
        """
        return self.joint.find_rest(self.budget)

    def check(
        self,
        what: str,
        cost: PrivacyBudget,
        neighbouring: Neighbouring,
        *,
        event: Transcript | None = None,
        table: Fingerprint | None = None,
        unit: str | None = None,
        side: Side | None = None,
    ) -> None:
        """Raise if the budget does not cover a fit. Records nothing.

        Parameters
        ----------
        what : str
            Name of the fit, for the message.
        cost : PrivacyBudget
            Its cost.
        neighbouring : Neighbouring
            Neighbouring relation under which the cost is stated.
        event : Transcript, optional
            What the cost is for; if None, the cost adds by basic composition.
        table : Fingerprint, optional
            Fingerprint of the public columns. A ledger file belongs to one table.
        unit : str, optional
            The unit that the fit protects, None for one record.
        side : Side, optional
            Side of a public split that the fit uses. If None, all records.

        Raises
        ------
        BudgetExceeded
            If the total would exceed the budget.
        PrivacyError
            If the neighbouring relation or the unit differs from that of the ledger.
        LedgerError
            If the file is damaged or belongs to another table.
        """
        with self._lock:
            self._read()
            self._check_relation(what, neighbouring, unit)
            self._check_writable()
            if not cost.epsilon and not cost.delta:
                return
            self._check_table(what, table)
            if math.isinf(cost.epsilon) and not math.isinf(self.budget.epsilon):
                raise BudgetExceeded(f"{what} is not private at all, and no finite budget covers it.")
            together = self.joint.add(cost, event, side)
            if not together.is_covered_by(self.budget):
                total = PrivacyBudget(together.epsilon(self.budget.delta), self.budget.delta)
                joined = "" if math.isinf(total.epsilon) or not self._entries else f" In all it would be {total}."
                raise BudgetExceeded(
                    f"{what} needs {cost}, but of {self.budget} {self._describe_rest()}."
                    f"{joined} Lower epsilon, or open a new ledger if this is a different data set."
                )

    def _describe_rest(self) -> str:
        rest = self.remaining
        if not self.budget.delta:
            return f"epsilon={rest.epsilon:g} remains, for algorithms with pure epsilon: it has no delta"
        return f"one more full-batch fit could have {rest}"

    def _check_relation(self, what: str, neighbouring: Neighbouring, unit: str | None) -> None:
        if neighbouring is not self.neighbouring:
            raise PrivacyError(
                f"the ledger's budget is stated under neighbouring='{self.neighbouring}', but {what} was requested "
                f"under '{neighbouring}'. Costs under different relations do not add up: use one ledger for each."
            )
        if self.unit is not None and unit != self.unit:  # protecting all rows of a person protects each of them
            names = ["one record" if each is None else f"all rows with the same '{each}'" for each in (self.unit, unit)]
            raise PrivacyError(
                f"the ledger's budget protects {names[0]}, but {what} was requested for {names[1]}. Costs for "
                "different units do not add up: use one ledger for each."
            )

    def _check_table(self, what: str, table: Fingerprint | None) -> None:
        known = [entry.table for entry in self._entries if entry.table is not None]
        if self.path is None or self.other_rows or table is None or not known:
            return
        if not any(table.matches(each) for each in known):
            raise LedgerError(
                f"the ledger '{self.path}' belongs to another table: {what} was requested for {table.num_records} "
                f"records, and earlier fits had {known[-1].num_records} and other values in all public columns. Open a "
                "new ledger for a different data set. If the same people are in it, for example as more rows or a part "
                "of the rows, say so with PrivacyLedger.load(path, other_rows=True)."
            )

    def spend(
        self, entry: LedgerEntry, *, neighbouring: Neighbouring | None = None, unit: str | None = None
    ) -> Receipt:
        """Record an entry and return its receipt. Raise if the budget does not cover it.

        If the ledger has a file, the entry is written to disk first. The receipt unlocks private data whose price the
        entry covers.

        Parameters
        ----------
        entry : LedgerEntry
            The entry. Its event, if it has one, must cost at most what the entry says.
        neighbouring : Neighbouring, optional
            Neighbouring relation of the cost; that of the ledger if None.
        unit : str, optional
            The unit that the fit protects, None for one record.
        """
        self._check_writable()
        relation = self.neighbouring if neighbouring is None else neighbouring
        check_statement(entry.cost, entry.event, relation)

        def check() -> None:
            self.check(
                entry.what, entry.cost, relation, event=entry.event, table=entry.table, unit=unit, side=entry.side
            )
            self._check_grouping(entry)

        with self._lock:
            self._record(entry, check)
            return self._issue(entry)

    def _record(self, entry: LedgerEntry, check: Callable[[], None]) -> None:
        """Write an entry, if a check that is made while the file is locked raises nothing."""
        if self._file is None:
            check()
        else:
            with self._file.lock() as file:
                check()
                self._file.append(file, entry)
        self._entries.append(entry)

    def _issue(self, entry: LedgerEntry) -> Receipt:
        receipt = Receipt(entry, self)
        self._receipts.append(receipt)
        return receipt

    def _check_writable(self) -> None:
        if self.path is None and self._owner != os.getpid():
            raise LedgerError(
                "this ledger is a copy of an in-memory ledger from another process, which would not see what is spent "
                "on the copy. Keep the ledger in a file (path=...) to share it between processes."
            )
        if self.is_copy:
            raise LedgerError(
                f"'{self.path}' is the copy of a ledger that was saved with a model, and nothing can be spent on it. "
                "Use the original ledger."
            )

    def _check_grouping(self, entry: LedgerEntry) -> None:
        """Raise if the units of a ledger are not those of earlier fits, though their column has the same name."""
        if entry.side is not None:
            return  # it has the units of one side only
        sizes = entry.details.get("unit_sizes")
        known = {each.details.get("unit_sizes") for each in self._entries if each.cost.epsilon and not each.side}
        if self.unit is not None and entry.cost.epsilon and known and sizes not in known:
            raise PrivacyError(
                f"the values of '{self.unit}' divide the records otherwise than in earlier fits on this ledger. Costs "
                "for different units do not add up: use one ledger for each."
            )

    def resume(
        self, fit_id: str, generation: int, *, neighbouring: Neighbouring, unit: str | None = None
    ) -> Receipt | None:
        """Return a receipt for the entry of an interrupted fit, which goes on as paid for; None if there is no entry.

        Privacy
            The resumption is noted. A checkpoint that was resumed before, or whose fit has ended, is refused: going on
            from a copy of it would release more than the entry paid for.

        Parameters
        ----------
        fit_id : str
            Name of the fit, in the details of its entry.
        generation : int
            How often the fit was resumed, this time included.
        neighbouring : Neighbouring
            Neighbouring relation of the fit.
        unit : str, optional
            The unit that the fit protects, None for one record.

        Raises
        ------
        LedgerError
            If the fit has ended, or was resumed from this checkpoint before.
        """

        def check() -> None:
            self._read()
            notes = [entry.details for entry in self._entries if entry.details.get("fit") == fit_id]
            if any("finished" in note or note.get("generation", 0) >= generation for note in notes):
                raise LedgerError(
                    "this checkpoint is a copy: its fit has ended or was resumed from another file. Going on from here "
                    "would release more than was paid for. Remove the file; a new fit costs its budget."
                )

        self._check_writable()
        with self._lock:
            self._read()
            self._check_relation("the interrupted fit", neighbouring, unit)
            paid = [entry for entry in self._entries if entry.details.get("fit") == fit_id and entry.cost.epsilon]
            if not paid:
                return None
            self._record(_note(f"{paid[0].what}: resumed", {"fit": fit_id, "generation": generation}), check)
            return self._issue(paid[0])

    def note_end(self, fit_id: str, generation: int) -> None:
        """Note that a fit with a checkpoint has ended, so that no copy of the checkpoint can be resumed.

        Raises
        ------
        LedgerError
            If the fit was resumed elsewhere in the meantime, or has ended there.
        """

        def check() -> None:
            self._read()
            notes = [entry.details for entry in self._entries if entry.details.get("fit") == fit_id]
            if any("finished" in note or note.get("generation", 0) > generation for note in notes):
                raise LedgerError("this fit was resumed by another process, whose model counts. None is returned here.")

        self._check_writable()
        with self._lock:
            self._record(_note("checkpoint closed", {"fit": fit_id, "finished": True}), check)

    def redeem(self, receipt: Receipt) -> bool:
        """Whether a receipt was issued by this ledger and has not been redeemed before; it cannot be used again."""
        with self._lock:
            held = [each for each in self._receipts if each is receipt]
            self._receipts = [each for each in self._receipts if each is not receipt]
        return bool(held)

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


def _note(what: str, details: Mapping[str, Any]) -> LedgerEntry:
    return LedgerEntry(what, PrivacyBudget(0.0, 0.0), "part of a fit that is paid for", details)
