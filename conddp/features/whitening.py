r"""Whitened public rows, and the variance of each of their directions.

Columns are centred (if the model has an intercept), scaled to unit variance and rotated to their principal axes. Each
axis is then scaled to unit second moment. The result does not depend on the units of the columns. The whitened rows
:math:`u_i` satisfy :math:`\tfrac1n \sum_i u_i u_i^\top = I`, so the least-squares solution is
:math:`\theta = \tfrac1n \sum_i y_i u_i`. With weights :math:`a_i` of the records, means are weighted:
:math:`\tfrac1A \sum_i a_i u_i u_i^\top = I` with :math:`A = \sum_i a_i`, and weighted least squares is
:math:`\theta = \tfrac1A \sum_i a_i y_i u_i`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures, require_public
from conddp.data.passes import BLOCK_SIZE, list_blocks, run_pass
from conddp.errors import SchemaError
from conddp.features.row_weights import RowWeights
from conddp.features.standardization import Standardization

__all__ = ["WhitenedRows"]


@dataclass(frozen=True)
class WhitenedRows:
    """Whitened public rows in principal directions. All rows are kept in memory.

    Privacy
        Built from public columns only: no cost. A release recognises public rows by this type; rows that include
        private columns have the type :class:`~conddp.newton.private_columns.PrivateRows`.

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
        X = require_public(public_features, function="WhitenedRows.of").values
        n, d = X.shape
        moments = Standardization.of(
            public_features,
            constant=constant,
            function="WhitenedRows.of",
            weights=None if weights is None else weights.values,
        )
        center, scale, varies = moments.center, moments.scale, moments.varies
        squared, rotation = (
            np.linalg.eigh(moments.gram / moments.total_weight) if d else (np.empty(0), np.empty((0, 0)))
        )
        keep = np.flatnonzero(squared > max(squared[-1] if d else 0.0, 0.0) * tolerance**2)[::-1]
        if not len(keep) and not constant:
            raise SchemaError("every public column is zero. There is nothing to learn from; add a column.")
        slopes = rotation[:, keep] / np.sqrt(squared[keep]) * (varies / scale)[:, None]
        values = np.empty((n, constant + len(keep)))
        values[:, :constant] = 1.0
        for span in list_blocks(n):
            values[span, constant:] = (X[span] - center) @ slopes
        matrix = slopes
        if constant:
            matrix = np.block([[np.zeros((d, 1)), slopes], [np.ones((1, 1)), -(center @ slopes)[None]]])
        variances = squared[keep] / (squared[keep].mean() if len(keep) else 1.0)
        return cls(values, np.concatenate([np.ones(int(constant)), variances]), matrix, constant, weights)

    def complement(self, columns: Callable[[slice], NDArray[np.float64]], *, at_most: int) -> "WhitenedRows":
        """Compute directions of additional public columns, orthogonal to the existing directions.

        The columns are not standardised, so columns with a larger variance have more influence.

        Parameters
        ----------
        columns : callable
            Function that returns the columns for a span of the records.
        at_most : int
            Maximum number of directions. Those with the largest variance are kept. Directions with less than a
            millionth of the total variance of the columns are dropped.
        """
        n, total = len(self.values), self.total_weight

        def sum_block(span: slice, rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            block = columns(span)
            scaled = block if self.weights is None else block * self.weights.values[span, None]
            return rows.T @ scaled / total, block.T @ scaled / total

        along, gram = run_pass(sum_block, self.values, block_size=BLOCK_SIZE // 4)
        squared, rotation = np.linalg.eigh(gram - along.T @ along)
        varying = np.trace(gram) - (along[0] @ along[0] if self.has_constant else 0.0)
        least = max(1e-6 * varying, 1e-12 * np.trace(gram))  # smaller values are rounding errors
        keep = np.flatnonzero(squared > least)[::-1][:at_most]
        matrix = rotation[:, keep] / np.sqrt(squared[keep])
        values = np.empty((n, len(keep)))
        for span in list_blocks(n, block_size=BLOCK_SIZE // 4):
            values[span] = (columns(span) - self.values[span] @ along) @ matrix
        variances = squared[keep] / (squared[keep].mean() if len(keep) else 1.0)
        return WhitenedRows(values, variances, matrix, False, self.weights)

    def join(self, added: "WhitenedRows") -> "WhitenedRows":
        """Append directions to these rows. ``matrix`` still refers to the original directions only."""
        values = np.hstack([self.values, added.values])
        variances = np.concatenate([self.variances, added.variances])
        return WhitenedRows(values, variances, self.matrix, self.has_constant, self.weights)

    @property
    def total_weight(self) -> float:
        """Sum of the weights of the records; n without weights."""
        return float(len(self.values)) if self.weights is None else self.weights.total

    @property
    def num_directions(self) -> int:
        """Number of directions k, including the constant."""
        return int(self.values.shape[1])
