"""The black-box audit: many fits of two neighbouring data sets, told apart by the released models alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range
from conddp.algorithms.algorithm import Algorithm
from conddp.auditing.bounds import (
    GuessCounts,
    bound_epsilon,
    bound_mu,
    bound_mu_by_accuracy,
    convert_mu,
    split_and_bound,
)
from conddp.auditing.result import Evidence
from conddp.auditing.tables import NeighbourPair, compute_leverage, make_pair
from conddp.auditing.watching import make_coupled_source
from conddp.data.records import Records
from conddp.heads.head import Head
from conddp.models.result import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.release import Curator
from conddp.privacy.transcript import GaussianRelease, Transcript

__all__ = ["audit_black_box", "is_gaussian"]

NUM_FITS = 4000
DIRECTION_FRACTION = 0.25  # of the fits, to choose the direction; the threshold is chosen on half of the rest
Advance = Callable[[int, int], None]


def is_gaussian(transcript: Transcript) -> bool:
    """Whether all releases together are one Gaussian mechanism, for which tighter bounds hold."""
    return all(isinstance(each, GaussianRelease) and each.sampling_probability == 1.0 for each in transcript)


def audit_black_box(
    algorithm: Algorithm,
    records: Records,
    budget: PrivacyBudget,
    *,
    head: Head,
    confidence: float,
    num_fits: int = NUM_FITS,
    seed: int = 0,
    curator_class: type[Curator] = Curator,
    callback: Advance | None = None,
    **settings: Any,
) -> Evidence:
    """Fit two neighbouring data sets many times and tell the released models apart.

    The data sets differ in the label and private columns of the record with the most leverage, which are at the lower
    or at the upper ends of their bounds. A first part of the fits determines a direction in which the parameters
    differ, a second part a threshold, and the rest are counted.

    Privacy
        For simulated records only.

    Parameters
    ----------
    algorithm, records, budget, head
        What is fitted.
    confidence : float
        Confidence of the bound.
    num_fits : int
        Number of fits, half of each data set.
    seed : int
        Seed of all fits, which have independent noise.
    curator_class : type of Curator
        Class of the curator.
    callback : callable, optional
        Called with the number of fits done and the number of all.
    **settings
        Other arguments of the fit.
    """
    in_range(40, float("inf"), num_fits=num_fits)
    pair = make_pair(records, int(np.argmax(compute_leverage(records.public))))
    settings |= {"head": head, "curator_class": curator_class}
    each = num_fits // 2
    negatives, positives, result = _fit_many(algorithm, pair, budget, each, seed, callback, settings)
    first = max(10, int(DIRECTION_FRACTION * each))
    direction = _find_direction(negatives[:first], positives[:first])
    delta, gaussian = algorithm.cost(budget).delta, is_gaussian(result.transcript)
    bound, counts = split_and_bound(
        negatives[first:] @ direction, positives[first:] @ direction, delta, confidence=confidence, gaussian=gaussian
    )
    perfect = GuessCounts(counts.num_negatives, counts.num_positives, 0, 0)
    if gaussian:
        largest = max(bound(perfect, confidence=confidence) for bound in (bound_mu, bound_mu_by_accuracy))
        ceiling = convert_mu(largest, delta)
    else:
        ceiling = bound_epsilon(perfect, delta, confidence=confidence)
    method = "Gaussian trade-off of error rates" if gaussian else "error rates (Clopper and Pearson)"
    return Evidence(bound, method, ceiling, 2 * each)


def _fit_many(
    algorithm: Algorithm,
    pair: NeighbourPair,
    budget: PrivacyBudget,
    each: int,
    seed: int,
    callback: Advance | None,
    settings: dict[str, Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], FitResult]:
    """Parameters of fits to both data sets, and the last result."""
    parameters: tuple[list[Any], list[Any]] = ([], [])
    for number in range(each):
        for side, records in enumerate((pair.low, pair.high)):
            result = algorithm.fit(records, budget, random_source=make_coupled_source((seed, side, number)), **settings)
            parameters[side].append(np.ravel(result.model.parameters))
        if callback is not None:
            callback(2 * (number + 1), 2 * each)
    return np.array(parameters[0]), np.array(parameters[1]), result


def _find_direction(negatives: NDArray[np.float64], positives: NDArray[np.float64]) -> NDArray[np.float64]:
    """The linear discriminant: difference of means over the common covariance, slightly damped."""
    covariance = (np.atleast_2d(np.cov(negatives.T)) + np.atleast_2d(np.cov(positives.T))) / 2
    scales = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    shift = (positives.mean(axis=0) - negatives.mean(axis=0)) / scales
    correlation = covariance / np.outer(scales, scales)
    damped = correlation + max(1e-9, len(shift) / len(negatives) ** 2) * np.eye(len(shift))
    return np.asarray(np.linalg.solve(damped, shift) / scales)
