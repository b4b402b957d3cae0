"""Noise covariance with the least expected error."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.units import Units
from conddp.features.unit_moves import find_long_sums

__all__ = ["compute_noise_shape", "compute_unit_noise_shape"]


def compute_noise_shape(rows: NDArray[Any], *, num_rounds: int = 300, tolerance: float = 0.01) -> NDArray[np.float64]:
    r"""Compute a root A of the noise covariance :math:`Q = A A^\top` with the least expected error for whitened rows.

    Minimises :math:`\mathrm{tr}\,Q` subject to :math:`u_i^\top Q^{-1} u_i \le 1` for all rows. The optimum is
    :math:`Q = (\sum_i \lambda_i u_i u_i^\top)^{1/2}`. It is found by iterating
    :math:`\lambda_i \leftarrow \lambda_i\, u_i^\top Q^{-1} u_i`.

    Privacy
        Reads conditioned public rows only: no cost. Any positive definite result is safe, optimal or not, because the
        caller calibrates the noise to the longest row in its coordinates.

    Parameters
    ----------
    rows : array of shape (n, k)
        Whitened rows, whose Gram matrix is the identity.
    num_rounds : int
        Maximum number of iterations.
    tolerance : float
        Stop when the expected error is within this fraction of the optimum.
    """
    weights = np.ones(len(rows))
    for _ in range(num_rounds):
        squared, V = np.linalg.eigh((rows * weights[:, None]).T @ rows)
        values = np.sqrt(np.maximum(squared, squared[-1] * 1e-12))  # eigenvalues of Q
        lengths = (((rows @ V) ** 2) / values).sum(axis=1)
        # The weights bound every feasible trace from below by tr(Q)^2 / sum(weights). Q attains tr(Q) max(lengths).
        if lengths.max() * weights.sum() <= (1 + tolerance) * values.sum():
            break
        weights = weights * lengths
    return np.asarray((V * np.sqrt(values)) @ V.T)


def compute_unit_noise_shape(rows: NDArray[Any], units: Units, *, num_rounds: int = 2) -> NDArray[np.float64]:
    r"""Compute a root of the noise covariance with little expected error if all records of a unit change together.

    A unit moves the sum by :math:`\sum_i t_i u_i` with any :math:`|t_i| \le 1`. Of these moves, the rows themselves and
    a few long sums of the rows of each unit are passed to :func:`compute_noise_shape`. Long sums are searched for
    again in the coordinates of the shape that was found.

    Privacy
        Reads public rows only: no cost. Any positive definite result is safe, because the caller calibrates the noise
        to the unit that can move the sum most.

    Parameters
    ----------
    rows : array of shape (n, k)
        Weighted rows.
    units : Units
        Units of the records, arranged.
    num_rounds : int
        Number of times that long sums are searched for.
    """
    moves, shape = [rows], np.eye(rows.shape[1])
    for _ in range(num_rounds):
        moves.append(find_long_sums(np.linalg.solve(shape, rows.T).T, units) @ shape.T)
        shape = compute_noise_shape(np.vstack(moves))
    return shape
