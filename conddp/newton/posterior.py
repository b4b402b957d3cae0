"""What a run of noisy Newton steps has learned: of the coefficients, and of the size of the residuals.

Privacy
    Post-processing: reads numbers that were released, and the public variances of directions.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from conddp.features.whitening import Directions
from conddp.newton.prior import VAGUE, Belief, SignalPrior

__all__ = ["Learner", "Level", "ResidualScale", "Track"]

Vector = NDArray[np.float64]

SKEW = 0.1  # how far clamping may hold the constant from the mean, in standard deviations of the residual
NEW_SHARE = 0.1  # of the residuals' mean square: what further directions are thought to explain, give or take


@dataclass
class ResidualScale:
    """What is believed of the mean square of the residuals.

    Parameters
    ----------
    mean_square, deviation : float
        Estimate and its standard deviation.
    """

    mean_square: float
    deviation: float

    @classmethod
    def of(cls, measured: float, deviation: float) -> "ResidualScale":
        """Belief after a first measurement: before it, a spread of about an eighth of the range, give or take half."""
        candidates = np.geomspace(0.01, 0.5, 500)
        evidence = -0.5 * ((measured - candidates**2) / deviation) ** 2 - 0.5 * (np.log(candidates / 0.12) / 0.7) ** 2
        weights = np.exp(evidence - evidence.max())
        weights /= weights.sum()
        squares = candidates**2
        spread = math.sqrt(max(float(weights @ squares**2 - (weights @ squares) ** 2), 1e-12))
        return cls(math.exp(2 * float(weights @ np.log(candidates))), spread)

    def update(self, measured: float, deviation: float) -> None:
        """Take in a measurement; the residuals may have changed since the last one."""
        before = math.hypot(self.deviation, 0.15 * self.mean_square)
        trust = before**2 / (before**2 + deviation**2)
        moved = self.mean_square + trust * (measured - self.mean_square)
        self.mean_square = max(moved, 0.15 * self.mean_square, 1e-12)
        self.deviation = before * math.sqrt(1 - trust)

    @property
    def standard_deviation(self) -> float:
        """Root of the mean square."""
        return math.sqrt(self.mean_square)


@dataclass
class Track:
    """Mean of the estimates of all steps, weighted by their precision; forgets where they drift.

    While clamping still holds a coefficient back, its estimates move on from step to step. Where their smoothed
    deviation from the mean is twice what noise explains, the past loses weight.
    """

    mean: Vector
    noise: Vector
    drift: Vector = field(init=False)
    drift_noise: Vector = field(init=False)

    def __post_init__(self) -> None:
        self.drift, self.drift_noise = np.zeros_like(self.mean), np.zeros_like(self.mean)

    def add(self, estimate: Vector, noise: Vector) -> None:
        """Take in estimates and the variances of their noise, infinite where there is none."""
        asked = np.isfinite(noise)
        fresh = asked & (self.noise >= VAGUE)
        watched = asked & ~fresh
        smoothing = 0.15
        self.drift[watched] += smoothing * ((estimate - self.mean)[watched] - self.drift[watched])
        self.drift_noise[watched] *= (1 - smoothing) ** 2
        self.drift_noise[watched] += smoothing**2 * noise[watched]
        drifts = watched & (self.drift**2 > 4 * (self.drift_noise + self.noise))
        past = np.where(drifts, np.maximum(self.noise, self.drift**2 - self.drift_noise), self.noise)
        weight = np.where(asked, past / (past + np.where(asked, noise, 1.0)), 0.0)
        self.mean = self.mean + weight * (np.where(asked, estimate, 0.0) - self.mean)
        self.noise = np.where(asked, weight * np.where(asked, noise, 1.0), past)

    def widen(self, number: int) -> None:
        """Take in so many further coefficients, of which nothing is known."""
        self.mean, self.drift, self.drift_noise = (
            np.pad(each, (0, number)) for each in (self.mean, self.drift, self.drift_noise)
        )
        self.noise = np.pad(self.noise, (0, number), constant_values=VAGUE)


@dataclass
class Level:
    """The mean of the labels as the opening measures it: not clamped, so it is right however skewed they are.

    Clamped residuals lead to a constant between the median and the mean. Its noise is small, but where residuals are
    skewed it is off by some tenth of their standard deviation, and slopes follow it: they are those of a quantile that
    is not the mean.
    """

    mean: float = 0.0
    noise: float = VAGUE

    def add(self, estimate: float, noise: float) -> None:
        """Take in a measurement and the variance of its noise."""
        weight = self.noise / (self.noise + noise)
        self.mean += weight * (estimate - self.mean)
        self.noise = weight * noise

    def join(self, clamped: float, noise: float, mean_square: float) -> tuple[float, float]:
        """The constant, and the variance of its error, from this and from the clamped steps."""
        noise += SKEW**2 * mean_square
        weight = self.noise / (self.noise + noise)
        return self.mean + weight * (clamped - self.mean), weight * noise


@dataclass
class Learner:
    """All that is known of the coefficients, as distances from where the run started.

    Directions that were added later have a prior of their own: they are asked what is left of the labels.
    """

    has_constant: bool
    priors: list[SignalPrior]
    track: Track
    level: Level
    belief: Belief

    @classmethod
    def of(cls, directions: Directions, mean_square: float) -> "Learner":
        """A learner that knows the prior only, for labels of this variance."""
        prior = SignalPrior(directions.variances, directions.has_constant)
        nothing = np.zeros(directions.num_directions)
        track = Track(nothing, np.full_like(nothing, VAGUE))
        belief = prior.update(track.mean, track.noise, mean_square)
        return cls(directions.has_constant, [prior], track, Level(), belief)

    def add(self, estimate: Vector, noise: Vector, *, clamped: bool) -> None:
        """Take in an unbiased estimate of coefficients; noise is infinite where there is none."""
        if self.has_constant and not clamped:
            self.level.add(estimate[0], noise[0])
        else:
            self.track.add(estimate, noise)

    @property
    def measured(self) -> Vector:
        """Means of all estimates, not shrunk; of the constant those that were not clamped."""
        measured = self.track.mean.copy()
        if self.has_constant:
            measured[0] = self.level.mean
        return measured

    def widen(self, directions: Directions) -> None:
        """Take in further directions."""
        self.priors.append(SignalPrior(directions.variances, has_constant=False))
        self.track.widen(directions.num_directions)

    def update(self, mean_square: float, num_records: int) -> None:
        """Form a belief from all estimates so far, given the mean square of the residuals."""
        before = self.belief.mean[int(self.has_constant) : len(self.priors[0].variances)]
        measured, noise = self.track.mean.copy(), self.track.noise.copy()
        if self.has_constant:
            measured[0], noise[0] = self.level.join(measured[0], noise[0], mean_square)
        # The mean over n records is itself a sample: its coefficients scatter by the residual variance over n.
        noise += mean_square / num_records
        beliefs, start, explained = [], 0, mean_square + float(before @ before)
        for prior in self.priors:
            part = slice(start, start + len(prior.variances))
            beliefs.append(prior.update(measured[part], noise[part], explained))
            start, explained = part.stop, NEW_SHARE * mean_square
        mean = np.concatenate([each.mean for each in beliefs])
        self.belief = Belief(mean, np.concatenate([each.variance for each in beliefs]))
