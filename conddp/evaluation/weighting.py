r"""Weights of the moments in their joint release, chosen from public predictions.

With weights w and the largest move :math:`\Delta(w)`, the noise of moment j has a standard deviation proportional to
:math:`\Delta(w) / w_j`. The weights minimise :math:`\Delta(w)^2 \sum_j (a_j / w_j)^2`, where :math:`a_j` says what
moment j is worth: the change of the figures that one of it causes, each in its natural unit. The residual variance that
this needs is private. As if R² were one half, it is taken to be the variance of the predictions.
"""

from collections.abc import Callable
from dataclasses import astuple
from itertools import product

import numpy as np
from numpy.typing import NDArray

from conddp.evaluation.moves import MomentWeights, measure_moves
from conddp.evaluation.predicted import Predicted
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["choose_weights", "minimize"]

SMALLEST_SPREAD = 0.02  # of predictions, as a part of the range of the label
NUM_PLACES = 65  # between the smallest and the largest prediction, at which moves are measured
MINOR = 0.25  # what mean absolute error, bias and the calibration curve are worth, beside RMSE and R²
FIRST_STEP, LAST_STEP = 2.0, 0.1  # of the search, in the logarithm of a weight


def choose_weights(predicted: Predicted, neighbouring: Neighbouring) -> MomentWeights:
    """Choose the weights of the moments so that the intervals of RMSE and R² become narrow.

    Privacy
        Reads public predictions and weights only: no cost.
    """
    places = np.linspace(predicted.scaled.min(), predicted.scaled.max(), NUM_PLACES)
    deviations = places - predicted.center
    worth = _measure_worth(predicted)

    def cost(logs: NDArray[np.float64]) -> float:
        weights = np.exp(np.append(0.0, logs))
        farthest = measure_moves(places, deviations, MomentWeights(*weights.tolist()), neighbouring).max()
        return float(farthest**2 * ((worth / weights) ** 2).sum())

    start = np.log(worth[1:] / worth[0]) / 2  # optimal if the moves of all moments were independent of the record
    return MomentWeights(*np.exp(np.append(0.0, minimize(cost, start))).tolist())


def minimize(cost: Callable[[NDArray[np.float64]], float], best: NDArray[np.float64]) -> NDArray[np.float64]:
    """Search for the logarithms of weights that cost the least, one at a time."""
    least, step = cost(best), FIRST_STEP
    while step > LAST_STEP:
        improved = False
        for place, sign in product(range(len(best)), (-1, 1)):
            tried = best.copy()
            tried[place] += sign * step
            found = cost(tried)
            if found < least:
                best, least, improved = tried, found, True
        step = step if improved else step / 2
    return best


def _measure_worth(predicted: Predicted) -> NDArray[np.float64]:
    """Return what each moment is worth, in the order of the weights; a common factor makes no difference."""
    spread = max(float(np.sqrt(predicted.square / predicted.total)), SMALLEST_SPREAD)
    variance = spread**2
    square = np.hypot(1 / (4 * variance), 1 / (2 * variance))  # of R², and of the logarithm of RMSE
    product = np.hypot(1 / (2 * variance), MINOR / variance)  # of R², and of the slope
    absolute, error = MINOR / (0.8 * spread), MINOR / spread
    bins = MINOR * predicted.num_bins / spread  # the bias of a bin, on average over bins
    return np.array(astuple(MomentWeights(float(square), absolute, error, float(product), bins)))
