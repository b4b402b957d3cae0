"""Figures of an evaluation with their intervals, from released moments."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from scipy.special import ndtri

from conddp.bounds import Bounds
from conddp.evaluation.moments import Moments
from conddp.evaluation.predicted import Predicted
from conddp.evaluation.ratio import Ratio
from conddp.evaluation.spreads import Spreads
from conddp.models.evaluation import CalibrationBin, Figure, Interval

__all__ = ["Normal", "compute_bins", "compute_figures", "make_figure", "make_mse", "make_ratio", "take_root"]

BOUND_SHARE = 0.2  # of the error probability at the lower end of squared errors, for a bound by mean absolute errors


@dataclass(frozen=True)
class Normal:
    """An unbiased estimate with the variances of both errors.

    Parameters
    ----------
    estimate : float
        The estimate.
    noise, sampling : float
        Variances.
    """

    estimate: float
    noise: float
    sampling: float

    def make_intervals(self, quantile: float, low: float, high: float) -> tuple[Interval, Interval]:
        """Intervals for both targets, within a known range."""
        ends = (quantile * math.sqrt(variance) for variance in (self.noise, self.noise + self.sampling))
        return tuple(  # type: ignore[return-value]  # two of them
            Interval(_clamp(self.estimate - end, low, high), _clamp(self.estimate + end, low, high)) for end in ends
        )

    def scale(self, factor: float) -> "Normal":
        """Return the same in other units."""
        return Normal(self.estimate * factor, self.noise * factor**2, self.sampling * factor**2)


def compute_figures(
    moments: Moments, spreads: Spreads, predicted: Predicted, bounds: Bounds, level: float
) -> Iterator[Figure]:
    """Compute the figures in the units of the label.

    Privacy
        Reads released numbers and public predictions: no cost.
    """
    width, total, of = bounds.width, predicted.total, spreads.figures
    quantile = float(ndtri((1 + level) / 2))
    square = Normal(moments.square, moments.square_variance, of["mse"]).scale(1 / total)
    absolute = Normal(moments.absolute, moments.absolute_variance, of["mae"]).scale(1 / total)
    mse = make_mse(square, absolute, level, width)
    yield mse
    yield take_root(mse)
    yield make_figure("mae", absolute.scale(width), quantile, 0.0, width)
    yield _make_r2(moments, of["r2"], predicted, level)
    bias = Normal(moments.error, moments.error_variance, of["bias"]).scale(width / total)
    yield make_figure("bias", bias, quantile, -width, width)
    if predicted.square > 1e-9 * total:
        tilt = Normal(moments.product, moments.product_variance, of["slope"]).scale(1 / predicted.square)
        slope = Normal(1 + tilt.estimate, tilt.noise, tilt.sampling)
        yield make_figure("slope", slope, quantile, -math.inf, math.inf)


def compute_bins(
    moments: Moments, spreads: Spreads, predicted: Predicted, bounds: Bounds, level: float
) -> tuple[CalibrationBin, ...]:
    """Compute the calibration curve in the units of the label.

    Privacy
        Reads released numbers and public predictions: no cost.
    """
    quantile, width = float(ndtri((1 + level) / 2)), bounds.width
    counts = [int((predicted.bins == place).sum()) for place in range(predicted.num_bins)]
    made = []
    for place, count in enumerate(counts):
        total = float(predicted.bin_totals[place])
        mean = bounds.midpoint + width * float(predicted.bin_means[place])
        error = Normal(float(moments.bins[place]), moments.bin_variance, float(spreads.bins[place]))
        error = error.scale(width / total)
        actual = Normal(mean + error.estimate, error.noise, error.sampling)
        intervals = actual.make_intervals(quantile, bounds.low, bounds.high)
        made.append(CalibrationBin(mean, count, _clamp(actual.estimate, bounds.low, bounds.high), *intervals))
    return tuple(made)


def make_figure(name: str, normal: Normal, quantile: float, low: float, high: float) -> Figure:
    """Make a figure from an estimate of its own, within a known range."""
    intervals = normal.make_intervals(quantile, low, high)
    estimate = _clamp(normal.estimate, low, high)
    return Figure(name, estimate, *intervals, math.sqrt(normal.noise), math.sqrt(normal.sampling))


def make_mse(mse: Normal, mae: Normal, level: float, width: float) -> Figure:
    """Mean squared error in the units of the label. It is at least the square of the mean absolute error."""
    tail = (1 - level) / 2
    upper, lower, bound = (float(ndtri(1 - part * tail)) for part in (1.0, 1 - BOUND_SHARE, BOUND_SHARE))
    ends = []
    for square, absolute in ((mse.noise, mae.noise), (mse.noise + mse.sampling, mae.noise + mae.sampling)):
        least = max(mae.estimate - bound * math.sqrt(absolute), 0.0) ** 2
        low = max(mse.estimate - lower * math.sqrt(square), least)
        high = max(mse.estimate + upper * math.sqrt(square), low)
        ends.append(Interval(min(low, 1.0) * width**2, min(high, 1.0) * width**2))
    scaled, (sample, population) = mse.scale(width**2), ends
    estimate = _enter(scaled.estimate, sample)
    return Figure("mse", estimate, sample, population, math.sqrt(scaled.noise), math.sqrt(scaled.sampling))


def take_root(mse: Figure) -> Figure:
    """RMSE, with the roots of the ends of the mean squared error."""
    assert mse.estimate is not None and mse.noise_std is not None and mse.sampling_std is not None
    root = math.sqrt(mse.estimate)
    slope = 1 / (2 * root) if root else None
    noise, sampling = ((None if slope is None else slope * each) for each in (mse.noise_std, mse.sampling_std))
    return Figure("rmse", root, _root_ends(mse.sample), _root_ends(mse.population), noise, sampling)


def _root_ends(interval: Interval) -> Interval:
    assert interval.low is not None and interval.high is not None
    return Interval(math.sqrt(interval.low), math.sqrt(interval.high))


def _make_r2(moments: Moments, sampling: float, predicted: Predicted, level: float) -> Figure:
    """R², from the ratio of squared errors to the spread of the labels."""
    total, of_error = predicted.total, moments.error_variance
    squared_mean = max(moments.error**2 - of_error, 0.0)
    explained = predicted.square + 2 * moments.product - (moments.error**2 - of_error) / total
    variance = 4 * moments.product_variance + (4 * squared_mean * of_error + 2 * of_error**2) / total**2
    spread, of_square = explained + moments.square, moments.square_variance
    # Squared errors are at least what mean absolute errors say, beside a spread that is at most what it may be.
    bound = float(ndtri(1 - BOUND_SHARE / 2 * (1 - level) / 2))
    squares = max(moments.absolute - bound * math.sqrt(moments.absolute_variance), 0.0) ** 2 / total
    most = max(explained + bound * math.sqrt(variance), 0.0)
    least = squares / (squares + most) if squares else 0.0
    return make_ratio(Ratio(moments.square, spread, of_square, variance + of_square, of_square, sampling), level, least)


def make_ratio(noisy: Ratio, level: float, least: float = 0.0) -> Figure:
    """R², as one minus a ratio that is known to be at least ``least``, up to a part of the error probability."""
    tail = (1 - level) / 2
    upper, lower = (float(ndtri(1 - part * tail)) for part in (1.0, 1 - BOUND_SHARE))
    ratios = replace(noisy, sampling=0.0), noisy
    ends = [(each.find_interval(lower)[0], each.find_interval(upper)[1]) for each in ratios]
    sample = _flip(max(ends[0][0], least), ends[0][1])
    std = math.sqrt(noisy.sampling) / noisy.denominator if noisy.denominator > 0 else math.inf
    population = _flip(max(ends[1][0], least - upper * std), ends[1][1])
    if sample.low is None:
        return Figure("r2", None, sample, population, None, None)
    value = max(noisy.numerator, 0.0) / noisy.denominator
    noise = math.sqrt(noisy.find_variance(value)) / noisy.denominator
    return Figure("r2", _enter(1 - value, sample), sample, population, noise, std)


def _flip(low: float, high: float) -> Interval:
    """Interval of R² from the ends of a ratio, one minus R²."""
    return Interval(None if math.isinf(high) else 1 - max(low, high), 1 - low)


def _enter(value: float, interval: Interval) -> float:
    """Move a value into its interval, whose ends may know more."""
    assert interval.low is not None and interval.high is not None
    return _clamp(value, interval.low, interval.high)


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
