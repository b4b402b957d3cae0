r"""The spectrum of the public features, and the matrix that evens it out.

With :math:`X = U S V^\top` the public feature matrix (a constant column added for the intercept), the paper
trains on :math:`C x` with :math:`C = V S^{-1} V^\top` instead of on :math:`x`. Everything here reads public
columns only, by type.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from conddp._validate import in_range
from conddp.data import Matrix, PublicFeatures, require_public
from conddp.errors import SchemaError

__all__ = ["ConditioningMatrix", "Spectrum", "compute_noise_shape"]

TOO_LARGE = "a public column is too large to be squared in floating point. Scale it down."
ROWS_AT_ONCE = 65536  # of the feature matrix, when the Gram matrix is summed or features are multiplied by C


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
            Directions whose singular value, with columns centred and scaled, is below this share of the largest
            carry no information and are left out.

        Examples
        --------
        >>> spectrum = Spectrum.of(PublicFeatures([[3.0, 0.0], [0.0, 4.0]]), constant=False)
        >>> spectrum.singular_values.tolist()
        [4.0, 3.0]
        """
        in_range(0.0, 1.0, tolerance=tolerance)
        gram, shift, num_records = _sum_gram(public_features, constant=constant)
        center = np.zeros(len(gram))  # of the columns; the constant column stays as it is
        if constant:
            moved = gram[-1, :-1] / num_records  # from the shift to the mean
            gram[:-1, :-1] -= num_records * np.outer(moved, moved)
            gram[-1, :-1] = gram[:-1, -1] = 0.0
            center[:-1] = shift + moved
        variance = np.maximum(np.diag(gram) / num_records, 0.0)
        varies = variance > (1e-12 * center) ** 2
        scales = np.where(varies, np.sqrt(variance), 1.0)
        gram = np.where(np.outer(varies, varies), gram / np.outer(scales, scales), 0.0)
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


