"""Ranges and moments of the columns of an array, from pieces that stay in the processor's cache."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ColumnRanges", "bound_deviations", "has_infinity", "has_nan", "is_finite"]

Vector = NDArray[np.float64]

CELLS = 2**15  # of a piece: 256 kB
WIDTH = 512  # cells to which short rows are joined before they are reduced


@dataclass(frozen=True, eq=False)
class ColumnRanges:
    """Smallest value, largest value and mean of each column of an array; NaN for a column with gaps.

    Parameters
    ----------
    low, high : arrays of shape (d,)
        Smallest and largest values.
    center : array of shape (d,)
        Means, up to rounding errors.
    """

    low: NDArray[Any]
    high: NDArray[Any]
    center: Vector

    @classmethod
    def of(cls, X: NDArray[Any]) -> "ColumnRanges":
        """Find the ranges of the columns of an array of floating-point numbers.

        Examples
        --------
        >>> ranges = ColumnRanges.of(np.array([[1.0, 5.0], [3.0, np.nan]]))
        >>> ranges.low.tolist(), ranges.high.tolist(), ranges.center.tolist(), ranges.has_gaps
        ([1.0, nan], [3.0, nan], [2.0, nan], True)
        """
        n, d = X.shape
        low, high, sums = np.full(d, np.inf, X.dtype), np.full(d, -np.inf, X.dtype), np.zeros(d)
        with np.errstate(over="ignore", invalid="ignore"):
            for columns, piece in _list_pieces(X):
                low[columns] = np.minimum(low[columns], _reduce(np.minimum, piece))
                high[columns] = np.maximum(high[columns], _reduce(np.maximum, piece))
                sums[columns] += np.ones(len(piece)) @ piece
            return cls(low, high, sums / n)

    @property
    def has_gaps(self) -> bool:
        """Whether any column has NaN."""
        return bool(np.isnan(self.low).any())


def bound_deviations(X: NDArray[Any], *, every: int = 1) -> Vector:
    """Return lower bounds on the standard deviations of columns without gaps, up to rounding errors.

    Parameters
    ----------
    X : array of shape (n, d)
        Floating-point numbers.
    every : int
        Use one in so many pieces of the array. With 1, these are the standard deviations themselves.
    """
    n, d = X.shape
    sums, squares, numbers, buffer = np.zeros(d), np.zeros(d), np.zeros(d), np.empty(max(CELLS, d))
    with np.errstate(over="ignore", invalid="ignore"):
        shift = X[: max(1, CELLS // max(d, 1))].mean(axis=0, dtype=np.float64)
        for columns, piece in _list_pieces(X, every=every):
            ones = np.ones(len(piece))
            moved = np.subtract(piece, shift[columns], out=buffer[: piece.size].reshape(piece.shape))
            sums[columns] += ones @ moved
            squares[columns] += ones @ np.multiply(moved, moved, out=moved)
            numbers[columns] += len(piece)
        # The sum over some records of squared distances from any point is at least that of distances from their mean.
        return np.asarray(np.sqrt(np.maximum(squares - sums * (sums / numbers), 0.0) / n))


def is_finite(array: NDArray[Any]) -> bool:
    """Whether an array has neither NaN nor infinity."""
    return all(bool(np.isfinite(piece).all()) for piece in _list_parts(array))


def has_nan(array: NDArray[Any]) -> bool:
    """Whether an array has NaN."""
    return any(bool(np.isnan(piece).any()) for piece in _list_parts(array))


def has_infinity(array: NDArray[Any]) -> bool:
    """Whether an array has infinite numbers."""
    return any(bool(np.isinf(piece).any()) for piece in _list_parts(array))


def _list_parts(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Pieces of an array with any number of dimensions."""
    if array.size <= CELLS or array.ndim > 2:
        return iter((array,))
    return (piece for _, piece in _list_pieces(array if array.ndim == 2 else array[:, None]))


def _list_pieces(X: NDArray[Any], *, every: int = 1) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Divide a matrix into pieces whose cells are near each other, with the span of columns of each.

    A piece has all columns of some records or, if the cells of a column are side by side, one column. One in so many
    pieces is yielded, and the first of each column always.
    """
    n, d = X.shape
    if abs(X.strides[0]) >= abs(X.strides[1]):
        size = max(1, CELLS // max(d, 1))
        for start in range(0, n, size * every):
            yield slice(0, d), X[start : start + size]
        return
    for place in range(d):
        columns = slice(place, place + 1)
        for start in range(0, n, CELLS * every):
            yield columns, X[start : start + CELLS, columns]


def _reduce(function: np.ufunc, piece: NDArray[Any]) -> Any:
    """Reduce the columns of a piece. Short rows are joined first, because NumPy reduces them slowly."""
    rows, d = piece.shape
    times = WIDTH // d if d else 0
    whole = rows - rows % times if times > 1 else 0
    if not whole or d == 1 or not piece.flags.c_contiguous:
        return function.reduce(piece, axis=0)
    joined = function.reduce(piece[:whole].reshape(whole // times, times * d), axis=0)
    reduced = function.reduce(joined.reshape(times, d), axis=0)
    return reduced if whole == rows else function(reduced, function.reduce(piece[whole:], axis=0))
