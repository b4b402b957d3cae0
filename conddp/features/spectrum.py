"""Singular values and right singular vectors of the public features."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range
from conddp.data.parts import PublicFeatures
from conddp.errors import SchemaError
from conddp.features.standardization import TOO_LARGE, Standardization, choose_signs, exceeds_memory

__all__ = ["Spectrum"]


@dataclass(frozen=True)
class Spectrum:
    r"""Singular values and right singular vectors of the public feature matrix.

    They are computed from the Gram matrix, so the features can arrive in chunks and are read once. Columns are centred
    (if there is a constant column) and scaled to unit variance before the decomposition, and the transformation is
    undone afterwards. Rank and accuracy therefore do not depend on the units and origins of the columns.

    Privacy
        Reads public columns only: no cost.
    Symbols
        :math:`S`: ``singular_values``, shape (rank,), decreasing.  :math:`V`: ``right_vectors``, shape (d, rank).
        :math:`V S^{-1}`: ``whitening``.  :math:`S V^\top`: ``coloring``, shape (rank, d).

    Parameters
    ----------
    singular_values, right_vectors : arrays
        As above. Collinear directions (duplicate or zero columns, d > n) are dropped.
    whitening, coloring : arrays
        As above. They are stored because products of S and V would lose precision: with columns far from zero, S can
        span more orders of magnitude than floating point resolves.
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
        weights: NDArray[np.float64] | None = None,
    ) -> "Spectrum":
        """Compute the spectrum of public features, or of an iterator over chunks of them, in one pass.

        Parameters
        ----------
        public_features : PublicFeatures or iterable of PublicFeatures
            Public features, whole or in chunks of rows.
        constant : bool
            Whether to add a column of ones for the intercept.
        tolerance : float
            Directions are dropped as collinear if their singular value, with columns centred and scaled, is below this
            fraction of the largest.
        weights : array of shape (n,), optional
            Weights of the records. Row i is multiplied by the square root of its weight over the mean weight.

        Examples
        --------
        >>> spectrum = Spectrum.of(PublicFeatures([[3.0, 0.0], [0.0, 4.0]]), constant=False)
        >>> spectrum.singular_values.tolist()
        [4.0, 3.0]
        """
        in_range(0.0, 1.0, tolerance=tolerance)
        relative = None if weights is None else weights * (len(weights) / weights.sum())
        moments = Standardization.of(public_features, constant=constant, function="Spectrum.of", weights=relative)
        return cls.from_moments(moments, constant=constant, tolerance=tolerance)

    @classmethod
    def from_moments(cls, moments: Standardization, *, constant: bool, tolerance: float = 1e-6) -> "Spectrum":
        """Compute the spectrum of public features from their moments; as :meth:`of` otherwise."""
        num_records, center, variance, scales = moments.num_records, moments.center, moments.variance, moments.scale
        gram = moments.gram
        if constant:  # the column of ones is orthogonal to centred columns
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
        basis = rotation[:, keep] * scales[:, None]  # basis of the row space
        if constant:  # from centred columns back to the original columns
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
        V = V[:, order]
        if exceeds_memory(num_records, len(moments.center)):  # the same for features stored as sparse or dense
            signs = choose_signs(V)
            V, rotated = V * signs, rotated * signs[:, None]
        # If the spectrum spans more than floating point resolves, `whitening` is inaccurate for its upper half and
        # `coloring` for its lower half.
        upper = values > np.sqrt(values[0]) * np.sqrt(values[-1])
        values[upper] = np.linalg.svd(coloring, compute_uv=False)[upper]
        with np.errstate(over="ignore"):
            mean_square = variance + center**2
        if not np.isfinite(mean_square).all():
            raise SchemaError(TOO_LARGE)
        return cls(
            values,
            V,
            whitening @ rotated.T,
            rotated @ coloring,
            num_records,
            np.where(mean_square > 0, np.sqrt(mean_square), 1.0),
            constant,
        )

    @property
    def num_columns(self) -> int:
        """Number of columns d, including the constant column."""
        return len(self.column_scales)

    @property
    def rank(self) -> int:
        """Number of directions that are not collinear."""
        return len(self.singular_values)

    @property
    def condition_number(self) -> float:
        """Ratio of the largest to the smallest singular value."""
        return float(self.singular_values[0] / self.singular_values[-1])
