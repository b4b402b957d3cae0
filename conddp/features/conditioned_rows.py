r"""Conditioned public rows that are never formed: products with a matrix are applied to weights and sums instead.

With a matrix :math:`A` of shape (d, k) and an offset :math:`a`, the row of record i is :math:`z_i = A^\top x_i + a`.
Algorithms need predictions :math:`z_i^\top \theta = x_i^\top (A\theta) + a^\top\theta`, sums
:math:`\sum_i f_i z_i = A^\top \sum_i f_i x_i + a \sum_i f_i` and norms. Only the norms need the rows themselves. They
are computed once, in small blocks.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from conddp.data.parts import Matrix, PublicFeatures, SparseMatrix
from conddp.data.passes import count_additions, get_partitions, list_blocks
from conddp.data.stored_column import StoredColumn, slice_rows
from conddp.features.standardization import find_full_columns, subtract_from_stored
from conddp.features.stored_features import StoredFeatures

__all__ = ["ConditionedRows", "NormTiles", "ShiftedColumns", "count_threads", "sum_columns", "sum_magnitudes"]

Vector = NDArray[np.float64]

MOST_THREADS = 8
DIRECTIONS_AT_ONCE = 64  # a matrix of 4,000 rows and as many columns as this fits into the processor cache


@dataclass(frozen=True, eq=False)
class ShiftedColumns:
    """Public columns of which a constant is subtracted when they are sliced, block by block.

    Parameters
    ----------
    columns : array or sparse matrix of shape (n, d), or StoredColumn
        Public columns.
    shift : array of shape (d,)
        Subtracted from dense columns. Sparse columns are not shifted, which would make them dense.
    """

    columns: Matrix | SparseMatrix | StoredColumn
    shift: Vector

    def __len__(self) -> int:
        return self.columns.shape[0] if isinstance(self.columns, csr_array) else len(self.columns)

    def __getitem__(self, span: slice) -> Any:
        """Shifted columns of consecutive records, dense or sparse."""
        if isinstance(self.columns, csr_array):
            start, stop, _ = span.indices(len(self))
            return slice_rows(self.columns, start, stop)
        block = self.columns[span]
        if isinstance(block, csr_array):
            return block
        block = block.astype(np.float64, copy=False)
        return block - self.shift if self.shift.any() else block

    @property
    def partitions(self) -> tuple[slice, ...] | None:
        """Partitions of a stored table, otherwise None."""
        return get_partitions(self.columns)


@dataclass(frozen=True, eq=False)
class ConditionedRows:
    """Rows of public columns times a matrix, plus an offset. They behave like an (n, k) array on the right of ``@``.

    Privacy
        Built from public columns only: no cost.

    Parameters
    ----------
    columns : array or sparse matrix of shape (n, d), or StoredColumn
        Public columns. Stored values of sparse columns without implicit zeros are shifted to mean zero, so that columns
        far from zero, such as dates, do not lose precision.
    shift : array of shape (d,)
        Subtracted from dense columns, block by block.
    matrix, offset : arrays of shape (d, k) and (k,)
        A and a, for the shifted columns.
    """

    columns: Matrix | SparseMatrix | StoredColumn
    shift: Vector
    matrix: Vector
    offset: Vector

    __array_ufunc__ = None  # so that array @ rows is left to __rmatmul__

    @classmethod
    def of(
        cls, public_features: PublicFeatures, matrix: Vector, offset: Vector, *, center: Vector | None = None
    ) -> "ConditionedRows":
        """Make rows (x - center) @ matrix + offset.

        Parameters
        ----------
        public_features : PublicFeatures
            Public feature rows, shape (n, d).
        matrix, offset : arrays of shape (d, k) and (k,)
            A and a.
        center : array of shape (d,), optional
            Subtracted from the columns; zero if None.
        """
        origin = np.zeros(len(matrix)) if center is None else center
        if isinstance(public_features, StoredFeatures):
            if public_features.sparsely:
                return cls(public_features.column, np.zeros(len(matrix)), matrix, offset - origin @ matrix)
            return cls(public_features.column, origin, matrix, offset)
        X = public_features.sparse
        if X is None:
            return cls(public_features.values, origin, matrix, offset)
        means = X.sum(axis=0) / X.shape[0] if center is None else center
        stored = np.where(find_full_columns(X), means, 0.0)
        left = offset - (origin - stored) @ matrix
        return cls(subtract_from_stored(X, stored), np.zeros(len(matrix)), matrix, left)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows n and of directions k."""
        return len(self), int(self.matrix.shape[1])

    @property
    def shifted(self) -> ShiftedColumns:
        """The shifted public columns, without the matrix."""
        return ShiftedColumns(self.columns, self.shift)

    def __len__(self) -> int:
        return len(self.shifted)

    def __getitem__(self, index: Any) -> "ConditionedRows":
        """Select records by slice or by positions."""
        return replace(self, columns=self.columns[index])

    def __rmatmul__(self, factors: Vector) -> Vector:
        """Sums over records of factors, shape (m, n), times row; shape (m, k)."""
        sums = np.zeros((len(factors), len(self.matrix) + 1))
        for span in list_blocks(len(self)):
            sums += sum_columns(self.get_columns(span), factors[:, span])
        return self.finish_sums(sums)

    @property
    def T(self) -> "_Transposed":  # noqa: N802  (the name that arrays use)
        """Transposed rows, for products ``weights @ rows.T``."""
        return _Transposed(self)

    def predict(self, weights: Vector) -> Vector:
        """Products of weights, shape (m, k), with all rows; shape (m, n)."""
        of_columns, constants = self.matrix @ weights.T, weights @ self.offset
        return (
            np.hstack([(self.get_columns(span) @ of_columns).T for span in list_blocks(len(self))]) + constants[:, None]
        )

    def get_columns(self, span: slice) -> Any:
        """Shifted public columns of a block of records, dense or sparse."""
        return self.shifted[span]

    def finish_sums(self, sums: Vector) -> Vector:
        """Convert sums of factors times columns and one, shape (..., d + 1), to sums of factors times row."""
        return np.asarray(sums[..., :-1] @ self.matrix + sums[..., -1:] * self.offset)

    def bound_rounding(self, magnitudes: Vector) -> Vector:
        r"""Bound the rounding error of a sum of factors times row in every direction; shape (k,).

        A sum of columns over one block after another, and then the product with the matrix, round at most
        :math:`m = B + n / B + d` numbers in sequence, where B is the size of a block (for columns in files
        :func:`~conddp.data.passes.count_additions`, since partitions are added up separately). Direction j is off by
        at most :math:`2 m u \sum_i |f_i|\, (|A|^\top |x_i| + |a|)_j` with u the unit roundoff (Higham 2002, Sec. 3.1).
        The bound covers the norm of every single row too, which is computed from fewer numbers.

        Parameters
        ----------
        magnitudes : array of shape (d + 1,)
            Sums over all blocks of :func:`sum_magnitudes`, for public limits of the absolute factors.
        """
        d = len(self.matrix)
        additions = count_additions(len(self), get_partitions(self.columns)) + d + 16
        unit = additions * 2.0**-52
        return np.asarray(unit * (magnitudes[:-1] @ np.abs(self.matrix) + magnitudes[-1] * np.abs(self.offset)))

    def compute_squared_norms(self, starts: Sequence[int]) -> Vector:
        """Squared norms of all rows, restricted to groups of consecutive directions; shape (n, groups).

        Parameters
        ----------
        starts : sequence of int
            First direction of every group, from 0 upwards.
        """
        tiles, squared = NormTiles.of(self, starts), np.zeros((len(self), len(starts)))

        def measure(span: slice) -> None:
            squared[span] = tiles.measure(self.get_columns(span))

        # Sparse products run on one core each and release the interpreter's lock. Dense products use all cores.
        workers = count_threads() if isinstance(self.columns, csr_array) else 1
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(measure, list_blocks(len(self))))
        return squared

    @cached_property
    def norms(self) -> Vector:
        """Norms of all rows, shape (n,)."""
        return np.sqrt(self.compute_squared_norms([0])[:, 0])

    @cached_property
    def rounding(self) -> float:
        """Bound on what rounding adds to the move of a sum, in clip norms, if no factor times row is longer than that.

        Both sums of two neighbours may be off by :meth:`bound_rounding`, and so may both norms.
        """
        with np.errstate(divide="ignore"):
            limits = np.where(self.norms > 0, 1 / self.norms, 0.0)
        magnitudes = sum(sum_magnitudes(self.get_columns(span), limits[span]) for span in list_blocks(len(self)))
        return 4 * float(np.linalg.norm(self.bound_rounding(np.asarray(magnitudes))))


