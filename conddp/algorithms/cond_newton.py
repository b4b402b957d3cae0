"""CondNewton: a few noisy Newton steps on whitened public features, without settings to tune."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from conddp._validate import positive_integer
from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.algorithms.learned_fit import fit_learned
from conddp.algorithms.lesson import Lesson, learn_together
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
from conddp.newton.run import NewtonRun, StepCallback, count_noise_records, run_newton
from conddp.newton.schedule import NewtonPlan
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.events import make_gaussian_event
from conddp.privacy.neighbouring import Neighbouring
from conddp.training.loop import Progress

__all__ = ["CondNewton"]

LARGEST_FEATURES = 4e7  # maximum number of entries in the matrix of random features
LARGEST_JACOBIAN = 1e9  # maximum number of entries in the Jacobian of a head; a larger one takes too long


@dataclass(frozen=True, kw_only=True)
class CondNewton(Algorithm):
    r"""Noisy Newton steps with clamped residuals.

    A linear head is fitted directly. On features whitened by the public columns, a gradient step is a Newton step, so a
    few full-batch steps suffice. Clip norms adapt to the residuals and direction weights adapt to the remaining
    uncertainty. The result is shrunk according to the known noise variance; see :mod:`conddp.newton.run`.

    Nonlinear heads are fitted in function space. A wide layer of random hidden units maps the public columns to a few
    hundred public features, and the linear method runs on these. Its predictions are released, so training the head to
    reproduce them on public rows (distillation) costs nothing, however long it takes. No gradient of the head ever
    depends on a label directly. The first distillation takes place when half of the budget is spent. From then on the
    steps include directions from the Jacobian of the head in addition to those of the wide layer: they are Gauss-Newton
    steps, damped according to the known noise. A second distillation takes place at the end. A head that is linear in
    fixed features, such as :class:`~conddp.heads.wide.Wide`, is fitted directly. Heads that learn their features, such
    as :class:`~conddp.heads.learned.Learned`, are fitted in rounds; see :mod:`conddp.newton.rounds`.

    Private columns are supported for heads that are linear in the columns or in fixed public features, such as
    :class:`~conddp.heads.wide.Wide`, and have linear terms. Their second moments are released first, with a fifth of
    the budget, to approximate the Newton step; see :mod:`conddp.newton.private_columns`.

    Parameters
    ----------
    plan : NewtonPlan
        Constants of the Newton steps. The defaults were derived on simulated labels.
    width : int
        Number of hidden units for nonlinear heads. Reduced if there are few records.
    tangents : int
        Maximum number of directions of the head's Jacobian that are added when half of the budget is spent. Reduced if
        there are few records, and 0 if records times parameters exceed a billion. With 0, the head learns from the wide
        layer only. A callback receives the coefficients of all directions, so their number grows when directions are
        added.
    """

    summary: ClassVar[str] = "noisy Newton steps, all settings chosen by rule"
    page: ClassVar[str] = "cond_newton.md"
    protects: ClassVar[str] = "label; private columns with the heads linear, wide, additive and learned"
    protects_units: ClassVar[bool] = True
    weighs_records: ClassVar[bool] = True
    learns_features: ClassVar[bool] = True

    plan: NewtonPlan = field(default_factory=NewtonPlan)
    width: int = 500
    tangents: int = 300

    def __post_init__(self) -> None:
        positive_integer(width=self.width)
        if self.tangents:
            positive_integer(tangents=self.tangents)

    def check(self, schema: Schema, head: Head, neighbouring: Neighbouring, loss: Loss | None = None) -> None:
        """Raise if private columns are combined with a head that is not linear in fixed features."""
        super().check(schema, head, neighbouring, loss)
        if schema.private and head.linear_in is Linearity.NOTHING:
            raise PrivacyError(
                f"with private columns CondNewton supports the heads 'linear', 'wide', 'additive' and 'learned', "
                f"got head={head}. "
                "Use one of them, or CondDP, or leave the private columns out."
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
            Public rows and random features are free. Distillation reads released predictions only. The Jacobian of the
            head depends only on these and on public rows. If units have several records, or records have weights, each
            release is calibrated to the unit or record that can move it most, and the weights are public
            (:class:`~conddp.features.row_weights.RowWeights`).
        """
        if task.head.linear_in is Linearity.LEARNED:
            return fit_learned(task, self.plan)
        started = self._start(task)
        lesson, begin = started.lesson, started.begin
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
            callback=begin.callback,
            add_directions=lesson.add_directions(begin.rows) if lesson and lesson.num_tangents else None,
        )
        if lesson is not None:
            learn_together([lesson], [run.rows], [run.coefficients])
        return started.finish(run)

    def run_together(self, tasks: Sequence[Task]) -> list[FitResult]:
        """Take the steps of all tasks together, and distil together what has the same random numbers.

        Privacy
            The releases of :meth:`run` for every task, through a curator of its own.
        """
        if tasks[0].head.linear_in is Linearity.LEARNED:
            return [self.run(task) for task in tasks]
        started = [self._start(task) for task in tasks]
        lessons = [each.lesson for each in started if each.lesson is not None]

        def add_directions(
            numbers: Sequence[int], coefficients: Sequence[NDArray[np.float64]]
        ) -> Sequence[WhitenedRows]:
            some, rows = [lessons[number] for number in numbers], [started[number].begin.rows for number in numbers]
            learn_together(some, rows, coefficients)
            return [lesson.compute_tangents(each) for lesson, each in zip(some, rows, strict=True)]

        runs = run_jointly(
            [each.begin for each in started],
            neighbouring=tasks[0].neighbouring,
            plan=self.plan,
            loss=tasks[0].loss,
            add_directions=add_directions if lessons and lessons[0].num_tangents else None,
        )
        if lessons:
            learn_together(lessons, [run.rows for run in runs], [run.coefficients for run in runs])
        return [each.finish(run) for each, run in zip(started, runs, strict=True)]

    def _start(self, task: Task) -> "_Started":
        """Choose settings, spend the budget, and release what comes before the steps."""
        mu = calibrate_gaussian_mu(task.budget.epsilon, task.budget.delta)
        features = task.share(("features", self.width), lambda: self._make_features(task))
        public_rows = _whiten(task, features)
        num_tangents = self._count_tangents(task)
        settings = {
            **asdict(self.plan),
            "num_steps": len(self.plan.divide_budget(count_noise_records(public_rows))) - 2,
            "mu": mu,
            "num_directions": public_rows.num_directions + task.num_private,
            "moment_fraction": MOMENT_FRACTION if task.num_private else 0.0,
            "num_hidden": features.num_added,
            "tangents": num_tangents,
            "head": repr(task.head),
            **describe_weights(public_rows.weights),
        }
        seen = "public columns, n and what was released before" if num_tangents else "public columns and n only"
        task.note_free("whitening", f"reads {seen}")
        reason = "noisy sums of clamped residuals times rows, and of their squares"
        if task.num_private:
            reason += "; before them, noisy second moments of private columns"
        records = task.spend(reason, settings, event=make_gaussian_event(mu))

        rows: Rows = public_rows
        if task.num_private:
            in_memory = _require_in_memory(public_rows)
            rows = add_private_columns(task, records, in_memory, mu=mu * math.sqrt(MOMENT_FRACTION))
            mu *= math.sqrt(1 - MOMENT_FRACTION)
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
        lesson = Lesson.of(task, num_tangents) if task.head.linear_in is Linearity.NOTHING else None
        return _Started(task, settings, features, begin, course, lesson)

    def _make_features(self, task: Task) -> FeatureMap:
        """Features for the Newton steps: those of the head, or a wide random layer for nonlinear heads."""
        if task.head.linear_in is not Linearity.NOTHING:
            return task.head.make_features(task.public, constant=task.fit_intercept)
        return RandomFeatures.of(task.public, self._limit(self.width, task.num_records), constant=task.fit_intercept)

    def _count_tangents(self, task: Task) -> int:
        """Maximum number of Jacobian directions to add; 0 for heads that are linear in their parameters."""
        if task.head.linear_in is not Linearity.NOTHING or not self.tangents:
            return 0
        size = task.head.layout(task.num_columns, 0).size
        return self._limit(self.tangents, task.num_records) if task.num_records * size <= LARGEST_JACOBIAN else 0

    @staticmethod
    def _limit(number: int, num_records: int) -> int:
        """Limit a number of features to a quarter of the records and to what fits in memory."""
        return max(1, min(number, num_records // 4, int(LARGEST_FEATURES / num_records)))


def _whiten(task: Task, features: FeatureMap) -> PublicRows:
    """Whiten the public rows, with weights of the records if the user gave some or units have several records.

    Rows that private columns or directions of a Jacobian will be appended to are kept in memory, however large.
    """
    added, constant = features.num_added, task.fit_intercept
    extended = task.num_private > 0 or task.head.linear_in is Linearity.NOTHING
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
    course: list[NDArray[np.float64]]  # coefficients after each release
    lesson: Lesson | None

    def finish(self, run: NewtonRun) -> FitResult:
        """Make the model; a nonlinear head has learned by now."""
        task, rows = self.task, self.begin.rows
        if self.lesson is not None:
            parameters = self.lesson.student.export()
            note = "The model was fitted to predictions that these releases determine, at no further cost."
        else:
            weights = rows.matrix @ run.coefficients
            parameters = task.head.make_parameters(
                weights, self.features, num_public=len(task.public.names), constant=task.fit_intercept
            )
            note = ""
        model = task.make_model(parameters)
        return task.finish(model, self.settings, note=note, diagnostics=_diagnose(model, rows, run, self.course))


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
        covariance = (rows.matrix * run.posterior.variance) @ rows.matrix.T
        deviations = tuple(model.compute_linear_deviations(covariance).tolist())
    return Diagnostics(
        tuple(range(1, len(course) + 1)),
        tuple(width * float(np.linalg.norm(_pad(each, run) - run.coefficients)) for each in course),
        tuple(width * each for each in run.residual_stds),
        deviations,
    )


def _pad(coefficients: NDArray[np.float64], run: NewtonRun) -> NDArray[np.float64]:
    """Pad coefficients with zeros for directions that were added later in the run."""
    number = len(run.coefficients) - len(coefficients)
    return np.pad(coefficients, (0, number)) if number else coefficients


ALGORITHMS.add("cond-newton", CondNewton())
