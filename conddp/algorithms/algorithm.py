"""What every algorithm has, and what all of them do alike: check, record the cost, state the guarantee."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from conddp.data.records import Records
from conddp.errors import PrivacyError
from conddp.heads.head import Head
from conddp.heads.linear import Linear
from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FitResult, FittedModel
from conddp.privacy.accounting import GaussianEvent
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.training.loop import Callback

__all__ = ["Algorithm", "Task", "bound_rounding"]


@dataclass(frozen=True)
class Task:
    """One fit: what an algorithm is given, and the two things that every algorithm does with it."""

    name: str
    dataset: Records
    budget: PrivacyBudget
    cost: PrivacyBudget
    head: Head
    neighbouring: Neighbouring
    fit_intercept: bool
    random_source: RandomSource
    ledger: PrivacyLedger
    callback: Callback | None
    choice: str = ""

    @property
    def num_private(self) -> int:
        """Number of private columns."""
        return 0 if self.dataset.private is None else self.dataset.private.values.shape[1]

    def spend(self, reason: str, settings: Mapping[str, Any]) -> None:
        """Record the cost of the fit. To be called before private data are used, and once."""
        entry = LedgerEntry(self.name, self.cost, reason, dict(settings))
        self.ledger.spend(entry, neighbouring=self.neighbouring)

    def note_free(self, what: str, reason: str) -> None:
        """Record something that costs nothing, with the reason."""
        entry = LedgerEntry(f"{self.name}: {what}", PrivacyBudget(0.0, 0.0), reason)
        self.ledger.spend(entry, neighbouring=self.neighbouring)

    def finish(
        self,
        model: FittedModel,
        mechanism: str,
        settings: Mapping[str, Any],
        event: GaussianEvent | None = None,
        diagnostics: Diagnostics | None = None,
    ) -> FitResult:
        """The result with its guarantee; ``mechanism`` is a sentence on what was released."""
        dataset = self.dataset
        guarantee = Guarantee(
            self.cost,
            self.neighbouring,
            dataset.num_records,
            dataset.label.name,
            dataset.label.bounds,
            dataset.public.names,
            () if dataset.private is None else dataset.private.names,
            mechanism,
            self.random_source.seeded,
            event,
            self.choice,
        )
        return FitResult(model, guarantee, settings, diagnostics or Diagnostics())


class Algorithm(ABC):
    """A recipe from a data set and a budget to a model and its guarantee."""

    labels_only: ClassVar[bool] = False  # private columns are refused
    replace_only: ClassVar[bool] = False  # there is no null label, so ZERO_OUT has no meaning
    linear_only: ClassVar[bool] = False  # other heads are refused

    def cost(self, budget: PrivacyBudget) -> PrivacyBudget:
        """What a fit with this budget really costs: less where the algorithm needs no delta."""
        return budget

    @abstractmethod
    def run(self, task: Task) -> FitResult:
        """Choose from public information, spend, then train."""

    def check(self, dataset: Records, head: Head, neighbouring: Neighbouring) -> None:
        """Raise unless this algorithm can deal with such a task. Looks at names and types only."""
        name = type(self).__name__
        if self.labels_only and dataset.private is not None:
            raise PrivacyError(
                f"{name} protects labels only, but columns {list(dataset.private.names)} are private. "
                "Use an algorithm that protects them too, such as CondDP, or leave them out."
            )
        if self.replace_only and neighbouring is not Neighbouring.REPLACE:
            raise PrivacyError(f"{name} is defined under neighbouring='replace' only, got '{neighbouring}'.")
        if self.linear_only and not isinstance(head, Linear):
            raise ValueError(f"{name} fits a linear head only, got head={head}.")

    def fit(
        self,
        dataset: Records,
        budget: PrivacyBudget,
        *,
        head: Head | None = None,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
        fit_intercept: bool = True,
        random_source: RandomSource | None = None,
        ledger: PrivacyLedger | None = None,
        callback: Callback | None = None,
    ) -> FitResult:
        """Train a model on the data set and pay for it.

        Privacy
            Costs ``self.cost(budget)`` under ``neighbouring``. What the ledger does not cover is refused before
            anything is read, and the cost is recorded before labels or private columns are used.

        Parameters
        ----------
        dataset : Records
            The records.
        budget : PrivacyBudget
            What this fit may cost.
        head : Head, optional
            The model; linear if None.
        neighbouring : Neighbouring
            The relation under which the budget is meant.
        fit_intercept : bool
            Whether the model has an intercept.
        random_source : RandomSource, optional
            Where chance comes from; a cryptographic generator if None.
        ledger : PrivacyLedger, optional
            Where the cost is recorded; a fresh one with just this cost if None.
        callback : callable, optional
            Called after every noisy step with :class:`~conddp.training.loop.Progress`; returning True ends the run.
        """
        name, cost, head = type(self).__name__, self.cost(budget), head or Linear()
        self.check(dataset, head, neighbouring)
        ledger = ledger or PrivacyLedger(cost, neighbouring=neighbouring)
        ledger.check(name, cost, neighbouring)
        source = random_source or RandomSource.of(None)
        task = Task(name, dataset, budget, cost, head, neighbouring, fit_intercept, source, ledger, callback)
        return self.run(task)


def bound_rounding(n: int) -> float:
    """Share by which rounding can raise the sensitivity of a sum of n bounded vectors in float64.

    Adding up n terms one after the other is off by at most n (n + 1) / 2 times the unit roundoff times their bound, in
    each of two neighbouring data sets; the bounds themselves are right to far better than 1e-9. The noise is raised by
    this, so that the stated guarantee holds for the sums as they are computed.
    """
    return 1e-9 + n**2 * 2.0**-53
