"""Entry of a ledger: one use of the data, and what it cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.fingerprint import Fingerprint
from conddp.privacy.sides import Side
from conddp.privacy.transcript import Transcript
from conddp.stored import decode_settings

__all__ = ["LedgerEntry", "Receipt"]


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
    event : Transcript, optional
        The mechanisms that were paid for (:mod:`conddp.privacy.events`), which the ledger composes exactly. If None,
        only the cost is known, and it adds by basic composition.
    table : Fingerprint, optional
        Fingerprint of the public columns.
    side : Side, optional
        Side of a public split that was used. If None, all records.
    """

    what: str
    cost: PrivacyBudget
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    event: Transcript | None = None
    table: Fingerprint | None = None
    side: Side | None = None

    @property
    def title(self) -> str:
        """What the entry is for, with the side of a split if it has one."""
        return self.what if self.side is None else f"{self.what} ({self.side.name} records)"

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "LedgerEntry":
        """Read an entry from its stored form.

        Raises
        ------
        ValueError, TypeError
            If fields are missing, unknown or of the wrong type.
        """
        values = dict(stored)
        cost, event, table = values.pop("cost"), values.pop("event", None), values.pop("table", None)
        side = values.pop("side", None)
        entry = cls(
            **values,
            cost=PrivacyBudget(**cost),
            event=None if event is None else Transcript.from_json(event),
            table=None if table is None else Fingerprint.from_json(table),
            side=None if side is None else Side(**side),
        )
        if not all(isinstance(text, str) for text in (entry.what, entry.reason, entry.time)):
            raise ValueError("what, reason and time must be text.")
        decode_settings(entry.details, "details")
        return entry

    def to_json(self) -> dict[str, Any]:
        """Return the entry in its stored form."""
        stored: dict[str, Any] = {
            "what": self.what,
            "cost": {"epsilon": self.cost.epsilon, "delta": self.cost.delta},
            "reason": self.reason,
            "details": dict(self.details),
            "time": self.time,
        }
        if self.event is not None:
            stored["event"] = self.event.to_json()
        if self.table is not None:
            stored["table"] = self.table.to_json()
        if self.side is not None:
            stored["side"] = {"split": self.side.split, "name": self.side.name}
        return stored


@dataclass(frozen=True, eq=False)
class Receipt:
    """Proof that an entry has been recorded, good for one use. Only a ledger issues valid ones.

    Parameters
    ----------
    entry : LedgerEntry
        The recorded entry.
    ledger : PrivacyLedger
        Ledger that holds the entry.
    """

    entry: LedgerEntry
    ledger: Any
