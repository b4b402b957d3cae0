r"""Bias of the coefficients due to clipping: what to expect of a clip norm, and how far a result may be off.

Clipping biases least squares if residuals are skewed or heavy-tailed, or where rows are so long that even small
residuals are clipped. Residuals themselves are private, so their shape is judged by released and public numbers. If
the mean of labels is m standard deviations from an end of their range, their skewness is at least :math:`1/m - m`
(Cauchy and Schwarz). Counts, prices and expenses are known to be skewed in
this way.

Privacy
    Post-processing: reads released numbers and public rows only.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import run_pass
from conddp.features.public_rows import PublicRows, RowBlock
from conddp.newton.error_function import compute_error_function
from conddp.newton.prior import VAGUE, Posterior
from conddp.newton.release import ResidualQuery

__all__ = ["HALF_RANGE", "ClippingBias", "bound_skewness", "estimate_tails", "find_largest_contribution"]

Vector = NDArray[np.float64]

HALF_RANGE = 0.5  # of the labels
SHORTEST_MARGIN = 0.25  # from the mean of the labels to the end of their range, in standard deviations
HEAVY = 3e-4  # expected squared bias due to heavy tails, relative to the residual variance
TAIL_SCALE = 16.0  # clip norm, in residual standard deviations, at which it has fallen to half
ATTENUATION, ATTENUATION_IF_SKEWED = 0.006, 0.1  # mean squared relative bias of slopes, if all residuals were clipped
MOST_ATTENUATION = 0.75  # relative bias
ATTENUATION_DECAY = 6.0  # in residual standard deviations
TAIL_DECAY = 0.4  # residual standard deviations in which the mean square beyond a limit falls to half


@dataclass(frozen=True)
class ClippingBias:
    """Expected bias of the coefficients.

    Parameters
    ----------
    residual_std : float
        Standard deviation of the residuals.
    skewness : float
        Lower bound on the skewness of the labels; 0 if nothing is known of it.
    penalty, decay : float
        ``clipping_penalty`` and ``penalty_decay`` of :class:`~conddp.newton.schedule.NewtonPlan`.
    """

    residual_std: float
    skewness: float = 0.0
    penalty: float = 0.01
    decay: float = 2.0

    def expect(self, clip_norms: Vector | float, *, kept: Vector | float = 1.0) -> Vector:
        """Expected squared bias of all coefficients together.

        It has three parts. That of light tails does not fall beyond half of the label range: no residual of a
        prediction in the middle is larger, so only rows that are longer than others would gain from it. That of skewed
        labels does, and that of heavy tails falls slowly. The latter matters only if there is hardly any noise.

        Parameters
        ----------
        clip_norms : array
            Clip norms.
        kept : array
            Fraction of the coefficients that shrinkage leaves, and with it of the bias of skewed and heavy tails.
        """
        in_stds, squared = np.asarray(clip_norms) / self.residual_std, self.skewness**2
        light = self.penalty * np.exp(-np.minimum(in_stds, HALF_RANGE / self.residual_std) / self.decay)
        skewed = self.penalty * squared * np.exp(-in_stds / self.decay)
        heavy = HEAVY * (1 + squared) / (1 + (in_stds / TAIL_SCALE) ** 2)
        return np.asarray(self.residual_std**2 * (light + kept * (skewed + heavy)))

    def estimate_attenuation(self, clip_norm: float, posterior: Posterior) -> Vector:
        """Mean square of the bias that shortens all coefficients of skewed labels by the same unknown factor."""
        relative = math.sqrt(ATTENUATION + ATTENUATION_IF_SKEWED * self.skewness**2)
        relative *= math.exp(-clip_norm / self.residual_std / ATTENUATION_DECAY)
        relative = min(relative, MOST_ATTENUATION)
        return np.asarray((relative / (1 - relative)) ** 2 * (posterior.mean**2 + posterior.variance))

    def estimate_excess(self, limits: Vector | float) -> Vector:
        """Mean square of what clipping residuals to these limits takes away, for a distribution with heavy tails."""
        excess = self.residual_std**2 * (1 + self.skewness**2 / 2)
        return np.asarray(excess / (1 + np.asarray(limits) / (TAIL_DECAY * self.residual_std)))


def bound_skewness(mean: float, mean_std: float, label_std: float) -> float:
    """Lower bound on the skewness of labels within half a range on either side of zero.

    Parameters
    ----------
    mean, mean_std : float
        Estimated mean of the labels, and the standard deviation of its noise.
    label_std : float
        Estimated standard deviation of the labels.

    Examples
    --------
    >>> bound_skewness(-0.45, 0.0, 0.1), bound_skewness(0.0, 0.0, 0.1)
    (1.5, 0.0)
    """
    margin = math.hypot(max(HALF_RANGE - abs(mean), 0.0), mean_std) / label_std
    margin = max(margin, SHORTEST_MARGIN)
    return max(0.0, round(1 / margin - margin, 12))


def find_largest_contribution(
    rows: PublicRows, coefficients: Vector, direction_weights: Vector, label_range: tuple[float, float]
) -> float:
    """Largest norm of residual times weighted row that a record can have: with this clip norm nothing is clipped.

    It is infinite if a row is too long to square.
    """
    passing = rows.start_pass(coefficients, direction_weights)
    found = run_pass(_Largest(label_range), passing.blocks, num_cells=_count_cells(rows)).value
    return found if math.isfinite(found) else math.inf


def estimate_tails(
    rows: PublicRows,
    coefficients: Vector,
    query: ResidualQuery,
    bias: ClippingBias,
    label_range: tuple[float, float],
    *,
    signal: float,
) -> Vector:
    """Mean square of the bias of every coefficient because residuals of single records are clipped.

    What is clipped from a record depends on the length of its row, and on its prediction. It is at most what the
    declared range of its label allows, and at least that if the prediction is far outside this range. From long rows,
    which decide on coefficients nearly alone, clipping also takes the signal: such coefficients lag behind.

    Parameters
    ----------
    rows : PublicRows
        Feature rows, shape (n, k).
    coefficients : array of shape (k,)
        Coefficients that determine predictions.
    query : ResidualQuery
        Clip norm and direction weights.
    bias : ClippingBias
        What is expected of the residuals.
    label_range : (low, high)
        Declared bounds in the units of the predictions.
    signal : float
        Mean square of a coefficient.
    """
    passing = rows.start_pass(coefficients, query.direction_weights)
    sizes = None if rows.weights is None else rows.weights.values
    total = run_pass(
        _Tails(query.clip_norm, bias, label_range, sizes, signal * rows.num_directions),
        passing.blocks,
        num_cells=_count_cells(rows),
    )
    found = passing.finish_squares(np.asarray(total)) / rows.total_weight**2
    return np.where(np.isfinite(found), found, VAGUE)


def _count_cells(rows: PublicRows) -> int:
    return rows.num_records * rows.num_directions


@dataclass(frozen=True)
class _Maximum:
    """A number of which the larger one is kept if blocks are added up."""

    value: float

    def __add__(self, other: "_Maximum") -> "_Maximum":
        return _Maximum(float(np.maximum(self.value, other.value)))  # NaN if either is NaN


@dataclass(frozen=True)
class _Largest:
    """The function that a pass applies to every block to find the largest contribution."""

    label_range: tuple[float, float]

    @np.errstate(all="ignore")  # rows may be too long to square
    def __call__(self, span: slice, rows: RowBlock) -> _Maximum:
        low, high = self.label_range
        largest = [0.0]
        for _, part in rows.list_parts():
            predicted = part.predict()
            largest.append(float((np.maximum(high - predicted, predicted - low) * part.measure()).max()))
        return _Maximum(float(np.max(largest)))


@dataclass(frozen=True)
class _Tails:
    """The function that a pass applies to every block to estimate what is clipped."""

    clip_norm: float
    bias: ClippingBias
    label_range: tuple[float, float]
    weights: Vector | None
    signal: float  # of all directions

    @np.errstate(all="ignore")  # rows may be too long to square
    def __call__(self, span: slice, rows: RowBlock) -> Vector:
        weights = None if self.weights is None else self.weights[span]
        total: Vector | float = 0.0
        for own, part in rows.list_parts():
            squares = self._estimate_excess(part)
            if weights is not None:
                squares *= weights[own] ** 2
            total = total + part.sum_squares(squares)
        return np.asarray(total)

    def _estimate_excess(self, rows: RowBlock) -> Vector:
        norms = rows.measure()
        limits = self.clip_norm / np.maximum(norms, 1e-12)
        predicted, (low, high) = rows.predict(), self.label_range
        above, below = high - predicted, predicted - low  # possible residuals lie between -below and above
        most = np.maximum(np.maximum(above, below) - limits, 0.0)
        least = np.maximum(np.maximum(-above, -below) - limits, 0.0)
        clipped = 1 - compute_error_function(limits / (math.sqrt(2.0) * self.bias.residual_std))
        lag = self.signal * (norms * clipped) ** 2
        return np.asarray(np.clip(self.bias.estimate_excess(limits), least**2, most**2) + lag)
