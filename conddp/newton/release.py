r"""The release of one Newton step: clamped residuals times rows, and the mean square of the residuals.

With whitened rows :math:`u_i` and residuals :math:`r_i = y_i - \theta^\top u_i`, the released quantity is

.. math:: \Big(\sum_i \psi_i\, g \circ u_i,\; \tfrac{h c}{w^2} \sum_i \min(r_i^2, w^2)\Big) + N(0, \sigma^2 I), \qquad
   \psi_i = \mathrm{clamp}\big(r_i,\, \pm c / \|g \circ u_i\|\big)

If units have several records or the user gave weights, record i is multiplied by its weight :math:`a_i` in both sums.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from conddp._fused import load_kernels
from conddp.data.passes import BLOCK_SIZE, Sliceable, add_sums, get_partitions, is_for_threads, run_pass
from conddp.features.public_rows import DenseBlock, DensePass, PublicRows, RowBlock
from conddp.losses import Loss, Squared
from conddp.newton.error_function import compute_error_function
from conddp.newton.fused_residuals import ERROR_FUNCTION, SUM_RESIDUALS
from conddp.newton.private_columns import PrivateRows
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator

__all__ = ["ResidualQuery", "ResidualSums", "Rows", "StepEstimate", "release_residuals", "release_sums"]

Vector = NDArray[np.float64]
Rows = PublicRows | PrivateRows

WORK_PER_CELL = 200.0  # multiplications that take as long as NumPy takes to read a cell in all passes of a run
NO_MAGNITUDES = np.zeros(0)  # of rows that are formed: the curator covers their rounding errors
BLOCKS_FOR_CURVATURE = 16  # a subset of the records suffices to estimate the curvature that clamping leaves


@dataclass(frozen=True)
class ResidualQuery:
    """Parameters of the query of one step; all of them are public.

    Parameters
    ----------
    clip_norm : float
        c, the bound on the clamped residual times the norm of its weighted row.
    direction_weights : array of shape (k,)
        Squares of g, which add up to one. A direction of weight zero is not queried.
    residual_std : float
        Estimated standard deviation of the residuals.
    square_limit, square_weight : float
        w and h. With a weight of zero the mean square is not queried.
    """

    clip_norm: float
    direction_weights: Vector
    residual_std: float
    square_limit: float
    square_weight: float

    @property
    def square_unit(self) -> float:
        """Factor by which the sum of squared residuals is multiplied before its release."""
        return self.square_weight * self.clip_norm / self.square_limit**2


@dataclass(frozen=True)
class StepEstimate:
    """Noisy result of one query, with its known noise variance and expected curvature.

    Parameters
    ----------
    step : array of shape (k,)
        Noisy mean over records of clamped residual times row; zero for directions of weight zero.
    noise_variance : array of shape (k,)
        Variance of the noise in ``step``; infinite for directions of weight zero.
    curvature : array of shape (k,)
        Expected fraction of a full Newton step that clamping leaves in each direction.
    mean_square, mean_square_std : float
        Noisy mean square of the residuals, and the standard deviation of its noise. If the mean square was not queried,
        they are NaN and infinite.
    """

    step: Vector
    noise_variance: Vector
    curvature: Vector
    mean_square: float
    mean_square_std: float


@dataclass(frozen=True)
class _PublicFacts:
    """Sensitivity and curvature of a block, computed from public rows without labels."""

    farthest: float
    magnitudes: Vector  # for the bound on rounding errors
    distances: tuple[Vector, ...]  # between the ends of each clamped residual, block by block
    alone: float = 0.0  # largest move of both sums by one record, with its weight
    curvature: Vector | float = 0.0
    weight_sampled: float = 0.0

    def __add__(self, other: "_PublicFacts") -> "_PublicFacts":
        return _PublicFacts(
            _find_larger(self.farthest, other.farthest),
            self.magnitudes + other.magnitudes,
            self.distances + other.distances,
            _find_larger(self.alone, other.alone),
            self.curvature + other.curvature,
            self.weight_sampled + other.weight_sampled,
        )


def _find_larger(one: float, other: float) -> float:
    """Return the larger number; NaN if either is NaN."""
    return one if one > other or one != one else other


@np.errstate(all="ignore")  # warnings must not depend on labels
def release_residuals(
    rows: Rows,
    label: Sliceable,
    label_range: tuple[float, float],
    coefficients: Vector,
    query: ResidualQuery,
    *,
    mu: float,
    neighbouring: Neighbouring,
    curator: Curator,
    loss: Loss,
) -> StepEstimate:
    r"""Release clamped residuals times rows, and the mean square of the residuals.

    Privacy
        One Gaussian release whose sensitivity is ``mu`` standard deviations. Record i adds
        :math:`\psi_i\, g \circ u_i` to the first sum, and between 0 and :math:`h c` to the second.

        If rows are public, the range of possible residuals of a record is public, and its clamped residual lies between
        the clamped ends of that range. Replacing the label changes the first sum by at most the distance between these
        ends times :math:`\|g \circ u_i\|`, which is never more than 2 ``clip_norm``. Setting the contribution of the
        record to zero changes it by the larger absolute end times the norm, at most ``clip_norm``. If rows, and hence
        predictions, are private too, only the clip norm bounds the contribution of a record. Replacing the record then
        changes the first sum by at most 2 ``clip_norm``, and setting its contribution to zero by at most ``clip_norm``.
        The type of the rows decides which bound is used.

        The sensitivity is the square root of the sum of the squared sensitivities of both sums, with the maximum of the
        first over all records. It depends on public values only.

        With units, all labels of a unit may change at once. Let :math:`d_i` be the distance above between the clamped
        ends of record i (for ZERO_OUT, the larger absolute end). The first sum moves by
        :math:`\sum_{i \in u} t_i d_i a_i\, g \circ u_i` with some :math:`|t_i| \le 1`, whose length
        :func:`~conddp.features.unit_moves.bound_largest_move` bounds. The second sum moves by at most
        :math:`h c \sum_{i \in u} a_i`, because every term lies between 0 and :math:`h c\, a_i`. The sensitivity is the
        maximum over units of the length of both moves together. With private rows the first sum moves by at most
        2 ``clip_norm`` (or ``clip_norm``) times :math:`\sum_{i \in u} a_i`. Records that have weights and are
        protected on their own are units of one record.

        Rows that are too large for memory (:class:`~conddp.features.grouped_rows.GroupedRows`) are summed in terms of
        their columns, and the sum is multiplied by the whitening matrix once. Rounding errors of the sum, and of the
        norms of the rows, may then exceed what the curator covers. A bound on them that depends on public values only
        (:meth:`~conddp.features.conditioned_rows.ConditionedRows.bound_rounding`, with the largest absolute residual
        that each record can have) is added to the sensitivity.

    Parameters
    ----------
    rows : PublicRows or PrivateRows
        Feature rows, shape (n, k).
    label : array of shape (n,)
        Labels within ``label_range``.
    label_range : (low, high)
        Declared bounds in the units of ``label``.
    coefficients : array of shape (k,)
        Current coefficients, which determine the predictions; already released.
    query : ResidualQuery
        Parameters of the query.
    mu : float
        Sensitivity divided by the standard deviation of the noise.
    neighbouring : Neighbouring
        Neighbouring relation for the sensitivity.
    curator : Curator
        Curator through which the sums are released.
    loss : Loss
        Loss that defines the residuals.
    """
    summed = _sum_residuals(rows, label, label_range, coefficients, query, neighbouring, loss)
    return release_sums(summed, rows, query, mu=mu, neighbouring=neighbouring, curator=curator)


@dataclass(frozen=True)
class ResidualSums:
    """Sums of one query with their public bounds, before noise. The sums are private; the repr does not show them.

    Parameters
    ----------
    total : array of shape (k,)
        Sum of clamped residual times row.
    square : float
        Sum of clamped squared residuals.
    farthest : float
        Largest move of the weighted first sum by one record without weights.
    curvature : array of shape (k,)
        Expected fraction of a full Newton step that clamping leaves in each direction.
    together : float
        Largest move of both sums by one unit, if records have weights.
    rounding : float
        What rounding adds to the sensitivity, beyond what the curator covers.
    """

    total: Vector
    square: float
    farthest: float
    curvature: Vector
    together: float = math.inf
    rounding: float = 0.0

    def __repr__(self) -> str:
        return "<sums of clamped residuals>"


def _sum_residuals(
    rows: Rows,
    label: Sliceable,
    label_range: tuple[float, float],
    coefficients: Vector,
    query: ResidualQuery,
    neighbouring: Neighbouring,
    loss: Loss,
) -> ResidualSums:
    """Sum up a query in one pass over the records."""
    n, k, weights = rows.num_records, rows.num_directions, rows.weights
    most, together = neighbouring.sensitivity(query.clip_norm), math.inf
    passing = rows.start_pass(coefficients, query.direction_weights)
    fused = load_kernels(WORK_PER_CELL * n * k) and SUM_RESIDUALS.get() is not None  # before private values are read
    of_records = None if weights is None else weights.values
    sum_block = _SumBlock(query, label_range, neighbouring, loss, of_records, is_fused=fused)
    if not isinstance(rows, PublicRows):
        total, square = run_pass(sum_block, label, passing.blocks, num_cells=n * k)
        curvature = np.full(k, 2 * ndtr(query.clip_norm / query.residual_std) - 1)
        return ResidualSums(passing.finish_rows(total), square, most, curvature)
    stride = max(1, n // BLOCK_SIZE // BLOCKS_FOR_CURVATURE)
    is_small = stride == 1 and not is_for_threads(n * k) and isinstance(passing, DensePass)
    size = n if is_small and get_partitions(passing.blocks, label) is None else BLOCK_SIZE  # one block costs the least
    sum_block = replace(sum_block, stride=stride)
    total, square, facts = run_pass(sum_block, label, passing.blocks, block_size=size, num_cells=n * k)
    farthest = facts.farthest if facts.farthest <= most else most  # also if it is NaN
    curvature = passing.finish_squares(np.asarray(facts.curvature)) / facts.weight_sampled
    rounding = passing.bound_rounding(facts.magnitudes)
    if weights is not None and weights.units.largest == 1:
        together = facts.alone
    elif weights is not None:
        distances = np.concatenate(facts.distances) * weights.values
        beside = query.square_weight * query.clip_norm * weights.unit_totals
        together = rows.bound_unit_move(distances, query.direction_weights, beside=beside)
    return ResidualSums(passing.finish_rows(total), square, farthest, curvature, together, rounding)


def release_sums(
    summed: ResidualSums,
    rows: Rows,
    query: ResidualQuery,
    *,
    mu: float,
    neighbouring: Neighbouring,
    curator: Curator,
) -> StepEstimate:
    """Release the sums of a query with noise, as :func:`release_residuals` explains.

    Privacy
        One Gaussian release whose sensitivity is ``mu`` standard deviations, if the bounds of ``summed`` hold.
    """
    k, weights, total_weight = rows.num_directions, rows.weights, rows.total_weight
    # At least the clip norm, so that the noise covers rounding errors of sums with terms as large as the clip norm.
    farthest, together = summed.farthest, summed.together
    sensitivity = math.hypot(max(farthest, query.clip_norm), query.square_weight * query.clip_norm)
    if weights is not None:
        most = neighbouring.sensitivity(query.clip_norm)
        most = max(1.0, weights.largest_total) * math.hypot(most, query.square_weight * query.clip_norm)
        together = together if together <= most else most  # also if it is NaN
        sensitivity = max(together, math.hypot(query.clip_norm, query.square_weight * query.clip_norm))
    sensitivity += summed.rounding
    noise_std = sensitivity / mu
    g = np.sqrt(query.direction_weights)
    unit = query.square_unit
    sums = BoundedSum(np.append(g * summed.total, unit * summed.square), sensitivity, "clamped residuals times rows")
    noisy = curator.release_gaussian(sums, noise_std=noise_std)
    asked = g > 0
    return StepEstimate(
        np.where(asked, noisy[:k] / np.where(asked, g, 1.0), 0.0) / total_weight,
        np.where(asked, (noise_std / total_weight) ** 2 / np.where(asked, query.direction_weights, 1.0), np.inf),
        np.clip(summed.curvature, 0.1, 1.0),
        float(noisy[k] / unit / total_weight) if unit else math.nan,
        noise_std / unit / total_weight if unit else math.inf,
    )


@dataclass(frozen=True)
class _SumBlock:
    """The function that a pass applies to every block: labels and rows in, sums out. The repr shows no number."""

    query: ResidualQuery
    label_range: tuple[float, float]
    neighbouring: Neighbouring
    loss: Loss
    weights: Vector | None
    stride: int = 0  # every so many blocks serve to estimate the curvature of public rows
    is_fused: bool = False

    def __call__(self, span: slice, labels: Vector, rows: RowBlock) -> tuple[Any, ...]:
        weights = None if self.weights is None else self.weights[span]
        with_curvature = self.stride > 0 and span.start // BLOCK_SIZE % self.stride == 0
        if self.is_fused and isinstance(rows, DenseBlock) and self.loss == Squared():
            kernel = SUM_RESIDUALS.get()
            if kernel is None and load_kernels(math.inf):  # in a worker process
                kernel = SUM_RESIDUALS.get()
            if kernel is not None:
                return self._sum_at_once(kernel, labels, rows, weights, with_curvature)
        parts = (
            self._sum(labels[part], block, None if weights is None else weights[part], with_curvature)
            for part, block in rows.list_parts()
        )
        with np.errstate(all="ignore"):  # warnings must not depend on labels; the pass may run in another process
            return reduce(add_sums, parts)

    def _sum(self, labels: Vector, rows: RowBlock, weights: Vector | None, with_curvature: bool) -> tuple[Any, ...]:
        residuals = _Residuals.of(rows, self.query, weights)
        sums = residuals.add_up(labels, self.label_range, self.loss)
        if not self.stride:
            return sums
        return *sums, residuals.describe(self.label_range, self.neighbouring, self.loss, with_curvature=with_curvature)

    def _sum_at_once(
        self, kernel: Callable[..., Any], labels: Vector, rows: DenseBlock, weights: Vector | None, with_curvature: bool
    ) -> tuple[Any, ...]:
        """Compute the same as :meth:`_sum` by the compiled kernel."""
        query, k = self.query, len(rows.coefficients)
        total, curvature = np.zeros(k), np.zeros(k if with_curvature else 0)
        distances = np.empty(0 if weights is None or not self.stride else len(labels))
        square, farthest, alone = kernel(
            _make_ready(rows.values, np.float32 if rows.values.dtype == np.float32 else np.float64),
            _make_ready(labels),
            np.empty(0) if weights is None else _make_ready(weights),
            _make_ready(rows.coefficients),
            _make_ready(rows.direction_weights),
            ERROR_FUNCTION,
            query.clip_norm,
            *self.label_range,
            query.square_limit,
            query.residual_std,
            query.square_weight * query.clip_norm,
            self.neighbouring is Neighbouring.REPLACE,
            self.stride > 0,
            with_curvature,
            total,
            curvature,
            distances,
        )
        if not self.stride:
            return total, square
        kept = () if weights is None else (distances,)
        if not with_curvature:
            return total, square, _PublicFacts(farthest, NO_MAGNITUDES, kept, alone)
        sampled = float(len(labels)) if weights is None else float(weights.sum())
        return total, square, _PublicFacts(farthest, NO_MAGNITUDES, kept, alone, curvature, sampled)

    def __repr__(self) -> str:
        return "<sums of clamped residuals>"


def _make_ready(array: NDArray[Any], dtype: Any = np.float64) -> NDArray[Any]:
    """Return an array as kernels take it, which is nearly always the array itself."""
    is_ready = array.dtype == dtype and array.flags.carray
    return array if is_ready else np.require(array, dtype, ["C", "A", "W"])


@dataclass(frozen=True)
class _Residuals:
    """Predictions of a block, and the limits to which its residuals are clamped."""

    query: ResidualQuery
    rows: RowBlock
    predicted: Vector
    norms: Vector
    limits: Vector
    negated: Vector  # limits
    weights: Vector | None

    @classmethod
    def of(cls, rows: RowBlock, query: ResidualQuery, weights: Vector | None) -> "_Residuals":
        norms = rows.measure()
        limits = np.maximum(norms, 1e-12)
        np.divide(query.clip_norm, limits, out=limits)
        return cls(query, rows, rows.predict(), norms, limits, -limits, weights)

    def clamp(self, residuals: Vector) -> Vector:
        """Clamp residuals to the limits; NaN stays NaN."""
        clamped = np.minimum(residuals, self.limits)
        return np.maximum(clamped, self.negated, out=clamped)

    def add_up(self, label: Vector, label_range: tuple[float, float], loss: Loss) -> tuple[Vector, float]:
        """Sum over the block; the sums are private."""
        residuals = loss.residual(self.predicted, label.clip(*label_range))
        clamped = self.clamp(residuals)
        squares = np.multiply(residuals, residuals)
        np.minimum(squares, self.query.square_limit**2, out=squares)
        if self.weights is not None:
            return self.rows.sum_rows(clamped * self.weights), float(squares @ self.weights)
        return self.rows.sum_rows(clamped), float(squares.sum())

    def describe(
        self, label_range: tuple[float, float], neighbouring: Neighbouring, loss: Loss, *, with_curvature: bool
    ) -> _PublicFacts:
        """Compute the sensitivity of the first sum to a label, and the expected curvature, without using labels."""
        low, high = loss.residual_ends(self.predicted, label_range)
        lowest, highest = self.clamp(low), self.clamp(high)
        by_replacement, magnitudes, weights = neighbouring is Neighbouring.REPLACE, NO_MAGNITUDES, self.weights
        if not by_replacement or not isinstance(self.rows, DenseBlock):
            largest = np.maximum(np.abs(lowest), np.abs(highest))
            magnitudes = self.rows.sum_magnitudes(largest if weights is None else largest * weights)
        distances = highest - lowest if by_replacement else largest
        moves, alone = distances * self.norms, 0.0
        farthest, kept = float(moves.max()), tuple[Vector, ...]()
        if weights is not None:
            kept = (distances,)
            alone = float((np.hypot(moves, self.query.square_weight * self.query.clip_norm) * weights).max())
        if not with_curvature:
            return _PublicFacts(farthest, magnitudes, kept, alone)
        left = compute_error_function(self.limits / (math.sqrt(2.0) * self.query.residual_std))
        left *= loss.curvature(self.predicted)
        if weights is not None:
            left = left * weights
        sampled = float(len(moves)) if weights is None else float(weights.sum())
        return _PublicFacts(farthest, magnitudes, kept, alone, self.rows.sum_squares(left), sampled)
