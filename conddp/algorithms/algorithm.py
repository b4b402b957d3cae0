"""Base class of all algorithms, with the checks that run before a fit."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np

from conddp.algorithms.dividing import agree, assist_fit, lead_ranks, send_result
from conddp.algorithms.identity import list_private, list_public, list_settings
from conddp.algorithms.preparation import Prepared
from conddp.algorithms.task import Task
from conddp.algorithms.trial import Shared, Trial
from conddp.data.parts import PublicFeatures
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.errors import PrivacyError
from conddp.features.stored_features import StoredFeatures
from conddp.features.stored_reading import load_records
from conddp.heads.checking import check_head
from conddp.heads.head import Circumstances, Head, Linearity
from conddp.heads.linear import Linear
from conddp.losses import Loss, Squared
from conddp.models.result import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.checkpoint import Checkpoint
from conddp.privacy.composition import check_cost
from conddp.privacy.events import check_event, expect_event
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.locked import Locked
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.privacy.transcript import Transcript
from conddp.registry import Registry
from conddp.training.loop import Callback, StepCounter
from conddp.training.ranks import Share, get_ranks

__all__ = ["ALGORITHMS", "Algorithm"]


class Algorithm(ABC):
    """Fits a model to records under a privacy budget and returns it with its guarantee."""

    summary: ClassVar[str] = ""  # one-line description for tables
    page: ClassVar[str] = ""  # documentation page, relative to docs/
    protects: ClassVar[str] = "label and private columns"
    labels_only: ClassVar[bool] = False  # private columns are refused
    replace_only: ClassVar[bool] = False  # ZERO_OUT is refused, because there is no null label
    linear_only: ClassVar[bool] = False  # heads that are not linear in the columns are refused
    keeps_checkpoints: ClassVar[bool] = True
    protects_units: ClassVar[bool] = False  # releases are calibrated to task.units; otherwise a unit column is refused
    ignores_units: ClassVar[bool] = False  # nothing is protected, so all records are used
    weighs_records: ClassVar[bool] = False  # task.weights are used, in sensitivities too; otherwise they are refused
    divides_work: ClassVar[bool] = False  # runs on several ranks; otherwise refused within conddp.distributed.use_ranks
    takes_codes: ClassVar[bool] = False  # heads may look up bins of categories; otherwise they are refused
    learns_features: ClassVar[bool] = False  # heads may learn their features during the fit; otherwise they are refused
    losses: ClassVar[tuple[str, ...]] = ("squared",)  # names of the supported losses

    @property
    def title(self) -> str:
        """Name in ledgers and messages."""
        return type(self).__name__

    def cost(self, budget: PrivacyBudget) -> PrivacyBudget:
        """Return the actual cost of a fit with this budget; it is lower if the algorithm needs no delta."""
        return budget

    @property
    def needs_delta(self) -> bool:
        """Whether a fit needs a delta above 0, as Gaussian noise does."""
        return self.cost(PrivacyBudget(1.0, 1e-6)).delta > 0

    def expect(self, budget: PrivacyBudget) -> Transcript | None:
        """Return the event that a fit with this budget will record, as far as it is known before the columns are read.

        It serves to refuse a fit early; the event given to :meth:`Task.spend` decides. None stands for a cost that adds
        by basic composition, an empty transcript for an event that is not known yet.
        """
        return expect_event(self.cost(budget))

    def settle(
        self,
        records: Records,
        budget: PrivacyBudget,
        *,
        head: Head,
        fit_intercept: bool,
        neighbouring: Neighbouring,
    ) -> "Algorithm":
        """Make all choices that several fits on the same public columns, with this budget each, must have in common.

        Privacy
            Reads public columns, units, weights, names and n only: no cost.
        """
        return self

    def foresee(
        self, budget: PrivacyBudget, records: Records, *, head: Head, neighbouring: Neighbouring
    ) -> Transcript | None:
        """Return the event that a fit with this budget on these records will record.

        Several fits are composed by it before the first of them. None or an empty transcript stands for a cost that
        adds by basic composition.

        Privacy
            Reads public columns, units and numbers of records only: no cost.

        Parameters
        ----------
        budget : PrivacyBudget
            Budget of the fit.
        records : Records
            Records that the fit will use, arranged.
        head : Head
            Model to fit.
        neighbouring : Neighbouring
            Neighbouring relation of the fit.
        """
        return self.expect(budget)

    @abstractmethod
    def run(self, task: Task) -> FitResult:
        """Choose settings from public information, spend the budget, then train."""

    def run_together(self, tasks: Sequence[Task]) -> list[FitResult]:
        """Run several tasks on the same public columns, with the same results as :meth:`run` up to rounding.

        Overridden by algorithms that are faster if they take the steps of all tasks together.
        """
        return [self.run(task) for task in tasks]

    def assist(self, share: Share, records: Records, *, head: Head, loss: Loss, fit_intercept: bool) -> None:
        """Do the work of a rank other than 0, while rank 0 is in :meth:`run`.

        Privacy
            Must not read private columns of the records before rank 0 has said that their cost is recorded, and those
            of the own share only. Nothing is released, and no noise is drawn.
        """
        raise NotImplementedError(f"{type(self).__name__} divides its work over ranks, so it must define assist.")

    def needs_dense(self, schema: Schema, head: Head) -> bool:
        """Whether large sparse public features are refused, because this algorithm expands them to an array."""
        return True

    def reads_blocks(self, public_features: PublicFeatures, head: Head) -> bool:
        """Whether records of a table in files are read block by block; otherwise they are read into memory."""
        return False

    def check(self, schema: Schema, head: Head, neighbouring: Neighbouring, loss: Loss | None = None) -> None:
        """Raise unless this algorithm supports these columns, head, relation and loss. Reads names and types only."""
        name, loss = type(self).__name__, loss or Squared()
        if self.labels_only and schema.private:
            raise PrivacyError(
                f"{name} protects labels only, but columns {list(schema.private)} are private. "
                "Use an algorithm that also protects columns, such as CondDP, or leave them out."
            )
        if self.replace_only and neighbouring is not Neighbouring.REPLACE:
            raise PrivacyError(f"{name} is defined under neighbouring='replace' only, got '{neighbouring}'.")
        if schema.unit is not None and not (self.protects_units or self.ignores_units):
            raise PrivacyError(
                f"{name} protects single records, but column '{schema.unit}' says which records belong together. Use "
                "CondNewton, CondDP, OneShot or RROnBins, which protect all records of a unit, or leave the unit out."
            )
        if self.linear_only and head.linear_in is not Linearity.COLUMNS:
            raise ValueError(f"{name} fits a linear head only, got head={head}.")
        if head.num_codes and not self.takes_codes:
            raise ValueError(
                f"{name} multiplies public columns by a matrix, but {head.num_codes} of them hold bins of categories, "
                "which the head looks up in a table. Use SwitchCondDP, which starts from a table that is made from the "
                "public bins, or DPSGD or RROnBins."
            )
        if head.linear_in is Linearity.LEARNED and not self.learns_features:
            raise ValueError(
                f"{name} cannot fit head={head}, whose features are learned from released numbers. Use CondNewton, or "
                "the head 'mlp' or 'wide'."
            )
        if not type(head).__module__.startswith("conddp.heads."):
            check_head(head)
        if loss.name not in self.losses:
            raise ValueError(f"{name} supports {' or '.join(self.losses)} loss only, got loss={loss!r}.")

    def check_weights(self) -> None:
        """Raise unless this algorithm uses weights of records."""
        if not self.weighs_records:
            raise ValueError(
                f"{type(self).__name__} gives all records the same weight, but the records have weights. Use an "
                "algorithm that uses them, such as CondNewton, CondDP, OneShot or RROnBins, or leave the weights out."
            )

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
        checkpoint: str | Path | None = None,
        deliver: Callable[[FitResult], object] | None = None,
        curator_class: type[Curator] = Curator,
        head_choice: str = "",
    ) -> FitResult:
        """Train a model on the records and record its privacy cost.

        Privacy
            Costs ``self.cost(budget)`` under ``neighbouring``. A fit that the ledger does not cover is refused before
            any private value is read. Labels and private columns are locked until the cost has been recorded. The
            result is returned only if its releases cost no more than the recorded cost and the recorded event. If the
            records have units, the guarantee covers all records of a unit together. Weights of records are public.

        Parameters
        ----------
        records : Records
            Training records.
        budget : PrivacyBudget
            Privacy budget of this fit.
        head : Head, optional
            Model to fit; linear if None.
        loss : Loss, optional
            Loss to minimise; half the squared residual if None.
        neighbouring : Neighbouring
            Neighbouring relation under which the budget is stated.
        fit_intercept : bool
            Whether to fit an intercept.
        random_source : RandomSource, optional
            Source of random numbers; a cryptographic generator if None.
        ledger : PrivacyLedger, optional
            Ledger that records the cost; a new one with a budget of exactly this cost if None.
        callback : callable, optional
            Called after every noisy step with :class:`~conddp.training.loop.Progress`. Return True to stop the run.
        checkpoint : path, optional
            File that keeps what is released while the fit runs. If the fit is killed, call it again with the same
            arguments: it goes on where it was, at no further cost. The file is deleted at the end.
        deliver : callable, optional
            Called with the result before the checkpoint is deleted, for example to save the model.
        curator_class : type of Curator
            Class of the curator that makes the releases. Audits pass a subclass that records them
            (:mod:`conddp.auditing`); leave it alone otherwise.
        head_choice : str
            Sentence that explains why this head is fitted, if the library chose it before, as for several labels.
        """
        prepared = self._prepare(
            records,
            budget,
            head=head,
            loss=loss,
            neighbouring=neighbouring,
            fit_intercept=fit_intercept,
            random_source=random_source,
            ledger=ledger,
            head_choice=head_choice,
        )
        name, records, ledger, ranks = prepared.name, prepared.records, prepared.ledger, get_ranks()
        if ranks is not None:
            head, loss, settings = prepared.head, prepared.loss, prepared.settings
            agree(ranks, records, head, loss, settings=settings, divides_work=self.divides_work, name=name)
            if ranks.rank > 0:
                share = Share(ranks, records.num_records)
                return assist_fit(
                    share,
                    lambda: self.assist(
                        share, records, head=prepared.head, loss=prepared.loss, fit_intercept=fit_intercept
                    ),
                    checkpoint=checkpoint,
                )
        if checkpoint is not None and not self.keeps_checkpoints:
            raise ValueError(f"{name} cannot keep a checkpoint, because its runs must stay secret.")
        with ExitStack() as stack:
            locked, saved = Locked(records, price=prepared.cost, ledger=ledger), None
            if ranks is not None:
                stack.enter_context(lead_ranks(ranks, locked, checkpoint=checkpoint))
            if checkpoint is not None:
                seeded = [b"seeded" if prepared.random_source.seeded else b""]
                saved = Checkpoint(
                    checkpoint,
                    plan=chain(prepared.settings, list_public(records), seeded),
                    private=list_private(records),
                    payer="" if ledger.path is None else ledger.identity,
                    always=callback is not None and not isinstance(callback, StepCounter),
                )
                stack.callback(saved.close)
            task = prepared.make_task(
                locked,
                event=self.expect(budget),
                checkpoint=saved,
                ranks=ranks,
                callback=callback,
                curator_class=curator_class,
            )
            if task.head_choice:
                task.note_free("choice of head", task.head_choice)
            result = self._check_result(task, self.run(task))
            if saved is not None:
                saved.write()  # all releases, so that a fit that dies while it delivers goes on to the same result
            if deliver is not None:
                deliver(result)
            if saved is not None:
                ledger.note_end(saved.fit_id, saved.generation)
                saved.remove()
            if ranks is not None:
                send_result(ranks, result)
        return result

    def fit_trials(
        self,
        trials: Sequence[Trial],
        *,
        head: Head | None = None,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
        fit_intercept: bool = True,
        shared: Shared | None = None,
    ) -> list[FitResult]:
        """Fit several sets of labels of the same records at several budgets, each as :meth:`fit` does, but faster.

        What depends on public columns only is computed once, and algorithms that can (:meth:`run_together`) take the
        steps of all fits together. The numbers are those of single fits up to rounding, unless nonlinear heads are to
        learn briefly (``shared``).

        Privacy
            Every fit has a ledger, noise and a guarantee of its own. Nothing accounts for all of them together, so
            this is for simulated labels, which need no protection.

        Parameters
        ----------
        trials : sequence of Trial
            Labels, budgets and sources of noise. All must have the same public columns, units and weights.
        head, neighbouring, fit_intercept
            As in :meth:`fit`.
        shared : Shared, optional
            What earlier calls computed from the same public columns, units and weights with the same settings.
        """
        if get_ranks() is not None:
            raise ValueError("trials run on one process, but several ranks are in use. Leave conddp.distributed first.")
        shared = Shared() if shared is None else shared
        tasks = []
        for trial in trials:
            prepared = self._prepare(
                trial.records,
                trial.budget,
                head=head,
                loss=None,
                neighbouring=neighbouring,
                fit_intercept=fit_intercept,
                random_source=trial.random_source,
                ledger=None,
            )
            locked = Locked(prepared.records, price=prepared.cost, ledger=prepared.ledger)
            tasks.append(prepared.make_task(locked, event=self.expect(trial.budget), shared=shared))
        results = self.run_together(tasks)
        return [self._check_result(task, result) for task, result in zip(tasks, results, strict=True)]

    def _prepare(
        self,
        records: Records,
        budget: PrivacyBudget,
        *,
        head: Head | None,
        loss: Loss | None,
        neighbouring: Neighbouring,
        fit_intercept: bool,
        random_source: RandomSource | None,
        ledger: PrivacyLedger | None,
        head_choice: str = "",
    ) -> Prepared:
        """Check the request, arrange the records, and derive the source of random numbers. Nothing is spent."""
        name, cost, head, loss = self.title, self.cost(budget), head or Linear(), loss or Squared()
        if isinstance(records.public, StoredFeatures) and head.bins is not None:
            records = load_records(records)  # the head looks at all bins
        schema = records.schema
        head, reason = head.settle(records.public, self.describe(records, budget, fit_intercept=fit_intercept))
        self.check(schema, head, neighbouring, loss)
        if head.linear_in is Linearity.LEARNED and not fit_intercept:
            raise ValueError(f"head={head} always has an intercept, got fit_intercept=False. Use the head 'linear'.")
        if isinstance(records.public, StoredFeatures) and not self.reads_blocks(records.public, head):
            records = load_records(records)
        if self.needs_dense(schema, head):
            records.public.check_dense()
        ledger = ledger or PrivacyLedger(cost, neighbouring=neighbouring, unit=schema.unit)
        table = None if ledger.path is None else records.fingerprint
        unit_digest = "" if records.units is None else records.units.digest
        records = records.scale_weights() if self.ignores_units else records.arrange()
        if records.weights is not None:
            self.check_weights()
        settings = list_settings(self, budget, head, loss, neighbouring, fit_intercept)
        source = random_source or RandomSource.of(None)
        return Prepared(
            name,
            records,
            schema,
            budget,
            cost,
            head,
            loss,
            neighbouring,
            fit_intercept,
            source,
            ledger,
            table,
            unit_digest,
            settings,
            reason or head_choice,
        )

    def describe(self, records: Records, budget: PrivacyBudget, *, fit_intercept: bool) -> Circumstances:
        """Return what a head may know before it is settled; all of it is public."""
        return Circumstances(
            budget.epsilon,
            budget.delta,
            _count_protected(records.arrange()),
            len(records.schema.private),
            fit_intercept,
            self.learns_features,
            not isinstance(records.public, StoredFeatures),
        )

    def _check_result(self, task: Task, result: FitResult) -> FitResult:
        """Compare what the recipe released with what was paid for.

        Checked here and not by the recipe, which might finish another task or release something afterwards.
        """
        check_cost(task.curator.transcript, task.cost, task.neighbouring)
        paid = task.locked_records.paid
        check_event(task.curator.transcript, None if paid is None else paid.event)
        if result.transcript != task.curator.transcript or result.guarantee.budget != task.cost:
            raise PrivacyError(f"{task.name} returned a result that does not belong to its own releases and cost.")
        return result


def _count_protected(records: Records) -> int:
    """Number of units of arranged records, or of records if each is protected on its own, of full weight.

    Noise drowns what a unit with little weight says, so a unit counts as the sum of its weights, and at most as one.
    """
    units, weights = records.units, records.weights
    if weights is None:
        return records.num_records if units is None else units.num_units
    return int((weights if units is None else np.minimum(1.0, units.add_up(weights))).sum())


ALGORITHMS: Registry[Algorithm] = Registry("algorithm", Algorithm)  # type: ignore[type-abstract]  # instances of subclasses
