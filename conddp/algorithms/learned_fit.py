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
from conddp.data.memory import find_available_memory
from conddp.data.parts import PublicFeatures
from conddp.data.records import Records
from conddp.data.scaling import scale_bounds
from conddp.data.stored_labels import open_labels
from conddp.errors import SchemaError
from conddp.features.additive_terms import AdditiveTerms
from conddp.features.dictionary import MOST_FEATURES
from conddp.features.feature_families import Families
from conddp.features.learned_function import LearnedFunction
from conddp.features.row_sample import draw_rows
from conddp.features.whitening import WhitenedRows
from conddp.heads import HEADS
from conddp.models.diagnostics import Diagnostics
from conddp.models.effects import Effects
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.newton.effects import Refit, estimate_effects
from conddp.newton.parameter_posterior import ParameterPosterior
from conddp.newton.rounds import RoundsResult, run_rounds
from conddp.newton.rounds_setting import MOST_SAMPLED, RoundsSetting, estimate_memory
from conddp.newton.run import run_newton
from conddp.newton.schedule import NewtonPlan
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.events import make_gaussian_event
from conddp.training.loop import Callback, Progress, StepCounter

__all__ = ["MOST_COLUMNS", "LearnedFit", "fit_distilled", "fit_learned"]

Vector = NDArray[np.float64]

MOST_COLUMNS = 2000  # public columns, levels of categories included
PUBLIC_FRACTION = 0.3  # of the budget for a function of public columns alone, if there are private ones
BEFORE_STEP = 0.9  # of the time of a step that follows long computations: how much they take
NUM_WATCHED = 1000  # public rows on which predictions of iterates are compared
BRIEF_WIDTH, BRIEF_LENGTHS = 100, (1, 1)  # features, and lengths of rounds, of trials that are to be made briefly


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
    setting : RoundsSetting
        Public settings of the rounds.
    private : array of shape (q,), optional
        Weights of private features.
    refit : Refit, optional
        The linear fit to all columns, if some are private, or the calibration of an additive model.
    stopped : bool
        Whether a callback stopped the fit before its last release.
    """

    task: Task
    settings: dict[str, Any]
    rounds: RoundsResult
    setting: RoundsSetting
    private: Vector | None = None
    refit: Refit | None = None
    stopped: bool = False

    @classmethod
    def release(cls, task: Task, plan: NewtonPlan, families: Families) -> "LearnedFit":
        r"""Spend the budget of a task on rounds of Newton steps with features that are learned on the way.

        With private columns, three tenths of the budget go to rounds that fit the label by public columns alone, which
        do not read private columns. Their released predictions are then one more public column of a linear fit to all
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
        setting = RoundsSetting(
            task.public,
            families,
            mu * math.sqrt(fraction),
            plan,
            task.neighbouring,
            weights,
            calibrated=not task.num_private,  # the linear fit that follows would be calibrated once more
        )
        if task.shared is not None and task.shared.briefly:
            setting = replace(
                setting,
                families=replace(families, width=min(families.width, BRIEF_WIDTH)),
                lengths=BRIEF_LENGTHS,
                most_directions=BRIEF_WIDTH,
            )
        divided = setting.divided
        _check_size(task, setting, num_rounds=len(divided.rounds))
        settings: dict[str, Any] = {
            **asdict(plan),
            "num_steps": divided.num_releases - 2,
            "mu": mu,
            "moment_fraction": (1 - fraction) * MOMENT_FRACTION,
            "public_fraction": fraction,
            "head": task.head.describe(),
            **describe_weights(weights),
        }
        task.note_free("features and directions", "read public columns, n and what was released before")
        reason = "noisy sums of clamped residuals times rows, and of their squares"
        if task.num_private:
            reason += "; noisy second moments of private columns"
        records = task.spend(reason, settings, event=make_gaussian_event(mu))
        label_range = scale_bounds(task.schema.label_bounds, center=True)
        watch = _Watch(task.callback, divided.num_releases * (2 if task.num_private else 1))
        rounds = run_rounds(
            setting,
            open_labels(records.label, center=True),
            label_range,
            curator=task.curator,
            loss=task.loss,
            callback=watch,
            watch_work=watch.show_work,
            num_watched=NUM_WATCHED,
        )
        settings |= {
            "num_directions": list(rounds.num_directions),
            "num_features": rounds.function.dictionary.num_features,
        }
        private, refit = np.zeros(task.num_private) if task.num_private else None, None
        if not task.num_private and rounds.function.is_sum:
            rounds, refit = _straighten(rounds)
        if task.num_private and not watch.stopped:
            rounds, private, refit = _fit_all_columns(
                task, records, rounds, setting, watch, mu=mu * math.sqrt(1 - fraction)
            )
        return cls(task, settings, rounds, setting, private, refit, watch.stopped)

    def predict(self, public_features: PublicFeatures) -> Vector:
        """Predictions without private columns, in units of the label range about its middle; not clamped."""
        return self.rounds.function.predict(public_features.values)

    def estimate_effects(self, model: FittedModel) -> Effects | None:
        """Estimate the effects of the columns, if the function is a sum of functions of single columns and pairs."""
        if not self.rounds.function.dictionary.has_curves:
            return None
        return _estimate_effects(self.setting, self.rounds, model, self.refit)

    def finish(self, model: FittedModel, *, note: str = "", effects: Effects | None = None) -> FitResult:
        """Return the result of the fit with a model that was made of the function."""
        width, task, rounds = model.label_bounds.width, self.task, self.rounds
        # Standard deviations of predictions due to each component, in the units of the label.
        components = {name: width * math.sqrt(max(0.0, each)) for name, each in rounds.components.items()}
        settings = {**self.settings, "components": components}
        return task.finish(model, settings, note=note, diagnostics=_diagnose(width, rounds, effects))


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
    head, parameters = task.head.export(fit.rounds.function, fit.private)
    task = replace(
        task, head=head, head_choice=task.head.explain(head, task.head_choice, stopped=not fit.rounds.is_decided)
    )
    model = task.make_model(parameters)
    if type(head) is not type(fit.task.head):  # the releases decided on it
        fit = replace(fit, settings={**fit.settings, "head": f"{HEADS.find_name(head)}, chosen by auto"})
    fit = replace(fit, task=task)
    return fit.finish(model, effects=fit.estimate_effects(model))


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