@dataclass(frozen=True, eq=False)
class NormTiles:
    """Parts of the matrix of conditioned rows that fit into the processor cache, for squared norms by group.

    Parameters
    ----------
    groups : tuple of int
        Group of the directions of each tile.
    parts, offsets : tuples of arrays
        Columns of the matrix, and entries of the offset, of each tile.
    """

    groups: tuple[int, ...]
    parts: tuple[Vector, ...]
    offsets: tuple[Vector, ...]

    @classmethod
    def of(cls, rows: ConditionedRows, starts: Sequence[int]) -> "NormTiles":
        """Divide the matrix of rows whose groups of directions begin at these places."""
        ends = [*starts[1:], rows.shape[1]]
        tiles = [
            (group, first, min(first + DIRECTIONS_AT_ONCE, end))
            for group, (start, end) in enumerate(zip(starts, ends, strict=True))
            for first in range(start, end, DIRECTIONS_AT_ONCE)
        ]
        return cls(
            tuple(group for group, _, _ in tiles),
            tuple(np.ascontiguousarray(rows.matrix[:, first:last]) for _, first, last in tiles),
            tuple(rows.offset[first:last] for _, first, last in tiles),
        )

    def measure(self, columns: Any) -> Vector:
        """Squared norms of the rows of a block by group; shape (size, groups)."""
        squared = np.zeros((columns.shape[0], max(self.groups, default=-1) + 1))
        for group, part, offset in zip(self.groups, self.parts, self.offsets, strict=True):
            rows = columns @ part
            rows += offset
            squared[:, group] += np.einsum("ij,ij->i", rows, rows)
        return squared


def count_threads() -> int:
    """Number of threads that this process may use; one in a worker process (:mod:`conddp.data.processes`)."""
    import pyarrow

    return min(MOST_THREADS, int(pyarrow.cpu_count()))


@dataclass(frozen=True, eq=False)
class _Transposed:
    """Conditioned rows as columns."""

    rows: ConditionedRows

    __array_ufunc__ = None

    def __rmatmul__(self, weights: Vector) -> Vector:
        return self.rows.predict(weights)


def sum_columns(columns: Any, factors: Vector) -> Vector:
    """Sums over a block of factors, shape (..., size), times columns and one; shape (..., d + 1)."""
    sums = (columns.T @ factors.T).T
    return np.concatenate([sums, factors.sum(axis=-1, keepdims=True)], axis=-1)


def sum_magnitudes(columns: Any, limits: Vector) -> Vector:
    """Sums over a block of limits, shape (size,), times absolute columns and one; shape (d + 1,)."""
    return np.append(abs(columns).T @ limits, limits.sum())
