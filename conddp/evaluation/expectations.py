"""Widths of intervals to expect of an evaluation, before anything is read or spent."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from conddp.bounds import Bounds
from conddp.evaluation.moments import Moments
from conddp.evaluation.moves import MomentWeights, find_largest_move
from conddp.evaluation.predicted import Predicted
from conddp.evaluation.run import MOMENTS_SHARE, NUM_BINS
from conddp.evaluation.spreads import expect_spreads
from conddp.evaluation.weighting import choose_weights
from conddp.privacy.accounting import calibrate_gaussian_mu, compute_gaussian_epsilon
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["Expectation", "expect_evaluation"]

NUM_PREDICTIONS = 1001  # that stand for all of them
LARGEST_EPSILON, LARGEST_FACTOR = 100.0, 2.0**30


@dataclass(frozen=True)
class Expectation:
    """Half-widths of 95 % intervals for the population, and what would halve them.

    Parameters
    ----------
    deviation : float
        Assumed standard deviation of the label, as a part of its declared range.
    r2 : float
        Assumed R².
    rmse_width : float
        Half-width of the interval of RMSE, as a part of RMSE.
    r2_width : float
        Half-width of the interval of R².
    more_records : float
        Number of held-out records that would halve the interval of R².
    more_epsilon : float or None
        Epsilon that would halve it; None if sampling alone makes it wider.
    """

    deviation: float
    r2: float
    rmse_width: float
    r2_width: float
    more_records: float
    more_epsilon: float | None


def expect_evaluation(
    num_records: int,
    budget: PrivacyBudget,
    *,
    deviation: float,
    r2: float = 0.5,
    neighbouring: Neighbouring = Neighbouring.REPLACE,
    level: float = 0.95,
) -> Expectation:
    """Compute the widths to expect if labels, predictions and errors are normal and the model is calibrated.

    Privacy
        Reads numbers that the caller assumes, and n: no cost.

    Parameters
    ----------
    num_records : int
        Number of held-out records, each of which is protected on its own.
    budget : PrivacyBudget
        Cost of the evaluation.
    deviation : float
        Standard deviation of the label, as a part of its declared range. It is private: assume some.
    r2 : float
        Assumed R².
    neighbouring : Neighbouring
        Neighbouring relation.
    level : float
        Level of the intervals.
    """
    places = (np.arange(NUM_PREDICTIONS) + 0.5) / NUM_PREDICTIONS
    predictions = deviation * math.sqrt(r2) * ndtri(places)
    predicted = Predicted.of(np.clip(predictions, -0.5, 0.5), Bounds(-0.5, 0.5), num_bins=NUM_BINS)
    weights = choose_weights(predicted, neighbouring)
    mse, n = deviation**2 * (1 - r2), len(predicted)
    scaled = predicted.square / predicted.total  # variance of the predictions
    moments = Moments(
        n * mse, n * math.sqrt(2 * mse / math.pi), 0.0, 0.0, np.zeros(predicted.num_bins), *(0.0 for _ in range(5))
    )
    model = _Widths(
        predicted, moments, weights, find_largest_move(predicted, weights, neighbouring), mse, mse + scaled, level
    )
    mu = calibrate_gaussian_mu(budget.epsilon, budget.delta)
    wanted = model.r2(num_records, mu) / 2
    records = _search(lambda factor: model.r2(num_records * factor, mu) <= wanted)
    noise = _search(lambda factor: model.r2(num_records, mu * factor) <= wanted)
    epsilon = math.inf if noise is None else compute_gaussian_epsilon(mu * noise, budget.delta)
    return Expectation(
        deviation,
        r2,
        model.rmse(num_records, mu),
        2 * wanted,
        num_records * (records or math.inf),
        epsilon if epsilon <= LARGEST_EPSILON else None,
    )


@dataclass(frozen=True)
class _Widths:
    """Half-widths as functions of the number of records and of the Gaussian parameter of an evaluation."""

    predicted: Predicted
    moments: Moments
    weights: MomentWeights
    sensitivity: float
    mse: float
    spread: float  # variance of the label
    level: float

    def rmse(self, n: float, mu: float) -> float:
        """Half-width of the interval of RMSE, as a part of it."""
        noise, sampling = self._measure(n, mu, "mse")
        return self._widen(noise / self.weights.square, sampling) / self.mse / 2

    def r2(self, n: float, mu: float) -> float:
        """Half-width of the interval of R²."""
        ratio, (noise, sampling) = self.mse / self.spread, self._measure(n, mu, "r2")
        of_noise = math.hypot((1 - ratio) * noise / self.weights.square, 2 * ratio * noise / self.weights.product)
        return self._widen(of_noise, sampling) / self.spread

    def _measure(self, n: float, mu: float, name: str) -> tuple[float, float]:
        """Standard deviations, per record, of the noise of a moment of weight 1 and of sampling."""
        spreads = expect_spreads(self.moments, self.predicted, n, mu=mu * math.sqrt(1 - MOMENTS_SHARE))
        return self.sensitivity / mu / math.sqrt(MOMENTS_SHARE) / n, math.sqrt(spreads.figures[name]) / n

    def _widen(self, noise: float, sampling: float) -> float:
        return float(ndtri((1 + self.level) / 2)) * math.hypot(noise, sampling)


def _search(is_enough: Callable[[float], bool]) -> float | None:
    """Smallest factor of at least 1 that is enough, within one percent; None if none is."""
    high = 1.0
    while not is_enough(high):
        high *= 2
        if high > LARGEST_FACTOR:
            return None
    low = high / 2
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
