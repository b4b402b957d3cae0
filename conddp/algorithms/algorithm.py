"""What every algorithm has, and the steps that all of them take alike."""

from collections.abc import Mapping
from typing import Any, Protocol

from conddp.accounting import GaussianEvent
from conddp.data import Dataset
from conddp.errors import PrivacyError
from conddp.fitted import FitResult
from conddp.guarantee import Guarantee
from conddp.ledger import LedgerEntry, PrivacyBudget, PrivacyLedger
from conddp.models import Head
from conddp.neighbouring import Neighbouring
from conddp.noise import RandomSource
from conddp.training import Callback

__all__ = ["Algorithm", "bound_rounding", "make_guarantee", "require_labels_only", "require_replace", "spend"]


class Algorithm(Protocol):
    """A recipe from a data set and a budget to a model and its guarantee."""

    def cost(self, budget: PrivacyBudget) -> PrivacyBudget:
        """What a fit with this budget really costs: less where the algorithm needs no delta."""

    def fit(
        self,
        dataset: Dataset,
        budget: PrivacyBudget,
        *,
        head: Head | None = None,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
        fit_intercept: bool = True,
        random_source: RandomSource | None = None,
        ledger: PrivacyLedger | None = None,
        callback: Callback | None = None,
    ) -> FitResult:
        """Record the cost, then train."""


def spend(
    ledger: PrivacyLedger | None,
    name: str,
    cost: PrivacyBudget,
    neighbouring: Neighbouring,
    *,
    reason: str,
    settings: Mapping[str, Any],
) -> None:
    """Record a cost before private data are used; without a ledger, check only that the cost is a cost."""
    ledger = ledger or PrivacyLedger(cost, neighbouring=neighbouring)
    ledger.spend(LedgerEntry(name, cost, reason, dict(settings)), neighbouring=neighbouring)


def make_guarantee(
    dataset: Dataset,
    cost: PrivacyBudget,
    neighbouring: Neighbouring,
    mechanism: str,
    random_source: RandomSource,
    event: GaussianEvent | None = None,
) -> Guarantee:
    """The promise of a fit to this data set."""
    return Guarantee(
        cost,
        neighbouring,
        dataset.num_records,
        dataset.label.name,
        dataset.label.bounds,
        dataset.public.names,
        () if dataset.private is None else dataset.private.names,
        mechanism,
        random_source.seeded,
        event,
    )


def require_labels_only(dataset: Dataset, name: str) -> None:
    """Refuse private columns where only labels are protected."""
    if dataset.private is not None:
        raise PrivacyError(
            f"{name} protects labels only, but columns {list(dataset.private.names)} are private. "
            "Use an algorithm that protects them too, such as CondDP, or leave them out."
        )


def require_replace(neighbouring: Neighbouring, name: str) -> None:
    """Refuse other relations where the mechanism has no null label."""
    if neighbouring is not Neighbouring.REPLACE:
        raise PrivacyError(f"{name} is defined under neighbouring='replace' only, got '{neighbouring}'.")


def bound_rounding(n: int) -> float:
    """Share by which rounding can raise the sensitivity of a sum of n bounded vectors in float64.

    A sum of n terms is off by at most n times the unit roundoff times the sum of their sizes, n times their bound, in
    each of two neighbouring data sets; the bounds themselves are right to far better than 1e-9. The noise is raised by
    this, so that the stated guarantee holds for the sums as they are computed.
    """
    return 1e-9 + n**2 * 2.0**-53
