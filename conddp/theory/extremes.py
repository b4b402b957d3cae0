"""Extremes of public rows: leverages, lengths, and values far from the mean of their column."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from conddp.data.parts import PublicFeatures
from conddp.data.passes import list_blocks, run_pass
from conddp.data.ranges import ColumnRanges
from conddp.features.conditioned_rows import ConditionedRows
from conddp.features.public_rows import PublicRows, RowBlock
from conddp.features.stored_features import StoredFeatures

__all__ = ["Extremes"]

Vector = NDArray[np.float64]

CELLS_IN_CACHE, SPARSE_ROWS = 2**17, 2**16  # of a block of features in memory: cells of an array, rows of a CSR matrix
BINS, SMALLEST = 1 << 12, 2.0**-60  # of the histogram of leverages, whose bins are 1 % wide


@dataclass(frozen=True)
class Extremes:
    """Extremes of the rows of public features.

    Privacy
        Reads public columns only: no cost.

    Parameters
    ----------
    largest_leverage, high_leverage : float
        Largest leverage of all records, and the leverage that 1 % of the records exceed. The latter is accurate to 1 %
        for features in files.
    longest, longest_scaled : float
        Largest squared length of a row, and of a row whose columns are divided by their root mean square.
    farthest : array of shape (d,)
        Largest distance from the mean in each column.
    """

    largest_leverage: float
    high_leverage: float
    longest: float
    longest_scaled: float
    farthest: Vector

    @classmethod
    def of(
        cls, public_features: PublicFeatures, rows: PublicRows | ConditionedRows, *, center: Vector, scales: Vector
    ) -> "Extremes":
        """Compute the extremes of public features.

        Parameters
        ----------
        public_features : PublicFeatures
            Public features, shape (n, d).
        rows : PublicRows or ConditionedRows
            The same features, whitened: the former of features in files, the latter of others.
        center, scales : arrays of shape (d,)
            Mean and root mean square of each column.
        """
        n = len(public_features)
        if isinstance(rows, PublicRows):
            assert isinstance(public_features, StoredFeatures)
            k = rows.num_directions
            blocks = rows.start_pass(np.zeros(k), np.ones(k)).blocks
            found = run_pass(_Describe(scales, n), public_features.column, blocks)
            levels = np.cumsum(found.histogram)
            high = SMALLEST ** (1 - int(np.searchsorted(levels, 0.99 * n)) / (BINS - 1))
            leverage, high = float(found.largest), min(float(high), float(found.largest))
        else:
            features = public_features.matrix
            leverages = rows.norms**2 / n
            size = (
                max(1, CELLS_IN_CACHE // max(features.shape[1], 1)) if public_features.sparse is None else SPARSE_ROWS
            )
            parts = [_describe_block(features[span], scales) for span in list_blocks(n, block_size=size)]
            found = parts[0]
            for part in parts[1:]:
                found = found + part
            leverage, high = float(leverages.max()), float(np.quantile(leverages, 0.99))
        farthest = np.maximum(found.high - center, center - found.low)
        return cls(leverage, high, found.longest, found.longest_scaled, farthest)


@dataclass(frozen=True)
class _Found:
    """What is found in a block. Adding up takes the larger of two numbers, and the sum of two histograms."""

    longest: float
    longest_scaled: float
    low: Vector
    high: Vector
    largest: float = 0.0
    histogram: Any = 0

    def __add__(self, other: "_Found") -> "_Found":
        return _Found(
            max(self.longest, other.longest),
            max(self.longest_scaled, other.longest_scaled),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            max(self.largest, other.largest),
            self.histogram + other.histogram,
        )


@dataclass(frozen=True)
class _Describe:
    """Describes the features of a block, and the leverages of its whitened rows."""

    scales: Vector
    num_records: int

    def __call__(self, span: slice, features: Any, rows: RowBlock) -> _Found:
        found = _describe_block(features, self.scales)
        leverage = rows.measure() ** 2 / self.num_records
        place = (BINS - 1) * (1 - np.log(np.clip(leverage, SMALLEST, 1.0)) / np.log(SMALLEST))
        histogram = np.bincount(np.ceil(place).astype(np.intp), minlength=BINS)
        return _Found(found.longest, found.longest_scaled, found.low, found.high, float(leverage.max()), histogram)


def _describe_block(features: Any, scales: Vector) -> _Found:
    if isinstance(features, csr_array):
        low, high = (end(axis=0).toarray().ravel() for end in (features.min, features.max))
        squares = features.power(2)
        return _Found(float(squares.sum(axis=1).max()), float((squares @ scales**-2.0).max()), low, high)
    X = features.astype(np.float64, copy=False)
    if not X.shape[1]:
        return _Found(0.0, 0.0, np.empty(0), np.empty(0))
    squares, ranges = X**2, ColumnRanges.of(X)
    ones = np.ones(X.shape[1])
    return _Found(float((squares @ ones).max()), float((squares @ scales**-2.0).max()), ranges.low, ranges.high)
