"""Singular values and right singular vectors of the public features."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range
from conddp.data.parts import PublicFeatures
from conddp.errors import SchemaError
from conddp.features.standardization import TOO_LARGE, Standardization

__all__ = ["Spectrum"]


@dataclass(frozen=True)
class Spectrum:
    r"""Singular values and right singular vectors of the public feature matrix, without its left ones.

    Computed from the Gram matrix, so that the features may arrive in chunks and are read once. Columns are centred
    (where there is a constant column) and scaled to unit variance before the decomposition, and back after it: rank and
    accuracy then do not depend on the units and the origins in which columns are written.

    Privacy
        Reads public columns only: no cost.
    Symbols
        :math:`S`: ``singular_values``, shape (rank,), falling.  :math:`V`: ``right_vectors``, shape (d, rank).
        :math:`V S^{-1}`: ``whitening``.  :math:`S V^\top`: ``coloring``, shape (rank, d).

    Parameters
    ----------
    singular_values, right_vectors : arrays
        As above; directions without information (duplicate or zero columns, d > n) are left out.
    whitening, coloring : arrays
        Products that keep their digits where those of S and V would lose them: columns far from zero make S range over
        more than floating point can hold.
    num_records : int
        Number of records n.
    column_scales : array of shape (d,)
        Root mean square of each column; 1 for a column of zeros.
    has_constant : bool
        Whether a column of ones, the intercept, was added as the last column.
    """

    singular_values: NDArray[np.float64]
    right_vectors: NDArray[np.float64]
    whitening: NDArray[np.float64]
    coloring: NDArray[np.float64]
    num_records: int
    column_scales: NDArray[np.float64]
    has_constant: bool

    @classmethod
    def of(
        cls,
        public_features: PublicFeatures | Iterable[PublicFeatures],
        *,
        constant: bool = True,
        tolerance: float = 1e-6,
    ) -> "Spectrum":
        """Spectrum of public features, or of an iterator over chunks of them, in one pass.

        Parameters
        ----------
        public_features : PublicFeatures or iterable of PublicFeatures
            The features, whole or in chunks of rows.
        constant : bool
            Add a column of ones for the intercept.
        tolerance : float
            Directions whose singular value, with columns centred and scaled, is below this fraction of the largest
            carry no information and are left out.

        Examples
        --------
        >>> spectrum = Spectrum.of(PublicFeatures([[3.0, 0.0], [0.0, 4.0]]), constant=False)
        >>> spectrum.singular_values.tolist()
        [4.0, 3.0]
        """
        in_range(0.0, 1.0, tolerance=tolerance)
        moments = Standardization.of(public_features, constant=constant, function="Spectrum.of")
        num_records, center, variance, scales = moments.num_records, moments.center, moments.variance, moments.scale
        gram = moments.gram
        if constant:  # the column of ones is orthogonal to columns that are centred
            gram = np.pad(gram, (0, 1))
            gram[-1, -1] = num_records
            center, variance, scales = np.append(center, 0.0), np.append(variance, 1.0), np.append(scales, 1.0)
        squared, rotation = np.linalg.eigh(gram)
        keep = squared > max(squared[-1], 0.0) * tolerance**2
        if not keep.any():
            raise SchemaError("every public column is zero. There is nothing to learn from; add a column.")
        # Columns of `whitening` make X W orthonormal. Its singular values are 1 / S and its left vectors V, which
        # is more accurate than an eigendecomposition of the unscaled Gram matrix.
        whitening = (rotation[:, keep] / np.sqrt(squared[keep])) / scales[:, None]
        basis = rotation[:, keep] * scales[:, None]  # of the space of rows
        if constant:  # back from centred columns to the columns themselves
            whitening[-1] -= center[:-1] @ whitening[:-1]
            basis[:-1] += np.outer(center[:-1], basis[-1])
        if not keep.all():
            row_space, _ = np.linalg.qr(basis)
            whitening = row_space @ (row_space.T @ whitening)
        coloring = np.sqrt(squared[keep])[:, None] * basis.T
        V, inverse_values, rotated = np.linalg.svd(whitening, full_matrices=False)
        order = np.argsort(inverse_values)
        rotated = rotated[order]
        values = 1 / np.maximum(inverse_values[order], np.finfo(np.float64).tiny)
        # The upper half of a spectrum that spans more than floating point holds is lost in the whitening's values, the
        # lower half in the coloring's.
        upper = values > np.sqrt(values[0]) * np.sqrt(values[-1])
        values[upper] = np.linalg.svd(coloring, compute_uv=False)[upper]
        with np.errstate(over="ignore"):
            mean_square = variance + center**2
        if not np.isfinite(mean_square).all():
            raise SchemaError(TOO_LARGE)
        return cls(
            values,
            V[:, order],
            whitening @ rotated.T,
            rotated @ coloring,
            num_records,
            np.where(mean_square > 0, np.sqrt(mean_square), 1.0),
            constant,
        )

    @property
    def num_columns(self) -> int:
        """Number of columns d, the constant column included."""
        return len(self.column_scales)

    @property
    def rank(self) -> int:
        """Number of directions that carry information."""
        return len(self.singular_values)

    @property
    def condition_number(self) -> float:
        """Largest over smallest singular value."""
        return float(self.singular_values[0] / self.singular_values[-1])
