r"""Principal directions of the public features: whitened rows, and how much each direction varies.

Columns are centred (where the model has an intercept) and scaled to unit variance, rotated to their principal axes, and
each axis is scaled to unit second moment. Nothing here depends on the units of the columns. The whitened rows
:math:`u_i` have :math:`\tfrac1n \sum_i u_i u_i^\top = I`: least squares is :math:`\theta = \tfrac1n \sum_i y_i u_i`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import Matrix, PublicFeatures, require_public
from conddp.errors import SchemaError

__all__ = ["Directions"]

ROWS_AT_ONCE = 8192  # so that a block of rows stays in the processor's cache


@dataclass(frozen=True)
class Directions:
    """Whitened public rows in principal directions.

    Privacy
        Built from public columns only: no cost.

    Parameters
    ----------
    rows : array of shape (n, k)
        Whitened rows u; the first column is the constant, if there is one.
    variances : array of shape (k,)
        Variance of each direction before whitening, for columns of unit variance, divided by their mean; 1 for the
        constant.
    matrix : array of shape (d, k)
        Takes coefficients of directions to weights of columns; the last row belongs to the constant column.
    has_constant : bool
        Whether the first direction is the constant.
    is_public : bool
        Whether all of it comes from public columns.
    """

    rows: NDArray[np.float64]
    variances: NDArray[np.float64]
    matrix: NDArray[np.float64]
    has_constant: bool
    is_public: bool = True

    @classmethod
    def of(cls, public_features: PublicFeatures, *, constant: bool = True, tolerance: float = 1e-6) -> "Directions":
        """Directions of public features; those that carry no information are left out.

        Examples
        --------
        >>> directions = Directions.of(PublicFeatures([[1.0, 5.0], [2.0, 3.0], [4.0, 1.0]]))
        >>> bool(np.allclose(directions.rows.T @ directions.rows / 3, np.eye(3)))
        True
        """
        X = require_public(public_features, function="Directions.of").values
        n, d = X.shape
        with np.errstate(over="ignore", invalid="ignore"):
            center = X.mean(axis=0, dtype=np.float64) if constant else np.zeros(d)
            spread = np.sqrt(sum(((block - center) ** 2).sum(axis=0) for block in _blocks(X)) / n)
        if not np.isfinite(spread).all():
            raise SchemaError("a public column is too large to be squared in floating point. Scale it down.")
        varies = spread > 1e-12 * np.abs(center)
        scale = np.where(varies, spread, 1.0)
        gram = sum((block := (part - center) / scale * varies).T @ block for part in _blocks(X)) / n
        squared, rotation = np.linalg.eigh(gram) if d else (np.empty(0), np.empty((0, 0)))
        keep = np.flatnonzero(squared > max(squared[-1] if d else 0.0, 0.0) * tolerance**2)[::-1]
        if not len(keep) and not constant:
            raise SchemaError("every public column is zero. There is nothing to learn from; add a column.")
        slopes = rotation[:, keep] / np.sqrt(squared[keep]) * (varies / scale)[:, None]
        rows = np.empty((n, constant + len(keep)))
        rows[:, :constant] = 1.0
        for start in range(0, n, ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            rows[part, constant:] = (X[part] - center) @ slopes
        matrix = slopes
        if constant:
            matrix = np.block([[np.zeros((d, 1)), slopes], [np.ones((1, 1)), -(center @ slopes)[None]]])
        shares = squared[keep] / (squared[keep].mean() if len(keep) else 1.0)
        return cls(rows, np.concatenate([np.ones(int(constant)), shares]), matrix, constant)

    def complement(self, columns: Callable[[slice], NDArray[np.float64]], *, at_most: int) -> "Directions":
        """Directions of further public columns in what these directions leave of them, orthogonal to these.

        The columns are not standardised: those that vary more count for more.

        Parameters
        ----------
        columns : callable
            The columns for a slice of the records.
        at_most : int
            The directions that vary most are kept, and none that has less than a millionth of the columns' variance.
        """
        n = len(self.rows)
        parts = [slice(start, start + ROWS_AT_ONCE // 4) for start in range(0, n, ROWS_AT_ONCE // 4)]
        width = columns(slice(0, 1)).shape[1]
        along, gram = np.zeros((self.num_directions, width)), np.zeros((width, width))
        for part in parts:
            block = columns(part)
            along += self.rows[part].T @ block / n
            gram += block.T @ block / n
        squared, rotation = np.linalg.eigh(gram - along.T @ along)
        varying = np.trace(gram) - (along[0] @ along[0] if self.has_constant else 0.0)
        least = max(1e-6 * varying, 1e-12 * np.trace(gram))  # less than that is rounding
        keep = np.flatnonzero(squared > least)[::-1][:at_most]
        matrix = rotation[:, keep] / np.sqrt(squared[keep])
        rows = np.empty((n, len(keep)))
        for part in parts:
            rows[part] = (columns(part) - self.rows[part] @ along) @ matrix
        shares = squared[keep] / (squared[keep].mean() if len(keep) else 1.0)
        return Directions(rows, shares, matrix, has_constant=False, is_public=self.is_public)

    @property
    def num_directions(self) -> int:
        """Number of directions k, the constant included."""
        return int(self.rows.shape[1])


def _blocks(X: Matrix) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(X), ROWS_AT_ONCE):
        yield X[start : start + ROWS_AT_ONCE].astype(np.float64, copy=False)