@dataclass(frozen=True)
class ConditioningMatrix:
    r"""A linear map C on public features, chosen from public features alone.

    Training sees :math:`z = C^\top x`; a weight :math:`\theta` on z acts on x as :math:`C\theta`.

    Privacy
        Built from public columns only: no cost.
    Paper
        Eq. ``cond_matrix``. Ours differs by the factor sqrt(n), which gives conditioned features a second moment
        of one in every direction; by the constant column; and by leaving out directions without information, in
        which case C is :math:`V S^{-1}` (a rotation of the paper's, with one parameter per direction).

    Parameters
    ----------
    matrix : array of shape (d, k)
        C; the last row belongs to the constant column if there is one.
    inverse : array of shape (k, d)
        Takes weights on x to weights on z.
    has_constant : bool
        Whether the last row of ``matrix`` is the intercept's.
    """

    matrix: NDArray[np.float64]
    inverse: NDArray[np.float64]
    has_constant: bool

    @classmethod
    def from_spectrum(cls, spectrum: Spectrum, *, exponent: float = 1.0, damping: float = 0.0) -> "ConditioningMatrix":
        r"""The paper's C, or a gentler one.

        .. math:: C = \gamma\, V (S^2/n + \mathrm{damping}\cdot\bar{s}^2)^{-\mathrm{exponent}/2} V^\top

        with :math:`\bar{s}^2` the mean of :math:`S^2/n` and :math:`\gamma` such that conditioned features have a
        mean square of one per direction.

        Parameters
        ----------
        spectrum : Spectrum
            Of the public features.
        exponent : float
            1 evens the spectrum out, 0 leaves it as it is.
        damping : float
            Keeps directions far below the mean from being blown up.

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
        gains = gains / np.sqrt(np.mean(gains**2)) * np.sqrt(spectrum.num_records)  # of whitened directions
        matrix, inverse = spectrum.whitening * gains, spectrum.coloring / gains[:, None]
        if spectrum.rank == spectrum.num_columns:
            matrix, inverse = matrix @ V.T, V @ inverse
        return cls(matrix, inverse, spectrum.has_constant)

    @classmethod
    def optimal(cls, public_features: PublicFeatures, *, constant: bool = True) -> "ConditioningMatrix":
        r"""The C under which one noisy sum of labels has the least expected error.

        Noise that is spherical in conditioned features has covariance proportional to :math:`(C C^\top)^{-1}` in the
        features themselves, with a size set by the longest conditioned row. The paper's C makes that covariance
        :math:`X^\top X`. The best one, :func:`compute_noise_shape`, spends less on a few long rows:
        :math:`C = C_0 Q^{-1/2}` with :math:`C_0` the paper's and Q the best covariance for its rows.

        Privacy
            Built from public columns only: no cost.

        Parameters
        ----------
        public_features : PublicFeatures
            The features.
        constant : bool
            Add a column of ones for the intercept.
        """
        whitening = cls.from_spectrum(Spectrum.of(public_features, constant=constant))
        rows = whitening.transform(public_features)
        roots, V = np.linalg.eigh(compute_noise_shape(rows / np.sqrt(len(rows))))
        roots *= np.sqrt(np.mean(roots**-2.0))  # conditioned features keep a mean square of one
        return cls(whitening.matrix @ (V / roots) @ V.T, (V * roots) @ V.T @ whitening.inverse, whitening.has_constant)

    @classmethod
    def column_scaling(cls, spectrum: Spectrum) -> "ConditioningMatrix":
        """Each column divided by its root mean square: what a careful user does before DPSGD."""
        return cls(np.diag(1 / spectrum.column_scales), np.diag(spectrum.column_scales), spectrum.has_constant)

    @classmethod
    def identity(cls, spectrum: Spectrum) -> "ConditioningMatrix":
        """Features as they are: the paper's DPSGD."""
        eye = np.eye(spectrum.num_columns)
        return cls(eye, eye, spectrum.has_constant)

    @property
    def num_parameters(self) -> int:
        """Number of conditioned features k."""
        return int(self.matrix.shape[1])

    def transform(self, public_features: PublicFeatures, *, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Conditioned features, shape (n, k)."""
        X = require_public(public_features, function="ConditioningMatrix.transform").values
        slope, offset = self._split()
        if X.shape[1] != len(slope):
            raise SchemaError(f"expected {len(slope)} public columns, got {X.shape[1]}.")
        conditioned = np.empty((len(X), self.num_parameters), dtype=dtype)
        for start in range(0, len(X), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            conditioned[rows] = X[rows] @ slope + offset
        return conditioned

    def fold(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Weights on conditioned features, shape (..., k), as weights on the features themselves, (..., d)."""
        return weights @ self.matrix.T

    def unfold(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Weights on the features, shape (..., d), as weights on conditioned features, (..., k)."""
        return weights @ self.inverse.T

    def _split(self) -> tuple[NDArray[np.float64], NDArray[np.float64] | float]:
        """Rows for the columns, and the row of the constant column."""
        return (self.matrix[:-1], self.matrix[-1]) if self.has_constant else (self.matrix, 0.0)


def compute_noise_shape(rows: NDArray[Any], *, num_rounds: int = 300, tolerance: float = 0.01) -> NDArray[np.float64]:
    r"""Root A of the noise covariance :math:`Q = A A^\top` with the least expected error for whitened rows.

    Minimises :math:`\mathrm{tr}\,Q` subject to :math:`u_i^\top Q^{-1} u_i \le 1` for all rows: the optimum is
    :math:`Q = (\sum_i \lambda_i u_i u_i^\top)^{1/2}`, found by iterating
    :math:`\lambda_i \leftarrow \lambda_i\, u_i^\top Q^{-1} u_i`.

    Privacy
        Reads conditioned public rows only: no cost. Any positive definite answer is safe, the best one or not, because
        the caller calibrates to the longest row under it.

    Parameters
    ----------
    rows : array of shape (n, k)
        Whitened rows, with the identity as Gram matrix.
    num_rounds : int
        Rounds at most.
    tolerance : float
        Stop when the expected error is within this share of the least possible.
    """
    weights = np.ones(len(rows))
    for _ in range(num_rounds):
        squared, V = np.linalg.eigh((rows * weights[:, None]).T @ rows)
        values = np.sqrt(np.maximum(squared, squared[-1] * 1e-12))  # eigenvalues of Q
        lengths = (((rows @ V) ** 2) / values).sum(axis=1)
        # Weights bound every feasible trace from below by tr(Q)^2 / sum(weights); Q itself needs tr(Q) max(lengths).
        if lengths.max() * weights.sum() <= (1 + tolerance) * values.sum():
            break
        weights = weights * lengths
    return np.asarray((V * np.sqrt(values)) @ V.T)


def _sum_gram(
    public_features: PublicFeatures | Iterable[PublicFeatures], *, constant: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Sum of outer products of rows (with the constant column), what was taken off columns, and the number of rows.

    With a constant column a rough mean of every column is taken off first, so that columns far from zero, such as
    dates, keep their digits.
    """
    gram: NDArray[np.float64] | None = None
    shift: NDArray[np.float64] = np.zeros(0)
    num_records = 0
    for X in _blocks(public_features):
        block = X.astype(np.float64, copy=False)
        if gram is None:
            size = block.shape[1] + constant
            gram, shift = np.zeros((size, size)), block.mean(axis=0)
        elif len(shift) != block.shape[1]:
            raise SchemaError("chunks of public features must all have the same columns.")
        if constant:
            block = np.column_stack([block - shift, np.ones(len(block))])
        with np.errstate(over="ignore", invalid="ignore"):
            gram += block.T @ block
        num_records += len(block)
    if gram is None:
        raise SchemaError("there are no public features: the iterator of chunks is empty.")
    if not np.isfinite(gram).all():
        raise SchemaError(TOO_LARGE)
    if len(gram) == 0:
        raise SchemaError(
            "there is no public column and no intercept. Make a column public, or keep fit_intercept=True."
        )
    return gram, shift, num_records


def _blocks(public_features: PublicFeatures | Iterable[PublicFeatures]) -> Iterator[Matrix]:
    chunks: Iterable[Any] = [public_features]
    if isinstance(public_features, Iterable):
        chunks = public_features
    for chunk in chunks:
        X = require_public(chunk, function="Spectrum.of").values
        for start in range(0, len(X), ROWS_AT_ONCE):
            yield X[start : start + ROWS_AT_ONCE]
