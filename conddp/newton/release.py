"""One release of clamped residuals times rows."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from conddp.features.whitening import ROWS_AT_ONCE
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["Release", "release"]

Vector = NDArray[np.float64]


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
