"""Fits of this process that were not charged to a ledger of the user, and what they cost together."""

import threading
import warnings
from dataclasses import dataclass

from conddp.errors import PrivacyWarning
from conddp.privacy.entry import LedgerEntry
from conddp.privacy.fingerprint import Fingerprint
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.total import JointCost

__all__ = ["warn_of_joint_cost"]


@dataclass(frozen=True)
class _Fit:
    table: Fingerprint
    neighbouring: Neighbouring
    entry: LedgerEntry


_FITS: list[_Fit] = []
_LOCK = threading.Lock()


def warn_of_joint_cost(
    entry: LedgerEntry, table: Fingerprint, neighbouring: Neighbouring, *, stacklevel: int = 2
) -> None:
    """Remember a fit, and warn if the same records were fitted before in this process without a ledger.

    Privacy
        Remembers costs and fingerprints of public columns only.

    Parameters
    ----------
    entry : LedgerEntry
        Entry of the fit.
    table : Fingerprint
        Fingerprint of its public columns.
    neighbouring : Neighbouring
        Its relation. Costs under different relations are not added.
    stacklevel : int
        As in ``warnings.warn``.
    """
    with _LOCK:
        fit = entry.details.get("fit")  # an interrupted fit that goes on is the same fit
        if fit is None or all(each.entry.details.get("fit") != fit for each in _FITS):
            _FITS.append(_Fit(table, neighbouring, entry))
        same = [each.entry for each in _FITS if each.neighbouring is neighbouring and each.table.matches(table)]
    if len(same) < 2:
        return
    delta = max(each.cost.delta for each in same)
    joint = JointCost.of(((each.cost, each.event) for each in same), neighbouring)
    epsilon = joint.epsilon(delta)
    if epsilon == float("inf"):  # some costs add by basic composition, and so do their deltas
        delta = joint.total.delta
        epsilon = joint.epsilon(delta)
    warnings.warn(
        f"{len(same)} fits of this process used the same public columns and number of records without a ledger. "
        f"Together they cost epsilon={epsilon:.3g} at delta={delta:.3g}, more than the guarantee of each one says. To "
        "add up costs and limit them, pass ledger=PrivacyLedger(budget) to every fit.",
        PrivacyWarning,
        stacklevel=stacklevel + 1,
    )
