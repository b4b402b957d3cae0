"""What the releases of a run of Newton steps say about the coefficients and about the size of the residuals.

Privacy
    Post-processing: reads numbers that were released, and the public variances of directions.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from conddp.features.whitening import WhitenedRows
from conddp.newton.prior import VAGUE, Posterior, SignalPrior

__all__ = ["ResidualScale", "RunningMean", "RunningPosterior", "UnclampedMean"]

Vector = NDArray[np.float64]

SKEW = 0.1  # how far clamping may hold the constant from the mean, in standard deviations of the residual
NEW_FRACTION = 0.1  # of the residuals' mean square: what further directions are thought to explain, give or take


@dataclass
class ResidualScale:
    """Estimate of the mean square of the residuals.

    Parameters
    ----------
    mean_square, std : float
        Estimate and its standard deviation.
    """

    mean_square: float
    std: float

    @classmethod
    def of(cls, measured: float, noise_std: float) -> "ResidualScale":
        """Estimate from a first measurement and a prior: about an eighth of the range, within a factor of 2."""
        candidates = np.geomspace(0.01, 0.5, 500)
        evidence = -0.5 * ((measured - candidates**2) / noise_std) ** 2 - 0.5 * (np.log(candidates / 0.12) / 0.7) ** 2
        weights = np.exp(evidence - evidence.max())
        weights /= weights.sum()
        squares = candidates**2
        spread = math.sqrt(max(float(weights @ squares**2 - (weights @ squares) ** 2), 1e-12))
        return cls(math.exp(2 * float(weights @ np.log(candidates))), spread)

    def update(self, measured: float, noise_std: float) -> None:
        """Add a measurement; the residuals may have changed since the last one."""
        before = math.hypot(self.std, 0.15 * self.mean_square)
        trust = before**2 / (before**2 + noise_std**2)
        moved = self.mean_square + trust * (measured - self.mean_square)
        self.mean_square = max(moved, 0.15 * self.mean_square, 1e-12)
        self.std = before * math.sqrt(1 - trust)

    @property
    def residual_std(self) -> float:
        """Root of the mean square."""
        return math.sqrt(self.mean_square)


@dataclass
class RunningMean:
    """Mean of the estimates of all steps, weighted by their precision; forgets where they drift.

    While clamping still holds a coefficient back, its estimates move on from step to step. Where their smoothed
    deviation from the mean is twice what noise explains, the past loses weight.
    """

    mean: Vector
    variance: Vector  # of the noise in it
    drift: Vector = field(init=False)
    drift_variance: Vector = field(init=False)

    def __post_init__(self) -> None:
        self.drift, self.drift_variance = np.zeros_like(self.mean), np.zeros_like(self.mean)

    def add(self, estimate: Vector, noise_variance: Vector) -> None:
        """Add estimates and the variances of their noise, infinite where there is none."""
        asked = np.isfinite(noise_variance)
        fresh = asked & (self.variance >= VAGUE)
        watched = asked & ~fresh
        smoothing = 0.15
        self.drift[watched] += smoothing * ((estimate - self.mean)[watched] - self.drift[watched])
        self.drift_variance[watched] *= (1 - smoothing) ** 2
        self.drift_variance[watched] += smoothing**2 * noise_variance[watched]
        drifts = watched & (self.drift**2 > 4 * (self.drift_variance + self.variance))
        past = np.where(drifts, np.maximum(self.variance, self.drift**2 - self.drift_variance), self.variance)
        weight = np.where(asked, past / (past + np.where(asked, noise_variance, 1.0)), 0.0)
        self.mean = self.mean + weight * (np.where(asked, estimate, 0.0) - self.mean)
        self.variance = np.where(asked, weight * np.where(asked, noise_variance, 1.0), past)

    def add_coefficients(self, number: int) -> None:
        """Make room for further coefficients, of which nothing is known."""
        self.mean, self.drift, self.drift_variance = (
            np.pad(each, (0, number)) for each in (self.mean, self.drift, self.drift_variance)
        )
        self.variance = np.pad(self.variance, (0, number), constant_values=VAGUE)


@dataclass
class UnclampedMean:
    """The mean of the labels as the opening measures it: not clamped, so it is right however skewed they are.

    Clamped residuals lead to a constant between the median and the mean. Its noise is small, but where residuals are
    skewed it is off by some tenth of their standard deviation, and slopes follow it: they are those of a quantile that
    is not the mean.
    """

    mean: float = 0.0
    variance: float = VAGUE  # of the noise in it

    def add(self, estimate: float, noise_variance: float) -> None:
        """Add a measurement and the variance of its noise."""
        weight = self.variance / (self.variance + noise_variance)
        self.mean += weight * (estimate - self.mean)
        self.variance = weight * noise_variance

    def join(self, clamped: float, noise_variance: float, mean_square: float) -> tuple[float, float]:
        """The constant, and the variance of its error, from this and from the clamped steps."""
        noise_variance += SKEW**2 * mean_square
        weight = self.variance / (self.variance + noise_variance)
        return self.mean + weight * (clamped - self.mean), weight * noise_variance


@dataclass
class RunningPosterior:
    """Posterior of the coefficients, as distances from where the run started, updated after every release.

    Directions that were added later have a prior of their own: they explain what is left of the labels.
    """

    has_constant: bool
    priors: list[SignalPrior]
    clamped: RunningMean
    opening: UnclampedMean
    posterior: Posterior

    @classmethod
    def of(cls, variances: Vector, mean_square: float, *, has_constant: bool) -> "RunningPosterior":
        """The prior, for directions of these variances and labels of this variance."""
        prior = SignalPrior(variances, has_constant)
        nothing = np.zeros(len(variances))
        clamped = RunningMean(nothing, np.full_like(nothing, VAGUE))
        posterior = prior.update(clamped.mean, clamped.variance, mean_square)
        return cls(has_constant, [prior], clamped, UnclampedMean(), posterior)

    def add(self, estimate: Vector, noise_variance: Vector, *, clamped: bool) -> None:
        """Add an unbiased estimate of coefficients; its variance is infinite where there is none."""
        if self.has_constant and not clamped:
            self.opening.add(estimate[0], noise_variance[0])
        else:
            self.clamped.add(estimate, noise_variance)

    @property
    def measured(self) -> Vector:
        """Means of all estimates, not shrunk; of the constant those that were not clamped."""
        measured = self.clamped.mean.copy()
        if self.has_constant:
            measured[0] = self.opening.mean
        return measured

    def add_directions(self, rows: WhitenedRows) -> None:
        """Make room for further directions."""
        self.priors.append(SignalPrior(rows.variances, has_constant=False))
        self.clamped.add_coefficients(rows.num_directions)

    def update(self, mean_square: float, num_records: int) -> None:
        """Form the posterior from all estimates so far, given the mean square of the residuals."""
        before = self.posterior.mean[int(self.has_constant) : len(self.priors[0].variances)]
        measured, variance = self.clamped.mean.copy(), self.clamped.variance.copy()
        if self.has_constant:
            measured[0], variance[0] = self.opening.join(measured[0], variance[0], mean_square)
        # The mean over n records is itself a sample: its coefficients scatter by the residual variance over n.
        variance += mean_square / num_records
        parts, start, explained = [], 0, mean_square + float(before @ before)
        for prior in self.priors:
            part = slice(start, start + len(prior.variances))
            parts.append(prior.update(measured[part], variance[part], explained))
            start, explained = part.stop, NEW_FRACTION * mean_square
        mean = np.concatenate([each.mean for each in parts])
        self.posterior = Posterior(mean, np.concatenate([each.variance for each in parts]))
