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

from conddp._validate import in_range, positive, positive_integer
from conddp.directions import ROWS_AT_ONCE, Directions
from conddp.learner import Learner, ResidualScale
from conddp.neighbouring import Neighbouring
from conddp.shrinkage import Belief

__all__ = [
    "NewtonPlan",
    "NewtonRun",
    "Release",
    "allot_gains",
    "choose_window",
    "release",
    "run_newton",
]

Vector = NDArray[np.float64]
Watch = Callable[[int, Vector], bool | None]  # sees the number of a release and the coefficients after it
Widen = Callable[[Vector], Directions]  # further directions, made from the coefficients so far

NARROWEST, WIDEST = 0.35, 16.0  # windows to choose from, in standard deviations of the residual
HALF_RANGE = 0.5  # the widest window of a step: half the range of the label
WIDEN_AT = 0.5  # of the budget: further directions are asked for when it is spent
SCALE_WINDOW = 3.0  # the mean square is taken of residuals up to this many standard deviations, or more


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


@dataclass(frozen=True)
class Release:
    """One noisy answer about the labels, and what is publicly known about it.

    Parameters
    ----------
    step : array of shape (k,)
        Mean over records of clamped residual times row, with noise; zero where the gain is zero.
    noise : array of shape (k,)
        Variance of the noise in ``step``; infinite where the gain is zero.
    curvature : array of shape (k,)
        How much of a full Newton step the clamping is expected to leave in each direction.
    mean_square, mean_square_deviation : float
        Noisy mean square of the residuals, and the standard deviation of its noise; infinite if not asked for.
    sensitivity, deviation : float
        How far one record can move the sums, and the standard deviation of the noise on them.
    """

    step: Vector
    noise: Vector
    curvature: Vector
    mean_square: float
    mean_square_deviation: float
    sensitivity: float
    deviation: float


@np.errstate(all="ignore")  # no warning may depend on a label
def release(
    rows: Vector,
    label: Vector,
    label_range: tuple[float, float],
    predictions: Callable[[slice], Vector],
    *,
    window: float,
    gains: Vector,
    scale: float,
    scale_window: float,
    scale_weight: float,
    mu: float,
    neighbouring: Neighbouring,
    generator: np.random.Generator,
    rows_are_public: bool = True,
) -> Release:
    r"""Release clamped residuals times rows, and the mean square of the residuals.

    Privacy
        One Gaussian release whose sensitivity is ``mu`` standard deviations. Record i adds
        :math:`\psi_i\, g \circ u_i` to the first sum. Its clamped residual lies between the clamped ends of
        :math:`[low - f_i, high - f_i]`, which are public, so replacing the label moves the sum by at most the distance
        of these ends times :math:`\|g \circ u_i\|`, which is never more than 2 ``window``; setting the record's
        contribution to zero moves it by the farther end times the norm, at most ``window``. It adds between 0 and
        :math:`h m` to the second sum. The sensitivity is the root of the sum of both squares, with the largest
        first part over all records; all of that is public. Where rows, and so predictions, are private too, the first
        part of a record is known to be no longer than the window and nothing else: it moves by at most 2 ``window``.

    Parameters
    ----------
    rows : array of shape (n, k)
        Rows.
    label : array of shape (n,)
        Labels within ``label_range``.
    label_range : (low, high)
        Declared bounds in the units of ``label``.
    predictions : callable
        Predictions for a slice of the records, from rows and released numbers.
    window : float
        Bound m on the clamped residual times the norm of its row.
    gains : array of shape (k,)
        Squares of g, which add up to one.
    scale : float
        Standard deviation that residuals are believed to have; for ``curvature``.
    scale_window, scale_weight : float
        w and h; a weight of zero leaves the mean square out.
    mu : float
        Sensitivity over standard deviation of the noise.
    neighbouring : Neighbouring
        The relation that sensitivities are meant under.
    generator : numpy.random.Generator
        For the noise.
    rows_are_public : bool
        Whether only labels are private.
    """
    n, k = rows.shape
    low, high = label_range
    total, reach, square = np.zeros(k), 0.0, 0.0
    most = neighbouring.sensitivity(window)
    curvature, num_sampled = np.zeros(k), 0
    stride = ROWS_AT_ONCE * max(1, n // ROWS_AT_ONCE // 16)  # a part of the records is enough for the curvature
    for start in range(0, n, ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        block, squared = rows[part], rows[part] ** 2
        predicted = predictions(part)
        norms = np.sqrt(squared @ gains)
        limits = window / np.maximum(norms, 1e-12)
        residuals = np.clip(label[part], low, high) - predicted
        total += np.clip(residuals, -limits, limits) @ block
        square += float(np.minimum(residuals**2, scale_window**2).sum())
        if not rows_are_public:
            continue
        if start % stride == 0:
            curvature += (2 * ndtr(limits / scale) - 1) @ squared
            num_sampled += len(block)
        lowest, highest = np.clip(low - predicted, -limits, limits), np.clip(high - predicted, -limits, limits)
        if neighbouring is Neighbouring.REPLACE:
            moves = (highest - lowest) * norms
        else:
            moves = np.maximum(np.abs(lowest), np.abs(highest)) * norms
        farthest = float(moves.max())
        reach = max(reach, farthest) if farthest <= most else most  # also where it is not a number
    if not rows_are_public:
        reach, num_sampled, curvature = most, 1, np.full(k, 2 * ndtr(window / scale) - 1)
    # Never below the window, so that the noise also covers the rounding of sums whose terms are as large as that.
    reach = max(reach, window)
    sensitivity = math.hypot(reach, scale_weight * window)
    deviation = sensitivity / mu
    noise = deviation * generator.standard_normal(k + 1)
    asked = gains > 0
    step = np.where(asked, total + noise[:k] / np.sqrt(np.where(asked, gains, 1.0)), 0.0) / n
    per_square = scale_window**2 / (scale_weight * window) if scale_weight else math.inf
    return Release(
        step,
        np.where(asked, (deviation / n) ** 2 / np.where(asked, gains, 1.0), np.inf),
        np.clip(curvature / num_sampled, 0.1, 1.0),
        (square + per_square * noise[k]) / n if scale_weight else math.nan,
        per_square * deviation / n,
        sensitivity,
        deviation,
    )


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
