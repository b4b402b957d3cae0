"""Test errors of all methods on the Criteo table, for all budgets and seeds of a line at once.

What depends on public columns only is computed once for the table. Otherwise every method is what its algorithm does in
a fit; ``tests/test_criteo_experiment.py`` compares them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.randomized_labels import RROnBins
from conddp.data.scaling import scale_bounds, scale_label
from conddp.features.grouped_rows import whiten
from conddp.features.public_rows import PublicRows
from conddp.heads.head import Inputs
from conddp.heads.linear import Linear
from conddp.labels.prior import estimate_label_prior, make_grid
from conddp.labels.randomizers import make_response_on_bins
from conddp.newton.run import run_newton
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator
from conddp.research.experiments.criteo.race import Outcome, Race, Runner, Stage, run_race
from conddp.research.experiments.criteo.table import CriteoTable, SingleRows
from conddp.research.experiments.search import Search
from conddp.research.experiments.tuning import Schedule

__all__ = [
    "Budget",
    "Tuning",
    "describe_settings",
    "fit_default",
    "fit_encoded",
    "fit_least_squares",
    "fit_on_bins",
    "randomize_labels",
    "tune_descent",
]

Budget = tuple[Neighbouring, float]
Errors = dict[Budget, tuple[float, ...]]

GRID_SIZE = 401  # whole euros from 0 to 400


@dataclass(frozen=True)
class Tuning:
    """How the settings of a baseline are chosen, on the test loss.

    Parameters
    ----------
    schedule : Schedule
        Epochs and batches of every run.
    search : Search
        Trials, with one rung.
    """

    schedule: Schedule
    search: Search


def fit_default(table: CriteoTable, budgets: Sequence[Budget], num_seeds: int) -> Errors:
    """Test errors of CondNewton with a linear head, the default for public columns."""
    return _take_newton_steps(table, table.whitened, table.measure_weights, budgets, num_seeds)


def fit_encoded(table: CriteoTable, budgets: Sequence[Budget], num_seeds: int) -> Errors:
    """Test errors of the same on the columns of the table, encoded as ``conddp fit`` does: each category on its own."""
    train, test = table.encoded
    rows = whiten(train)

    def measure(weights: NDArray[np.float64]) -> float:
        return table.measure(np.asarray(test.matrix @ weights[:-1] + weights[-1]))

    return _take_newton_steps(table, rows, measure, budgets, num_seeds, random_effects=train.groups is not None)


def _take_newton_steps(
    table: CriteoTable,
    rows: PublicRows,
    measure: Callable[[NDArray[np.float64]], float],
    budgets: Sequence[Budget],
    num_seeds: int,
    *,
    random_effects: bool = False,
) -> Errors:
    """Test errors for all budgets and seeds, by a function that measures weights."""
    label = scale_label(table.train.label)
    errors: Errors = {}
    for neighbouring, epsilon in budgets:
        mu = calibrate_gaussian_mu(epsilon, table.delta)
        found = []
        for seed in range(num_seeds):
            run = run_newton(
                rows,
                label,
                scale_bounds(table.train.label.bounds),
                np.zeros(rows.num_directions),
                mu=mu,
                curator=Curator(np.random.default_rng(seed), num_records=len(label)),
                neighbouring=neighbouring,
                random_effects=random_effects,
            )
            found.append(measure(rows.matrix @ run.coefficients))
        errors[neighbouring, epsilon] = tuple(found)
    return errors


def fit_least_squares(table: CriteoTable) -> float:
    """Test error of least squares without privacy."""
    return table.measure_weights(_solve(table, scale_label(table.train.label)[None])[0])


def fit_on_bins(table: CriteoTable, epsilons: Sequence[float], num_seeds: int) -> dict[float, tuple[float, ...]]:
    """Test errors of least squares on labels that RR-on-Bins has randomised."""
    errors = {}
    for epsilon in epsilons:
        label = np.stack([randomize_labels(table, epsilon, seed) for seed in range(num_seeds)])
        errors[epsilon] = tuple(table.measure_weights(weights) for weights in _solve(table, label))
    return errors


def randomize_labels(table: CriteoTable, epsilon: float, seed: int) -> NDArray[np.float64]:
    """Training labels after RR-on-Bins, scaled."""
    label, algorithm = table.train.label, RROnBins()
    curator = Curator(np.random.default_rng(seed), num_records=len(label))
    for_prior = algorithm.prior_fraction * epsilon
    prior = estimate_label_prior(label, make_grid(label.bounds, GRID_SIZE), epsilon=for_prior, curator=curator)
    randomizer = make_response_on_bins(prior.smooth(algorithm.smoothing), epsilon - for_prior)
    released = randomizer.randomize(label.bounds.clamp(label.values), curator)
    return np.asarray((released - label.bounds.midpoint) / label.bounds.width)


def _solve(table: CriteoTable, label: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of least squares for several scaled labels, shape (m, n): whitened rows have unit second moments."""
    rows = table.whitened
    return np.asarray((label @ rows.rows / rows.num_records) @ rows.matrix.T)


