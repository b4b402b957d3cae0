"""What every algorithm has: a recipe, and the checks before it."""

from abc import ABC, abstractmethod
from typing import ClassVar

from conddp.algorithms.task import Task
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.errors import PrivacyError
from conddp.heads.checking import check_head
from conddp.heads.head import Head, Linearity
from conddp.heads.linear import Linear
from conddp.losses import Loss, Squared
from conddp.models.result import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.composition import check_cost
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.locked import Locked
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.registry import Registry
from conddp.training.loop import Callback

__all__ = ["ALGORITHMS", "Algorithm"]


class Algorithm(ABC):
    """A recipe from records and a budget to a model and its guarantee."""

    summary: ClassVar[str] = ""  # what it does, in a line of the tables
    page: ClassVar[str] = ""  # of the documentation, below docs/
    protects: ClassVar[str] = "label and private columns"
    labels_only: ClassVar[bool] = False  # private columns are refused
    replace_only: ClassVar[bool] = False  # there is no null label, so ZERO_OUT has no meaning
    linear_only: ClassVar[bool] = False  # heads that are not linear in the columns are refused
    losses: ClassVar[tuple[str, ...]] = ("squared",)  # names of the losses that it can minimise

    def cost(self, budget: PrivacyBudget) -> PrivacyBudget:
        """What a fit with this budget really costs: less where the algorithm needs no delta."""
        return budget

    @abstractmethod
    def run(self, task: Task) -> FitResult:
        """Choose from public information, spend, then train."""

    def check(self, schema: Schema, head: Head, neighbouring: Neighbouring, loss: Loss | None = None) -> None:
        """Raise unless this algorithm can deal with such columns and such a model. Sees names and types only."""
        name, loss = type(self).__name__, loss or Squared()
        if self.labels_only and schema.private:
            raise PrivacyError(
                f"{name} protects labels only, but columns {list(schema.private)} are private. "
                "Use an algorithm that protects them too, such as CondDP, or leave them out."
            )
        if self.replace_only and neighbouring is not Neighbouring.REPLACE:
            raise PrivacyError(f"{name} is defined under neighbouring='replace' only, got '{neighbouring}'.")
        if self.linear_only and head.linear_in is not Linearity.COLUMNS:
            raise ValueError(f"{name} fits a linear head only, got head={head}.")
        if not type(head).__module__.startswith("conddp.heads."):
            check_head(head)
        if loss.name not in self.losses:
            raise ValueError(f"{name} minimises {' or '.join(self.losses)} loss only, got loss={loss!r}.")

    def fit(
        self,
        records: Records,
        budget: PrivacyBudget,
        *,
        head: Head | None = None,
        loss: Loss | None = None,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
        fit_intercept: bool = True,
        random_source: RandomSource | None = None,
        ledger: PrivacyLedger | None = None,
        callback: Callback | None = None,
    ) -> FitResult:
        """Train a model on the records and pay for it.

        Privacy
            Costs ``self.cost(budget)`` under ``neighbouring``. What the ledger does not cover is refused before
            anything is read. Labels and private columns are locked until the cost has been recorded, and the result is
            returned only if what was released costs no more than that.

        Parameters
        ----------
        records : Records
            The records.
        budget : PrivacyBudget
            What this fit may cost.
        head : Head, optional
            The model; linear if None.
        loss : Loss, optional
            What is minimised; half the squared residual if None.
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
        name, cost, head, loss = type(self).__name__, self.cost(budget), head or Linear(), loss or Squared()
        schema = records.schema
        self.check(schema, head, neighbouring, loss)
        ledger = ledger or PrivacyLedger(cost, neighbouring=neighbouring)
        ledger.check(name, cost, neighbouring)
        source = random_source or RandomSource.of(None)
        task = Task(
            name,
            records.public,
            schema,
            budget,
            cost,
            head,
            loss,
            neighbouring,
            fit_intercept,
            source,
            ledger,
            Locked(records, price=cost, ledger=ledger),
            Curator(source.generator(), num_records=records.num_records, budget=cost),
            callback,
        )
        result = self.run(task)
        # Once more, with what was handed out here: a recipe may have finished another task, or released afterwards.
        check_cost(task.curator.transcript, cost, neighbouring)
        if result.transcript != task.curator.transcript or result.guarantee.budget != cost:
            raise PrivacyError(f"{name} returned a result that does not belong to its own releases and cost.")
        return result


ALGORITHMS: Registry[Algorithm] = Registry("algorithm", Algorithm)  # type: ignore[type-abstract]  # instances of subclasses
