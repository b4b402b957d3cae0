"""Two coordinates for every public column: its standardised value and its rank.

Features of ranks do not depend on the units of a column or on the length of its tails. Standardised values keep linear
terms linear.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures, require_public
from conddp.errors import SchemaError
from conddp.features.row_sample import draw_rows
from conddp.features.standardization import TOO_LARGE, add_by_group

__all__ = ["ColumnScales"]

Vector = NDArray[np.float64]

NUM_KNOTS = 129  # quantiles between which ranks are interpolated
FARTHEST = 4.0  # standardised values are clamped to this
LARGEST = 1e150  # absolute value of which sums of squares are finite
SMALLEST = 1e-150  # standard deviation of a column; below, it counts as constant
MOST_READ = 65_536  # records that moments and quantiles are taken from


@dataclass(frozen=True)
class ColumnScales:
    """Standardised values and ranks of public columns.

    Privacy
        Built from public columns only: no cost.

    Parameters
    ----------
    center, factor : arrays of shape (d,)
        What is subtracted from a column, and what it is then multiplied by: the inverse of its standard deviation, or
        0 for a constant column. The indicators of a category share a factor.
    knots, ranks : arrays of shape (d, m)
        Increasing values of a column and their ranks, from 0 to 1. The last ones are repeated where a column has fewer.

    Examples
    --------
    >>> scales = ColumnScales.of(PublicFeatures([[0.0], [1.0], [1.0], [8.0]]))
    >>> scales.compute_ranks(np.array([[-1.0], [1.0], [4.5], [9.0]])).ravel().tolist()
    [0.0, 0.5, 0.75, 1.0]
    """

    center: Vector
    factor: Vector
    knots: Vector
    ranks: Vector

    @classmethod
    def of(cls, public_features: PublicFeatures) -> "ColumnScales":
        """Fit the scales to public columns."""
        public = require_public(public_features, function="ColumnScales.of")
        X = public.values[draw_rows(len(public), MOST_READ)].astype(np.float64, copy=False)
        if np.abs(X).max(initial=0.0) > LARGEST:
            raise SchemaError(TOO_LARGE)
        center, spread = X.mean(axis=0), X.std(axis=0)
        scale = np.sqrt(add_by_group(spread**2, public.groups))
        varies = (spread > 1e-12 * np.abs(center)) & (scale > SMALLEST)
        factor = np.where(varies, 1.0 / np.where(varies, scale, 1.0), 0.0)
        levels = np.linspace(0.0, 1.0, min(NUM_KNOTS, len(X)))
        made = [_rank(column, levels) for column in X.T]
        shape = (X.shape[1], len(levels))
        knots, ranks = (np.reshape([pair[place] for pair in made], shape) for place in (0, 1))
        return cls(center, factor, knots, ranks)

    @property
    def num_columns(self) -> int:
        """Number of columns d."""
        return len(self.center)

    def count_values(self) -> NDArray[np.intp]:
        """Count the distinct knots of every column: a function of the column can bend that often."""
        return np.asarray(1 + np.count_nonzero(np.diff(self.knots, axis=1) > 0, axis=1))

    def standardize(self, X: NDArray[np.floating]) -> Vector:
        """Compute standardised values, clamped to :data:`FARTHEST` standard deviations, shape (n, d)."""
        return np.clip((X - self.center) * self.factor, -FARTHEST, FARTHEST)

    def compute_ranks(self, X: NDArray[np.floating]) -> Vector:
        """Compute ranks between 0 and 1, shape (n, d)."""
        ranks = np.empty(X.shape)
        for column, number in enumerate(self.count_values()):
            ranks[:, column] = np.interp(X[:, column], self.knots[column, :number], self.ranks[column, :number])
        return ranks


def _rank(column: Vector, levels: Vector) -> tuple[Vector, Vector]:
    """Quantiles of a column without repetitions, and their ranks; equal quantiles have the mean of their levels."""
    quantiles = np.quantile(column, levels)
    knots, first, count = np.unique(quantiles, return_index=True, return_counts=True)
    ranks = (levels[first] + levels[first + count - 1]) / 2
    missing = len(levels) - len(knots)
    return np.pad(knots, (0, missing), mode="edge"), np.pad(ranks, (0, missing), mode="edge")
