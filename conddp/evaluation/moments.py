"""The joint release of all moments of an evaluation."""

from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.evaluation.moves import MomentWeights, find_largest_move
from conddp.evaluation.predicted import Predicted
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator

__all__ = ["Moments", "make_moments", "release_moments"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Released moments: weighted sums over held-out records, of scaled errors, with the variance of their noise.

    Parameters
    ----------
    square, absolute, error, product : float
        Sums of squared errors, absolute errors, errors, and errors times centred predictions.
    bins : array of shape (K,)
        Sums of errors per bin, which add up to ``error``.
    square_variance, absolute_variance, error_variance, product_variance, bin_variance : float
        Variances of their noise.
    """

    square: float
    absolute: float
    error: float
    product: float
    bins: Vector
    square_variance: float
    absolute_variance: float
    error_variance: float
    product_variance: float
    bin_variance: float


def release_moments(
    errors: Vector,
    predicted: Predicted,
    weights: MomentWeights,
    *,
    mu: float,
    neighbouring: Neighbouring,
    curator: Curator,
) -> Moments:
    """Release all moments in one vector.

    Privacy
        One Gaussian release, whose sensitivity is the largest move of the weighted moments by the labels of one unit
        (:func:`~conddp.evaluation.moves.find_largest_move`), and ``mu`` standard deviations of the noise.

    Parameters
    ----------
    errors : array of shape (n,)
        Scaled labels minus scaled predictions; private.
    predicted : Predicted
        Predictions.
    weights : MomentWeights
        Weights of the moments.
    mu : float
        Sensitivity divided by the standard deviation of the noise.
    neighbouring : Neighbouring
        Neighbouring relation.
    curator : Curator
        Curator through which the moments are released.
    """
    sensitivity = find_largest_move(predicted, weights, neighbouring)
    weighted = predicted.weights * errors
    sums = np.array([weighted @ errors, np.abs(weighted).sum(), weighted.sum(), weighted @ predicted.deviations])
    of_bins = np.bincount(predicted.bins, weighted, predicted.num_bins)
    scales = np.append(astuple(weights)[:4], np.full(predicted.num_bins, weights.bins))
    vector = BoundedSum(scales * np.append(sums, of_bins), sensitivity, "moments of errors")
    noisy = curator.release_gaussian(vector, noise_std=sensitivity / mu) / scales
    return make_moments(noisy, weights, sensitivity / mu)


def make_moments(noisy: Vector, weights: MomentWeights, noise_std: float) -> Moments:
    """Make the bins and the sum of all errors consistent, by least squares.

    Privacy
        Reads released numbers: no cost.

    Parameters
    ----------
    noisy : array of shape (4 + K,)
        Released moments: squared, absolute and plain errors, errors times predictions, and errors per bin.
    weights : MomentWeights
        Weights that they were released with.
    noise_std : float
        Standard deviation of the noise of the weighted moments.
    """
    square, absolute, total, product = (float(value) for value in noisy[:4])
    bins = noisy[4:]
    of_square, of_absolute, of_total, of_product, of_bin = (float((noise_std / each) ** 2) for each in astuple(weights))
    share = of_bin / (of_total + len(bins) * of_bin)
    bins = bins + (total - bins.sum()) * share
    return Moments(
        square,
        absolute,
        float(bins.sum()),
        product,
        bins,
        of_square,
        of_absolute,
        len(bins) * share * of_total,
        of_product,
        of_bin * (1 - share),
    )
