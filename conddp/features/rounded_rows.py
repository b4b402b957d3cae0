"""Whitened public rows in memory whose numbers are rounded to float32, which are read in half the time."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures, require_public
from conddp.data.passes import list_blocks
from conddp.data.units import Units
from conddp.features.principal_axes import PrincipalAxes
from conddp.features.public_rows import DensePass, PublicRows
from conddp.features.unit_moves import bound_moves_of_rows

__all__ = ["RoundedRows"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RoundedRows(PublicRows):
    r"""Whitened public rows, each number rounded to the nearest one in float32.

    The rounded rows are the rows: predictions, norms, sums and sensitivities are all computed from them, in float64, to
    which float32 converts without error. Only the storage is short. Rounding changes a row by at most :math:`2^{-24}`
    of itself, so that predictions of the fitted weights on the columns differ by as little from those on the rows. The
    records have no weights: with very different weights, a whitened row may be too long for float32.

    Privacy
        Built from public columns only, which rounding does not change: no cost. A release recognises public rows by
        their base class. Its sensitivity needs no allowance for the rounding, because the argument of
        :func:`~conddp.newton.release.release_residuals` holds for any public rows.

    Parameters
    ----------
    values : array of shape (n, k), float32
        Rounded rows u. The first column is the constant, if there is one.
    variances, matrix, has_constant
        Same as in :class:`~conddp.features.whitening.WhitenedRows`.
    """

    values: NDArray[np.float32]
    variances: Vector
    matrix: Vector
    has_constant: bool
    weights: None = None

    @classmethod
    def of(
        cls, public_features: PublicFeatures, *, constant: bool = True, tolerance: float = 1e-6, weights: None = None
    ) -> "RoundedRows":
        """Whiten public features, drop collinear directions, and round the rows.

        Examples
        --------
        >>> rows = RoundedRows.of(PublicFeatures([[1.0, 5.0], [2.0, 3.0], [4.0, 1.0]]))
        >>> bool(np.allclose(rows.values.T @ rows.values / 3, np.eye(3), atol=1e-6))
        True
        """
        public = require_public(public_features, function="RoundedRows.of")
        public.check_dense()
        axes = PrincipalAxes.of(public, constant=constant, tolerance=tolerance, weights=None)
        values = np.empty((len(public), constant + len(axes.variances)), dtype=np.float32)
        axes.whiten(public, values)
        variances = np.concatenate([np.ones(int(constant)), axes.variances])
        return cls(values, variances, axes.make_matrix(constant=constant), constant)

    @property
    def num_records(self) -> int:
        """Number of records n."""
        return len(self.values)

    def start_pass(self, coefficients: Vector, direction_weights: Vector) -> DensePass:
        """Prepare a pass over the rows."""
        return DensePass(self.values, coefficients, direction_weights)

    def predict(self, coefficients: Vector) -> Vector:
        """Coefficients times row, for all records."""
        return self._collect(lambda rows: rows @ coefficients)

    def predict_slopes(self, coefficients: Vector) -> Vector:
        """Same as :meth:`predict`, for coefficients of all directions but the constant."""
        return self._collect(lambda rows: rows[:, int(self.has_constant) :] @ coefficients)

    def compute_mean(self) -> Vector:
        """Mean of all rows, shape (k,)."""
        return np.asarray(self.values.mean(axis=0, dtype=np.float64))

    def compute_squared_norms(self) -> Vector:
        """Squared norms of all rows, shape (n,)."""
        return self._collect(lambda rows: np.einsum("ij,ij->i", rows, rows))

    def pool(self, variance: Vector) -> Vector:
        """Return the variances unchanged: every direction may have a weight of its own."""
        return variance

    def bound_moves(self, units: Units, weights: Vector | None) -> Vector:
        """Bound how far the records of each unit move a sum together, in moves of one record."""
        return bound_moves_of_rows(self.values.astype(np.float64), units, weights)

    def bound_unit_move(self, distances: Vector, direction_weights: Vector, *, beside: Vector) -> float:
        """Raise: records with weights, and thus units of several records, are whitened in float64."""
        raise NotImplementedError("rounded rows have no weights.")

    def _collect(self, function: Callable[[Vector], Vector]) -> Vector:
        """Apply a function to blocks of rows in float64."""
        blocks = list_blocks(len(self.values))
        return np.concatenate([function(self.values[span].astype(np.float64)) for span in blocks])
