"""Constants and rules of a run of noisy Newton steps: shares of the budget, gains of directions, windows."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from conddp._validate import in_range, positive, positive_integer
from conddp.newton.prior import Belief

__all__ = ["NewtonPlan", "allot_gains", "choose_window"]

Vector = NDArray[np.float64]


NARROWEST, WIDEST = 0.35, 16.0  # windows to choose from, in standard deviations of the residual


HALF_RANGE = 0.5  # the widest window of a step: half the range of the label


@dataclass(frozen=True)
class NewtonPlan:
    """Constants of a run, none of which depends on the data; ``benchmarks/newton_rules.py`` derives them.

    Parameters
    ----------
    num_steps : int, optional
        Newton steps after the opening. By default 24 for 2,000 to 200,000 records and 12 otherwise: few records cannot
        tell so many steps apart, and with very many the windows are wide, so that few steps do.
    growth : float
        Each step has this many times the budget of the one before.
    opening_share : float
        Of the budget, for the mean and the spread of the labels.
    clipping_penalty, penalty_decay : float
        Expected harm of clamping residuals at k standard deviations, as a share of their variance:
        ``clipping_penalty * exp(-k / penalty_decay)``.
    scale_weight : float
        h: how much of a step's sensitivity the mean square may take.
    """

    num_steps: int | None = None
    growth: float = 1.1
    opening_share: float = 0.05
    clipping_penalty: float = 0.01
    penalty_decay: float = 2.0
    scale_weight: float = 0.35

    def __post_init__(self) -> None:
        if self.num_steps is not None:
            positive_integer(num_steps=self.num_steps)
        positive(
            opening_share=self.opening_share,
            penalty_decay=self.penalty_decay,
            scale_weight=self.scale_weight,
        )
        in_range(0.5, 2.0, growth=self.growth)
        in_range(0.0, 0.5, opening_share=self.opening_share)
        in_range(0.0, math.inf, clipping_penalty=self.clipping_penalty)

    def shares(self, num_records: int) -> list[float]:
        """Share of the squared privacy parameter for every release; they add up to one."""
        num_steps = self.num_steps or (24 if 2_000 <= num_records <= 200_000 else 12)
        steps = self.growth ** np.arange(num_steps, dtype=np.float64)
        steps *= (1 - self.opening_share) / steps.sum()
        return [0.4 * self.opening_share, 0.6 * self.opening_share, *steps.tolist()]


def allot_gains(variance: Vector, noise: float) -> Vector:
    r"""Squared gains of the directions, adding up to one, that leave the least expected error.

    With noise of variance ``noise / gain`` in each direction, the error left of a variance v is
    :math:`v\,\mathrm{noise} / (v\,\mathrm{gain} + \mathrm{noise})`. The best gains fill up to a common level:
    :math:`\max(0, \omega - \mathrm{noise}/v)`. A direction about which noise allows to learn too little gets none.
    """
    levels = noise / variance
    ordered = np.sort(levels)
    fills = (1 + np.cumsum(ordered)) / np.arange(1, len(ordered) + 1)
    level = fills[np.count_nonzero(fills > ordered) - 1]
    gains = np.maximum(level - levels, 0.0)
    return np.asarray(gains / gains.sum())


def choose_window(belief: Belief, scale: float, unit: float, plan: NewtonPlan, *, at_least: float) -> float:
    """The window with the least expected error: what noise leaves, and what clamping may cost.

    Parameters
    ----------
    belief : Belief
        Of the coefficients.
    scale : float
        Standard deviation of the residuals.
    unit : float
        Standard deviation of the noise of all remaining releases together, in a mean over records, for a window of one.
    plan : NewtonPlan
        The constants.
    at_least : float
        Windows narrow step by step, not at once.
    """
    windows = np.minimum(np.geomspace(NARROWEST, WIDEST, 24) * scale, HALF_RANGE)

    def expect(window: float) -> float:
        noise = (window * unit / (2 * ndtr(window / scale) - 1)) ** 2
        gains = allot_gains(belief.variance, noise)
        harm = plan.clipping_penalty * math.exp(-window / scale / plan.penalty_decay) * scale**2
        return float((belief.variance * noise / (belief.variance * gains + noise)).sum()) + harm

    best = float(windows[np.argmin([expect(window) for window in windows])])
    return min(max(best, at_least), HALF_RANGE)
