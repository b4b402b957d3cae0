"""The release of sampling variances: sums over units of squared influences."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.evaluation.influences import FIGURES, Influence, list_influences
from conddp.evaluation.moments import Moments
from conddp.evaluation.predicted import Predicted
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.release import Curator

__all__ = ["Spreads", "combine_variances", "expect_spreads", "guess_kurtosis", "release_spreads"]

Vector = NDArray[np.float64]

WEIGHTS = np.array([1.0, 1.0, 0.5, 0.5, 0.5, 0.5])  # of the figures and of all bins: RMSE and R² matter most
HEAVIER = 1.25  # factor of the kurtosis that the moments of errors suggest
MOST_KURTOSIS = 300.0
BELIEF = np.array([1.5, 1.5, 0.1, 0.1, 1.0, 0.7])  # how far the truth may be from what is expected, as a part of it
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

    Noisy variances are shrunk by precision towards those that the moments of errors suggest, and then raised by half of
    their own standard deviation. If the noise of the variances is large, that of the figures dominates their intervals
    anyway.

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
    query = _Query.of(moments, predicted)
    sums = [(predicted.add_up_units(each.evaluate(errors)) ** 2).sum() for each in query.influences]
    in_bins = np.bincount(query.places, predicted.weights * query.of_bin.evaluate(errors)) ** 2
    binned = np.bincount(query.pairs % predicted.num_bins, in_bins, predicted.num_bins)
    vector = BoundedSum(query.scales * np.append(sums, binned), query.sensitivity, "squared influences on figures")
    noisy = curator.release_gaussian(vector, noise_std=query.sensitivity / mu) / query.scales
    return _combine(noisy, query, _expect(moments, predicted), predicted, mu)


def expect_spreads(moments: Moments, predicted: Predicted, num_records: float, *, mu: float) -> Spreads:
    """Variances to expect of a release, if errors are normal and there are ``num_records`` of them.

    Privacy
        Reads numbers that the caller assumes: no cost.

    Parameters
    ----------
    moments, predicted : Moments, Predicted
        Assumed moments and predictions, which stand for those of all records.
    num_records : float
        Number of records.
    mu : float
        Sensitivity divided by the standard deviation of the noise.
    """
    factor, query = num_records / len(predicted), _Query.of(moments, predicted)
    normal = factor * _expect(moments, predicted, heavier=1.0)
    return _combine(normal, query, factor * _expect(moments, predicted), predicted, mu)


@dataclass(frozen=True, eq=False)
class _Query:
    """What is asked for, from public predictions and released numbers.

    Parameters
    ----------
    influences : list of Influence
        Of the figures.
    of_bin : Influence
        On the sum of errors of the bin of each record.
    pairs, places : arrays
        Pairs of a unit and a bin that have records, as one number each, and the place of the pair of each record.
    scales : array of shape (5 + K,)
        Factors of the figures and of the bins.
    sensitivity : float
        Of all sums together, each times its factor.
    """

    influences: list[Influence]
    of_bin: Influence
    pairs: NDArray[np.intp]
    places: NDArray[np.intp]
    scales: Vector
    sensitivity: float

    @classmethod
    def of(cls, moments: Moments, predicted: Predicted) -> "_Query":
        influences = list_influences(moments, predicted)
        tops = np.array([predicted.add_up_units(each.bound(predicted)) ** 2 for each in influences])
        pairs, places = _pair_units(predicted)
        of_bin = Influence(0.0, 1.0, -_center_bins(moments, predicted)[predicted.bins])
        reach = np.bincount(places, predicted.weights * of_bin.bound(predicted)) ** 2
        scales = WEIGHTS / np.maximum(np.append(tops.max(axis=1), reach.max()), 1e-12)
        squared = (scales[:-1, None] * tops) ** 2
        beside = np.bincount(pairs // predicted.num_bins, (scales[-1] * reach) ** 2, squared.shape[1])
        sensitivity = float(np.sqrt((squared.sum(axis=0) + beside).max()))
        full = np.append(scales[:-1], np.full(predicted.num_bins, scales[-1]))
        return cls(influences, of_bin, pairs, places, full, sensitivity)


def _combine(noisy: Vector, query: _Query, expected: Vector, predicted: Predicted, mu: float) -> Spreads:
    """Combine noisy variances with expected ones by precision, on the side of larger ones."""
    alone = predicted.units is None or predicted.units.largest == 1
    belief = BELIEF if alone else np.full(len(BELIEF), BELIEF_OF_UNITS)
    full = np.append(belief[:-1], np.full(predicted.num_bins, belief[-1]))
    combined = combine_variances(noisy, query.sensitivity / mu / query.scales, expected, full)
    return Spreads(dict(zip(FIGURES, combined.tolist(), strict=False)), combined[len(FIGURES) :])


def combine_variances(noisy: Vector, noise_std: Vector, expected: Vector, belief: Vector) -> Vector:
    """Combine noisy variances with expected ones by precision, on the side of larger ones.

    Parameters
    ----------
    noisy, noise_std : arrays of shape (m,)
        Released variances and the standard deviations of their noise.
    expected, belief : arrays of shape (m,)
        What is expected, and how far the truth may be from it, as a part of it.
    """
    believed = (belief * expected) ** 2
    share = believed / (believed + noise_std**2)
    combined = np.maximum(expected + (noisy - expected) * share, LEAST * expected)
    return np.asarray(combined + CAUTION * noise_std * np.sqrt(share))


def guess_kurtosis(mse: float, mae: float, heavier: float = HEAVIER) -> float:
    """Kurtosis of errors to expect, from their mean square and mean absolute value; see :func:`_expect`."""
    scale = max(2 * mse / (np.pi * mae**2), 1.0)
    return float(heavier * min(3 * scale**4, MOST_KURTOSIS, max(1 / mse, 3.0)))


def _pair_units(predicted: Predicted) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs of a unit and a bin that have records, as one number each, and the place of the pair of each record."""
    pairs, places = np.unique(predicted.unit_codes * predicted.num_bins + predicted.bins, return_inverse=True)
    return pairs, places.reshape(-1)


