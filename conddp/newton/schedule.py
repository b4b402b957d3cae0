"""Constants and rules for noisy Newton steps: budget fractions, direction weights and clip norms."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from conddp._validate import in_range, positive, positive_integer
from conddp.newton.clipping_bias import ClippingBias
from conddp.newton.prior import Posterior

__all__ = ["NewtonPlan", "allot_weights", "choose_clip_norm"]

Vector = NDArray[np.float64]

NARROWEST, WIDEST = 0.35, 256.0  # smallest and largest candidate clip norm, in standard deviations of the residual
CANDIDATES = np.geomspace(NARROWEST, WIDEST, 40)  # clip norms, in standard deviations of the residual


@dataclass(frozen=True)
class NewtonPlan:
    """Constants of a run. They do not depend on the data; ``benchmarks/newton_rules.py`` derives the defaults.

    Parameters
    ----------
    num_steps : int, optional
        Number of Newton steps after the opening. The default is 24 for 2,000 to 200,000 records and 12 otherwise. With
        few records, more steps would split the budget too finely. With very many records, the clip norm can be large,
        so fewer steps are enough.
    growth : float
        Ratio of the budget of each step to that of the previous step.
    opening_fraction : float
        Fraction of the budget for the mean and the spread of the labels.
    clipping_penalty, penalty_decay : float
        Expected error from clipping residuals with light tails at k standard deviations, as a fraction of their
        variance: ``clipping_penalty * exp(-k / penalty_decay)``. See
        :class:`~conddp.newton.clipping_bias.ClippingBias`.
    square_weight : float
        h, the weight of the mean square in the sensitivity of a step, relative to the clip norm.
    """

    num_steps: int | None = None
    growth: float = 1.1
    opening_fraction: float = 0.05
    clipping_penalty: float = 0.01
    penalty_decay: float = 2.0
    square_weight: float = 0.35

    def __post_init__(self) -> None:
        if self.num_steps is not None:
            positive_integer(num_steps=self.num_steps)
        positive(
            opening_fraction=self.opening_fraction,
            penalty_decay=self.penalty_decay,
            square_weight=self.square_weight,
        )
        in_range(0.5, 2.0, growth=self.growth)
        in_range(0.0, 0.5, opening_fraction=self.opening_fraction)
        in_range(0.0, math.inf, clipping_penalty=self.clipping_penalty)

    def divide_budget(self, num_records: int) -> list[float]:
        """Return the fraction of the squared privacy parameter for every release. The fractions add up to one."""
        num_steps = self.num_steps or (24 if 2_000 <= num_records <= 200_000 else 12)
        steps = self.growth ** np.arange(num_steps, dtype=np.float64)
        steps *= (1 - self.opening_fraction) / steps.sum()
        return [0.4 * self.opening_fraction, 0.6 * self.opening_fraction, *steps.tolist()]


def allot_weights(variance: Vector, noise_variance: float) -> Vector:
    r"""Return squared weights of the directions, adding up to one, that minimise the expected error.

    With noise of variance ``noise_variance / weight`` in each direction, a prior variance v leaves an error of
    :math:`v\,\nu / (v\,\mathrm{weight} + \nu)`. The optimal weights follow a water-filling rule,
    :math:`\max(0, \omega - \nu/v)`. Directions with a small variance relative to the noise get weight zero.
    """
    levels = noise_variance / variance
    ordered = np.sort(levels)
    fills = (1 + np.cumsum(ordered)) / np.arange(1, len(ordered) + 1)
    level = fills[np.count_nonzero(fills > ordered) - 1]
    weights = np.maximum(level - levels, 0.0)
    return np.asarray(weights / weights.sum())


def choose_clip_norm(
    posterior: Posterior, bias: ClippingBias, unit_std: float, *, at_least: float = 0.0, at_most: float = math.inf
) -> float:
    """Choose the clip norm with the least expected error from noise and clipping.

    Where noise hides the coefficients, they are shrunk to what is known already, and their bias with them.

    Parameters
    ----------
    posterior : Posterior
        Posterior of the coefficients.
    bias : ClippingBias
        Expected bias.
    unit_std : float
        Standard deviation of the noise of all remaining releases together, in a mean over records, for a clip norm of
        one.
    at_least, at_most : float
        Bounds on the clip norm. The lower one keeps it from shrinking too fast between steps.
    """
    candidates = np.minimum(CANDIDATES * bias.residual_std, at_most)
    noise_variance = (candidates * unit_std / (2 * ndtr(candidates / bias.residual_std) - 1)) ** 2
    left = _expect_errors(posterior.variance, noise_variance)
    expected = left + bias.expect(candidates, kept=1 - left / posterior.variance.sum())
    return min(max(float(candidates[np.argmin(expected)]), at_least), at_most)


def _expect_errors(variance: Vector, noise_variances: Vector) -> Vector:
    r"""Sum over directions of the expected error, with the weights of :func:`allot_weights`, for every noise variance.

    A direction of prior variance v and weight :math:`\omega - \nu/v` is left with an error of :math:`\nu / \omega`, and
    a direction of weight zero with v.
    """
    inverse = np.sort(1 / variance)
    number = np.arange(1, len(inverse) + 1)
    sums = np.cumsum(inverse)
    levels = (1 + noise_variances[:, None] * sums) / number  # if so many directions are filled
    filled = (levels > noise_variances[:, None] * inverse).sum(axis=1)
    left = np.append(np.cumsum((1 / inverse)[::-1])[::-1], 0.0)  # of directions that are not filled
    return np.asarray(filled * noise_variances / levels[np.arange(len(levels)), filled - 1] + left[filled])
