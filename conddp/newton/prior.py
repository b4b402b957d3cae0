r"""Prior and posterior of the coefficients given noisy releases, for shrinkage with known noise variance.

The noise variance of every release is known exactly, so shrinkage is post-processing and costs nothing. The prior is a
mixture of normal distributions in which coefficients of whitened directions have variance
:math:`\tau^2 \lambda_j^a / \sum_l \lambda_l^a`, where :math:`\lambda_j` is the variance of the direction. With a = 0
all directions have the same prior variance. With a = 1 it is the prior of ridge regression on standardised columns. The
released numbers determine the posterior weights of the mixture components.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["GivenPrior", "Posterior", "SignalPrior"]

Vector = NDArray[np.float64]

EXPONENTS = (0.0, 0.5, 1.0)
SIGNAL_FRACTIONS = (
    0.05,
    0.2,
    0.4,
    0.7,
    1.0,
    2.0,
)  # tau^2 divided by the label variance; above 1 in case the label variance is underestimated
MULTIPLES = (0.1, 0.3, 1.0, 3.0, 10.0)  # of given variances, in case they are wrong
CONSTANT_VARIANCE = 1 / 12  # prior variance of the constant: uniform over a range of unit width
VAGUE = 1e9  # variance of a coefficient that has not been measured


@dataclass(frozen=True)
class Posterior:
    """Posterior mean and variance of every coefficient."""

    mean: Vector
    variance: Vector


@dataclass(frozen=True)
class SignalPrior:
    """Prior of the coefficients of whitened directions.

    Parameters
    ----------
    variances : array of shape (k,)
        Variances of the directions, as in :class:`~conddp.features.whitening.WhitenedRows`.
    has_constant : bool
        Whether the first direction is the constant, which has a separate prior.
    """

    variances: Vector
    has_constant: bool

    def update(self, measured: Vector, noise_variance: Vector, label_variance: float) -> Posterior:
        """Compute the posterior given unbiased measurements with independent normal noise of known variance.

        Privacy
            Post-processing: no cost if the arguments have been released.

        Parameters
        ----------
        measured, noise_variance : arrays of shape (k,)
            Measurements, and the variances of their noise. An infinite variance marks a missing measurement.
        label_variance : float
            Estimated variance of the labels about their mean.
        """
        noise = np.minimum(noise_variance, VAGUE)
        constant = 1 if self.has_constant else 0
        slopes = slice(constant, None)
        members = self._list_members(label_variance)
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

    def _list_members(self, label_variance: float) -> NDArray[np.float64]:
        """Prior variances of all mixture components, shape (members, slopes)."""
        return self._members * label_variance

    @cached_property
    def _members(self) -> NDArray[np.float64]:
        """Prior variances of all mixture components, for labels of unit variance, shape (members, slopes)."""
        powers = [self.variances[int(self.has_constant) :] ** exponent for exponent in EXPONENTS]
        return np.concatenate([np.outer(SIGNAL_FRACTIONS, power / max(power.sum(), 1e-300)) for power in powers])


@dataclass(frozen=True)
class GivenPrior(SignalPrior):
    """Prior of directions whose variances are known up to a common factor: a mixture over that factor.

    Parameters
    ----------
    variances : array of shape (k,)
        Variances of the coefficients. That of the constant, if there is one, is not used.
    has_constant : bool
        As in :class:`SignalPrior`.
    """

    def _list_members(self, label_variance: float) -> NDArray[np.float64]:
        """Prior variances of all mixture components, shape (members, slopes)."""
        return np.outer(MULTIPLES, self.variances[int(self.has_constant) :])
