"""Whitened public rows, as releases use them: predictions, norms and sums, block by block."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import Sliceable, count_rows_in_cache, get_partitions, list_blocks
from conddp.data.units import Units
from conddp.features.row_weights import RowWeights

__all__ = ["DenseBlock", "DensePass", "PublicRows", "RowBlock", "RowPass"]

Vector = NDArray[np.float64]


class RowBlock(Protocol):
    """A block of rows, in a pass with fixed coefficients and direction weights."""

    def list_parts(self) -> "Iterator[tuple[slice, RowBlock]]":
        """Divide the block into parts that are best treated at once. A part must not be used after the next one."""

    def predict(self) -> Vector:
        """Coefficients times row."""

    def measure(self) -> Vector:
        """Norms of the rows, with each direction multiplied by the root of its weight."""

    def sum_rows(self, factors: Vector) -> Vector:
        """Sum of factor times row, to be finished."""

    def sum_squares(self, factors: Vector) -> Vector:
        """Sum of factor times squared row, to be finished."""

    def sum_magnitudes(self, limits: Vector) -> Vector:
        """Sum that bounds rounding errors, for limits of absolute factors; to be finished."""


class RowPass(Protocol):
    """One pass over rows with fixed coefficients and direction weights.

    Sums of blocks are added up before they are finished, so that what is common to all blocks is computed once.
    """

    @property
    def blocks(self) -> Sliceable:
        """A column whose blocks are :class:`RowBlock`. It may be sent to other processes."""

    def finish_rows(self, sums: Vector) -> Vector:
        """Sums of factor times row, shape (k,), from the sums of all blocks."""

    def finish_squares(self, sums: Vector) -> Vector:
        """Sums of factor times squared row, shape (k,), from the sums of all blocks."""

    def bound_rounding(self, sums: Vector) -> float:
        """Bound what rounding adds to the move of a weighted sum of rows, beyond what the curator covers."""


@dataclass(frozen=True)
class DensePass:
    """Pass over rows of an array, or of a column whose blocks are arrays.

    Parameters
    ----------
    values : array of shape (n, k), or column
        The rows, in float64 or float32.
    coefficients, direction_weights : arrays of shape (k,)
        What is fixed in this pass.
    keep_squares : callable, optional
        Function that returns the rows and their squares, stored by columns, if they are kept from pass to pass. NumPy
        multiplies few columns faster so.
    """

    values: Sliceable
    coefficients: Vector
    direction_weights: Vector
    keep_squares: Callable[[], tuple[Vector, Vector]] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, span: slice) -> "DenseBlock":
        """Return a block of rows."""
        block = DenseBlock(self.values[span], self.coefficients, self.direction_weights)
        return block if self.keep_squares is None else replace(block, kept=(self.keep_squares, span.start or 0))

    @property
    def partitions(self) -> tuple[slice, ...] | None:
        """Partitions of rows that are made from columns in files."""
        return get_partitions(self.values)

    @property
    def blocks(self) -> "DensePass":
        """Return the pass itself."""
        return self

    def finish_rows(self, sums: Vector) -> Vector:
        """Return the sums unchanged."""
        return sums

    def finish_squares(self, sums: Vector) -> Vector:
        """Return the sums unchanged."""
        return sums

    def bound_rounding(self, sums: Vector) -> float:
        """Return 0: the curator covers rounding errors of sums of rows that are formed."""
        return 0.0


@dataclass(frozen=True)
class DenseBlock:
    """Rows of a block that are formed, in float64 or float32. All arithmetic is in float64."""

    values: NDArray[np.floating[Any]]
    coefficients: Vector
    direction_weights: Vector
    buffers: tuple[Vector, Vector] | None = None  # where to write numbers in float64, and squares
    kept: tuple[Callable[[], tuple[Vector, Vector]], int] | None = None  # rows and squares of all records, first record
    squares: Vector | None = None

    def list_parts(self) -> "Iterator[tuple[slice, DenseBlock]]":
        """Divide the block into parts that fit into the processor cache, so that they are read from memory once."""
        n, k = self.values.shape
        size = -(-n // max(1, round(n / count_rows_in_cache(k))))  # parts of about the same size
        if self.kept is not None:
            (rows, squares), start = self.kept[0](), self.kept[1]
            for part in list_blocks(n, block_size=size):
                span = slice(start + part.start, start + part.stop)
                yield part, DenseBlock(rows[span], self.coefficients, self.direction_weights, squares=squares[span])
            return
        buffers = np.empty((size if self.values.dtype != np.float64 else 0, k)), np.empty((size, k))
        for span in list_blocks(n, block_size=size):
            yield span, DenseBlock(self.values[span], self.coefficients, self.direction_weights, buffers)

    def predict(self) -> Vector:
        """Coefficients times row."""
        return np.asarray(self._numbers @ self.coefficients)

    def measure(self) -> Vector:
        """Norms of the weighted rows."""
        return np.sqrt(self._squares @ self.direction_weights)

    def sum_rows(self, factors: Vector) -> Vector:
        """Sum of factor times row."""
        return np.asarray(factors @ self._numbers)

    def sum_squares(self, factors: Vector) -> Vector:
        """Sum of factor times squared row."""
        return np.asarray(factors @ self._squares)

    @cached_property
    def _numbers(self) -> Vector:
        if self.buffers is None or self.values.dtype == np.float64:
            return self.values.astype(np.float64, copy=False)
        numbers = self.buffers[0][: len(self.values)]
        numbers[...] = self.values
        return numbers

    @cached_property
    def _squares(self) -> Vector:
        if self.squares is not None:
            return self.squares
        out = None if self.buffers is None else self.buffers[1][: len(self.values)]
        return np.multiply(self._numbers, self._numbers, out=out)

    def sum_magnitudes(self, limits: Vector) -> Vector:
        """Return nothing: the curator covers rounding errors of sums of rows that are formed."""
        return np.zeros(0)


class PublicRows(ABC):
    """Whitened public rows in principal directions.

    Privacy
        Built from public columns only: no cost. A release recognises public rows by this type; rows that include
        private columns have the type :class:`~conddp.newton.private_columns.PrivateRows`.

    Attributes are described in :class:`~conddp.features.whitening.WhitenedRows`.
    """

    variances: Vector
    matrix: Vector
    has_constant: bool
    weights: RowWeights | None

    @property
    @abstractmethod
    def num_records(self) -> int:
        """Number of records n."""

    @abstractmethod
    def start_pass(self, coefficients: Vector, direction_weights: Vector) -> RowPass:
        """Prepare a pass over the rows."""

    @abstractmethod
    def predict(self, coefficients: Vector) -> Vector:
        """Coefficients times row, for all records."""

    @abstractmethod
    def predict_slopes(self, coefficients: Vector) -> Vector:
        """Same as :meth:`predict`, for coefficients of all directions but the constant."""

    @abstractmethod
    def compute_mean(self) -> Vector:
        """Weighted mean of all rows, shape (k,)."""

    @abstractmethod
    def compute_squared_norms(self) -> Vector:
        """Squared norms of all rows, shape (n,)."""

    @abstractmethod
    def pool(self, variance: Vector) -> Vector:
        """Variances, shape (k,), with equal ones for directions that must have equal weights."""

    @abstractmethod
    def bound_moves(self, units: Units, weights: Vector | None) -> Vector:
        """Bound how far the records of each unit, with these weights, move a sum together, in moves of one record."""

    @abstractmethod
    def bound_unit_move(self, distances: Vector, direction_weights: Vector, *, beside: Vector) -> float:
        """Bound the largest move of a sum of weighted rows, and of a further coordinate, by one unit.

        Parameters
        ----------
        distances : array of shape (n,)
            Largest move of the factor of each record.
        direction_weights : array of shape (k,)
            Weights of the directions.
        beside : array of shape (m,)
            Largest move of the further coordinate, for every unit.
        """

    @property
    def total_weight(self) -> float:
        """Sum of the weights of the records; n without weights."""
        return float(self.num_records) if self.weights is None else self.weights.total

    @property
    def num_directions(self) -> int:
        """Number of directions k, including the constant."""
        return len(self.variances)
