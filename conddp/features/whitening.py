r"""Whitened public rows, and the variance of each of their directions.

Columns are centred (if the model has an intercept), scaled to unit variance and rotated to their principal axes. Each
axis is then scaled to unit second moment. The result does not depend on the units of the columns. The whitened rows
:math:`u_i` satisfy :math:`\tfrac1n \sum_i u_i u_i^\top = I`, so the least-squares solution is
:math:`\theta = \tfrac1n \sum_i y_i u_i`. With weights :math:`a_i` of the records, means are weighted:
:math:`\tfrac1A \sum_i a_i u_i u_i^\top = I` with :math:`A = \sum_i a_i`, and weighted least squares is
:math:`\theta = \tfrac1A \sum_i a_i y_i u_i`.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures, require_public
from conddp.data.units import Units
from conddp.features.principal_axes import PrincipalAxes
from conddp.features.public_rows import DensePass, PublicRows
from conddp.features.row_weights import RowWeights
from conddp.features.unit_moves import bound_largest_move, bound_moves_of_rows

__all__ = ["WhitenedRows"]

MOST_SQUARED = 2**18  # numbers whose squares are kept from pass to pass: they stay in the processor cache


@dataclass(frozen=True)
class WhitenedRows(PublicRows):
    """Whitened public rows in principal directions. All rows are kept in memory.

    Privacy
        Built from public columns only: no cost. A release recognises public rows by their base class.

    Parameters
    ----------
    values : array of shape (n, k)
        Whitened rows u. The first column is the constant, if there is one.
    variances : array of shape (k,)
        Variance of each direction before whitening, for columns of unit variance, divided by the mean over all
        directions; 1 for the constant.
    matrix : array of shape (d, k)
        Matrix that converts coefficients of directions to weights of columns. The last row belongs to the constant
        column, if there is one.
    has_constant : bool
        Whether the first direction is the constant.
    weights : RowWeights, optional
        Units of the records and their weights. If None, every record is protected on its own and has weight one.
    """

    values: NDArray[np.float64]
    variances: NDArray[np.float64]
    matrix: NDArray[np.float64]
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
    ) -> "WhitenedRows":
        """Whiten public features and drop collinear directions.

        Examples
        --------
        >>> rows = WhitenedRows.of(PublicFeatures([[1.0, 5.0], [2.0, 3.0], [4.0, 1.0]]))
        >>> bool(np.allclose(rows.values.T @ rows.values / 3, np.eye(3)))
        True
        """
        public = require_public(public_features, function="WhitenedRows.of")
        public.check_dense()
        axes = PrincipalAxes.of(public, constant=constant, tolerance=tolerance, weights=weights)
        values = np.empty((len(public), constant + len(axes.variances)))
        axes.whiten(public, values)
        variances = np.concatenate([np.ones(int(constant)), axes.variances])
        return cls(values, variances, axes.make_matrix(constant=constant), constant, weights)

    @property
    def num_records(self) -> int:
        """Number of records n."""
        return len(self.values)

    def start_pass(self, coefficients: NDArray[np.float64], direction_weights: NDArray[np.float64]) -> DensePass:
        """Prepare a pass over the rows."""
        keep = self._keep_squares if self.values.size <= MOST_SQUARED else None
        return DensePass(self.values, coefficients, direction_weights, keep)

    def _keep_squares(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self._by_columns

    @cached_property
    def _by_columns(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rows and their squares, stored by columns."""
        rows = np.asfortranarray(self.values)
        return rows, rows * rows

    def predict(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coefficients times row, for all records."""
        return np.asarray(self.values @ coefficients)

    def predict_slopes(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Same as :meth:`predict`, for coefficients of all directions but the constant."""
        return np.asarray(self.values[:, int(self.has_constant) :] @ coefficients)

    def compute_mean(self) -> NDArray[np.float64]:
        """Weighted mean of all rows, shape (k,)."""
        if self.weights is None:
            return np.asarray(self.values.mean(axis=0))
        return np.asarray(np.average(self.values, 0, self.weights.values))

    def compute_squared_norms(self) -> NDArray[np.float64]:
        """Squared norms of all rows, shape (n,)."""
        return np.asarray(np.einsum("ij,ij->i", self.values, self.values))

    def pool(self, variance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the variances unchanged: every direction may have a weight of its own."""
        return variance

    def bound_moves(self, units: Units, weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Bound how far the records of each unit move a sum together, in moves of one record."""
        return bound_moves_of_rows(self.values, units, weights)

    def bound_unit_move(
        self, distances: NDArray[np.float64], direction_weights: NDArray[np.float64], *, beside: NDArray[np.float64]
    ) -> float:
        """Bound the largest move of a sum of weighted rows, and of a further coordinate, by one unit."""
        g = np.sqrt(direction_weights)
        asked = np.flatnonzero(g)
        few = 2 * len(asked) <= len(g)
        vectors = self.values[:, asked] * g[asked] if few else self.values * g
        vectors *= distances[:, None]
        assert self.weights is not None
        return bound_largest_move(vectors, self.weights.units, beside=beside)
