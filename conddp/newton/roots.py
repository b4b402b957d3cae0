"""Triangular roots of matrices that are positive semidefinite but for rounding."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["take_root"]

Vector = NDArray[np.float64]

LEAST_JITTER, MOST_JITTER = 1e-12, 1e-2  # of the trace; between them, ten times as much in every attempt


def take_root(matrix: Vector, *, jitter: float = 0.0) -> Vector:
    r"""Compute a lower triangular L with :math:`L L^\top` = matrix + jitter times its trace times the identity.

    Products of features in float32 may have eigenvalues slightly below zero, so that there is no root. Then there is
    more jitter, until there is one.

    Parameters
    ----------
    matrix : array of shape (k, k)
        Symmetric matrix.
    jitter : float
        What is added to the diagonal, as a fraction of the trace.
    """
    from scipy.linalg import LinAlgError, cholesky  # takes a while to import, and only learned features need it

    diagonal, unit = np.diag(matrix).copy(), max(float(np.trace(matrix)), 1e-300)
    added = matrix.copy()
    while True:
        np.fill_diagonal(added, diagonal + jitter * unit)
        try:
            return np.asarray(cholesky(added, lower=True))
        except LinAlgError:
            if jitter >= MOST_JITTER:
                raise
            jitter = max(10 * jitter, LEAST_JITTER)