def _check_size(task: Task, setting: RoundsSetting, *, num_rounds: int) -> None:
    """Refuse dictionaries that are too large, and fits that do not fit into memory, before anything is spent."""
    n, d = len(task.public), len(task.public.names)
    number = setting.families.count_most(d)
    if number > MOST_FEATURES:
        raise SchemaError(
            f"features are chosen from dictionaries of up to {MOST_FEATURES:,}, and {d:,} columns with "
            f"{task.head.describe()} make up to {number:,}. Choose a smaller width, or leave columns out."
        )
    needed = estimate_memory(n, number, num_rounds, weighted=setting.weights is not None)
    available = find_available_memory()
    if needed > available:
        raise SchemaError(
            f"learning features from {n:,} records takes about {needed / 1e9:.1f} GB of memory beside the table, and "
            f"{available / 1e9:.1f} GB are available. Free some, use the head 'linear', or fit a sample of the records."
        )


def _straighten(rounds: RoundsResult) -> tuple[RoundsResult, Refit]:
    """Apply a calibration that is a straight line to the weights of the features."""
    function = rounds.function
    root = np.zeros((function.dictionary.scales.num_columns + 1, 1))
    root[-1] = function.calibration.slope_std
    refit = Refit(*function.coefficients, function.calibration.slope, root)
    return replace(rounds, function=function.straighten()), refit


def _fit_all_columns(
    task: Task, records: Records, rounds: RoundsResult, setting: RoundsSetting, watch: "_Watch", *, mu: float
) -> tuple[RoundsResult, Vector, Refit]:
    """Fit the label by a linear function of public and private columns and of the predictions of the rounds."""
    function, X = rounds.function, setting.public.values
    dictionary = function.dictionary
    z, predicted = dictionary.scales.standardize(X), function.predict(X)
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
    root = rows.matrix[: d + 1] * np.sqrt(run.posterior.variance)
    refit = Refit(*function.coefficients, float(weights[d]), root)
    function = LearnedFunction(
        dictionary.add_linear(weights[:d]),
        np.concatenate([[1.0], weights[d] * function.weights]),
        float(weights[d + 1] + weights[d] * function.constant),
    )
    return replace(rounds, function=function), weights[d + 2 :], refit


def _estimate_effects(setting: RoundsSetting, rounds: RoundsResult, model: FittedModel, refit: Refit | None) -> Effects:
    """Effects of the columns of an additive model."""
    public, bounds = setting.public, model.label_bounds
    sample = public.values[draw_rows(len(public), MOST_SAMPLED)]
    terms = AdditiveTerms(
        rounds.function.dictionary, public, sample, None if setting.weights is None else setting.weights.values
    )
    constant = bounds.width * float(model.layout.views(model.parameters[None])["constant"][0, 0])
    return estimate_effects(
        terms,
        ParameterPosterior.of(rounds.posterior),
        *rounds.function.coefficients,
        constant=bounds.midpoint + constant,
        width=bounds.width,
        refit=refit,
    )


class _Watch:
    """Callback of all steps, which calls the user's and knows whether the user has stopped the fit."""

    def __init__(self, callback: Callback | None, num_steps: int) -> None:
        self.callback, self.num_steps, self.step, self.stopped = callback, num_steps, 0, False

    def __call__(self, _: int, coefficients: Vector) -> bool:
        self.step += 1
        if self.callback is not None and self.callback(Progress(self.step, self.num_steps, coefficients[None].copy())):
            self.stopped = True
        return self.stopped

    def show_work(self, what: str, fraction: float) -> None:
        """Show how far public computations before the next release have come."""
        if isinstance(self.callback, StepCounter) and self.callback.show_work is not None:
            self.callback.show_work(self.step + BEFORE_STEP * fraction, self.num_steps, what)


def _diagnose(width: float, rounds: RoundsResult, effects: Effects | None) -> Diagnostics:
    """Diagnostics of the rounds: distances of predictions from the last ones."""
    distances = [width * float(np.sqrt(np.mean((each - rounds.course[-1]) ** 2))) for each in rounds.course]
    stds = tuple(width * each for each in rounds.residual_stds[: len(rounds.course)])
    return Diagnostics(tuple(range(1, len(rounds.course) + 1)), tuple(distances), stds, effects=effects)
