"""Noisy gradient descent with many settings, budgets and seeds at once, on Poisson samples of a large table.

Privacy
    Not private: test labels choose the settings, sums are in single precision, and all runs share their samples. For
    experiments on data that need no protection.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.cache import cache_folder
from conddp.heads.head import Head, Inputs
from conddp.privacy.accounting import calibrate_noise_multiplier
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator
from conddp.research.experiments.search import Trial
from conddp.research.experiments.tuning import Schedule
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import Adam

__all__ = ["Outcome", "Race", "Runner", "Stage", "run_race"]

PRECISION = np.float32
STEPS_AT_ONCE = 100  # the noise of these steps comes from generators of their own, so that a run can go on after them
SECONDS_BETWEEN_SAVES = 30.0

Parameters = NDArray[Any]


@dataclass(frozen=True)
class Stage:
    """A number of steps with one form of the features.

    Parameters
    ----------
    head : Head
        The model.
    inputs : Inputs
        Features of the training records, in single precision.
    num_public : int
        Number of public columns that the head has weights for.
    clip_unit : float
        Typical norm of the gradient of a prediction, in which clip norms are stated.
    fraction : float
        Fraction of the steps of a run after which the stage ends.
    enter : callable
        Takes parameters of the stage before, shape (K, P), to parameters of this one.
    predict : callable
        Takes parameters (K, P) to predictions for the test records (K, n), in units of scaled labels.
    """

    head: Head
    inputs: Inputs
    num_public: int
    clip_unit: float
    fraction: float
    enter: Callable[[Parameters], Parameters]
    predict: Callable[[Parameters], NDArray[Any]]


@dataclass(frozen=True)
class Runner:
    """One run of a race: its budget, settings and seed."""

    neighbouring: Neighbouring
    epsilon: float
    trial: Trial
    seed: int


@dataclass(frozen=True)
class Outcome:
    """The best settings for one budget, and the test errors with them, one per seed."""

    neighbouring: Neighbouring
    epsilon: float
    trial: Trial
    errors: tuple[float, ...]


@dataclass(frozen=True)
class Race:
    """What is run.

    Parameters
    ----------
    stages : sequence of Stage
        The features of the records; the fraction of the last stage is 1.
    label : array of shape (n,)
        Training labels, in units of their range.
    initialize : callable
        Takes a runner to its initial parameters, shape (P,).
    measure : callable
        Takes predictions for the test records, in units of scaled labels, to the test error.
    schedule : Schedule
        Epochs and batches.
    delta : float
        Of all budgets.
    identity : str
        Name of the data and of the method, under which a run that was interrupted is continued.
    """

    stages: Sequence[Stage]
    label: NDArray[Any]
    initialize: Callable[[Runner], Parameters]
    measure: Callable[[NDArray[Any]], float]
    schedule: Schedule
    delta: float
    identity: str

    @property
    def num_steps(self) -> int:
        """Steps of a run."""
        return self.schedule.num_steps(len(self.label))

    def calibrate(self, neighbouring: Neighbouring, epsilon: float) -> float:
        """Noise multiplier of a budget; 0 for an infinite epsilon."""
        if math.isinf(epsilon):
            return 0.0
        return calibrate_noise_multiplier(
            epsilon,
            self.delta,
            num_steps=self.num_steps,
            sampling_probability=self.schedule.sampling_probability(len(self.label)),
            neighbouring=neighbouring,
        )


def run_race(
    race: Race,
    budgets: Sequence[tuple[Neighbouring, float]],
    trials: Sequence[Trial],
    *,
    rung: float,
    finalists: int,
    num_seeds: int,
) -> list[Outcome]:
    """Search for the settings with the lowest test error, for every budget on its own.

    All trials run with one seed, under the first relation, up to a fraction of the steps. For each epsilon the best of
    them start again with every seed and relation and run to the end; the one with the lowest mean error is the outcome.

    Parameters
    ----------
    race : Race
        What is run.
    budgets : sequence of (Neighbouring, float)
        Relations and epsilons.
    trials : sequence of Trial
        Settings to try.
    rung : float
        Fraction of the steps after which trials are compared.
    finalists : int
        Trials that run to the end, for each budget.
    num_seeds : int
        Runs of each finalist; one if there are budgets with and without noise, for those without.
    """
    free = [budget for budget in budgets if math.isinf(budget[1])]
    paid = [budget for budget in budgets if not math.isinf(budget[1])]
    if free and paid:  # runs without noise have no curator
        settings: Any = {"rung": rung, "finalists": finalists}
        found = run_race(race, paid, trials, num_seeds=num_seeds, **settings)
        return [*found, *run_race(race, free, trials, num_seeds=1, **settings)]
    chosen = {budget: list(trials[:finalists]) for budget in budgets}
    packs = []
    if len(trials) > finalists:
        first = budgets[0][0]
        tried = [Runner(*budget, trial, 0) for budget in budgets if budget[0] is first for trial in trials]
        packs.append(_Pack(race, tried))
        errors = packs[0].advance(max(1, round(rung * race.num_steps))).measure()
        for budget in budgets:
            ranked = sorted(
                (error, place)
                for place, (runner, error) in enumerate(zip(tried, errors, strict=True))
                if runner.epsilon == budget[1]
            )
            chosen[budget] = [tried[place].trial for _, place in ranked[:finalists]]
    final = [
        Runner(*budget, trial, seed) for budget in budgets for trial in chosen[budget] for seed in range(num_seeds)
    ]
    packs.append(_Pack(race, final))
    errors = packs[-1].advance(race.num_steps).measure()
    outcomes = []
    for budget in budgets:
        by_trial: dict[Trial, list[float]] = {}
        for runner, error in zip(final, errors, strict=True):
            if (runner.neighbouring, runner.epsilon) == budget:
                by_trial.setdefault(runner.trial, []).append(error)
        best = min(by_trial, key=lambda trial: float(np.mean(by_trial[trial])))
        outcomes.append(Outcome(*budget, best, tuple(by_trial[best])))
    for pack in packs:
        pack.path.unlink(missing_ok=True)
    return outcomes


class _Pack:
    """Runs that are trained together along the K axis. Their state is on disk, so that a killed pack goes on."""

    def __init__(self, race: Race, runners: Sequence[Runner]) -> None:
        self.race, self.runners = race, list(runners)
        self.noise_multipliers = [race.calibrate(each.neighbouring, each.epsilon) for each in runners]
        self.rates = np.array([each.trial.learning_rate for each in runners])
        self.done, self.number = 0, 0
        self.parameters: Parameters = np.stack([race.initialize(each) for each in runners]).astype(PRECISION)
        self.optimizer = Adam(self.rates)
        self.saved = time.monotonic()
        described = repr((race.identity, [asdict(each) for each in runners], race.schedule, race.delta, STEPS_AT_ONCE))
        digest = hashlib.sha256(described.encode()).hexdigest()[:24]
        self.path = cache_folder() / f"race-{digest}.npz"
        self._restore()

    def advance(self, until: int) -> "_Pack":
        """Train until this many steps are done."""
        while self.done < until:
            end = round(self.race.stages[self.number].fraction * self.race.num_steps)
            if self.done >= end:
                self.number += 1
                self.parameters = self.race.stages[self.number].enter(self.parameters).astype(PRECISION)
                self.optimizer = Adam(self.rates)
                continue
            self._train(min(until, end, self.done - self.done % STEPS_AT_ONCE + STEPS_AT_ONCE) - self.done)
            if time.monotonic() - self.saved > SECONDS_BETWEEN_SAVES:
                self.save()
        self.save()  # until the race is over: the trials need not be run again if the finals are interrupted
        return self

    def _train(self, num_steps: int) -> None:
        stage, race = self.race.stages[self.number], self.race
        plan = TrainingPlan(
            num_steps,
            stage.clip_unit * np.array([each.trial.clip_residual for each in self.runners]),
            self.noise_multipliers,
            race.schedule.sampling_probability(len(race.label)),
        )
        private = any(self.noise_multipliers)
        self.parameters = train(
            plan,
            stage.head,
            stage.head.layout(stage.num_public, 0),
            stage.inputs,
            race.label,
            self.parameters,
            optimizer=self.optimizer,
            curator=self._make_curator() if private else None,
            rng=np.random.default_rng([2, self.done]),
        )
        self.done += num_steps

    def _make_curator(self) -> Curator:
        generators = [np.random.default_rng([1, each.seed, self.done]) for each in self.runners]
        return Curator(generators, num_records=len(self.race.label), float32_without_guarantee=True)

    @np.errstate(all="ignore")  # a diverged run shows in its error
    def measure(self) -> list[float]:
        """Test error of every run; infinite where it has diverged."""
        predictions = self.race.stages[self.number].predict(self.parameters)
        errors = [self.race.measure(row) for row in predictions]
        return [error if math.isfinite(error) else math.inf for error in errors]

    def save(self) -> None:
        """Write the state to disk, where a pack with the same runs finds it."""
        state = {"done": self.done, "number": self.number, "parameters": self.parameters, **self.optimizer.get_state()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft.npz")
        np.savez(draft, **state)
        os.replace(draft, self.path)
        self.saved = time.monotonic()

    def _restore(self) -> None:
        if not self.path.exists():
            return
        with np.load(self.path) as state:
            self.done, self.number = int(state["done"]), int(state["number"])
            self.parameters = state["parameters"]
            self.optimizer.set_state(state)
