r"""The conditioning matrix, which flattens the spectrum of the public features.

Let :math:`X = U S V^\top` be the public feature matrix, with a constant column added for the intercept. The paper
trains on :math:`C x` with :math:`C = V S^{-1} V^\top` instead of on :math:`x`. The functions in this module accept
public columns only, enforced by type.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from conddp._validate import in_range
from conddp.data.parts import PublicFeatures, require_public
from conddp.errors import SchemaError
from conddp.features.conditioned_rows import ConditionedRows
from conddp.features.noise_shape import compute_noise_shape
from conddp.features.scaled_rows import ScaledRows
from conddp.features.spectrum import Spectrum
from conddp.features.standardization import ROWS_AT_ONCE, TOO_LARGE, is_large

__all__ = [
    "ConditioningMatrix",
]


@dataclass(frozen=True)
class ConditioningMatrix:
    r"""A linear map C of public features, computed from public features only.

    Training uses :math:`z = C^\top x`. Weights :math:`\theta` for z correspond to weights :math:`C\theta` for x.

    Privacy
        Built from public columns only: no cost.
    Paper
        Eq. ``cond_matrix``. Ours differs in three ways. A factor sqrt(n) gives conditioned features unit second
        moments in every direction. There is a constant column. Collinear directions are dropped, in which case C is
        :math:`V S^{-1}` (a rotation of the paper's matrix, with one parameter per direction).

    Parameters
    ----------
    matrix : array of shape (d, k)
        C. The last row belongs to the constant column, if there is one.
    inverse : array of shape (k, d)
        Matrix that converts weights for x to weights for z.
    has_constant : bool
        Whether the last row of ``matrix`` belongs to the intercept.
    num_codes : int
        Number of public columns before those of ``matrix`` that hold codes. They are left as they are.
    scales : array of shape (d,), optional
        Diagonal of ``matrix``, if it is known to be diagonal.
    """

    matrix: NDArray[np.float64]
    inverse: NDArray[np.float64]
    has_constant: bool
    num_codes: int = 0
    scales: NDArray[np.float64] | None = None

    @classmethod
    def from_spectrum(cls, spectrum: Spectrum, *, exponent: float = 1.0, damping: float = 0.0) -> "ConditioningMatrix":
        r"""Compute the paper's C, or a version with less conditioning.

        .. math:: C = \gamma\, V (S^2/n + \mathrm{damping}\cdot\bar{s}^2)^{-\mathrm{exponent}/2} V^\top

        where :math:`\bar{s}^2` is the mean of :math:`S^2/n`, and :math:`\gamma` is chosen so that conditioned features
        have a mean square of one per direction.

        Parameters
        ----------
        spectrum : Spectrum
            Spectrum of the public features.
        exponent : float
            1 flattens the spectrum, 0 leaves it unchanged.
        damping : float
            Limits the amplification of directions far below the mean.

        Examples
        --------
        >>> public = PublicFeatures([[1.0, 5.0], [2.0, 3.0], [4.0, 1.0]])
        >>> C = ConditioningMatrix.from_spectrum(Spectrum.of(public))
        >>> Z = C.transform(public)
        >>> bool(np.allclose(Z.T @ Z / 3, np.eye(3)))
        True
        """
        in_range(0.0, 1.0, exponent=exponent)
        in_range(0.0, np.inf, damping=damping)
        V, roots = spectrum.right_vectors, spectrum.singular_values / np.sqrt(spectrum.num_records)
        with np.errstate(over="ignore"):
            moments = roots**2
            gains = (
                roots * (moments + damping * moments.mean()) ** (-exponent / 2) if damping else roots ** (1 - exponent)
            )
        if not np.isfinite(gains).all():
            raise SchemaError(TOO_LARGE)
        gains = gains / np.sqrt(np.mean(gains**2)) * np.sqrt(spectrum.num_records)  # scales of the whitened directions
        matrix, inverse = spectrum.whitening * gains, spectrum.coloring / gains[:, None]
        if spectrum.rank == spectrum.num_columns:
            matrix, inverse = matrix @ V.T, V @ inverse
        return cls(matrix, inverse, spectrum.has_constant)

    @classmethod
    def optimal(cls, public_features: PublicFeatures, *, constant: bool = True) -> "ConditioningMatrix":
        r"""Compute the C for which a single noisy sum of labels has the least expected error.

        Noise that is spherical in conditioned features has covariance proportional to :math:`(C C^\top)^{-1}` in the
        original features. The longest conditioned row determines its scale. The paper's C makes this covariance
        :math:`X^\top X`. The optimal covariance, :func:`compute_noise_shape`, is less dominated by a few long rows. It
        gives :math:`C = C_0 Q^{-1/2}`, where :math:`C_0` is the paper's matrix and Q the optimal covariance for its
        rows.

        Privacy
            Built from public columns only: no cost.

        Parameters
        ----------
        public_features : PublicFeatures
            Public feature rows, shape (n, d).
        constant : bool
            Whether to add a column of ones for the intercept.
        """
        whitening = cls.from_spectrum(Spectrum.of(public_features, constant=constant))
        rows = whitening.transform(public_features)
        roots, V = np.linalg.eigh(compute_noise_shape(rows / np.sqrt(len(rows))))
        roots *= np.sqrt(np.mean(roots**-2.0))  # conditioned features keep a mean square of one
        return cls(whitening.matrix @ (V / roots) @ V.T, (V * roots) @ V.T @ whitening.inverse, whitening.has_constant)

    @classmethod
    def column_scaling(cls, spectrum: Spectrum) -> "ConditioningMatrix":
        """Divide each column by its root mean square, as is good practice before DPSGD."""
        scales = spectrum.column_scales
        return cls(np.diag(1 / scales), np.diag(scales), spectrum.has_constant, scales=1 / scales)

    @classmethod
    def identity(cls, spectrum: Spectrum) -> "ConditioningMatrix":
        """Leave the features unchanged, as in the paper's DPSGD."""
        eye = np.eye(spectrum.num_columns)
        return cls(eye, eye, spectrum.has_constant, scales=np.ones(spectrum.num_columns))

    def reweight(self, public_features: PublicFeatures, weights: NDArray[np.float64]) -> "ConditioningMatrix":
        r"""Rotate and scale the conditioned features so that their weighted second moment is the identity.

        Privacy
            Built from public columns and public weights only: no cost.

        Parameters
        ----------
        public_features : PublicFeatures
            Public feature rows, shape (n, d).
        weights : array of shape (n,)
            Weights of the records.
        """
        Z = self.transform(public_features)
        squared, V = np.linalg.eigh((Z * weights[:, None]).T @ Z / weights.sum())
        roots = np.sqrt(np.maximum(squared, squared[-1] * 1e-12))
        return ConditioningMatrix(self.matrix @ (V / roots) @ V.T, (V * roots) @ V.T @ self.inverse, self.has_constant)

    @property
    def num_parameters(self) -> int:
        """Number of conditioned features k, after the codes if there are any."""
        return self.num_codes + int(self.matrix.shape[1])

    @property
    def num_columns(self) -> int:
        """Number of original columns, including codes and the constant."""
        return self.num_codes + len(self.matrix)

    def keep_codes(self, num_codes: int) -> "ConditioningMatrix":
        """Return this matrix for features that have so many columns of codes before those of the matrix."""
        return replace(self, num_codes=num_codes)

    def transform(self, public_features: PublicFeatures, *, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Compute conditioned features, shape (n, k)."""
        public = require_public(public_features, function="ConditioningMatrix.transform")
        public.check_dense()
        slope, offset = self.split(public)
        conditioned = np.empty((len(public), self.num_parameters), dtype=dtype)
        for start in range(0, len(public), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            block = public.get_block(rows)
            if self.num_codes:
                conditioned[rows, : self.num_codes] = block[:, : self.num_codes]
                block = block[:, self.num_codes :]
            conditioned[rows, self.num_codes :] = block @ slope + offset
        return conditioned

    def apply(self, public_features: PublicFeatures) -> NDArray[np.float64] | ConditionedRows | ScaledRows:
        """Return conditioned features, shape (n, k), that are not formed if sparse features are large.

        The result can be used on the right of ``@``, and its rows can be selected.
        """
        public = require_public(public_features, function="ConditioningMatrix.apply")
        if public.sparse is None or not is_large(public) or self.num_codes:
            return self.transform(public)
        slope, offset = self.split(public)
        if self.scales is not None:
            return ScaledRows.of(public.sparse, self.scales, has_constant=self.has_constant)
        return ConditionedRows.of(public, slope, np.asarray(offset) + np.zeros(self.num_parameters))

    def compute_norms(self, public_features: PublicFeatures) -> NDArray[np.float64]:
        """Compute the norms of conditioned features, shape (n,)."""
        conditioned = self.apply(public_features)
        if not isinstance(conditioned, np.ndarray):
            return conditioned.norms
        return np.asarray(np.sqrt((conditioned**2).sum(axis=1)))

    def fold(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Convert weights for conditioned features, shape (..., k), to weights for original features, (..., d)."""
        return weights @ self.matrix.T

    def unfold(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Convert weights for original features, shape (..., d), to weights for conditioned features, (..., k)."""
        return weights @ self.inverse.T

    def split(self, public: PublicFeatures) -> tuple[NDArray[np.float64], NDArray[np.float64] | float]:
        """Split the matrix into the rows of the public columns and the row of the constant column."""
        slope, offset = (self.matrix[:-1], self.matrix[-1]) if self.has_constant else (self.matrix, 0.0)
        if public.shape[1] != self.num_codes + len(slope):
            raise SchemaError(f"expected {self.num_codes + len(slope)} public columns, got {public.shape[1]}.")
        return slope, offset
