r"""Whitened public rows that are too large for memory, with norms by groups of directions.

The norm of a weighted row, :math:`\|g \circ u_i\|`, depends on the direction weights :math:`g^2`, which change from
step to step. If they are equal within each of a few groups of directions, it follows from the norms of the row within
each group: :math:`\|g \circ u_i\|^2 = \sum_G g_G^2 \sum_{j \in G} u_{ij}^2`. These are computed once. Groups consist
of directions that are adjacent in variance. How much a direction is worth asking about depends mainly on its variance,
so little is lost by giving them equal weights (``benchmarks/grouped_weights.py`` measures it).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures, require_public
from conddp.data.units import Units
from conddp.features.conditioned_rows import ConditionedRows, ShiftedColumns, sum_columns, sum_magnitudes
from conddp.features.principal_axes import PrincipalAxes
from conddp.features.public_rows import PublicRows
from conddp.features.rounded_rows import RoundedRows
from conddp.features.row_weights import RowWeights
from conddp.features.standardization import is_large
from conddp.features.stored_features import StoredFeatures
from conddp.features.stored_norms import StoredNorms
from conddp.features.stored_rows import StoredRows
from conddp.features.whitening import WhitenedRows

__all__ = ["GroupedRows", "whiten"]

Vector = NDArray[np.float64]

FEWEST_ROUNDED = 2**22  # cells of public rows that are kept in float32; fewer are read quickly in float64
MOST_FORMED = 256  # columns of a stored table up to which rows are formed in every pass, which takes less than reading
GROUPS_BY_NUMBER = 16  # groups of equal numbers of directions
GROUPS_BY_VARIANCE = 16  # groups of equal width on a logarithmic scale of variances; both divisions apply


def whiten(
    public_features: PublicFeatures,
    *,
    constant: bool = True,
    tolerance: float = 1e-6,
    weights: RowWeights | None = None,
) -> PublicRows:
    """Whiten public features; in memory if they are not too large.

    Rows of features in files are kept with them for the next call.

    Privacy
        Reads public columns only: no cost. Only the numbers of records and columns, and whether they are in files or
        have weights, decide which type is returned.

    Parameters
    ----------
    public_features : PublicFeatures
        Public feature rows, shape (n, d).
    constant : bool
        Whether the model has an intercept.
    tolerance : float
        Directions are dropped as collinear if their standard deviation is below this fraction of the largest.
    weights : RowWeights, optional
        Units of the records and their weights.
    """
    public = require_public(public_features, function="whiten")
    kind: Any = GroupedRows if is_large(public) else WhitenedRows
    if kind is WhitenedRows and weights is None and public.shape[0] * public.shape[1] >= FEWEST_ROUNDED:
        kind = RoundedRows
    if isinstance(public, StoredFeatures):
        kind = StoredRows if public.shape[1] <= MOST_FORMED else GroupedRows
    key = ("whitened", constant, tolerance)
    kept: dict[Any, Any] = public.derived if isinstance(public, StoredFeatures) and weights is None else {}
    if key not in kept:
        kept[key] = kind.of(public, constant=constant, tolerance=tolerance, weights=weights)
    rows: PublicRows = kept[key]
    return rows


@dataclass(frozen=True, eq=False)
class GroupedRows(PublicRows):
    """Whitened public rows that are never formed, with squared norms by group of directions.

    Privacy
        Built from public columns only: no cost. A release recognises public rows by their base class.

    Parameters
    ----------
    rows : ConditionedRows
        Whitened rows u. The first direction is the constant, if there is one.
    starts : array of shape (G,)
        First direction of every group. The constant is a group of its own.
    squared_norms : array of shape (n, G), or StoredNorms
        Squared norms of all rows within each group. Those of a stored table are kept in files.
    variances, matrix, has_constant, weights
        Same as in :class:`~conddp.features.whitening.WhitenedRows`.
    """

    rows: ConditionedRows
    starts: NDArray[np.intp]
    squared_norms: Any
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
    ) -> "GroupedRows":
        """Whiten public features, drop collinear directions, and compute the norms.

        Examples
        --------
        >>> public = PublicFeatures([[1.0, 5.0], [2.0, 3.0], [4.0, 1.0]])
        >>> rows, whole = GroupedRows.of(public), WhitenedRows.of(public)
        >>> bool(np.allclose(rows.squared_norms, whole.values**2))
        True
        """
        public = require_public(public_features, function="GroupedRows.of")
        axes = PrincipalAxes.of(public, constant=constant, tolerance=tolerance, weights=weights)
        matrix = axes.make_matrix(constant=constant)
        offset = np.zeros(matrix.shape[1])
        offset[: int(constant)] = 1.0
        rows = ConditionedRows.of(public, matrix[: public.shape[1]], offset, center=axes.center)
        variances = np.concatenate([np.ones(int(constant)), axes.variances])
        starts = _divide(variances, has_constant=constant)
        squared_norms: Any
        if isinstance(public, StoredFeatures):
            squared_norms = StoredNorms.of(rows, starts.tolist())
        else:
            squared_norms = rows.compute_squared_norms(starts.tolist())
        return cls(rows, starts, squared_norms, variances, matrix, constant, weights)

    @property
    def num_records(self) -> int:
        """Number of records n."""
        return len(self.rows)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Number of directions of each group, shape (G,)."""
        return np.diff(self.starts, append=self.num_directions)

    def spread(self, values: Vector) -> Vector:
        """Repeat the value of each group, shape (G,), for its directions; shape (k,)."""
        return np.repeat(values, self.sizes)

    def pool(self, variance: Vector) -> Vector:
        """Replace variances, shape (k,), by their mean in each group."""
        return self.spread(np.add.reduceat(variance, self.starts) / self.sizes)

    def get_group_weights(self, direction_weights: Vector) -> Vector:
        """Return the weight of the directions of each group.

        Raises
        ------
        ValueError
            If directions of a group have different weights: norms would be wrong, and sensitivities with them.
        """
        of_groups = direction_weights[self.starts]
        if not np.array_equal(self.spread(of_groups), direction_weights):
            raise ValueError("directions of the same group must have equal weights.")
        return np.asarray(of_groups)

    def start_pass(self, coefficients: Vector, direction_weights: Vector) -> "_GroupedPass":
        """Prepare a pass over the rows."""
        of_groups = self.get_group_weights(direction_weights)
        blocks = _GroupedColumn(
            self.rows.shifted,
            self.squared_norms,
            self.rows.matrix @ coefficients,
            float(self.rows.offset @ coefficients),
            of_groups,
        )
        return _GroupedPass(self, blocks, direction_weights)

    def predict(self, coefficients: Vector) -> Vector:
        """Coefficients times row, for all records."""
        return np.asarray(self.rows.predict(coefficients[None])[0])

    def predict_slopes(self, coefficients: Vector) -> Vector:
        """Same as :meth:`predict`, for coefficients of all directions but the constant."""
        return self.predict(np.concatenate([np.zeros(int(self.has_constant)), coefficients]))

    def compute_mean(self) -> Vector:
        """Weighted mean of all rows, shape (k,)."""
        factors = np.ones(self.num_records) if self.weights is None else self.weights.values
        return np.asarray((factors[None] @ self.rows)[0] / self.total_weight)

    def compute_squared_norms(self) -> Vector:
        """Squared norms of all rows, shape (n,)."""
        return np.asarray(self.squared_norms[:].sum(axis=1))

    def bound_moves(self, units: Units, weights: Vector | None) -> Vector:
        """Bound how far the records of each unit move a sum: by the sum of their weights (triangle inequality)."""
        return units.sizes.astype(np.float64) if weights is None else units.add_up(weights)

    def bound_unit_move(self, distances: Vector, direction_weights: Vector, *, beside: Vector) -> float:
        """Bound the largest move by one unit, with the sum of the moves of its records (triangle inequality)."""
        assert self.weights is not None
        lengths = distances * np.sqrt(self.squared_norms @ self.get_group_weights(direction_weights))
        units = self.weights.units
        together = np.bincount(units.codes, weights=lengths, minlength=units.num_units)
        return float(np.hypot(together, beside).max())


