r"""Interval of a ratio of two noisy numbers, by Fieller's method.

R² is :math:`1 - \rho` with :math:`\rho = E / S`, the sum of squared errors divided by the sum of squares of the labels.
Both are known with normal errors. For each candidate :math:`\rho` the difference :math:`E - \rho S` is normal with mean
zero if the candidate is true. The interval consists of all candidates for which it is not too far from zero. This is
the solution of a quadratic inequality. It covers the truth as often as it says, however noisy S is: if S may be zero,
the interval is unbounded.
"""

import math
from dataclasses import dataclass

__all__ = ["Ratio"]


@dataclass(frozen=True)
class Ratio:
    r"""A ratio whose numerator and denominator are noisy.

    Parameters
    ----------
    numerator, denominator : float
        Unbiased estimates.
    numerator_variance, denominator_variance, covariance : float
        Of their noise.
    sampling : float
        Further variance of :math:`E - \rho S`, which does not depend on the candidate.
    """

    numerator: float
    denominator: float
    numerator_variance: float
    denominator_variance: float
    covariance: float
    sampling: float = 0.0

    def find_variance(self, candidate: float) -> float:
        """Return the variance of the noise of the difference that is zero if this candidate is true."""
        common = self.numerator_variance - 2 * candidate * self.covariance
        return common + candidate**2 * self.denominator_variance

    def find_interval(self, quantile: float) -> tuple[float, float]:
        """Return the ends of the interval of ratios of at least 0; the upper one may be infinite.

        Parameters
        ----------
        quantile : float
            Number of standard deviations that are allowed, 1.96 for 95 %.
        """
        z = quantile**2
        a = self.denominator**2 - z * self.denominator_variance
        b = -2 * (self.numerator * self.denominator - z * self.covariance)
        c = self.numerator**2 - z * (self.numerator_variance + self.sampling)
        root = b**2 - 4 * a * c
        if a > 0 and self.denominator < 0:  # the noise has hidden everything
            return 0.0, math.inf
        if a > 0:
            distance = math.sqrt(max(root, 0.0))
            return max(0.0, (-b - distance) / (2 * a)), max(0.0, (-b + distance) / (2 * a))
        if root <= 0 or a == 0:
            return 0.0, math.inf
        ends = sorted((-b + sign * math.sqrt(root)) / (2 * a) for sign in (-1, 1))
        return (0.0, math.inf) if ends[0] >= 0 else (max(0.0, ends[1]), math.inf)