def _center_bins(moments: Moments, predicted: Predicted) -> Vector:
    return np.clip(moments.bins / predicted.bin_totals, -1, 1)


def _expect(moments: Moments, predicted: Predicted, heavier: float = HEAVIER) -> Vector:
    r"""Variances to expect from released moments, if all records of a unit have the same error.

    Errors are taken to be a normal variable times a log-normal scale. The ratio of the mean squared error to the square
    of the mean absolute error then tells the spread of the scale: with :math:`\kappa` the ratio over that of a normal
    variable, :math:`\pi / 2`, the kurtosis is :math:`3 \kappa^4`. If the scale goes along with the predictions,
    influences on slope and R² have larger variances: two thirds of the largest possible logarithm of this factor are
    assumed.
    """
    total = predicted.total
    mae = float(np.clip(moments.absolute / total, 1e-3, 1))
    mse = float(np.clip(moments.square / total, mae**2, 1))
    kurtosis = guess_kurtosis(mse, mae, heavier)
    spread = predicted.square / total
    fourth = float(predicted.weights @ predicted.deviations**4) / total
    together = (max(kurtosis / (3 * heavier), 1.0) * max(fourth / (3 * max(spread, 1e-12) ** 2), 1.0)) ** (1 / 3)
    ratio = mse / (mse + spread)
    alike = predicted.add_up_units(np.ones(len(predicted)))
    one = np.array(
        [
            (kurtosis - 1) * mse**2,
            (1 - ratio) ** 2 * (kurtosis - 1) * mse**2
            + 4 * ratio**2 * mse * spread * together
            + ratio**2 * (fourth - spread**2),
            float(np.clip(mse - mae**2, 0.3 * mse, mse)),
            mse,
            mse * spread * together,
        ]
    )
    pairs, places = _pair_units(predicted)
    in_bins = np.bincount(places, predicted.weights) ** 2
    binned = np.bincount(pairs % predicted.num_bins, in_bins, predicted.num_bins)
    return np.append(one * (alike**2).sum(), mse * binned)
