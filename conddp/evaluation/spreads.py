"""The release of sampling variances: sums over units of squared influences."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.evaluation.influences import FIGURES, Influence, list_influences
from conddp.evaluation.moments import Moments
from conddp.evaluation.predicted import Predicted
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.release import Curator

__all__ = ["Spreads", "release_spreads"]

Vector = NDArray[np.float64]

WEIGHTS = np.array([1.0, 1.0, 0.5, 0.5, 0.5, 0.5])  # of the figures and of all bins: RMSE and R² matter most
KURTOSIS = 5.0  # of errors, as long as the release does not say otherwise
BELIEF = np.array([1.5, 1.5, 0.1, 0.1, 0.7, 0.7])  # how far the truth may be from what is expected, as a part of it
BELIEF_OF_UNITS = 1.5  # the same, if units have several records, whose errors may be alike or not
CAUTION = 0.5  # standard deviations by which a variance is raised, since it is not known exactly
LEAST = 0.1  # of what is expected: no sampling variance is taken to be smaller


@dataclass(frozen=True)
class Spreads:
    """Sampling variances of the sums that figures are made of.

    Parameters
    ----------
    figures : dict
        Variance of each figure of ``FIGURES``.
    bins : array of shape (K,)
        Variance of the sum of errors in each bin.
    """

    figures: dict[str, float]
    bins: Vector


def release_spreads(errors: Vector, predicted: Predicted, moments: Moments, *, mu: float, curator: Curator) -> Spreads:
    r"""Release the sum over units of the squared influence on each figure and on each bin.

    Noisy variances are shrunk towards those of errors without skewness and with the kurtosis of a slightly heavy tail,
    by precision, and then raised by half of their own standard deviation. If the noise of the variances is large, that
    of the figures dominates their intervals anyway.

    Privacy
        One Gaussian release. With :math:`b_i` the largest absolute influence of record i, which is public, the squared
        influence of a unit lies between 0 and :math:`(\sum_i v_i b_i)^2`, whatever its labels are, and so it moves by
        at most this much, under both relations. The sensitivity is the largest length of the vector of all weighted
        upper ends of a unit.

    Parameters
    ----------
    errors : array of shape (n,)
        Scaled labels minus scaled predictions; private.
    predicted : Predicted
        Predictions.
    moments : Moments
        What was released before.
    mu : float
        Sensitivity divided by the standard deviation of the noise.
    curator : Curator
        Curator through which the sums are released.
    """
    influences = list_influences(moments, predicted)
    tops = np.array([predicted.add_up_units(each.bound(predicted)) ** 2 for each in influences])
    pairs, places = _pair_units(predicted)
    of_bin = Influence(0.0, 1.0, -_center_bins(moments, predicted)[predicted.bins])
    reach = np.bincount(places, predicted.weights * of_bin.bound(predicted)) ** 2
    scales = WEIGHTS / np.maximum(np.append(tops.max(axis=1), reach.max()), 1e-12)
    squared = (scales[:-1, None] * tops) ** 2
    beside = np.bincount(pairs // predicted.num_bins, (scales[-1] * reach) ** 2, squared.shape[1])
    sensitivity = float(np.sqrt((squared.sum(axis=0) + beside).max()))
    sums = [(predicted.add_up_units(each.evaluate(errors)) ** 2).sum() for each in influences]
    in_bins = np.bincount(places, predicted.weights * of_bin.evaluate(errors)) ** 2
    binned = np.bincount(pairs % predicted.num_bins, in_bins, predicted.num_bins)
    full = np.append(scales[:-1], np.full(predicted.num_bins, scales[-1]))
    vector = BoundedSum(full * np.append(sums, binned), sensitivity, "squared influences on figures")
    noise_std = sensitivity / mu
    noisy = curator.release_gaussian(vector, noise_std=noise_std) / full
    alone = predicted.units is None or predicted.units.largest == 1
    belief = BELIEF if alone else np.full(len(BELIEF), BELIEF_OF_UNITS)
    believed = np.append(belief[:-1], np.full(predicted.num_bins, belief[-1]))
    shrunk = _shrink(noisy, noise_std / full, _expect(moments, predicted), believed)
    return Spreads(dict(zip(FIGURES, shrunk.tolist(), strict=False)), shrunk[len(FIGURES) :])


def _pair_units(predicted: Predicted) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs of a unit and a bin that have records, as one number each, and the place of the pair of each record."""
    pairs, places = np.unique(predicted.unit_codes * predicted.num_bins + predicted.bins, return_inverse=True)
    return pairs, places.reshape(-1)


def _center_bins(moments: Moments, predicted: Predicted) -> Vector:
    return np.clip(moments.bins / predicted.bin_totals, -1, 1)


def _expect(moments: Moments, predicted: Predicted) -> Vector:
    """Variances to expect of errors with the released mean square, if all records of a unit have the same error."""
    total = predicted.total
    mae = float(np.clip(moments.absolute / total, 1e-3, 1))
    mse = float(np.clip(moments.square / total, mae**2, 1))
    spread = predicted.square / total
    ratio = mse / (mse + spread)
    alike = predicted.add_up_units(np.ones(len(predicted)))
    one = np.array(
        [
            (KURTOSIS - 1) * mse**2,
            (1 - ratio) ** 2 * (KURTOSIS - 1) * mse**2 + 4 * ratio**2 * mse * spread + ratio**2 * 2 * spread**2,
            float(np.clip(mse - mae**2, 0.3 * mse, mse)),
            mse,
            mse * spread,
        ]
    )
    pairs, places = _pair_units(predicted)
    in_bins = np.bincount(places, predicted.weights) ** 2
    binned = np.bincount(pairs % predicted.num_bins, in_bins, predicted.num_bins)
    return np.append(one * (alike**2).sum(), mse * binned)


def _shrink(noisy: Vector, noise_std: Vector, expected: Vector, belief: Vector) -> Vector:
    """Combine noisy variances with expected ones by precision, on the side of larger ones."""
    believed = (belief * expected) ** 2
    share = believed / (believed + noise_std**2)
    combined = expected + (noisy - expected) * share
    return np.maximum(combined, LEAST * expected) + CAUTION * noise_std * np.sqrt(share)
