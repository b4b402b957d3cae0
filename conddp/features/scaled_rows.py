"""Sparse public rows with every column multiplied by a number of its own, and a constant column."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from conddp.data.parts import SparseMatrix

__all__ = ["ScaledRows"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Sparse rows followed by a constant. They behave like an (n, k) array on the right of ``@``.

    Sums over some records take time proportional to the number of their stored values. The rows are the stored numbers
    themselves, so their sums are rounded no more than those of an array, which the curator covers.

    Privacy
        Built from public columns only: no cost.

    Parameters
    ----------
    columns : CSR array of shape (n, d)
        Scaled public columns.
    constant : float, optional
        Value of the constant column, which comes last; None if there is no such column.
    """

    columns: SparseMatrix
    constant: float | None

    __array_ufunc__ = None  # so that array @ rows is left to __rmatmul__

    @classmethod
    def of(cls, columns: SparseMatrix, scales: Vector, *, has_constant: bool) -> "ScaledRows":
        """Multiply columns by scales. If there is a constant, its scale is the last one."""
        slopes = scales[:-1] if has_constant else scales
        data = columns.data * slopes[columns.indices] if (slopes != 1.0).any() else columns.data
        short: Any = np.int32 if max(columns.nnz, *columns.shape) < 2**31 else np.int64  # less to read in every step
        indices, starts = columns.indices.astype(short, copy=False), columns.indptr.astype(short, copy=False)
        return cls(csr_array((data, indices, starts), shape=columns.shape), float(scales[-1]) if has_constant else None)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows n and of columns k, including the constant."""
        n, d = self.columns.shape
        return int(n), int(d) + (self.constant is not None)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> "ScaledRows":
        """Select records by slice or by positions."""
        return replace(self, columns=self.columns[index])

    def __rmatmul__(self, factors: Vector) -> Vector:
        """Sums over records of factors, shape (m, n), times row; shape (m, k)."""
        sums = (self._transposed @ factors.T).T
        if self.constant is None:
            return np.asarray(sums)
        return np.concatenate([sums, self.constant * factors.sum(axis=1, keepdims=True)], axis=1)

    @cached_property
    def _transposed(self) -> Any:
        return self.columns.T

    @property
    def T(self) -> "_Transposed":  # noqa: N802  (the name that arrays use)
        """Transposed rows, for products ``weights @ rows.T``."""
        return _Transposed(self)

    def predict(self, weights: Vector) -> Vector:
        """Products of weights, shape (m, k), with all rows; shape (m, n)."""
        if self.constant is None:
            return np.asarray((self.columns @ weights.T).T)
        return np.asarray((self.columns @ weights[:, :-1].T).T + self.constant * weights[:, -1:])

    @cached_property
    def norms(self) -> Vector:
        """Norms of all rows, shape (n,)."""
        squares = csr_array((self.columns.data**2, self.columns.indices, self.columns.indptr), shape=self.columns.shape)
        return np.sqrt(squares.sum(axis=1) + (self.constant or 0.0) ** 2)

    @property
    def rounding(self) -> float:
        """Bound on what rounding adds to the move of a sum beyond what the curator covers: 0."""
        return 0.0


@dataclass(frozen=True, eq=False)
class _Transposed:
    """Scaled rows as columns."""

    rows: ScaledRows

    __array_ufunc__ = None

    def __rmatmul__(self, weights: Vector) -> Vector:
        return self.rows.predict(weights)
