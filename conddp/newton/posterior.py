"""Running estimates of the coefficients and of the residual variance, from the releases of a Newton run.

Privacy
    Post-processing: reads released numbers and the public variances of directions only.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from conddp.newton.prior import VAGUE, Posterior, SignalPrior

__all__ = ["Measurement", "ResidualScale", "RunningMean", "RunningPosterior", "UnclampedMean"]

Vector = NDArray[np.float64]

NEGLIGIBLE = 0.2  # noise variance, relative to that of sampling, below which there is less and less shrinkage
SKEW = 0.1  # assumed bias of the constant due to clamping, in standard deviations of the residual


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
        """Combine a first measurement with a prior: an eighth of the label range, within a factor of about 2."""
        candidates = np.geomspace(0.01, 0.5, 500)
        evidence = -0.5 * ((measured - candidates**2) / noise_std) ** 2 - 0.5 * (np.log(candidates / 0.12) / 0.7) ** 2
        weights = np.exp(evidence - evidence.max())
        weights /= weights.sum()
        squares = candidates**2
        spread = math.sqrt(max(float(weights @ squares**2 - (weights @ squares) ** 2), 1e-12))
        return cls(math.exp(2 * float(weights @ np.log(candidates))), spread)

    def update(self, measured: float, noise_std: float) -> None:
        """Add a measurement, allowing for a change of the residuals since the last one."""
        before = math.hypot(self.std, 0.15 * self.mean_square)
        trust = before**2 / (before**2 + noise_std**2)
        moved = self.mean_square + trust * (measured - self.mean_square)
        self.mean_square = max(moved, 0.15 * self.mean_square, 1e-12)
        self.std = before * math.sqrt(1 - trust)

    @property
    def residual_std(self) -> float:
        """Square root of the mean square."""
        return math.sqrt(self.mean_square)


@dataclass
class RunningMean:
    """Precision-weighted mean of the estimates of all steps, which discounts old estimates if they drift.

    As long as clamping biases a coefficient, its estimates drift from step to step. If their smoothed deviation from
    the mean exceeds two standard deviations of the noise, past estimates lose weight.
    """

    mean: Vector
    variance: Vector  # variance of the noise in the mean
    drift: Vector = field(init=False)
    drift_variance: Vector = field(init=False)
    asked_at: Vector = field(init=False)  # mean, with the same weights, of the coefficients that steps were taken from

    def __post_init__(self) -> None:
        self.drift, self.drift_variance = np.zeros_like(self.mean), np.zeros_like(self.mean)
        self.asked_at = np.zeros_like(self.mean)

    def add(self, estimate: Vector, noise_variance: Vector, *, asked_at: Vector | None = None) -> None:
        """Add estimates with the variances of their noise; an infinite variance marks a missing estimate."""
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
        if asked_at is not None:
            self.asked_at = self.asked_at + weight * (asked_at - self.asked_at)
        self.variance = np.where(asked, weight * np.where(asked, noise_variance, 1.0), past)


@dataclass
class UnclampedMean:
    """Mean of the labels as measured by the opening releases, without clamping and so without bias from skewness.

    Clamped residuals lead to a constant between the median and the mean. Its noise is small, but if the residuals are
    skewed, its bias is about a tenth of their standard deviation. The slopes are then biased too, because they fit a
    quantile rather than the mean.
    """

    mean: float = 0.0
    variance: float = VAGUE  # variance of the noise in the mean

    def add(self, estimate: float, noise_variance: float) -> None:
        """Add a measurement and the variance of its noise."""
        weight = self.variance / (self.variance + noise_variance)
        self.mean += weight * (estimate - self.mean)
        self.variance = weight * noise_variance

    def join(self, clamped: float, noise_variance: float, mean_square: float) -> tuple[float, float, float]:
        """Combine this mean with the constant of the clamped steps.

        Returns the constant, the variance of its noise, and the mean square of its bias.
        """
        bias_variance = SKEW**2 * mean_square
        error_variance = noise_variance + bias_variance
        weight = self.variance / (self.variance + error_variance)  # of the clamped steps
        bias_variance *= weight**2
        return self.mean + weight * (clamped - self.mean), weight * error_variance - bias_variance, bias_variance


@dataclass(frozen=True)
class Measurement:
    """What the releases say about every coefficient, before shrinkage. Everything is relative to the start of the run.

    Parameters
    ----------
    mean : array of shape (k,)
        Measured coefficients.
    noise_variance : array of shape (k,)
        Variance of the noise in them, which is known. :data:`~conddp.newton.prior.VAGUE` marks a missing measurement.
    bias_variance : array of shape (k,)
        Estimated mean square of what clamping adds to the error.
    asked_at : array of shape (k,)
        Mean of the coefficients that steps were taken from, with the weights that their estimates have in ``mean``.
    """

    mean: Vector
    noise_variance: Vector
    bias_variance: Vector
    asked_at: Vector


@dataclass
class RunningPosterior:
    """Posterior of the coefficients relative to the start of the run, updated after every release."""

    has_constant: bool
    prior: SignalPrior
    clamped: RunningMean
    opening: UnclampedMean
    posterior: Posterior

    @classmethod
    def of(cls, variances: Vector, mean_square: float, *, has_constant: bool) -> "RunningPosterior":
        """Start from the prior for directions with these variances and labels with this variance."""
        prior = SignalPrior(variances, has_constant)
        nothing = np.zeros(len(variances))
        clamped = RunningMean(nothing, np.full_like(nothing, VAGUE))
        posterior = prior.update(clamped.mean, clamped.variance, mean_square)
        return cls(has_constant, prior, clamped, UnclampedMean(), posterior)

    def restart(self, prior: SignalPrior) -> "RunningPosterior":
        """Start anew with other directions, of which the first is the constant. What is known about it is kept."""
        nothing = np.zeros(len(prior.variances))
        clamped = RunningMean(nothing.copy(), np.full_like(nothing, VAGUE))
        clamped.mean[0], clamped.variance[0] = self.clamped.mean[0], self.clamped.variance[0]
        return RunningPosterior(self.has_constant, prior, clamped, self.opening, Posterior(nothing, nothing))

    def add(self, estimate: Vector, noise_variance: Vector, *, clamped: bool) -> None:
        """Add an unbiased estimate of the coefficients; an infinite variance marks a missing estimate."""
        if self.has_constant and not clamped:
            self.opening.add(estimate[0], noise_variance[0])
        else:
            self.clamped.add(estimate, noise_variance, asked_at=self.posterior.mean)

    @property
    def measured(self) -> Vector:
        """Means of all estimates, without shrinkage; for the constant, of the estimates without clamping."""
        measured = self.clamped.mean.copy()
        if self.has_constant:
            measured[0] = self.opening.mean
        return measured

    def update(self, mean_square: float, num_records: float, *, random_effects: bool = False) -> None:
        """Compute the posterior from all estimates so far, given the mean square of the residuals."""
        before = self.posterior.mean[int(self.has_constant) :]
        measured = self.measure(mean_square)
        error = measured.noise_variance + measured.bias_variance
        # The records are themselves a sample, so coefficients have a sampling variance of residual variance over n.
        fresh = mean_square / num_records
        # With hardly any noise it is least squares, unless coefficients are random effects.
        sampling = fresh if random_effects else fresh * error / (error + NEGLIGIBLE * fresh)
        self.posterior = self.prior.update(measured.mean, error + sampling, mean_square + float(before @ before))

    def measure(self, mean_square: float) -> Measurement:
        """Combine all estimates so far, given the mean square of the residuals."""
        mean, noise_variance = self.clamped.mean.copy(), self.clamped.variance.copy()
        bias_variance = np.zeros_like(mean)
        if self.has_constant:
            mean[0], noise_variance[0], bias_variance[0] = self.opening.join(mean[0], noise_variance[0], mean_square)
        return Measurement(mean, noise_variance, bias_variance, self.clamped.asked_at)
