"""Tuning of noisy descent on the test loss, as in the paper; many configurations are trained at once.

Privacy
    Not private: test labels choose the winner, and only the runs themselves are noisy. For experiments on data that
    need no protection.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.descent import Descent, Phase
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.heads.folding import move_parameters
from conddp.heads.head import Head, Inputs
from conddp.planning.budgets import DELTA
from conddp.privacy.accounting import calibrate_noise_multiplier
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator
from conddp.research.experiments.search import Search, Trial
from conddp.research.split import Split
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import Adam

__all__ = ["Schedule", "Tuned", "tune"]

PRECISION = np.float32  # half the time of float64; the noise of a run is far above its rounding error


@dataclass(frozen=True)
class Schedule:
    """Length of every run.

    Parameters
    ----------
    num_epochs : int
        Passes over the records.
    batch_size : int, optional
        Expected size of a Poisson sample; None takes all records in every step.
    """

    num_epochs: int
    batch_size: int | None = None

    def num_steps(self, num_records: int) -> int:
        """Number of steps."""
        return self.num_epochs * (1 if self.batch_size is None else math.ceil(num_records / self.batch_size))

    def sampling_probability(self, num_records: int) -> float:
        """Probability that a record takes part in a step."""
        return 1.0 if self.batch_size is None else min(1.0, self.batch_size / num_records)


@dataclass(frozen=True)
class Tuned:
    """The best configuration and its errors, one per seed."""

    trial: Trial
    errors: tuple[float, ...]


@dataclass(frozen=True)
class _Run:
    """Settings shared by all runs of a search."""

    split: Split
    algorithm: Descent
    head: Head
    spectrum: Spectrum
    schedule: Schedule
    noise_multiplier: float

    @property
    def num_steps(self) -> int:
        return self.schedule.num_steps(self.split.train.num_records)

    def phases(self, switch: float) -> tuple[Phase, ...]:
        return self.algorithm.switch_at(switch).phases(self.spectrum, self.num_steps)


class _Lane:
    """Configurations with the same phases, trained together along the K axis."""

    def __init__(self, run: _Run, trials: Sequence[Trial], seeds: Sequence[int]) -> None:
        self.run, self.trials, self.seeds = run, list(trials), list(seeds)
        self.phases = run.phases(trials[0].switch)
        self.generators = [np.random.default_rng([seed, 1]) for seed in seeds]
        self.sampling = np.random.default_rng([min(seeds), 2])
        self.number, self.left = -1, 0
        self.done = 0
        layout = run.head.layout(self.phases[0].conditioning.num_parameters, 0)
        self.parameters: NDArray[Any] = np.stack(
            [
                trial.initial_scale * np.random.default_rng([seed, 0]).standard_normal(layout.size)
                for trial, seed in zip(trials, seeds, strict=True)
            ]
        ).astype(PRECISION)
        self._enter(0)

    @property
    def conditioning(self) -> ConditioningMatrix:
        return self.phases[self.number].conditioning

    def _enter(self, number: int) -> None:
        """Start a phase: move the parameters to its features and forget Adam's moments."""
        target = self.phases[number].conditioning
        if number > 0:
            moved = move_parameters(
                self.run.head, self.parameters, num_private=0, source=self.conditioning, target=target
            )
            self.parameters = moved.astype(PRECISION)
        self.number, self.left = number, self.phases[number].num_steps
        features = target.transform(self.run.split.train.public, dtype=PRECISION)
        if self.run.schedule.batch_size is None:
            features = np.asfortranarray(features)
        self.inputs = Inputs.of(features)
        self.row_norm = math.sqrt(float(np.mean(np.square(self.inputs.row_norms, dtype=np.float64))))
        self.optimizer = Adam(np.array([trial.learning_rate for trial in self.trials]))

    def advance(self, until: int) -> None:
        """Train until ``until`` steps are done in total."""
        split = self.run.split
        bounds = split.train.label.bounds
        label = bounds.clamp(split.train.label.values).astype(PRECISION)
        while self.done < until:
            if self.left == 0:
                self._enter(self.number + 1)
            num_steps = min(until - self.done, self.left)
            plan = TrainingPlan(
                num_steps,
                self.row_norm * np.array([trial.clip_residual for trial in self.trials]),
                self.run.noise_multiplier,
                self.run.schedule.sampling_probability(len(label)),
            )
            self.parameters = train(
                plan,
                self.run.head,
                self.run.head.layout(self.conditioning.num_parameters, 0),
                self.inputs,
                label,
                self.parameters,
                optimizer=self.optimizer,
                curator=self._make_curator(),
                rng=self.sampling,
            )
            self.done += num_steps
            self.left -= num_steps

    def _make_curator(self) -> Curator | None:
        """Noise for every configuration from its own generator; none without privacy."""
        if not self.run.noise_multiplier:
            return None
        return Curator(self.generators, num_records=self.run.split.train.num_records, float32_without_guarantee=True)

    @np.errstate(all="ignore")  # a diverged configuration shows in its error
    def errors(self) -> list[float]:
        """Test error of every configuration; infinite where it has diverged."""
        split, head = self.run.split, self.run.head
        features = self.conditioning.transform(split.test.public)
        weights = head.layout(features.shape[1], 0).views(self.parameters.astype(np.float64))
        errors = []
        for row in head.predict(weights, features, None):
            error = split.compute_error(split.train.label.bounds.clamp(row))
            errors.append(error if math.isfinite(error) else math.inf)
        return errors

    def keep(self, kept: Sequence[int]) -> None:
        """Continue with these configurations only."""
        index = list(kept)
        self.trials = [self.trials[number] for number in index]
        self.seeds = [self.seeds[number] for number in index]
        self.generators = [self.generators[number] for number in index]
        self.parameters = self.parameters[index]
        self.optimizer = self.optimizer.take(index)


