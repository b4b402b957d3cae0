r"""Evaluation of models with private columns, whose predictions are private like the labels.

With a scaled label t and a scaled prediction q, both in [-1/2, 1/2] and private, the joint release holds the sums of
:math:`(w_2 e^2, w_1 |e|, w_0 e, w_t t, w_s t^2)` with :math:`e = t - q`. Replacing all private values of a record moves
e within [-1, 1] and t within [-1/2, 1/2]. The squared length of the move is at most the sum of what the first three and
the last two can move alone. This is attained, because q is free: for any pair of errors whose first has absolute value
one, the labels may be at opposite ends.

Neither bins of predictions nor their variance are public, so there is no calibration curve and no slope.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from conddp.bounds import Bounds
from conddp.evaluation.figures import Normal, make_figure, make_mse, make_ratio, take_root
from conddp.evaluation.moves import MomentWeights, bound_square
from conddp.evaluation.ratio import Ratio
from conddp.evaluation.spreads import combine_variances, guess_kurtosis
from conddp.evaluation.weighting import MINOR, minimize
from conddp.models.evaluation import Figure
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator

__all__ = ["bound_private_move", "choose_private_weights", "release_figures"]

Vector = NDArray[np.float64]

DEVIATION = 1 / 8  # of the label, as a part of its range; with R² of one half, it decides the weights
SPREAD_WEIGHTS = np.array([1.0, 1.0, 0.5, 0.5])  # of MSE, R², MAE and bias
LEAST_ERROR = 1e-3  # mean absolute error, relative to the range, that is told from zero
BELIEF, BELIEF_OF_UNITS = np.array([1.5, 1.5, 0.1, 0.1]), np.full(4, 1.5)


def bound_private_move(weights: Vector, neighbouring: Neighbouring) -> float:
    """Length of the longest move of the weighted moments by all private values of one record of weight 1.

    Parameters
    ----------
    weights : array of shape (5,)
        Weights of squared errors, absolute errors, errors, labels and squared labels.
    neighbouring : Neighbouring
        Neighbouring relation.
    """
    square, absolute, error, label, squared_label = weights.tolist()
    one, half = np.ones(1), np.full(1, 0.5)
    of_error = bound_square(one, one, one * error**2, MomentWeights(square, absolute, 0, 0, 0), neighbouring)
    of_label = bound_square(half, half, one * label**2, MomentWeights(squared_label, 0, 0, 0, 0), neighbouring)
    return float(np.sqrt(of_error + of_label)[0]) * (1 + 1e-9)


def choose_private_weights(neighbouring: Neighbouring) -> Vector:
    """Choose weights of the moments for an assumed spread of the labels, as if R² were one half."""
    variance = DEVIATION**2
    mse = variance / 2
    worth = np.array(
        [
            math.hypot(1 / variance, 1 / (2 * mse)),
            MINOR / (0.8 * math.sqrt(mse)),
            MINOR / math.sqrt(mse),
            0.5 * DEVIATION / variance,  # if the mean label is about one deviation from the midpoint of its range
            0.5 / variance,
        ]
    )

    def cost(logs: NDArray[np.float64]) -> float:
        weights = np.exp(np.append(0.0, logs))
        return float(bound_private_move(weights, neighbouring) ** 2 * ((worth / weights) ** 2).sum())

    return np.asarray(np.exp(np.append(0.0, minimize(cost, np.log(worth[1:] / worth[0]) / 2))))


def release_figures(
    labels: Vector,
    predictions: Vector,
    weights: Vector,
    units: NDArray[np.intp],
    *,
    mus: tuple[float, float],
    moment_weights: Vector,
    neighbouring: Neighbouring,
    curator: Curator,
    bounds: Bounds,
    level: float,
) -> Iterator[Figure]:
    """Release moments and sampling variances, and compute figures in the units of the label.

    Privacy
        Two Gaussian releases. The first has the sensitivity of :func:`bound_private_move` times the largest sum of
        weights of a unit. In the second, the squared influences of a unit lie between zero and public bounds.

    Parameters
    ----------
    labels, predictions : arrays of shape (n,)
        Scaled labels and predictions, in [-1/2, 1/2]; private.
    weights : array of shape (n,)
        Public weights of the records, of which the largest is 1.
    units : array of shape (n,)
        Number of the unit of each record.
    mus : (float, float)
        Sensitivity of each release divided by the standard deviation of its noise.
    moment_weights : array of shape (5,)
        Weights of the moments.
    neighbouring : Neighbouring
        Neighbouring relation.
    curator : Curator
        Curator through which the sums are released.
    bounds : Bounds
        Declared range of the label.
    level : float
        Level of the intervals.
    """
    totals = np.bincount(units, weights)
    total, largest, errors = float(weights.sum()), float(totals.max()), labels - predictions
    sums = np.array([weights @ each for each in (errors**2, np.abs(errors), errors, labels, labels**2)])
    sensitivity = bound_private_move(moment_weights, neighbouring) * largest
    vector = BoundedSum(moment_weights * sums, sensitivity, "moments of errors and labels")
    noisy = curator.release_gaussian(vector, noise_std=sensitivity / mus[0]) / moment_weights / total
    noise = (sensitivity / mus[0] / moment_weights / total) ** 2
    mse, mae = float(np.clip(noisy[0], 0, 1)), float(np.clip(noisy[1], 0, 1))
    bias, mean = float(np.clip(noisy[2], -1, 1)), float(np.clip(noisy[3], -0.5, 0.5))
    spread = float(noisy[4] - noisy[3] ** 2 + noise[3])
    ratio = float(np.clip(noisy[0] / spread, 0, 1.5)) if spread > 0 else 1.0
    influences = [errors**2 - mse, errors**2 - ratio * (labels - mean) ** 2, np.abs(errors) - mae, errors - bias]
    tops = np.array([max(mse, 1 - mse), max(1.0, ratio * (0.5 + abs(mean)) ** 2), max(mae, 1 - mae), 1 + abs(bias)])
    tops = (tops * largest) ** 2
    squares = np.array([(np.bincount(units, weights * each) ** 2).sum() for each in influences])
    reach = float(np.linalg.norm(SPREAD_WEIGHTS))
    released = BoundedSum(SPREAD_WEIGHTS / tops * squares, reach, "squared influences on figures")
    found = curator.release_gaussian(released, noise_std=reach / mus[1]) * tops / SPREAD_WEIGHTS
    least = max(mae, LEAST_ERROR)
    kurtosis = guess_kurtosis(max(mse, least**2), least)
    scale, rest = max(mse, mae**2, 1e-6), max(spread - mse, 0.0)
    guess = np.array(
        [
            (kurtosis - 1) * scale**2,
            (1 - ratio) ** 2 * (kurtosis - 1) * scale**2 + 4 * ratio**2 * scale * rest + 2 * ratio**2 * rest**2,
            max(scale - mae**2, 0.3 * scale),
            scale,
        ]
    ) * float((totals**2).sum())
    belief = BELIEF if len(totals) == len(labels) else BELIEF_OF_UNITS
    sampling = combine_variances(found, reach / mus[1] * tops / SPREAD_WEIGHTS, guess, belief) / total**2
    quantile, width = float(ndtri((1 + level) / 2)), bounds.width
    square, absolute, error = (
        Normal(float(noisy[place]), float(noise[place]), float(sampling[of])) for place, of in ((0, 0), (1, 2), (2, 3))
    )
    made = make_mse(square, absolute, level, width)
    yield made
    yield take_root(made)
    yield make_figure("mae", absolute.scale(width), quantile, 0.0, width)
    squared_mean = max(float(noisy[3]) ** 2 - float(noise[3]), 0.0)
    variance = float(noise[4] + 4 * squared_mean * noise[3] + 2 * noise[3] ** 2)
    yield make_ratio(Ratio(float(noisy[0]), spread, float(noise[0]), variance, 0.0, float(sampling[1])), level)
    yield make_figure("bias", error.scale(width), quantile, -width, width)
