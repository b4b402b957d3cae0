r"""Singular vectors of public bins, from which a table of embeddings can start.

Let X be the matrix of shape (n, num_bins) that counts how often each bin occurs in each record, and
:math:`X = U S V^\top`. The rows of :math:`V S^{-1}` for the leading singular values are embeddings of the bins: their
sum over the categories of a record is a row of U, whose columns are orthonormal.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from conddp.data.parts import PublicFeatures, SparseMatrix
from conddp.features.standardization import choose_signs

__all__ = ["compute_spectral_table", "expand_codes"]

TOLERANCE = 1e-6  # directions with smaller singular values, relative to the largest, are dropped
SMALL = 512  # bins up to which all singular vectors are computed


def compute_spectral_table(codes: NDArray[np.int64], *, num_bins: int, width: int) -> NDArray[np.float64]:
    r"""Compute embeddings :math:`\sqrt n\, V S^{-1}` of bins for the leading singular values; shape (num_bins, k).

    Bins that do not occur get zeros. There are fewer than ``width`` columns if the bins span fewer directions.

    Privacy
        Reads public bins only: no cost.
    Paper
        Sec. ``criteo_search``, "Adapting to Categorical Features": the initial table of embeddings. The factor
        :math:`\sqrt n` gives sums of embeddings unit second moments.

    Parameters
    ----------
    codes : array of shape (n, c)
        Bin of each category of each record.
    num_bins : int
        Number of bins.
    width : int
        Largest number of columns.

    Examples
    --------
    >>> codes = np.array([[0, 1], [0, 2], [0, 1]])
    >>> table = compute_spectral_table(codes, num_bins=4, width=2)
    >>> sums = table[codes].sum(axis=1)
    >>> bool(np.allclose(sums.T @ sums / 3, np.eye(2)))
    True
    """
    n = len(codes)
    counts = count_codes(codes, num_bins)
    if min(n, num_bins) <= max(SMALL, 2 * width):
        gram = (counts.T @ counts).toarray()
        squared, vectors = np.linalg.eigh(gram)
        values = np.sqrt(np.maximum(squared, 0.0))
    else:
        start = np.full(min(n, num_bins), 1.0)
        from scipy.sparse.linalg import svds

        _, values, rows = svds(counts, k=width, v0=start)
        vectors = rows.T
    order = np.argsort(-values)[:width]
    values, vectors = values[order], vectors[:, order]
    kept = values > TOLERANCE * values[0]
    values, vectors = values[kept], vectors[:, kept]
    return np.asarray(np.sqrt(n) * vectors * choose_signs(vectors) / values)


def count_codes(codes: NDArray[np.int64], num_bins: int) -> SparseMatrix:
    """Count how often each bin occurs in each record; shape (n, num_bins)."""
    n, c = codes.shape
    counts = csr_array((np.ones(n * c), codes.flatten(), np.arange(n + 1) * c), shape=(n, num_bins))
    counts.sum_duplicates()
    return counts


def expand_codes(public_features: PublicFeatures, num_codes: int, *, num_bins: int) -> PublicFeatures:
    """Replace columns of bins by the count of every bin that occurs, for methods that are linear in public features."""
    codes = public_features.get_columns(slice(0, num_codes)).astype(np.int64)
    occurring, places = np.unique(codes, return_inverse=True)
    counts = count_codes(places.reshape(codes.shape), len(occurring))
    numbers = public_features.get_columns(slice(num_codes, None))
    return PublicFeatures(hstack([counts, csr_array(numbers)], format="csr"))