@dataclass(frozen=True, eq=False)
class _GroupedColumn:
    """What a pass needs of the rows of each block: neither the matrix, which is large, nor the rows themselves."""

    columns: ShiftedColumns
    squared_norms: Any
    of_columns: Vector  # weights of the columns that correspond to the coefficients
    constant: float
    group_weights: Vector

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, span: slice) -> "_GroupedBlock":
        return _GroupedBlock(
            self.columns[span], self.squared_norms[span], self.of_columns, self.constant, self.group_weights
        )

    @property
    def partitions(self) -> tuple[slice, ...] | None:
        return self.columns.partitions


@dataclass(frozen=True, eq=False)
class _GroupedPass:
    """Pass over grouped rows: sums are added up in terms of the columns, and converted once."""

    whole: GroupedRows
    blocks: _GroupedColumn
    direction_weights: Vector

    def finish_rows(self, sums: Vector) -> Vector:
        return self.whole.rows.finish_sums(sums)

    def finish_squares(self, sums: Vector) -> Vector:
        return self.whole.spread(sums / self.whole.sizes)

    def bound_rounding(self, sums: Vector) -> float:
        """Rounding of the sums of both neighbours, and of the norm by which each was bounded."""
        return 4 * float(np.linalg.norm(np.sqrt(self.direction_weights) * self.whole.rows.bound_rounding(sums)))


@dataclass(frozen=True, eq=False)
class _GroupedBlock:
    """Columns of a block, dense or sparse, and the squared norms of its rows by group."""

    columns: Any
    squared_norms: Vector
    of_columns: Vector
    constant: float
    group_weights: Vector

    def list_parts(self) -> "Iterator[tuple[slice, _GroupedBlock]]":
        yield slice(None), self

    def predict(self) -> Vector:
        return np.asarray(self.columns @ self.of_columns + self.constant)

    def measure(self) -> Vector:
        return np.sqrt(self.squared_norms @ self.group_weights)

    def sum_rows(self, factors: Vector) -> Vector:
        return sum_columns(self.columns, factors)

    def sum_squares(self, factors: Vector) -> Vector:
        return np.asarray(factors @ self.squared_norms)

    def sum_magnitudes(self, limits: Vector) -> Vector:
        return sum_magnitudes(self.columns, limits)


def _divide(variances: Vector, *, has_constant: bool) -> NDArray[np.intp]:
    """First directions of groups that are adjacent in variance; the constant is a group of its own."""
    slopes = variances[int(has_constant) :]
    first = [0] if has_constant or len(slopes) else []
    if not len(slopes):
        return np.array(first, dtype=np.intp)
    by_number = np.linspace(0, len(slopes), GROUPS_BY_NUMBER, endpoint=False).astype(np.intp)
    levels = np.geomspace(slopes[0], slopes[-1], GROUPS_BY_VARIANCE + 1)[1:-1]
    by_variance = np.searchsorted(-slopes, -levels)
    starts = np.concatenate([by_number, by_variance]) + int(has_constant)
    starts = np.unique(np.concatenate([first, starts]).astype(np.intp))
    return np.asarray(starts[starts < len(variances)])
