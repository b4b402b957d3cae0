r"""Privacy accounting for random weighted sums of labels in bags (Weighted-LLP).

A bag of k labels is released as :math:`\sum_i w_i y_i` with weights :math:`w_i \sim N(0, 1)`, after noise
:math:`N(0, s^2)` has been added to m of its labels. Given the weights, which are public, this is one Gaussian release.
Its sensitivity to label i is :math:`\mu = R |w_i| / (s \sqrt{\sum_{l\ \mathrm{noisy}} w_l^2})` standard deviations,
where R is the width of the label range. Delta is exactly the mean of the Gaussian delta over the weights.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc, betaln, log_ndtr

from conddp._validate import in_range, positive, positive_integer
from conddp.errors import NotCalibrated

__all__ = ["calibrate_bag_size", "compute_bag_delta", "count_noisy"]

LARGEST_BAG = 10**9


def compute_bag_delta(
    epsilon: float, *, bag_size: int, noisy_fraction: float, label_range: float = 1.0, used_fraction: float = 1.0
) -> float:
    r"""Compute the delta at ``epsilon`` of releasing all bags, under REPLACE.

    With m noisy labels in a bag, :math:`w_i^2 / \sum w_l^2` follows :math:`\mathrm{Beta}(1/2, (m-1)/2)` for a noisy
    label i, and :math:`w_i^2 / (w_i^2 + \sum w_l^2)` follows :math:`\mathrm{Beta}(1/2, m/2)` for any other label. Both
    expectations are therefore one-dimensional integrals.

    Parameters
    ----------
    epsilon : float
        Epsilon at which to compute delta.
    bag_size : int
        Number of labels per bag.
    noisy_fraction : float
        Fraction of the labels of each bag that receive noise; at least one label does.
    label_range : float
        Width of the label range divided by the standard deviation of the noise.
    used_fraction : float
        Probability that a record is in any bag.
    """
    positive(epsilon=epsilon, noisy_fraction=noisy_fraction, label_range=label_range, used_fraction=used_fraction)
    in_range(0.0, 1.0, noisy_fraction=noisy_fraction, used_fraction=used_fraction)
    positive_integer(bag_size=bag_size)
    noisy = count_noisy(bag_size, noisy_fraction)
    chance = noisy / bag_size
    delta = 0.0
    if noisy == 1:
        delta += chance * float(_gaussian_delta(np.array([label_range]), epsilon)[0])
    else:
        delta += chance * _mean_over_beta((noisy - 1) / 2, label_range, epsilon, odds=False)
    if noisy < bag_size:
        delta += (1 - chance) * _mean_over_beta(noisy / 2, label_range, epsilon, odds=True)
    return used_fraction * delta


def count_noisy(bag_size: int, noisy_fraction: float) -> int:
    """Return the number of labels per bag that receive noise: the fraction, rounded up, and at least one."""
    return max(1, math.ceil(noisy_fraction * bag_size - 1e-9))


def calibrate_bag_size(
    epsilon: float, delta: float, *, noisy_fraction: float, label_range: float = 1.0, used_fraction: float = 1.0
) -> int:
    """Find the smallest bag size that gives (epsilon, delta) under REPLACE.

    Privacy
        Reads no data.

    Examples
    --------
    >>> calibrate_bag_size(1.0, 1e-6, noisy_fraction=1.0, used_fraction=0.6)
    85
    """
    positive(delta=delta)

    def spent(bag_size: int) -> float:
        return compute_bag_delta(
            epsilon,
            bag_size=bag_size,
            noisy_fraction=noisy_fraction,
            label_range=label_range,
            used_fraction=used_fraction,
        )

    high = 1
    while not spent(high) <= delta:  # written with `not` so that NaN is refused as well
        high *= 2
        if high > LARGEST_BAG:
            raise NotCalibrated(f"No bag size up to {LARGEST_BAG} gives epsilon={epsilon} at delta={delta}.")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return high


def _mean_over_beta(b: float, label_range: float, epsilon: float, *, odds: bool) -> float:
    """Mean of the Gaussian delta over t^2 ~ Beta(1/2, b), by the trapezoidal rule in the logit of t.

    The rule converges geometrically in this variable, because integrand and density decay at both ends.
    """
    logit = np.linspace(-30.0, 30.0, 6001)
    root = 1 / (1 + np.exp(-logit))  # t, with t^2 the Beta variable
    log_rest = np.log1p(-root) + np.log1p(root)  # log(1 - t^2)
    log_density = np.log(2.0) + (b - 1) * log_rest - betaln(0.5, b)
    mu = label_range * (root / np.exp(0.5 * log_rest) if odds else root)
    integrand = _gaussian_delta(mu, epsilon) * np.exp(log_density) * root * (1 - root)
    beyond = betaincc(0.5, b, root[-1] ** 2)  # upper tail beyond the grid, where delta is at most 1
    return float(np.trapezoid(integrand, logit) + beyond)


def _gaussian_delta(mu: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """Exact delta of Gaussian releases, as in :func:`conddp.privacy.accounting.compute_gaussian_delta`, for arrays."""
    log_first = log_ndtr(mu / 2 - epsilon / mu)
    log_second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    delta: NDArray[np.float64] = -np.exp(log_first) * np.expm1(np.minimum(log_second - log_first, 0.0))
    return delta
