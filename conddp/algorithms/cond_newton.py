"""CondNewton: a few noisy Newton steps on whitened public features, with every choice made by a rule."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp._validate import positive_integer
from conddp.algorithms.algorithm import Algorithm, Task, bound_rounding
from conddp.data.parts import PublicFeatures
from conddp.data.records import Records
from conddp.data.scaling import largest_private, scale_bounds, scale_label, scale_private
from conddp.errors import PrivacyError
from conddp.features.random_features import Expansion
from conddp.features.whitening import Directions
from conddp.heads.head import Head
from conddp.heads.linear import Linear
from conddp.heads.wide import Wide
from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FitResult, FittedModel
from conddp.newton.private_columns import add_private_directions, release_moments
from conddp.newton.run import NewtonRun, Watch, run_newton
from conddp.newton.schedule import NewtonPlan
from conddp.privacy.accounting import GaussianEvent, calibrate_gaussian_mu
from conddp.privacy.neighbouring import Neighbouring
from conddp.training.distillation import Student
from conddp.training.loop import Progress

__all__ = ["CondNewton"]

MOMENT_SHARE = 0.2  # of the budget, for the second moments of private columns
LARGEST_EXPANSION = 4e7  # numbers in the expanded feature matrix
LARGEST_JACOBIAN = 1e9  # numbers in the Jacobian of a head; a larger one takes too long


@dataclass(frozen=True, kw_only=True)
class CondNewton(Algorithm):
    r"""Noisy Newton steps with clamped residuals.

    A linear head is fitted directly: conditioned by the public features a gradient step is a Newton step, so few full
    batches do. Windows follow the residuals, gains follow what is left to learn, and the result is shrunk by its known
    noise; see :mod:`conddp.newton.run`.

    Other heads are fitted in the space of functions. A wide layer of random hidden units turns the public columns into
    a few hundred public features, on which the same linear method runs. Its predictions are released, so the head can
    learn to repeat them from public rows for as long as it takes, at no cost: no gradient of the head ever sees a
    label. Half way it does so, and the steps go on with the directions of its Jacobian beside those of the wide layer:
    they are Gauss-Newton steps from then on, damped by the known noise. At the end the head learns what was released
    once more. :class:`~conddp.heads.wide.Wide` is the wide layer itself.

    Private columns take part in linear heads only. Their second moments are released first, with a fifth of the budget,
    to know roughly what a Newton step is; see :mod:`conddp.newton.private_columns`.

    Parameters
    ----------
    plan : NewtonPlan
        Constants of the Newton steps; the default was derived on simulated labels.
    width : int
        Hidden units for heads that are not linear; fewer where there are few records.
    tangents : int
        Directions of the head's Jacobian that are added half way, at most; fewer where there are few records, none
        where records times parameters exceed a billion. Without them the head learns from the wide layer alone. A
        callback sees coefficients of directions, which become more half way.
    """

    plan: NewtonPlan = field(default_factory=NewtonPlan)
    width: int = 500
    tangents: int = 300

    def __post_init__(self) -> None:
        positive_integer(width=self.width)
        if self.tangents:
            positive_integer(tangents=self.tangents)

    def check(self, dataset: Records, head: Head, neighbouring: Neighbouring) -> None:
        """Raise where a nonlinear head is to take private columns."""
        super().check(dataset, head, neighbouring)
        if dataset.private is not None and not isinstance(head, Linear):
            raise PrivacyError(
                f"CondNewton fits a linear head to private columns only, got head={head}. "
                "Use CondDP, or leave the private columns out."
            )

    def run(self, task: Task) -> FitResult:
        r"""Take noisy Newton steps; for heads that are not linear, distil.

        Privacy
            Every release is a Gaussian mechanism with its share of :math:`\mu^2`; together they are one Gaussian
            mechanism of parameter :math:`\mu`, accounted exactly (:func:`conddp.newton.release.release`,
            :func:`conddp.newton.private_columns.release_moments`). Public rows, directions and hidden units are free.
            Distillation reads released predictions; the Jacobian of the head comes from these and public rows.
        """
        dataset, head = task.dataset, task.head
        n, bounds = dataset.num_records, dataset.label.bounds
        mu = calibrate_gaussian_mu(task.budget.epsilon, task.budget.delta)
        expansion, features = self._expand(task)
        directions = Directions.of(features, constant=task.fit_intercept)
        offset = directions.rows.mean(axis=0)
        num_tangents = self._count_tangents(task)
        settings: dict[str, Any] = {
            **asdict(self.plan),
            "num_steps": len(self.plan.shares(n)) - 2,
            "mu": mu,
            "num_directions": directions.num_directions + task.num_private,
            "moment_share": 0.0 if dataset.private is None else MOMENT_SHARE,
            "num_hidden": 0 if expansion is None else len(expansion.biases),
            "tangents": num_tangents,
            "head": repr(head),
        }
        seen = "public columns, n and what was released before" if num_tangents else "public columns and n only"
        task.note_free("directions", f"reads {seen}")
        reason = "noisy sums of clamped residuals times rows, and of their squares"
        if dataset.private is not None:
            reason += "; before them, noisy second moments of private columns"
        task.spend(reason, settings)

        mu_left = mu / (1 + bound_rounding(n))
        generator = task.random_source.generator()
        if dataset.private is not None:
            private = scale_private(dataset.private, center=task.fit_intercept)
            moments = release_moments(
                directions,
                private,
                np.array([largest_private(each, center=task.fit_intercept) for each in dataset.private.bounds]),
                mu=mu_left * math.sqrt(MOMENT_SHARE),
                neighbouring=task.neighbouring,
                generator=generator,
            )
            directions = add_private_directions(directions, private, moments)
            mu_left *= math.sqrt(1 - MOMENT_SHARE)
        label = scale_label(dataset.label, center=task.fit_intercept)
        low, high = scale_bounds(bounds, center=task.fit_intercept)
        middle = 0.0 if task.fit_intercept else (low + high) / 2
        start = np.zeros(directions.num_directions)
        start[: len(offset)] = middle * offset
        shares = self.plan.shares(n)
        course: list[NDArray[np.float64]] = []
        lesson = None if isinstance(head, Linear | Wide) else _Lesson.of(task)
        run = run_newton(
            directions,
            label,
            (low, high),
            start,
            mu=mu_left,
            neighbouring=task.neighbouring,
            plan=self.plan,
            generator=generator,
            watch=_watch(task, len(shares), course),
            widen=(lambda at: lesson.widen(directions, at, num_tangents)) if lesson and num_tangents else None,
        )
        if lesson is not None:
            parameters = lesson.finish(run)
        else:
            parameters = self._make_parameters(task, expansion, directions, run)
        model = FittedModel(
            head,
            head.layout(dataset.public.values.shape[1] + task.fit_intercept, task.num_private),
            parameters,
            task.fit_intercept,
            bounds,
            () if dataset.private is None else dataset.private.bounds,
        )
        event = GaussianEvent(task.neighbouring.sensitivity(1.0) / mu, 1, 1.0, task.neighbouring)
        number = len(shares) + (dataset.private is not None)
        mechanism = (
            f"{number} full-batch Gaussian releases were accounted exactly; together they are one "
            f"Gaussian mechanism whose sensitivity is {mu:.4g} standard deviations."
        )
        if lesson is not None:
            mechanism += " The model was fitted to predictions that these releases determine, at no further cost."
        return task.finish(model, mechanism, settings, event, _diagnose(model, directions, run, course))

    def _expand(self, task: Task) -> tuple[Expansion | None, PublicFeatures]:
        """The features on which the Newton steps run: the columns, and hidden units beside them if need be."""
        public, n = task.dataset.public, task.dataset.num_records
        if isinstance(task.head, Linear):
            return None, public
        width = self.width if not isinstance(task.head, Wide) else task.head.width
        if not isinstance(task.head, Wide):
            width = self._limit(width, n)
        expansion = Expansion.of(public, width, constant=task.fit_intercept)
        return expansion, expansion.transform(public)

    def _count_tangents(self, task: Task) -> int:
        """Directions of a Jacobian that are added at most: none for heads that are linear in what they learn."""
        n, num_columns = task.dataset.public.values.shape
        if isinstance(task.head, Linear | Wide) or not self.tangents:
            return 0
        size = task.head.layout(num_columns + task.fit_intercept, 0).size
        return self._limit(self.tangents, n) if n * size <= LARGEST_JACOBIAN else 0

    @staticmethod
    def _limit(number: int, num_records: int) -> int:
        """So many features, or fewer if there are few records, or too many for memory."""
        return max(1, min(number, num_records // 4, int(LARGEST_EXPANSION / num_records)))

    def _make_parameters(
        self, task: Task, expansion: Expansion | None, directions: Directions, run: NewtonRun
    ) -> NDArray[np.float64]:
        """Parameters of a linear or wide head on the public columns themselves."""
        weights = directions.matrix @ run.coefficients
        if not isinstance(task.head, Wide) or expansion is None:
            return np.asarray(weights)
        return _make_wide(
            task.head, expansion, weights, task.dataset.public.values.shape[1], constant=task.fit_intercept
        )


@dataclass(frozen=True)
class _Lesson:
    """What a head that is not linear learns on the way and at the end: predictions that have been released."""

    student: Student
    label_range: tuple[float, float]
    generator: np.random.Generator

    @classmethod
    def of(cls, task: Task) -> "_Lesson":
        return cls(
            Student.of(task.head, task.dataset.public, constant=task.fit_intercept),
            scale_bounds(task.dataset.label.bounds, center=task.fit_intercept),
            task.random_source.generator(),
        )

    def widen(self, directions: Directions, coefficients: NDArray[np.float64], at_most: int) -> Directions:
        """Learn what is predicted so far; the directions in which that can be changed."""
        self.student.learn(np.clip(directions.rows @ coefficients, *self.label_range), self.generator)
        return self.student.compute_tangents(directions, at_most=at_most)

    def finish(self, run: NewtonRun) -> NDArray[np.float64]:
        """Learn what is predicted in the end; parameters on the public columns themselves."""
        self.student.learn(np.clip(run.rows @ run.coefficients, *self.label_range), self.generator)
        return self.student.export()


def _make_wide(
    head: Wide, expansion: Expansion, weights: NDArray[np.float64], num_public: int, *, constant: bool
) -> NDArray[np.float64]:
    """Parameters of a wide head: linear weights and output weights as fitted, hidden weights as drawn."""
    layout = head.layout(num_public + constant, 0)
    parameters: NDArray[np.float64] = np.zeros((1, layout.size))
    views = layout.views(parameters)
    views["public"][0, 0, :num_public] = weights[:num_public]
    views["public"][0, 1:, :num_public] = expansion.weights
    views["output"][0] = weights[num_public : num_public + head.width]
    if constant:
        views["public"][0, 0, -1] = weights[-1]
        views["public"][0, 1:, -1] = expansion.biases
    return np.asarray(parameters[0])


def _watch(task: Task, num_steps: int, course: list[NDArray[np.float64]]) -> Watch:
    """What the engine calls after each release: it keeps the coefficients and asks the user's callback."""

    def watch(step: int, coefficients: NDArray[np.float64]) -> bool | None:
        course.append(coefficients)
        return None if task.callback is None else task.callback(Progress(step, num_steps, coefficients[None]))

    return watch


def _diagnose(
    model: FittedModel, directions: Directions, run: NewtonRun, course: list[NDArray[np.float64]]
) -> Diagnostics:
    """The course of the run: rows have unit second moments, so distances of coefficients are those of predictions."""
    width = model.label_bounds.width
    deviations: tuple[float, ...] = ()
    if isinstance(model.head, Linear) and directions.is_public:  # the whitening of private columns is itself noisy
        covariance = (directions.matrix * run.belief.variance) @ directions.matrix.T
        deviations = tuple(model.compute_linear_deviations(covariance).tolist())
    return Diagnostics(
        tuple(range(1, len(course) + 1)),
        tuple(width * float(np.linalg.norm(_pad(each, run) - run.coefficients)) for each in course),
        tuple(width * each for each in run.scales),
        deviations,
    )


def _pad(coefficients: NDArray[np.float64], run: NewtonRun) -> NDArray[np.float64]:
    """Coefficients of all directions of a run, zero for those that were added later."""
    return np.pad(coefficients, (0, len(run.coefficients) - len(coefficients)))
