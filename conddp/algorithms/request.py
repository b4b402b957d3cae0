"""A user's request for a fit, validated before any data are read."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from conddp._validate import one_of, positive
from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.algorithms.dividing import warn_of_separate_fits
from conddp.algorithms.several import JointFit, check_outputs, divide_budget, guess_part, join_events
from conddp.algorithms.unrecorded import warn_of_joint_cost
from conddp.data.records import Records
from conddp.errors import CondDPError, PrivacyWarning
from conddp.evaluation.run import evaluate_model
from conddp.evaluation.splitting import check_fraction, hold_out
from conddp.heads import HEADS, Head, Linearity
from conddp.models.evaluation import Evaluation
from conddp.models.result import FitResult
from conddp.privacy.accounting import check_delta, refuse_large_delta, warn_about_delta
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.events import expect_event
from conddp.privacy.joint_guarantee import JointGuarantee
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.transcript import Transcript
from conddp.training.loop import Callback

__all__ = ["FitRequest"]


@dataclass(frozen=True)
class FitRequest:
    """Validated arguments of a fit, shared by the estimator and the command line.

    Privacy
        The constructor checks the settings and that the ledger covers the cost. Nothing is read or spent before
        :meth:`run`.

    Parameters
    ----------
    epsilon, delta : float
        Privacy budget of the fit.
    algorithm : str or Algorithm
        Name of an algorithm, or an instance.
    head : str or Head
        Name of a head, or an instance.
    neighbouring : str or Neighbouring, optional
        Neighbouring relation. If None, that of the ledger, or REPLACE without a ledger.
    fit_intercept : bool
        Whether to fit an intercept.
    random_state : None, int, Generator or RandomState
        None draws noise from a cryptographic generator. Use anything else for research only.
    ledger : PrivacyLedger, optional
        Ledger that records the cost; a new one with a budget of exactly this cost if None.
    checkpoint : path, optional
        File that keeps what is released while the fit runs. If it exists, the interrupted fit goes on.
    evaluation_fraction : float, optional
        Fraction of the records, or of the units, that are held out of training for an evaluation of the model with the
        same (epsilon, delta).
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    algorithm: Any = "auto"
    head: Any = "auto"
    neighbouring: Any = None
    fit_intercept: bool = True
    random_state: Any = None
    ledger: PrivacyLedger | None = None
    checkpoint: str | Path | None = None
    evaluation_fraction: float | None = None
    _algorithm: Algorithm = field(init=False, repr=False)
    _head: Head = field(init=False, repr=False)
    _random_source: RandomSource = field(init=False, repr=False)
    _recorded: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)
        if self.delta != 0 or ALGORITHMS.resolve(self.algorithm).needs_delta:
            check_delta(self.delta)
        if self.ledger is not None and not isinstance(self.ledger, PrivacyLedger):
            raise ValueError(
                f"ledger must be a PrivacyLedger or None, got {type(self.ledger).__name__}. "
                "PrivacyLedger.load(path) opens a ledger file."
            )
        algorithm, neighbouring = ALGORITHMS.resolve(self.algorithm), self._resolve_neighbouring()
        cost = algorithm.cost(self.budget)
        refuse_large_delta(cost.delta)
        whole = cost
        if self.evaluation_fraction is not None:
            check_delta(self.delta)
            check_fraction(self.evaluation_fraction, checkpoint=self.checkpoint)
            whole = PrivacyBudget(max(cost.epsilon, self.epsilon), max(cost.delta, self.delta))
        ledger = PrivacyLedger(whole, neighbouring=neighbouring) if self.ledger is None else self.ledger
        if self.checkpoint is None or not Path(self.checkpoint).exists():  # an interrupted fit is paid for
            what, event = f"fitting with epsilon={self.epsilon:g}", algorithm.expect(self.budget)
            ledger.check(what, cost, neighbouring, event=event, unit=ledger.unit)  # the unit is checked with the table
            if self.evaluation_fraction is not None:  # now, because a model that cannot be evaluated would be lost
                event = expect_event(self.budget)
                ledger.check("the evaluation", self.budget, neighbouring, event=event, unit=ledger.unit)
        for name, value in (
            ("_algorithm", algorithm),
            ("_head", HEADS.resolve(self.head)),
            ("_random_source", RandomSource.of(self.random_state)),
            ("_recorded", self.ledger is not None),
            ("neighbouring", neighbouring),
            ("ledger", ledger),
        ):
            object.__setattr__(self, name, value)

    @property
    def budget(self) -> PrivacyBudget:
        """Privacy budget of the fit."""
        return PrivacyBudget(float(self.epsilon), float(self.delta))

    @property
    def num_bins(self) -> int | None:
        """Number of bins that the head wants categories in; None if it takes indicators."""
        return self._head.bins

    @property
    def splines(self) -> bool:
        """Whether numbers of a large table get piecewise linear features: if the head is linear in its columns."""
        return self._head.linear_in is Linearity.COLUMNS

    def divide(self, records: Records) -> tuple[Records, Records | None]:
        """Divide records into those for training and those that are held out, if any are wanted.

        Privacy
            The split is drawn at random and is public. It depends on the number of records or units only.
        """
        if self.evaluation_fraction is None:
            return records, None
        return hold_out(records, self.evaluation_fraction, self._random_source)

    def run(
        self,
        records: Records,
        *,
        held_out: Records | None = None,
        callback: Callback | None = None,
        deliver: Callable[[FitResult], object] | None = None,
    ) -> FitResult:
        """Fit the model and record its privacy cost.

        Privacy
            Same as :meth:`~conddp.algorithms.algorithm.Algorithm.fit`. Without a ledger of the user, a second fit of
            this process on the same public columns and number of records raises a
            :class:`~conddp.errors.PrivacyWarning` with the joint cost. So does a delta above one over the number of
            records, which is public, and so does a fit that several processes of ``torchrun`` make separately.

            Held-out records are evaluated with the same budget and ledger. They are disjoint from the training records,
            so that the larger one of both costs counts.
        """
        warn_about_delta(self._algorithm.cost(self.budget).delta, records.num_records)
        warn_of_separate_fits()
        ledger = self.ledger
        assert ledger is not None
        if not self._recorded:
            ledger = PrivacyLedger(ledger.budget, neighbouring=ledger.neighbouring, unit=records.schema.unit)
        try:
            result = self._algorithm.fit(
                records,
                self.budget,
                head=self._head,
                neighbouring=self.neighbouring,
                fit_intercept=bool(self.fit_intercept),
                random_source=self._random_source,
                ledger=ledger,
                callback=callback,
                checkpoint=self.checkpoint,
                deliver=deliver if held_out is None else None,
            )
            if held_out is None:
                return result
            result = replace(result, evaluation=self._evaluate(result, held_out, ledger))
            if deliver is not None:
                deliver(result)
            return result
        finally:  # also after a failure: what was paid for may have been seen by a callback
            paid = [] if self._recorded else [entry for entry in ledger.entries if entry.cost.epsilon]
            for entry in paid[-1:] if held_out is None else paid[:1]:
                warn_of_joint_cost(entry, records.fingerprint, self.neighbouring, stacklevel=3)

    def _evaluate(self, result: FitResult, held_out: Records, ledger: PrivacyLedger) -> Evaluation | None:
        """Evaluate a model that has been paid for; it is not lost if that fails."""
        try:
            return evaluate_model(
                result,
                held_out,
                self.budget,
                neighbouring=self.neighbouring,
                ledger=ledger,
                random_source=self._random_source,
            )
        except (CondDPError, ArithmeticError, ValueError) as error:
            warnings.warn(
                f"the model is fitted, but it could not be evaluated on the held-out records: {error} It has no "
                "evaluation. The ledger says what was spent.",
                PrivacyWarning,
                stacklevel=4,
            )
            return None

    def run_several(self, outputs: Sequence[Records], *, callback: Callback | None = None) -> JointFit:
        """Fit a model for each of several labels of the same records, within one budget.

        Privacy
            (epsilon, delta) is the budget of all models together: neighbouring data sets differ in all labels and the
            private columns of one record, or of all records of a unit. Each fit gets a part of the budget
            (:func:`~conddp.algorithms.several.divide_budget`) and noise of its own. The ledger is asked for the joint
            cost before the first fit, so that the labels are refused together, and has one entry per label afterwards.

        Parameters
        ----------
        outputs : sequence of Records
            Records that differ in their label and its name only.
        callback : callable, optional
            As in :meth:`run`, for one label after the other.

        Raises
        ------
        SchemaError
            If the labels have the same name or belong to different records.
        BudgetExceeded
            If the ledger does not cover all labels together. Nothing is spent.
        ValueError
            If a checkpoint was requested, which is for one label only.
        """
        check_outputs(outputs)
        if self.evaluation_fraction is not None and len(outputs) > 1:
            raise ValueError("evaluation_fraction is for one label, got several. Leave it out, or fit one at a time.")
        if self.checkpoint is not None and len(outputs) > 1:
            raise ValueError("a checkpoint is for one label, got several. Leave it out, or fit one label at a time.")
        if len(outputs) == 1:
            result = self.run(outputs[0], callback=callback)
            return JointFit((result,), JointGuarantee(result.guarantee.budget, (result.guarantee,)))
        ledger, neighbouring = self.ledger, self.neighbouring
        assert ledger is not None
        used, number, algorithm = outputs[0].arrange(), len(outputs), self._algorithm
        head, reason = self._head.settle(
            used.public,
            algorithm.describe(used, guess_part(self.budget, number), fit_intercept=bool(self.fit_intercept)),
        )
        for each in outputs:
            algorithm.check(each.schema, head, neighbouring)
        if used.weights is not None:
            algorithm.check_weights()
        algorithm = algorithm.settle(
            used,
            guess_part(self.budget, number),
            head=head,
            fit_intercept=bool(self.fit_intercept),
            neighbouring=neighbouring,
        )

        def foresee(part: PrivacyBudget) -> Transcript | None:
            return algorithm.foresee(part, used, head=head, neighbouring=neighbouring)

        whole = algorithm.cost(self.budget)
        part = divide_budget(algorithm, self.budget, number, neighbouring=neighbouring, foresee=foresee)
        event = join_events([foresee(part)] * number)
        unit, table = used.schema.unit, None
        if not self._recorded:
            ledger = PrivacyLedger(whole, neighbouring=neighbouring, unit=unit)
        if not self._recorded or ledger.path is not None:
            table = outputs[0].fingerprint
        what = f"fitting {number} labels with epsilon={self.epsilon:g}"
        ledger.check(what, whole, neighbouring, event=event, table=table, unit=unit)
        warn_about_delta(whole.delta, used.num_records)
        warn_of_separate_fits()
        results: list[FitResult] = []
        try:
            for each in outputs:
                result = algorithm.fit(
                    each,
                    part,
                    head=head,
                    neighbouring=neighbouring,
                    fit_intercept=bool(self.fit_intercept),
                    random_source=self._random_source,  # which each fit binds to the name of its label
                    ledger=ledger,
                    callback=callback,
                    head_choice=reason,
                )
                results.append(result)
        finally:
            if table is not None and not self._recorded and any(entry.cost.epsilon for entry in ledger.entries):
                warn_of_joint_cost(LedgerEntry(what, whole, event=event), table, neighbouring, stacklevel=3)
        return JointFit(tuple(results), JointGuarantee(whole, tuple(each.guarantee for each in results)))

    def _resolve_neighbouring(self) -> Neighbouring:
        if self.neighbouring is None:
            return Neighbouring.REPLACE if self.ledger is None else self.ledger.neighbouring
        if isinstance(self.neighbouring, Neighbouring):
            return self.neighbouring
        one_of([relation.value for relation in Neighbouring], neighbouring=self.neighbouring)
        return Neighbouring(self.neighbouring)
