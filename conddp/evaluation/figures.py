"""Figures of an evaluation with their intervals, from released moments."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from scipy.special import ndtri

from conddp.bounds import Bounds
from conddp.evaluation.moments import Moments
from conddp.evaluation.predicted import Predicted
from conddp.evaluation.ratio import Ratio
from conddp.evaluation.spreads import Spreads
from conddp.models.evaluation import CalibrationBin, Figure, Interval

__all__ = ["compute_bins", "compute_figures"]


@dataclass(frozen=True)
class _Normal:
    """An unbiased estimate with the variances of both errors."""

    estimate: float
    noise: float
    sampling: float

    def make_intervals(self, quantile: float, low: float, high: float) -> tuple[Interval, Interval]:
        """Intervals for both targets, within a known range."""
        ends = (quantile * math.sqrt(variance) for variance in (self.noise, self.noise + self.sampling))
        return tuple(  # type: ignore[return-value]  # two of them
            Interval(_clamp(self.estimate - end, low, high), _clamp(self.estimate + end, low, high)) for end in ends
        )

    def scale(self, factor: float) -> "_Normal":
        return _Normal(self.estimate * factor, self.noise * factor**2, self.sampling * factor**2)


def compute_figures(
    moments: Moments, spreads: Spreads, predicted: Predicted, bounds: Bounds, level: float
) -> Iterator[Figure]:
    """Compute the figures in the units of the label.

    Privacy
        Reads released numbers and public predictions: no cost.
    """
    width, total, of = bounds.width, predicted.total, spreads.figures
    quantile = float(ndtri((1 + level) / 2))
    mse = _Normal(moments.square, moments.square_variance, of["mse"]).scale(1 / total)
    scaled = _make_figure("mse", mse.scale(width**2), quantile, 0.0, width**2)
    yield scaled
    yield _take_root(scaled)
    mae = _Normal(moments.absolute, moments.absolute_variance, of["mae"]).scale(width / total)
    yield _make_figure("mae", mae, quantile, 0.0, width)
    yield _make_r2(moments, of["r2"], predicted, quantile)
    bias = _Normal(moments.error, moments.error_variance, of["bias"]).scale(width / total)
    yield _make_figure("bias", bias, quantile, -width, width)
    if predicted.square > 1e-9 * total:
        tilt = _Normal(moments.product, moments.product_variance, of["slope"]).scale(1 / predicted.square)
        slope = _Normal(1 + tilt.estimate, tilt.noise, tilt.sampling)
        yield _make_figure("slope", slope, quantile, -math.inf, math.inf)


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
        error = _Normal(float(moments.bins[place]), moments.bin_variance, float(spreads.bins[place]))
        error = error.scale(width / total)
        actual = _Normal(mean + error.estimate, error.noise, error.sampling)
        intervals = actual.make_intervals(quantile, bounds.low, bounds.high)
        made.append(CalibrationBin(mean, count, _clamp(actual.estimate, bounds.low, bounds.high), *intervals))
    return tuple(made)


def _make_figure(name: str, normal: _Normal, quantile: float, low: float, high: float) -> Figure:
    intervals = normal.make_intervals(quantile, low, high)
    estimate = _clamp(normal.estimate, low, high)
    return Figure(name, estimate, *intervals, math.sqrt(normal.noise), math.sqrt(normal.sampling))


def _take_root(mse: Figure) -> Figure:
    """RMSE, with the roots of the ends of the mean squared error."""
    assert mse.estimate is not None and mse.noise_std is not None and mse.sampling_std is not None
    root = math.sqrt(mse.estimate)
    slope = 1 / (2 * root) if root else None
    noise, sampling = ((None if slope is None else slope * each) for each in (mse.noise_std, mse.sampling_std))
    return Figure("rmse", root, _root_ends(mse.sample), _root_ends(mse.population), noise, sampling)


def _root_ends(interval: Interval) -> Interval:
    assert interval.low is not None and interval.high is not None
    return Interval(math.sqrt(interval.low), math.sqrt(interval.high))


def _make_r2(moments: Moments, sampling: float, predicted: Predicted, quantile: float) -> Figure:
    total = predicted.total
    of_error = moments.error_variance
    squared_mean = max(moments.error**2 - of_error, 0.0)
    spread = predicted.square + 2 * moments.product + moments.square - (moments.error**2 - of_error) / total
    variance = moments.square_variance + 4 * moments.product_variance
    variance += (4 * squared_mean * of_error + 2 * of_error**2) / total**2
    ratio = Ratio(moments.square, spread, moments.square_variance, variance, moments.square_variance)
    with_sampling = Ratio(moments.square, spread, moments.square_variance, variance, moments.square_variance, sampling)
    sample, population = (_flip(each.find_interval(quantile)) for each in (ratio, with_sampling))
    if sample.low is None:
        return Figure("r2", None, sample, population, None, None)
    value = max(moments.square, 0.0) / spread
    noise = ratio.find_variance(value)
    return Figure("r2", 1 - value, sample, population, math.sqrt(noise) / spread, math.sqrt(sampling) / spread)


def _flip(ends: tuple[float, float]) -> Interval:
    """R² from the ratio of squared errors to squares of the label."""
    low, high = ends
    return Interval(None if math.isinf(high) else 1 - high, 1 - low)


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