def tune(
    split: Split,
    algorithm: Descent,
    head: Head,
    epsilon: float,
    *,
    schedule: Schedule,
    search: Search,
    num_seeds: int,
    neighbouring: Neighbouring = Neighbouring.ZERO_OUT,
) -> Tuned:
    """Search for the configuration with the lowest mean test error.

    Parameters
    ----------
    split : Split
        Data, split and error.
    algorithm : Descent
        Decides how features are conditioned, and until which step.
    head : Head
        The model.
    epsilon : float
        With delta 1e-6; infinite for runs without noise.
    schedule : Schedule
        Epochs and batches.
    search : Search
        The configurations to try.
    num_seeds : int
        Runs of each finalist.
    neighbouring : Neighbouring
        The relation that epsilon refers to; the paper's accounting is ``ZERO_OUT``.
    """
    n = split.train.num_records
    noise_multiplier = 0.0
    if math.isfinite(epsilon):
        noise_multiplier = calibrate_noise_multiplier(
            epsilon,
            DELTA,
            num_steps=schedule.num_steps(n),
            sampling_probability=schedule.sampling_probability(n),
            neighbouring=neighbouring,
        )
    spectrum = Spectrum.of(split.train.public, constant=split.fit_intercept)
    run = _Run(split, algorithm, head, spectrum, schedule, noise_multiplier)
    finalists = _thin_out(run, search)
    lanes = _make_lanes(run, [trial for trial in finalists for _ in range(num_seeds)], num_seeds)
    by_trial: dict[Trial, list[float]] = {}
    for lane in lanes:
        lane.advance(run.num_steps)
        for trial, error in zip(lane.trials, lane.errors(), strict=True):
            by_trial.setdefault(trial, []).append(error)
    best = min(by_trial, key=lambda trial: float(np.mean(by_trial[trial])))
    return Tuned(best, tuple(by_trial[best]))


def _make_lanes(run: _Run, trials: Sequence[Trial], num_seeds: int) -> list[_Lane]:
    """Trials, each repeated for every seed, in lanes that share a switch."""
    seeded = [(trial, number % num_seeds) for number, trial in enumerate(trials)]
    lanes = []
    for _, group in groupby(sorted(seeded, key=lambda pair: pair[0].switch), key=lambda pair: pair[0].switch):
        members = list(group)
        lanes.append(_Lane(run, [trial for trial, _ in members], [seed for _, seed in members]))
    return lanes


def _thin_out(run: _Run, search: Search) -> list[Trial]:
    """The finalists, best first."""
    lanes, best = _make_lanes(run, search.trials, 1), list(search.trials)
    for fraction, keep in search.rungs:
        for lane in lanes:
            lane.advance(max(1, round(fraction * run.num_steps)))
        scored = [(error, lane, index) for lane in lanes for index, error in enumerate(lane.errors())]
        ranked = sorted(scored, key=lambda entry: entry[0])[:keep]
        best = [lane.trials[index] for _, lane, index in ranked]
        for lane in lanes:
            lane.keep([index for _, each, index in ranked if each is lane])
        lanes = [lane for lane in lanes if lane.trials]
    return best[: search.finalists]
