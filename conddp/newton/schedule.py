"""Constants and rules of a run of noisy Newton steps: budget fractions, direction weights, clip norms."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from conddp._validate import in_range, positive, positive_integer
from conddp.newton.prior import Posterior

__all__ = ["NewtonPlan", "allot_weights", "choose_clip_norm"]

Vector = NDArray[np.float64]

NARROWEST, WIDEST = 0.35, 16.0  # clip norms to choose from, in standard deviations of the residual
HALF_RANGE = 0.5  # the largest clip norm of a step: half the range of the label


@dataclass(frozen=True)
class NewtonPlan:
    """Constants of a run, none of which depends on the data; ``benchmarks/newton_rules.py`` derives them.

    Parameters
    ----------
    num_steps : int, optional
        Newton steps after the opening. By default 24 for 2,000 to 200,000 records and 12 otherwise: with few records
        more steps only divide the budget, and with very many a clip norm can be large, so that fewer steps are enough.
    growth : float
        Each step has this many times the budget of the one before.
    opening_fraction : float
        Of the budget, for the mean and the spread of the labels.
    clipping_penalty, penalty_decay : float
        Expected harm of clamping residuals at k standard deviations, as a fraction of their variance:
        ``clipping_penalty * exp(-k / penalty_decay)``.
    square_weight : float
        h: how much of a step's sensitivity the mean square may take.
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
        """Fraction of the squared privacy parameter for every release; they add up to one."""
        num_steps = self.num_steps or (24 if 2_000 <= num_records <= 200_000 else 12)
        steps = self.growth ** np.arange(num_steps, dtype=np.float64)
        steps *= (1 - self.opening_fraction) / steps.sum()
        return [0.4 * self.opening_fraction, 0.6 * self.opening_fraction, *steps.tolist()]


def allot_weights(variance: Vector, noise_variance: float) -> Vector:
    r"""Squared weights of the directions, adding up to one, that leave the least expected error.

    With noise of variance ``noise_variance / weight`` in each direction, the error left of a variance v is
    :math:`v\,\nu / (v\,\mathrm{weight} + \nu)`. The best weights fill up to a common level:
    :math:`\max(0, \omega - \nu/v)`. A direction about which the noise would leave too little to learn gets none.
    """
    levels = noise_variance / variance
    ordered = np.sort(levels)
    fills = (1 + np.cumsum(ordered)) / np.arange(1, len(ordered) + 1)
    level = fills[np.count_nonzero(fills > ordered) - 1]
    weights = np.maximum(level - levels, 0.0)
    return np.asarray(weights / weights.sum())


def choose_clip_norm(
    posterior: Posterior, residual_std: float, unit_std: float, plan: NewtonPlan, *, at_least: float
) -> float:
    """The clip norm with the least expected error: what noise leaves, and what clamping may cost.

    Parameters
    ----------
    posterior : Posterior
        Of the coefficients.
    residual_std : float
        Standard deviation of the residuals.
    unit_std : float
        Standard deviation of the noise of all remaining releases together, in a mean over records, for a clip norm of
        one.
    plan : NewtonPlan
        The constants.
    at_least : float
        Clip norms narrow step by step, not at once.
    """
    candidates = np.minimum(np.geomspace(NARROWEST, WIDEST, 24) * residual_std, HALF_RANGE)

    def expect_error(clip_norm: float) -> float:
        noise_variance = (clip_norm * unit_std / (2 * ndtr(clip_norm / residual_std) - 1)) ** 2
        weights = allot_weights(posterior.variance, noise_variance)
        harm = plan.clipping_penalty * math.exp(-clip_norm / residual_std / plan.penalty_decay) * residual_std**2
        left = posterior.variance * noise_variance / (posterior.variance * weights + noise_variance)
        return float(left.sum()) + harm

    best = float(candidates[np.argmin([expect_error(clip_norm) for clip_norm in candidates])])
    return min(max(best, at_least), HALF_RANGE)
