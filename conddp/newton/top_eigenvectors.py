"""Eigenvectors of the largest eigenvalues of a symmetric matrix, as many as the eigenvalues call for."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_top_eigenvectors"]

Vector = NDArray[np.float64]


def find_top_eigenvectors(matrix: Vector, count: Callable[[Vector], int]) -> tuple[Vector, Vector]:
    """Find the largest eigenvalues and their eigenvectors.

    The matrix is reduced to tridiagonal form once. From this, all eigenvalues are found in little time, and then only
    the eigenvectors that are needed. ``scipy.linalg.eigh`` with an index subset takes up to three times as long.

    Parameters
    ----------
    matrix : array of shape (m, m)
        Symmetric matrix, of which only the lower triangle is read. It is overwritten if it is in column-major order.
    count : callable
        Called with all eigenvalues in decreasing order; returns the number of eigenvectors, at least one. Not
        called for a matrix without rows.

    Returns
    -------
    eigenvalues : array of shape (k,)
        In decreasing order.
    eigenvectors : array of shape (m, k)
        Orthonormal columns. Of each, the entry that is largest in absolute value is positive.

    Examples
    --------
    >>> eigenvalues, eigenvectors = find_top_eigenvectors(np.diag([1.0, 5.0, 3.0]), lambda values: (values > 2).sum())
    >>> eigenvalues.tolist(), eigenvectors.round().tolist()
    ([5.0, 3.0], [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    """
    from scipy.linalg import eigh, eigh_tridiagonal, lapack

    size = len(matrix)
    if not size:
        return np.empty(0), np.empty((0, 0))
    if size < 3:  # nothing to reduce
        found, vectors = eigh(matrix)
        number = count(found[::-1])
        return found[::-1][:number], _fix_signs(vectors[:, ::-1][:, :number])
    length = int(lapack.dsytrd_lwork(size, lower=1)[0])
    reduced, diagonal, beside, factors, info = lapack.dsytrd(matrix, lower=1, lwork=length, overwrite_a=1)
    if info:
        raise np.linalg.LinAlgError(f"LAPACK's sytrd failed with info={info}.")
    values = np.asarray(eigh_tridiagonal(diagonal, beside, eigvals_only=True)[::-1], dtype=np.float64)
    number = count(values)
    vectors = _find_vectors(diagonal, beside, number)
    # The first reflection leaves the first coordinate alone, so that they act on the others as those of a QR.
    reflections, rest = np.asfortranarray(reduced[1:, :-1]), np.asfortranarray(vectors[1:])
    length = int(lapack.dormqr("L", "N", reflections, factors, rest, -1)[1][0])
    vectors[1:], _, info = lapack.dormqr("L", "N", reflections, factors, rest, length, overwrite_c=1)
    if info:
        raise np.linalg.LinAlgError(f"LAPACK's ormqr failed with info={info}.")
    return values[:number], _fix_signs(vectors[:, ::-1])


def _find_vectors(diagonal: Vector, beside: Vector, number: int) -> Vector:
    """Eigenvectors of the largest eigenvalues of a tridiagonal matrix, in increasing order of eigenvalues."""
    from scipy.linalg import eigh_tridiagonal

    find = partial(
        eigh_tridiagonal, diagonal, beside, select="i", select_range=(len(diagonal) - number, len(diagonal) - 1)
    )
    try:
        _, vectors = find(lapack_driver="stemr")
    except np.linalg.LinAlgError:  # it is the fastest, but may fail if many eigenvalues are almost zero
        _, vectors = find(lapack_driver="stebz")
    return np.array(vectors, dtype=np.float64)


def _fix_signs(vectors: Vector) -> Vector:
    """Make the largest entry of every vector positive, so that signs do not depend on how vectors were computed."""
    largest = np.argmax(np.abs(vectors), axis=0)
    return vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
