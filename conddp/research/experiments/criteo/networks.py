"""Embeddings and an MLP on the Criteo table, trained by noisy descent or on randomised labels."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures
from conddp.heads.embeddings import Embeddings
from conddp.heads.head import Inputs
from conddp.privacy.neighbouring import Neighbouring
from conddp.research.experiments.criteo.methods import Budget, Tuning, randomize_labels
from conddp.research.experiments.criteo.race import Outcome, Race, Runner, Stage, run_race
from conddp.research.experiments.criteo.table import CriteoTable
from conddp.research.experiments.search import Trial
from conddp.research.experiments.tuning import Schedule

__all__ = ["train_on_bins", "tune_networks"]

WIDTH, HIDDEN = 8, (128, 64)  # of the paper
NO_CLIP = 1e6
RECORDS_FOR_NORMS = 4096


def tune_networks(
    table: CriteoTable, method: str, budgets: Sequence[Budget], tuning: Tuning, num_seeds: int
) -> dict[Budget, Outcome]:
    """The best of several settings of noisy gradient descent, for each budget.

    "DPSGD" starts from a random table of embeddings, "Switch-Cond-DP" from the singular vectors of the public bins.
    """
    race = _make_race(table, method, table.label, tuning.schedule)
    ((rung, _),) = tuning.search.rungs
    found = run_race(
        race,
        budgets,
        tuning.search.trials,
        rung=rung,
        finalists=tuning.search.finalists,
        num_seeds=num_seeds,
    )
    return {(outcome.neighbouring, outcome.epsilon): outcome for outcome in found}


def train_on_bins(
    table: CriteoTable, epsilons: Sequence[float], schedule: Schedule, learning_rate: float, num_seeds: int
) -> dict[float, tuple[float, ...]]:
    """Test errors of networks that are trained, without noise, on labels that RR-on-Bins has randomised."""
    trial = Trial(learning_rate, NO_CLIP)
    errors = {}
    for epsilon in epsilons:
        found: list[float] = []
        for seed in range(num_seeds):
            label = randomize_labels(table, epsilon, seed).astype(np.float32)
            race = _make_race(table, f"RR-on-Bins, {epsilon}, {seed}", label, schedule)
            budget = (Neighbouring.REPLACE, math.inf)  # labels are released, so training costs nothing
            (outcome,) = run_race(race, [budget], [trial], rung=1.0, finalists=1, num_seeds=1)
            found += outcome.errors
        errors[epsilon] = tuple(found)
    return errors


def _make_race(table: CriteoTable, method: str, label: NDArray[Any], schedule: Schedule) -> Race:
    train, test = table.coded
    head = Embeddings(
        table.binned_train.num_bins,
        WIDTH,
        HIDDEN,
        num_categories=table.binned_train.bins.shape[1],
        initialization="spectral" if method == "Switch-Cond-DP" else "random",
    )
    inputs, layout = head.prepare(train, None), head.layout(train.shape[1], 0)
    public = PublicFeatures(train)

    @cache
    def initialize(seed: int) -> NDArray[Any]:
        return head.initialize_on(public, layout, np.random.default_rng([0, seed]), conditioned=False)

    def predict(parameters: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(head.predict(layout.views(parameters), test, None))

    unit = _measure_gradients(head, inputs, initialize(0)[None].astype(np.float32), train.shape[1])
    stage = Stage(head, inputs, train.shape[1], unit, 1.0, lambda parameters: parameters, predict)
    start: Callable[[Runner], NDArray[Any]] = lambda runner: initialize(runner.seed)  # noqa: E731  (typed)
    identity = f"{table.name} {table.digest}, mlp, {method}"
    return Race([stage], label, start, table.measure, schedule, table.delta, identity)


def _measure_gradients(head: Embeddings, inputs: Inputs, parameters: NDArray[Any], num_public: int) -> float:
    """Root mean square of the norms of the gradients of predictions at the start, which are public."""
    some = inputs.take(np.arange(min(RECORDS_FOR_NORMS, len(inputs.row_norms))))
    norms = head.forward(head.layout(num_public, 0).views(parameters), some).jacobian_norms
    return math.sqrt(float(np.mean(np.square(norms))))
