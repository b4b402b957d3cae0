"""Principal axes of public columns: the linear map that whitens their rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures
from conddp.data.passes import list_blocks, run_pass
from conddp.errors import SchemaError
from conddp.features.row_weights import RowWeights
from conddp.features.standardization import (
    FeatureBlocks,
    Standardization,
    choose_signs,
    count_rows_of_product,
    is_large,
)

__all__ = ["PrincipalAxes"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class PrincipalAxes:
    """Axes along which rows of public columns are whitened, in the order of their variance.

    Privacy
        Built from public columns only: no cost.

    Parameters
    ----------
    center : array of shape (d,)
        Means of the columns; zero without a constant.
    slopes : array of shape (d, k)
        Matrix that converts centred columns to whitened directions, without the constant.
    variances : array of shape (k,)
        Variance of each direction for columns of unit variance, divided by the mean over all directions.
    """

    center: Vector
    slopes: Vector
    variances: Vector

    @classmethod
    def of(
        cls, public_features: PublicFeatures, *, constant: bool, tolerance: float, weights: RowWeights | None
    ) -> "PrincipalAxes":
        """Compute the axes of public features, and drop collinear directions."""
        d = public_features.shape[1]
        moments = Standardization.of(
            public_features,
            constant=constant,
            function="WhitenedRows.of",
            weights=None if weights is None else weights.values,
        )
        squared, rotation = (
            np.linalg.eigh(moments.gram / moments.total_weight) if d else (np.empty(0), np.empty((0, 0)))
        )
        keep = np.flatnonzero(squared > max(squared[-1] if d else 0.0, 0.0) * tolerance**2)[::-1]
        if not len(keep) and not constant:
            raise SchemaError("every public column is zero. There is nothing to learn from; add a column.")
        if is_large(public_features):  # the same directions whether features are stored as sparse or dense
            rotation = rotation * choose_signs(rotation)
        slopes = rotation[:, keep] / np.sqrt(squared[keep]) * (moments.varies / moments.scale)[:, None]
        variances = squared[keep] / (squared[keep].mean() if len(keep) else 1.0)
        return cls(moments.center, slopes, variances)

    def whiten(self, public_features: PublicFeatures, out: NDArray[np.floating[Any]]) -> None:
        """Write whitened rows to an array of shape (n, k), or (n, 1 + k) with the constant first.

        They are computed in float64, and rounded if the array is of a shorter type.
        """
        center, slopes = self.center, self.slopes
        k = slopes.shape[1]
        first = out.shape[1] - k
        size = count_rows_of_product(max(slopes.shape))

        def multiply(span: slice, block: Vector) -> int:
            most = min(size, len(block))
            moved, rounded = np.empty((most, len(center))), np.empty((most if out.dtype != np.float64 else 0, k))
            for part in list_blocks(len(block), block_size=size):
                rows, number = out[span][part], part.stop - part.start
                rows[:, :first] = 1.0
                np.subtract(block[part], center, out=moved[:number])  # in C order, so that all orders give the same
                if len(rounded):
                    rows[:, first:] = np.matmul(moved[:number], slopes, out=rounded[:number])
                else:
                    np.matmul(moved[:number], slopes, out=rows[:, first:])
            return 0

        run_pass(multiply, FeatureBlocks(public_features), num_cells=out.size)

    def make_matrix(self, *, constant: bool) -> Vector:
        """Matrix that converts coefficients of directions, the constant first, to weights of columns and constant."""
        if not constant:
            return self.slopes
        d = len(self.center)
        return np.block([[np.zeros((d, 1)), self.slopes], [np.ones((1, 1)), -(self.center @ self.slopes)[None]]])
