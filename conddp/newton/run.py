r"""Private least squares on public rows by a few noisy Newton steps: the engine of CondNewton.

With whitened rows :math:`u_i` the Newton step from :math:`\theta` is :math:`\tfrac1n \sum_i r_i u_i` with
:math:`r_i = y_i - \theta^\top u_i`. One release is that sum with residuals clamped to a window, and beside it the mean
square of the residuals, from which the next window is chosen:

.. math:: \Big(\sum_i \psi_i\, g \circ u_i,\; \tfrac{h m}{w^2} \sum_i \min(r_i^2, w^2)\Big) + N(0, \sigma^2 I), \qquad
   \psi_i = \mathrm{clamp}\big(r_i,\, \pm m / \|g \circ u_i\|\big)

Everything else - the gains g of the directions, the windows m and w, how steps are averaged and shrunk - is chosen from
public rows, n, the budget, the declared bounds and what earlier steps have released.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from conddp.features.whitening import Directions
from conddp.newton.posterior import Learner, ResidualScale
from conddp.newton.prior import Belief
from conddp.newton.release import release
from conddp.newton.schedule import HALF_RANGE, NewtonPlan, allot_gains, choose_window
from conddp.privacy.neighbouring import Neighbouring

__all__ = [
    "NewtonRun",
    "run_newton",
]

Vector = NDArray[np.float64]
Watch = Callable[[int, Vector], bool | None]  # sees the number of a release and the coefficients after it
Widen = Callable[[Vector], Directions]  # further directions, made from the coefficients so far

WIDEN_AT = 0.5  # of the budget: further directions are asked for when it is spent
SCALE_WINDOW = 3.0  # the mean square is taken of residuals up to this many standard deviations, or more


@dataclass(frozen=True)
class NewtonRun:
    """What a run leaves behind; all of it is released.

    Parameters
    ----------
    rows : array of shape (n, k)
        Whitened rows, with those of directions that were added on the way.
    coefficients : array of shape (k,)
        Of the whitened directions.
    belief : Belief
        Of the coefficients, after all steps.
    windows : tuple of float
        Of each step after the opening.
    scales : tuple of float
        Standard deviation that residuals were believed to have after each release.
    """

    rows: Vector
    coefficients: Vector
    belief: Belief
    windows: tuple[float, ...]
    scales: tuple[float, ...]


def run_newton(
    directions: Directions,
    label: Vector,
    label_range: tuple[float, float],
    start: Vector,
    *,
    mu: float,
    neighbouring: Neighbouring = Neighbouring.REPLACE,
    plan: NewtonPlan | None = None,
    generator: np.random.Generator,
    watch: Watch | None = None,
    widen: Widen | None = None,
) -> NewtonRun:
    r"""Private least squares of labels on whitened rows.

    Privacy
        Releases that compose to one Gaussian mechanism whose sensitivity is ``mu`` standard deviations: the shares
        of :math:`\mu^2` are fixed beforehand and add up to one, so later releases may depend on earlier ones. Nothing
        else is used of the labels, nor of rows that are not public. ``widen`` is given released coefficients and must
        make its directions from them and from public rows.

    Parameters
    ----------
    directions : Directions
        Of the features.
    label : array of shape (n,)
        Labels in units of their range, within ``label_range``.
    label_range : (low, high)
        Declared bounds in the same units.
    start : array of shape (k,)
        Coefficients to start from, and to shrink to.
    mu : float
        Sensitivity over standard deviation of all releases together.
    neighbouring : Neighbouring
        The relation that sensitivities are meant under.
    plan : NewtonPlan, optional
        Constants of the method.
    generator : numpy.random.Generator
        For the noise.
    watch : callable, optional
        Called after every release with its number and the coefficients; returning True ends the run.
    widen : callable, optional
        Called once, when half of the budget is spent, with the coefficients; returns further whitened directions,
        orthogonal to those there are, in which the run goes on as well. What has been learned is kept.
    """
    plan = plan or NewtonPlan()
    rows, n = directions.rows, len(label)
    shares = plan.shares(n)
    coefficients = start
    spread = ResidualScale(0.12**2, 0.12**2)
    learner = Learner.of(directions, spread.mean_square)
    opening = np.zeros_like(start) if directions.has_constant else np.full_like(start, 1 / len(start))
    opening[0] = 1.0 if directions.has_constant else opening[0]
    windows: list[float] = []
    scales: list[float] = []
    per_window = math.hypot(neighbouring.sensitivity(1.0), plan.scale_weight)
    for number, share in enumerate(shares):
        scale = spread.standard_deviation
        if widen is not None and sum(shares[:number]) >= WIDEN_AT:
            added, widen = widen(coefficients), None
            rows = np.hstack([rows, added.rows])
            start = np.pad(start, (0, added.num_directions))
            learner.widen(added)
            learner.update(spread.mean_square, n)
            coefficients = start + learner.belief.mean
        if number < 2:  # where the labels lie, then how far they spread around it
            window, gains = HALF_RANGE, opening
            if directions.has_constant and directions.is_public:  # all residuals fit in, and one moves by the range
                window += abs(coefficients[0])
            scale_window, scale_weight, scale = 0.7, 0.0 if number == 0 else HALF_RANGE / window, 1e-3
        else:
            unit = per_window / mu / n / math.sqrt(sum(shares[number:]))
            narrowed = 0.4 * windows[-1] if windows else 0.0
            window = choose_window(learner.belief, scale, unit, plan, at_least=narrowed)
            gains = allot_gains(learner.belief.variance, (window * unit / (2 * ndtr(window / scale) - 1)) ** 2)
            scale_weight = plan.scale_weight
            # As far as a mean square of residuals of this size can be told from the noise.
            precision = plan.scale_weight * n * mu * math.sqrt(share) / per_window
            scale_window = min(max(SCALE_WINDOW, math.sqrt(precision)) * scale, 1.0)

        def predict(part: slice, rows: Vector = rows, theta: Vector = coefficients) -> Vector:
            return rows[part] @ theta

        answer = release(
            rows,
            label,
            label_range,
            predict,
            window=window,
            gains=gains,
            scale=scale,
            scale_window=scale_window,
            scale_weight=scale_weight,
            mu=mu * math.sqrt(share),
            neighbouring=neighbouring,
            generator=generator,
            rows_are_public=directions.is_public,
        )
        curvature = np.where(np.isfinite(answer.noise), answer.curvature, 1.0)
        before = coefficients - start
        clamped = number > 1 or (number == 1 and not directions.is_public)
        learner.add(before + answer.step / curvature, answer.noise / curvature**2, clamped=clamped)
        if number == 1:
            moved = float((learner.measured - before) ** 2 @ opening)
            spread = ResidualScale.of(answer.mean_square - moved, answer.mean_square_deviation)
        elif number > 1:
            spread.update(answer.mean_square, answer.mean_square_deviation)
            windows.append(window)
        scales.append(spread.standard_deviation)
        learner.update(spread.mean_square, n)
        coefficients = start + learner.belief.mean
        if watch is not None and watch(number + 1, coefficients):
            break
    return NewtonRun(rows, coefficients, learner.belief, tuple(windows), tuple(scales))