def _make_stages(table: CriteoTable, method: str, switch: float) -> list[Stage]:
    """The features on which a linear model is trained, stage by stage."""
    plain = SingleRows(table.single[0])
    if method == "DPSGD":
        return [_make_stage(table, plain, _measure_norms(plain.columns), 1.0)]
    whitened = table.whitened
    conditioned = SingleRows(table.single[0], whitened.matrix.astype(np.float32))
    norms = np.sqrt(whitened.squared_norms.sum(axis=1)).astype(np.float32)
    if method == "Cond-DP":
        return [_make_stage(table, conditioned, norms, 1.0)]
    assert method == "Switch-Cond-DP", method
    return [
        _make_stage(table, conditioned, norms, switch),
        _make_stage(table, plain, _measure_norms(plain.columns), 1.0, before=conditioned),
    ]


def _make_stage(
    table: CriteoTable,
    rows: SingleRows,
    norms: NDArray[Any],
    fraction: float,
    *,
    before: SingleRows | None = None,
) -> Stage:
    def predict(parameters: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((table.single[1] @ rows.fold(parameters).T).T)

    def enter(parameters: NDArray[Any]) -> NDArray[Any]:
        return parameters if before is None else before.fold(parameters)

    clip_unit = math.sqrt(float(np.mean(np.square(norms, dtype=np.float64))))
    return Stage(Linear(), Inputs(rows, None, norms, np), rows.shape[1], clip_unit, fraction, enter, predict)


def _measure_norms(columns: Any) -> NDArray[Any]:
    return np.asarray(np.sqrt((columns * columns).sum(axis=1)), dtype=np.float32)


def tune_descent(
    table: CriteoTable, method: str, budgets: Sequence[Budget], tuning: Tuning, num_seeds: int
) -> dict[Budget, Outcome]:
    """The best of several settings of noisy gradient descent on a linear model, for each budget."""
    outcomes: dict[Budget, Outcome] = {}
    switches = sorted({trial.switch for trial in tuning.search.trials})
    for switch in switches:
        stages = _make_stages(table, method, switch)
        race = Race(
            stages,
            table.label,
            _start_at_zero(stages[0]),
            table.measure,
            tuning.schedule,
            table.delta,
            f"{table.name} {table.digest}, linear, {method}, {switch}",
        )
        trials = [trial for trial in tuning.search.trials if trial.switch == switch]
        ((rung, _),) = tuning.search.rungs
        found = run_race(race, budgets, trials, rung=rung, finalists=tuning.search.finalists, num_seeds=num_seeds)
        for outcome in found:
            budget = outcome.neighbouring, outcome.epsilon
            if budget not in outcomes or np.mean(outcome.errors) < np.mean(outcomes[budget].errors):
                outcomes[budget] = outcome
    return outcomes


def _start_at_zero(stage: Stage) -> Callable[[Runner], NDArray[Any]]:
    return lambda runner: np.zeros(stage.num_public)


def describe_settings(outcome: Outcome) -> str:
    """The chosen settings, in the words of :class:`~conddp.research.experiments.search.Trial`."""
    trial = outcome.trial
    switch = "" if trial.switch == 1.0 else f" switch={trial.switch:.3g}"
    return f"learning_rate={trial.learning_rate:.3g} clip_residual={trial.clip_residual:.3g}{switch}"
