r"""Rows with private columns in them, whitened by a noisy release of their second moments.

Public rows are whitened exactly and for free. Private columns q can be whitened only as well as their second moments
are known, so these are released with noise: :math:`\sum_i q_i \bar u_i^\top` and :math:`\sum_i q_i q_i^\top`, with
:math:`\bar u_i` the public row cut to a known length. What is left of q after its part along u is removed gets the
inverse root of its own estimated covariance. However wrong the estimates, privacy holds: they only choose coordinates.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import run_pass
from conddp.features.whitening import WhitenedRows
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import BoundedSum, Curator

__all__ = ["Moments", "PrivateRows", "bound_moments", "release_moments"]

ROW_LENGTH = 1.0  # to which public rows are cut, in units of the root of their number of directions
LEAST_VARIANCE = 0.01  # that a private direction is taken to have; 1 is a value that spreads evenly over its bounds


@dataclass(frozen=True)
class Moments:
    """Noisy second moments of private columns.

    Parameters
    ----------
    cross : array of shape (p, k)
        Mean over records of private column times public direction, rows cut to their length.
    within : array of shape (p, p)
        Mean over records of private column times private column.
    noise_std : float
        Standard deviation of the noise in ``cross`` and on the diagonal of ``within``.
    """

    cross: NDArray[np.float64]
    within: NDArray[np.float64]
    noise_std: float


@dataclass(frozen=True)
class PrivateRows:
    """Rows that private columns take part in: as private as these columns.

    Privacy
        That rows are of this type tells a release to assume nothing about them but the clip norm.

    Parameters
    ----------
    values : array of shape (n, k)
        Nearly whitened rows; the first column is the constant, if there is one.
    variances, matrix, has_constant
        As in :class:`~conddp.features.whitening.WhitenedRows`; released, so public.
    """

    values: NDArray[np.float64]
    variances: NDArray[np.float64]
    matrix: NDArray[np.float64]
    has_constant: bool

    @classmethod
    def of(cls, public: WhitenedRows, private: NDArray[np.float64], moments: Moments) -> "PrivateRows":
        """Public rows, and private columns made nearly orthonormal to them and to each other.

        Privacy
            Post-processing of released moments, but for ``values``: they are as private as the columns.

        Parameters
        ----------
        public : WhitenedRows
            Of the public columns.
        private : array of shape (n, p)
            Private columns, clamped and scaled by their declared bounds.
        moments : Moments
            Released second moments of these columns.
        """
        n, k = public.values.shape
        p = private.shape[1]
        noise_std = moments.noise_std
        cross = moments.cross * moments.cross**2 / (moments.cross**2 + noise_std**2)  # what may be noise is shrunk
        eigenvalues, vectors = np.linalg.eigh(moments.within - cross @ cross.T)
        least = max(LEAST_VARIANCE, 2 * math.sqrt(p) * noise_std)
        root = (vectors / np.sqrt(np.maximum(eigenvalues, least))) @ vectors.T
        values = np.empty((n, k + p))
        values[:, :k] = public.values
        with np.errstate(all="ignore"):
            values[:, k:] = (private - public.values @ cross.T) @ root
        matrix = np.block([[public.matrix, -public.matrix @ cross.T @ root], [np.zeros((p, k)), root]])
        return cls(values, np.concatenate([public.variances, np.ones(p)]), matrix, public.has_constant)

    @property
    def num_directions(self) -> int:
        """Number of directions k, the constant included."""
        return int(self.values.shape[1])


def bound_moments(row_length: float, private_length: float, neighbouring: Neighbouring) -> float:
    r"""L2 distance by which one record can move the second moments of its private columns.

    With :math:`|q| \le r` and :math:`|\bar u| \le B`, replacing q by q' moves both sums together by the root of at most
    :math:`B^2 |q - q'|^2 + |q q^\top - q' q'^\top|^2`. Its maximum has both of length r at an angle of cosine
    :math:`\max(-1, -B^2 / 2 r^2)`: :math:`4 r^2 B^2` if :math:`B^2 \ge 2 r^2`, otherwise
    :math:`2 r^4 + 2 r^2 B^2 + B^4 / 2`. Setting a record's contribution to zero moves them by the root of
    :math:`r^2 B^2 + r^4`.

    Examples
    --------
    >>> bound_moments(2.0, 1.0, Neighbouring.REPLACE), bound_moments(0.0, 1.0, Neighbouring.ZERO_OUT)
    (4.0, 1.0)
    """
    if neighbouring is Neighbouring.ZERO_OUT:
        return math.hypot(private_length * row_length, private_length**2)
    cosine = max(-1.0, -(row_length**2) / (2 * private_length**2))
    return private_length * math.sqrt(2 * row_length**2 * (1 - cosine) + 2 * private_length**2 * (1 - cosine**2))


@np.errstate(all="ignore")  # no warning may depend on a private value
def release_moments(
    public: WhitenedRows,
    private: NDArray[np.float64],
    largest: NDArray[np.float64],
    *,
    mu: float,
    neighbouring: Neighbouring,
    curator: Curator,
) -> Moments:
    r"""Second moments of private columns, with noise.

    Privacy
        One Gaussian release whose sensitivity, :func:`bound_moments`, is ``mu`` standard deviations. Both copies of an
        entry off the diagonal count in the sensitivity, get noise of their own, and are averaged.

    Parameters
    ----------
    public : WhitenedRows
        Of the public columns.
    private : array of shape (n, p)
        Private columns, clamped and scaled by their declared bounds.
    largest : array of shape (p,)
        Largest absolute value of each, from the declared bounds.
    mu : float
        Sensitivity over standard deviation of the noise.
    neighbouring : Neighbouring
        The relation that sensitivities are meant under.
    curator : Curator
        Who releases them.
    """
    n, k = public.values.shape
    p = private.shape[1]
    if len(largest) != p:
        raise ValueError(f"{p} private columns need as many bounds, got {len(largest)}.")
    length = ROW_LENGTH * math.sqrt(k)

    def sum_block(
        _: slice, rows: NDArray[np.float64], block: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        cut = np.minimum(1.0, length / np.maximum(np.sqrt((rows**2).sum(axis=1)), 1e-12))
        return (block * cut[:, None]).T @ rows, block.T @ block

    cross, within = run_pass(sum_block, public.values, private)
    sensitivity = bound_moments(length, float(np.sqrt(largest @ largest)), neighbouring)
    sums = BoundedSum(np.concatenate([cross.ravel(), within.ravel()]), sensitivity, "second moments of private columns")
    noisy = curator.release_gaussian(sums, noise_std=sensitivity / mu)
    cross, within = noisy[: p * k].reshape(p, k), noisy[p * k :].reshape(p, p)
    return Moments(cross / n, (within + within.T) / 2 / n, sensitivity / mu / n)
