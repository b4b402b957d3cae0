"""Fits with features that are learned from released numbers, as CondNewton makes them."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.lesson import NOTE, distil
from conddp.algorithms.private_directions import MOMENT_FRACTION, add_private_columns
from conddp.algorithms.task import Task
from conddp.algorithms.weighting import describe_weights, weigh_records
from conddp.data.parts import PublicFeatures
from conddp.data.passes import list_blocks
from conddp.data.records import Records
from conddp.data.scaling import scale_bounds
from conddp.data.stored_labels import open_labels
from conddp.errors import SchemaError
from conddp.features.feature_families import Families
from conddp.features.whitening import WhitenedRows
from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.newton.rounds import RoundsResult, RoundsSetting, run_rounds
from conddp.newton.run import run_newton
from conddp.newton.schedule import NewtonPlan
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.events import make_gaussian_event
from conddp.training.loop import Callback, Progress

__all__ = ["MOST_COLUMNS", "LearnedFit", "fit_distilled", "fit_learned"]

Vector = NDArray[np.float64]

MOST_COLUMNS = 2000  # public columns, levels of categories included
PUBLIC_FRACTION = 0.5  # of the budget for a function of public columns alone, if there are private ones
NUM_WATCHED = 1000  # public rows on which predictions of iterates are compared
ROWS_AT_ONCE = 4096  # for which features are evaluated at once
BRIEF_WIDTH, BRIEF_STEPS = 100, 12  # features, and steps of a round, of trials that are to be made briefly


@dataclass(frozen=True)
class LearnedFit:
    """What a task has released of a function with learned features, before a model is made of it.

    Parameters
    ----------
    task : Task
        The fit, whose budget is spent.
    settings : mapping
        All settings of the fit.
    rounds : RoundsResult
        The function.
    private : array of shape (q,), optional
        Weights of private features.
    """

    task: Task
    settings: dict[str, Any]
    rounds: RoundsResult
    private: Vector | None = None

    @classmethod
    def release(cls, task: Task, plan: NewtonPlan, families: Families) -> "LearnedFit":
        r"""Spend the budget of a task on rounds of Newton steps with features that are learned on the way.

        With private columns, half of the budget goes to rounds that fit the label by public columns alone, which do
        not read private columns. Its released predictions are then one more public column of a linear fit to all
        columns.

        Trials that are to be made briefly have fewer features, directions and rounds.

        Privacy
            The rounds are one Gaussian mechanism (:func:`conddp.newton.rounds.run_rounds`), and so are the second
            moments of private columns and the steps of the linear fit. Their fractions of :math:`\mu^2` are fixed in
            advance and add up to one.
        """
        mu = calibrate_gaussian_mu(task.budget.epsilon, task.budget.delta)
        fraction = PUBLIC_FRACTION if task.num_private else 1.0
        weights = weigh_records(task, num_directions=len(task.public.names) + task.num_private)
        setting = RoundsSetting(task.public, families, mu * math.sqrt(fraction), plan, task.neighbouring, weights)
        if task.shared is not None and task.shared.briefly:
            setting = replace(
                setting,
                families=replace(families, width=min(families.width, BRIEF_WIDTH)),
                steps_per_round=BRIEF_STEPS,
                most_directions=BRIEF_WIDTH,
            )
        num_releases = len(plan.divide_budget(setting.num_records))
        settings: dict[str, Any] = {
            **asdict(plan),
            "num_steps": num_releases - 2,
            "mu": mu,
            "moment_fraction": (1 - fraction) * MOMENT_FRACTION,
            "public_fraction": fraction,
            "head": repr(task.head),
            **describe_weights(weights),
        }
        task.note_free("features and directions", "read public columns, n and what was released before")
        reason = "noisy sums of clamped residuals times rows, and of their squares"
        if task.num_private:
            reason += "; noisy second moments of private columns"
        records = task.spend(reason, settings, event=make_gaussian_event(mu))
        label_range = scale_bounds(task.schema.label_bounds, center=True)
        watch = _Watch(task.callback, num_releases * (2 if task.num_private else 1))
        rounds = run_rounds(
            setting,
            open_labels(records.label, center=True),
            label_range,
            curator=task.curator,
            loss=task.loss,
            callback=watch,
            num_watched=NUM_WATCHED,
        )
        settings |= {"num_directions": list(rounds.num_directions), "num_features": rounds.dictionary.num_features}
        private = np.zeros(task.num_private) if task.num_private else None
        if task.num_private and not watch.stopped:
            rounds, private = _fit_all_columns(task, records, rounds, setting, watch, mu=mu * math.sqrt(1 - fraction))
        return cls(task, settings, rounds, private)

    def predict(self, public_features: PublicFeatures) -> Vector:
        """Predictions without private columns, in units of the label range about its middle; not clamped."""
        X, rounds = public_features.values, self.rounds
        parts = [
            rounds.dictionary.predict(X[span], rounds.weights) for span in list_blocks(len(X), block_size=ROWS_AT_ONCE)
        ]
        return rounds.constant + np.concatenate([np.empty(0), *parts])

    def finish(self, model: FittedModel, *, note: str = "") -> FitResult:
        """Return the result of the fit with a model that was made of the function."""
        width, task, rounds = model.label_bounds.width, self.task, self.rounds
        # Standard deviations of predictions due to each component, in the units of the label.
        components = {name: width * math.sqrt(max(0.0, each)) for name, each in rounds.components.items()}
        settings = {**self.settings, "components": components}
        return task.finish(model, settings, note=note, diagnostics=_diagnose(width, rounds))


def fit_learned(task: Task, plan: NewtonPlan) -> FitResult:
    """Fit a head whose features are learned; the model is the function itself.

    Privacy
        That of :meth:`LearnedFit.release`.
    """
    if len(task.public.names) > MOST_COLUMNS:
        raise SchemaError(
            f"features are learned from up to {MOST_COLUMNS:,} public columns, got {len(task.public.names):,}. Use the "
            "head 'linear', or leave columns out."
        )
    fit = LearnedFit.release(task, plan, task.head.make_families())
    head, parameters = task.head.export(fit.rounds.dictionary, fit.rounds.weights, fit.rounds.constant, fit.private)
    return fit.finish(replace(task, head=head).make_model(parameters))


def fit_distilled(tasks: Sequence[Task], plan: NewtonPlan, *, width: int) -> list[FitResult]:
    """Fit nonlinear heads to predictions with learned features, those of several trials together.

    Privacy
        That of :meth:`LearnedFit.release`, for every task: predictions at public rows are determined by its releases.

    Parameters
    ----------
    tasks : sequence of Task
        Fits of the same head to the same public columns.
    plan : NewtonPlan
        Constants of the steps.
    width : int
        Approximate number of nonlinear features.
    """
    fits = [LearnedFit.release(task, plan, Families(width)) for task in tasks]
    learned = distil(tasks, [fit.predict for fit in fits])
    return [
        fit.finish(fit.task.make_model(parameters), note=NOTE) for fit, parameters in zip(fits, learned, strict=True)
    ]


def _fit_all_columns(
    task: Task, records: Records, rounds: RoundsResult, setting: RoundsSetting, watch: "_Watch", *, mu: float
) -> tuple[RoundsResult, Vector]:
    """Fit the label by a linear function of public and private columns and of the predictions of the rounds."""
    dictionary, X = rounds.dictionary, setting.public.values
    z = dictionary.scales.standardize(X)
    predicted = rounds.constant + dictionary.predict(X, rounds.weights)
    columns = PublicFeatures.of_finite(
        np.column_stack([z, predicted]), [f"x{place}" for place in range(z.shape[1] + 1)]
    )
    public_rows = WhitenedRows.of(columns, constant=True, weights=setting.weights)
    rows = add_private_columns(task, records, public_rows, mu=mu * math.sqrt(MOMENT_FRACTION))
    run = run_newton(
        rows,
        open_labels(records.label, center=True),
        scale_bounds(task.schema.label_bounds, center=True),
        np.zeros(rows.num_directions),
        mu=mu * math.sqrt(1 - MOMENT_FRACTION),
        curator=task.curator,
        neighbouring=task.neighbouring,
        plan=setting.plan,
        loss=task.loss,
        callback=watch,
    )
    weights = rows.matrix @ run.coefficients  # of standardised values, predictions, the constant and private columns
    d = z.shape[1]
    with_linear = dictionary.add_linear(weights[:d])
    features = np.concatenate([[1.0], weights[d] * rounds.weights])
    constant = float(weights[d + 1] + weights[d] * rounds.constant)
    return replace(rounds, dictionary=with_linear, weights=features, constant=constant), weights[d + 2 :]


class _Watch:
    """Callback of all steps, which calls the user's and knows whether the user has stopped the fit."""

    def __init__(self, callback: Callback | None, num_steps: int) -> None:
        self.callback, self.num_steps, self.step, self.stopped = callback, num_steps, 0, False

    def __call__(self, _: int, coefficients: Vector) -> bool:
        self.step += 1
        if self.callback is not None and self.callback(Progress(self.step, self.num_steps, coefficients[None].copy())):
            self.stopped = True
        return self.stopped


def _diagnose(width: float, rounds: RoundsResult) -> Diagnostics:
    """Diagnostics of the rounds: distances of predictions from the last ones."""
    distances = [width * float(np.sqrt(np.mean((each - rounds.course[-1]) ** 2))) for each in rounds.course]
    stds = tuple(width * each for each in rounds.residual_stds[: len(rounds.course)])
    return Diagnostics(tuple(range(1, len(rounds.course) + 1)), tuple(distances), stds)
