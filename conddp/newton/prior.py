r"""Prior and posterior of coefficients given noisy releases: shrinkage by the known noise.

The noise of every release is known exactly, so shrinking what was released is free post-processing. The prior is a
mixture of normal ones: coefficients of whitened directions have variance
:math:`\tau^2 \lambda_j^a / \sum_l \lambda_l^a`, with :math:`\lambda_j` the variance of the direction. With a = 0 all
directions are alike, with a = 1 it is the prior of ridge regression on standardised columns. The released numbers
themselves tell which member of the mixture fits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Posterior", "SignalPrior"]

Vector = NDArray[np.float64]

EXPONENTS = (0.0, 0.5, 1.0)
SIGNAL_FRACTIONS = (
    0.05,
    0.2,
    0.4,
    0.7,
    1.0,
    2.0,
)  # tau^2 over the variance of the label; above 1 in case that is too low
CONSTANT_VARIANCE = 1 / 12  # of the mean of labels that may lie anywhere in a range of unit width
VAGUE = 1e9  # variance of what has not been measured


@dataclass(frozen=True)
class Posterior:
    """Mean and variance of every coefficient."""

    mean: Vector
    variance: Vector


@dataclass(frozen=True)
class SignalPrior:
    """Prior of the coefficients of whitened directions.

    Parameters
    ----------
    variances : array of shape (k,)
        Of the directions, as in :class:`~conddp.features.whitening.WhitenedRows`.
    has_constant : bool
        Whether the first direction is the constant, which has a prior of its own.
    """

    variances: Vector
    has_constant: bool

    def update(self, measured: Vector, noise_variance: Vector, label_variance: float) -> Posterior:
        """Posterior after unbiased measurements with independent normal noise of known variance.

        Privacy
            Post-processing of what is given: no cost if that was released.

        Parameters
        ----------
        measured, noise_variance : arrays of shape (k,)
            Measurements, and the variances of their noise; infinite where nothing was measured.
        label_variance : float
            Variance of the labels about their mean, as far as it is known.
        """
        noise = np.minimum(noise_variance, VAGUE)
        constant = 1 if self.has_constant else 0
        slopes = slice(constant, None)
        members = self._members(slopes) * label_variance
        total = members + noise[slopes]
        evidence = -0.5 * (measured[slopes] ** 2 / total + np.log(total)).sum(axis=1)
        weights = np.exp(evidence - evidence.max())
        weights /= weights.sum()
        kept = members / total  # fraction of a measurement that is signal
        means = kept * measured[slopes]
        mean = weights @ means
        variance = weights @ (kept * noise[slopes] + means**2) - mean**2
        if constant:
            fraction = CONSTANT_VARIANCE / (CONSTANT_VARIANCE + noise[0])
            mean = np.concatenate([[fraction * measured[0]], mean])
            variance = np.concatenate([[fraction * noise[0]], variance])
        return Posterior(mean, np.maximum(variance, 1e-14))

    def _members(self, slopes: slice) -> NDArray[np.float64]:
        """Variances of all members of the mixture, for labels of unit variance, shape (members, slopes)."""
        powers = [self.variances[slopes] ** exponent for exponent in EXPONENTS]
        return np.concatenate([np.outer(SIGNAL_FRACTIONS, power / max(power.sum(), 1e-300)) for power in powers])
