"""Whitened public rows of a stored table, which are formed block by block in every pass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures, require_public
from conddp.data.passes import run_pass
from conddp.data.units import Units
from conddp.features.principal_axes import PrincipalAxes
from conddp.features.public_rows import DensePass, PublicRows
from conddp.features.row_weights import RowWeights
from conddp.features.stored_features import StoredFeatures

__all__ = ["StoredRows"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StoredRows(PublicRows):
    """Whitened public rows of a table in files. Only a block of them is in memory at a time.

    Privacy
        Built from public columns only: no cost. A release recognises public rows by their base class.

    Parameters
    ----------
    rows : WhitenedColumn
        Whitened rows u, as a column that is read when it is sliced.
    variances, matrix, has_constant, weights
        Same as in :class:`~conddp.features.whitening.WhitenedRows`.
    """

    rows: "WhitenedColumn"
    variances: Vector
    matrix: Vector
    has_constant: bool
    weights: RowWeights | None = None

    @classmethod
    def of(
        cls,
        public_features: PublicFeatures,
        *,
        constant: bool = True,
        tolerance: float = 1e-6,
        weights: RowWeights | None = None,
    ) -> "StoredRows":
        """Whiten public features of a stored table, and drop collinear directions, by one pass over them."""
        public = require_public(public_features, function="StoredRows.of")
        assert isinstance(public, StoredFeatures)
        axes = PrincipalAxes.of(public, constant=constant, tolerance=tolerance, weights=weights)
        variances = np.concatenate([np.ones(int(constant)), axes.variances])
        rows = WhitenedColumn(public.column, axes.center, axes.slopes, constant)
        return cls(rows, variances, axes.make_matrix(constant=constant), constant, weights)

    @property
    def num_records(self) -> int:
        """Number of records n."""
        return len(self.rows)

    def start_pass(self, coefficients: Vector, direction_weights: Vector) -> DensePass:
        """Prepare a pass over the rows."""
        return DensePass(self.rows, coefficients, direction_weights)

    def predict(self, coefficients: Vector) -> Vector:
        """Coefficients times row, for all records."""
        return self._collect(lambda rows: rows @ coefficients)

    def predict_slopes(self, coefficients: Vector) -> Vector:
        """Same as :meth:`predict`, for coefficients of all directions but the constant."""
        return self._collect(lambda rows: rows[:, int(self.has_constant) :] @ coefficients)

    def compute_mean(self) -> Vector:
        """Mean of all rows, shape (k,)."""
        return np.asarray(run_pass(_sum_rows, self.rows) / self.num_records)

    def compute_squared_norms(self) -> Vector:
        """Squared norms of all rows, shape (n,)."""
        return self._collect(lambda rows: np.einsum("ij,ij->i", rows, rows))

    def pool(self, variance: Vector) -> Vector:
        """Return the variances unchanged: every direction may have a weight of its own."""
        return variance

    def bound_moves(self, units: Units, weights: Vector | None) -> Vector:
        """Raise: units of several records of a stored table are refused before."""
        raise NotImplementedError("units of several records are not supported for tables in files.")

    def bound_unit_move(self, distances: Vector, direction_weights: Vector, *, beside: Vector) -> float:
        """Raise, as :meth:`bound_moves`."""
        raise NotImplementedError("units of several records are not supported for tables in files.")

    def _collect(self, function: Callable[[Vector], Vector]) -> Vector:
        return np.concatenate([function(self.rows[span]) for span in self.rows.partitions])


@dataclass(frozen=True, eq=False)
class WhitenedColumn:
    """Whitened rows as a column whose blocks are arrays of shape (size, k).

    Parameters
    ----------
    columns : StoredColumn
        Public features.
    center : array of shape (d,)
        Means that are subtracted.
    slopes : array of shape (d, k)
        Matrix that converts centred columns to whitened directions, without the constant.
    has_constant : bool
        Whether the first direction is the constant.
    """

    columns: Any
    center: Vector
    slopes: Vector
    has_constant: bool

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, span: slice) -> Vector:
        """Read and whiten consecutive records."""
        block = self.columns[span]
        X = block if isinstance(block, np.ndarray) else block.toarray()
        rows = np.empty((len(X), self.has_constant + self.slopes.shape[1]))
        rows[:, : self.has_constant] = 1.0
        rows[:, self.has_constant :] = (X - self.center) @ self.slopes
        return rows

    @property
    def partitions(self) -> tuple[slice, ...]:
        """Partitions of the table."""
        partitions: tuple[slice, ...] = self.columns.partitions
        return partitions


def _sum_rows(span: slice, rows: Vector) -> Vector:
    return np.asarray(rows.sum(axis=0))
