"""CondNewton: a few noisy Newton steps on whitened public features, without settings to tune."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range, positive_integer
from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.algorithms.identity import ADDED_LATER
from conddp.algorithms.learned_fit import MOST_COLUMNS, fit_distilled, fit_learned
from conddp.algorithms.lesson import NOTE, Predictor, distil
from conddp.algorithms.private_directions import MOMENT_FRACTION, add_private_columns
from conddp.algorithms.task import Task
from conddp.algorithms.weighting import describe_weights, weigh_records
from conddp.data.parts import PublicFeatures
from conddp.data.scaling import scale_bounds
from conddp.data.schema import Schema
from conddp.data.stored_labels import open_labels
from conddp.errors import PrivacyError
from conddp.features.feature_map import FeatureMap
from conddp.features.grouped_rows import whiten
from conddp.features.public_rows import PublicRows
from conddp.features.random_features import RandomFeatures
from conddp.features.row_weights import RowWeights
from conddp.features.whitening import WhitenedRows
from conddp.heads.head import Head, Linearity
from conddp.losses import Loss
from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.newton.joint_run import RunStart, run_jointly
from conddp.newton.release import Rows
from conddp.newton.residual_variances import release_variance_factors
from conddp.newton.run import NewtonRun, StepCallback, count_noise_records, run_newton
from conddp.newton.schedule import NewtonPlan
from conddp.newton.uncertainty import estimate_uncertainty
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.events import make_gaussian_event
from conddp.privacy.neighbouring import Neighbouring
from conddp.training.loop import Progress

__all__ = ["CondNewton"]

LARGEST_FEATURES = 4e7  # maximum number of entries in the matrix of random features
MOST_HIDDEN = 500  # random features of nonlinear heads


@dataclass(frozen=True, kw_only=True)
class CondNewton(Algorithm):
    r"""Noisy Newton steps with clamped residuals.

    A linear head is fitted directly. On features whitened by the public columns, a gradient step is a Newton step, so a
    few full-batch steps suffice. Clip norms adapt to the residuals and direction weights adapt to the remaining
    uncertainty. The result is shrunk according to the known noise variance; see :mod:`conddp.newton.run`.

    Other nonlinear heads, such as :class:`~conddp.heads.mlp.MLP`, are trained to reproduce predictions that have been
    released (distillation). This costs nothing, however long it takes: no gradient of the head ever depends on a label
    directly. The predictions are those of a function whose features are learned in rounds of Newton steps, as for
    :class:`~conddp.heads.learned.Learned`; see :mod:`conddp.newton.rounds`. With more than 2,000 public columns, which
    is too many to learn features from, they are those of a wide layer of random hidden units. A head that is linear in
    fixed features, such as :class:`~conddp.heads.wide.Wide`, is fitted directly.

    Private columns are supported for heads that are linear in the columns or in fixed public features, such as
    :class:`~conddp.heads.wide.Wide`, and have linear terms. Their second moments are released first, with a fifth of
    the budget, to approximate the Newton step; see :mod:`conddp.newton.private_columns`.

    Parameters
    ----------
    plan : NewtonPlan
        Constants of the Newton steps. The defaults were derived on simulated labels.
    width : int
        Approximate number of nonlinear features that MLP and factorisation machine learn from. With more than 2,000
        public columns, the number of hidden units, which is at most 500 and reduced if there are few records.
    variance_fraction : float
        Fraction of the budget for the variances of the coefficients of a linear model of public columns in memory, so
        that standard errors allow for residuals of unequal variance. 0 assumes equal variance; 0.02 is usually enough.
        Tables of 4 million numbers and more are kept in single precision, and equal variance is assumed for them.
    """

    summary: ClassVar[str] = "noisy Newton steps, all settings chosen by rule"
    page: ClassVar[str] = "cond_newton.md"
    protects: ClassVar[str] = "label; private columns with the heads linear, wide, additive and learned"
    protects_units: ClassVar[bool] = True
    weighs_records: ClassVar[bool] = True
    learns_features: ClassVar[bool] = True

    plan: NewtonPlan = field(default_factory=NewtonPlan)
    width: int = 1000
    variance_fraction: float = field(default=0.0, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        positive_integer(width=self.width)
        in_range(0.0, 0.5, variance_fraction=self.variance_fraction)

    def check(self, schema: Schema, head: Head, neighbouring: Neighbouring, loss: Loss | None = None) -> None:
        """Raise if private columns are combined with a head that is not linear in fixed features."""
        super().check(schema, head, neighbouring, loss)
        if schema.private and head.linear_in is Linearity.NOTHING:
            raise PrivacyError(
                f"with private columns CondNewton supports the heads 'linear', 'wide', 'additive' and 'learned', "
                f"got head={head}. "
                "Use one of them, or CondDP, or leave the private columns out."
            )
        if self.variance_fraction and (schema.private or head.linear_in is not Linearity.COLUMNS):
            raise ValueError(
                "variances of coefficients are released for linear models of public columns only, and here "
                f"{self.variance_fraction:g} of the budget was set aside for them with head={head} and "
                f"{len(schema.private)} private columns. Set nothing aside."
            )

    def needs_dense(self, schema: Schema, head: Head) -> bool:
        """Return whether the head is not linear in the columns, or there are private columns."""
        return bool(schema.private) or head.linear_in is not Linearity.COLUMNS

    def reads_blocks(self, public_features: PublicFeatures, head: Head) -> bool:
        """Return whether the head is linear in the columns."""
        return head.linear_in is Linearity.COLUMNS

    def run(self, task: Task) -> FitResult:
        r"""Take noisy Newton steps, and distil the result into nonlinear heads.

        Privacy
            Every release is a Gaussian mechanism with a fixed fraction of :math:`\mu^2`. Together they form one
            Gaussian mechanism with parameter :math:`\mu`, accounted exactly
            (:func:`conddp.newton.release.release_residuals`, :func:`conddp.newton.private_columns.release_moments`).
            Public rows, random features and features that are learned from released numbers are free. Distillation
            reads public rows and released predictions only. If units have several records, or records have weights,
            each release is calibrated to the unit or record that can move it most, and the weights are public
            (:class:`~conddp.features.row_weights.RowWeights`).
        """
        if task.head.linear_in is Linearity.LEARNED:
            return fit_learned(task, self.plan)
        if _learns_from_features(task):
            return fit_distilled([task], self.plan, width=self.width)[0]
        started = self._start(task)
        begin = started.begin
        run = run_newton(
            begin.rows,
            begin.label,
            begin.label_range,
            begin.start,
            mu=begin.mu,
            curator=task.curator,
            neighbouring=task.neighbouring,
            plan=self.plan,
            loss=task.loss,
            random_effects=task.public.groups is not None,
            callback=begin.callback,
        )
        return _finish([started], [run])[0]

    def run_together(self, tasks: Sequence[Task]) -> list[FitResult]:
        """Take the steps of all tasks together, and distil together what has the same random numbers.

        Privacy
            The releases of :meth:`run` for every task, through a curator of its own.
        """
        if tasks[0].head.linear_in is Linearity.LEARNED:
            return [self.run(task) for task in tasks]
        if _learns_from_features(tasks[0]):
            return fit_distilled(tasks, self.plan, width=self.width)
        started = [self._start(task) for task in tasks]
        runs = run_jointly(
            [each.begin for each in started],
            neighbouring=tasks[0].neighbouring,
            plan=self.plan,
            loss=tasks[0].loss,
            random_effects=tasks[0].public.groups is not None,
        )
        return _finish(started, runs)

    def _start(self, task: Task) -> "_Started":
        """Choose settings, spend the budget, and release what comes before the steps."""
        mu = calibrate_gaussian_mu(task.budget.epsilon, task.budget.delta)
        features = task.share(("features", self.width), lambda: self._make_features(task))
        public_rows = _whiten(task, features)
        settings = {
            **asdict(self.plan),
            "num_steps": len(self.plan.divide_budget(count_noise_records(public_rows))) - 2,
            "mu": mu,
            "num_directions": public_rows.num_directions + task.num_private,
            "moment_fraction": MOMENT_FRACTION if task.num_private else 0.0,
            "num_hidden": features.num_added,
            "head": repr(task.head),
            **describe_weights(public_rows.weights),
        }
        variance_fraction = self.variance_fraction if isinstance(public_rows, WhitenedRows) else 0.0
        if self.variance_fraction:
            settings["variance_fraction"] = variance_fraction
        task.note_free("whitening", "reads public columns and n only")
        reason = "noisy sums of clamped residuals times rows, and of their squares"
        if variance_fraction:
            reason += "; after them, of squared residuals times squared rows"
        if task.num_private:
            reason += "; before them, noisy second moments of private columns"
        records = task.spend(reason, settings, event=make_gaussian_event(mu))

        rows: Rows = public_rows
        if task.num_private:
            in_memory = _require_in_memory(public_rows)
            rows = add_private_columns(task, records, in_memory, mu=mu * math.sqrt(MOMENT_FRACTION))
            mu *= math.sqrt(1 - MOMENT_FRACTION)
        variance_mu, mu = mu * math.sqrt(variance_fraction), mu * math.sqrt(1 - variance_fraction)
        course: list[NDArray[np.float64]] = []
        begin = RunStart(
            rows,
            open_labels(records.label, center=task.fit_intercept),
            scale_bounds(task.schema.label_bounds, center=task.fit_intercept),
            _choose_start(task, public_rows, rows.num_directions),
            mu,
            task.curator,
            _watch(task, len(self.plan.divide_budget(count_noise_records(public_rows))), course),
        )
        return _Started(task, settings, features, begin, variance_mu, course)

    def _make_features(self, task: Task) -> FeatureMap:
        """Features for the Newton steps: those of the head, or a wide random layer for nonlinear heads.

        Their number is limited to a quarter of the records and to what fits in memory.
        """
        if task.head.linear_in is not Linearity.NOTHING:
            return task.head.make_features(task.public, constant=task.fit_intercept)
        n = task.num_records
        number = max(1, min(self.width, MOST_HIDDEN, n // 4, int(LARGEST_FEATURES / n)))
        return RandomFeatures.of(task.public, number, constant=task.fit_intercept)


def _learns_from_features(task: Task) -> bool:
    """Whether the head is trained on predictions with learned features."""
    return task.head.linear_in is Linearity.NOTHING and len(task.public.names) <= MOST_COLUMNS


def _whiten(task: Task, features: FeatureMap) -> PublicRows:
    """Whiten the public rows, with weights of the records if the user gave some or units have several records.

    Rows that private columns will be appended to are kept in memory, however large.
    """
    added, constant = features.num_added, task.fit_intercept
    extended = task.num_private > 0
    make = WhitenedRows.of if extended else whiten
    given = None if task.weights is None else RowWeights.give(task.weights)
    if task.repeated_units is None:
        return task.share(
            ("whitened", added, extended),
            lambda: make(features.transform(task.public), constant=constant, weights=given),
        )
    transformed = task.share(("transformed", added), lambda: features.transform(task.public))
    rows: PublicRows = task.share(
        ("whitened", added, extended), lambda: make(transformed, constant=constant, weights=given)
    )
    weights = weigh_records(
        task,
        num_directions=rows.num_directions + task.num_private,
        bound_moves=None if task.num_private else rows.bound_moves,
    )
    return make(transformed, constant=constant, weights=weights)


def _require_in_memory(rows: Rows) -> WhitenedRows:
    """Return rows that :func:`_whiten` has kept in memory."""
    assert isinstance(rows, WhitenedRows)
    return rows


def _choose_start(task: Task, public_rows: PublicRows, num_directions: int) -> NDArray[np.float64]:
    """Coefficients that predict the midpoint of the label range; a least-squares fit if there is no constant."""
    start = np.zeros(num_directions)
    if not task.fit_intercept:
        low, high = scale_bounds(task.schema.label_bounds, center=False)
        offset = public_rows.compute_mean()
        start[: len(offset)] = (low + high) / 2 * offset
    return start


@dataclass(frozen=True)
class _Started:
    """A task whose budget is spent and whose steps can begin."""

    task: Task
    settings: dict[str, Any]
    features: FeatureMap
    begin: RunStart
    variance_mu: float  # of the release after the steps, if there is one
    course: list[NDArray[np.float64]]  # coefficients after each release

    def weigh(self, run: NewtonRun) -> NDArray[np.float64]:
        """Weights of the features, and of the constant if there is one."""
        return np.asarray(self.begin.rows.matrix @ run.coefficients)

    def make_predictor(self, run: NewtonRun) -> Predictor:
        """Make a function that predicts the label from public rows as the run does."""
        task, weights = self.task, self.weigh(run)
        bounds = task.schema.label_bounds
        constant = weights[-1] if task.fit_intercept else -bounds.midpoint / bounds.width

        def predict(public: PublicFeatures) -> NDArray[np.float64]:
            values = self.features.transform(public).values
            return np.asarray(values @ weights[: values.shape[1]] + constant)

        return predict

    def release_factors(self, model: FittedModel, run: NewtonRun) -> NDArray[np.float64]:
        """Release the factors of the sampling variances, if a part of the budget was kept for them."""
        if not self.variance_mu:
            return np.empty(0)
        begin, rows = self.begin, _require_in_memory(self.begin.rows)
        return release_variance_factors(
            rows,
            begin.label,
            begin.label_range,
            run.coefficients,
            run.residual_stds[-1],
            model.linearize_coefficients()[0] @ rows.matrix,
            mu=self.variance_mu,
            curator=begin.curator,
        )

    def finish(self, run: NewtonRun, learned: NDArray[np.float64] | None) -> FitResult:
        """Make the model, with the parameters of a nonlinear head if it has learned them."""
        task, parameters = self.task, learned
        if parameters is None:
            parameters = task.head.make_parameters(
                self.weigh(run), self.features, num_public=len(task.public.names), constant=task.fit_intercept
            )
        model, note = task.make_model(parameters), "" if learned is None else NOTE
        diagnostics = _diagnose(model, self.begin.rows, run, self.course)
        uncertainty = None
        if task.head.linear_in is Linearity.COLUMNS:
            uncertainty = replace(
                estimate_uncertainty(run, self.begin.start), sampling_factors=self.release_factors(model, run)
            )
        return task.finish(model, self.settings, note=note, diagnostics=diagnostics, uncertainty=uncertainty)


def _finish(started: Sequence[_Started], runs: Sequence[NewtonRun]) -> list[FitResult]:
    """Make the models of several tasks; nonlinear heads learn together."""
    tasks = [each.task for each in started]
    learned: Sequence[NDArray[np.float64] | None] = [None] * len(tasks)
    if tasks[0].head.linear_in is Linearity.NOTHING:
        learned = distil(tasks, [each.make_predictor(run) for each, run in zip(started, runs, strict=True)])
    return [each.finish(run, own) for each, run, own in zip(started, runs, learned, strict=True)]


def _watch(task: Task, num_steps: int, course: list[NDArray[np.float64]]) -> StepCallback:
    """Make a callback that stores the coefficients after each release and calls the user's callback."""

    def watch(step: int, coefficients: NDArray[np.float64]) -> bool | None:
        course.append(coefficients)
        return None if task.callback is None else task.callback(Progress(step, num_steps, coefficients[None].copy()))

    return watch


def _diagnose(model: FittedModel, rows: Rows, run: NewtonRun, course: list[NDArray[np.float64]]) -> Diagnostics:
    """Diagnostics of a run. Rows have unit second moments, so distances of coefficients are those of predictions."""
    width = model.label_bounds.width
    deviations: tuple[float, ...] = ()
    if model.head.linear_in is Linearity.COLUMNS and isinstance(rows, PublicRows):  # private whitening is noisy itself
        with np.errstate(over="ignore", invalid="ignore"):  # of columns so small that squared coefficients overflow
            covariance = (rows.matrix * run.posterior.variance) @ rows.matrix.T
            found = model.compute_linear_deviations(covariance)
        deviations = tuple(found.tolist()) if np.isfinite(found).all() else ()
    return Diagnostics(
        tuple(range(1, len(course) + 1)),
        tuple(width * float(np.linalg.norm(each - run.coefficients)) for each in course),
        tuple(width * each for each in run.residual_stds),
        deviations,
    )


ALGORITHMS.add("cond-newton", CondNewton())
