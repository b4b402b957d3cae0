r"""Directions of private columns beside public ones, from a noisy release of their second moments.

Public directions are whitened exactly and for free. Private columns q can be whitened only as well as their second
moments are known, so these are released with noise: :math:`\sum_i q_i \bar u_i^\top` and :math:`\sum_i q_i q_i^\top`,
with :math:`\bar u_i` the public row cut to a known length. What is left of q after its part along u is removed gets the
inverse root of its own estimated covariance. However wrong the estimates, privacy holds: they only choose coordinates.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.features.whitening import Directions
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["Moments", "add_private_directions", "release_moments"]

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
    deviation : float
        Standard deviation of the noise in ``cross`` and on the diagonal of ``within``.
    """

    cross: NDArray[np.float64]
    within: NDArray[np.float64]
    deviation: float


@np.errstate(all="ignore")  # no warning may depend on a private value
def release_moments(
    public: Directions,
    private: NDArray[np.float64],
    largest: NDArray[np.float64],
    *,
    mu: float,
    neighbouring: Neighbouring,
    generator: np.random.Generator,
) -> Moments:
    r"""Second moments of private columns, with noise.

    Privacy
        One Gaussian release whose sensitivity is ``mu`` standard deviations. With :math:`|q_i| \le r` and
        :math:`|\bar u_i| \le B`, replacing q by q' moves both sums together by the root of at most
        :math:`B^2 |q - q'|^2 + |q q^\top - q' q'^\top|^2`. Its maximum has both of length r at an angle of cosine
        :math:`\max(-1, -B^2 / 2 r^2)`: :math:`4 r^2 B^2` if :math:`B^2 \ge 2 r^2`, otherwise
        :math:`2 r^4 + 2 r^2 B^2 + B^4 / 2`. Setting a record's contribution to zero moves them by the root of
        :math:`r^2 B^2 + r^4`. Entries off the diagonal appear twice in these distances and get noise of half the
        variance, once.

    Parameters
    ----------
    public : Directions
        Of the public columns.
    private : array of shape (n, p)
        Private columns, clamped and scaled by their declared bounds.
    largest : array of shape (p,)
        Largest absolute value of each, from the declared bounds.
    mu : float
        Sensitivity over standard deviation of the noise.
    neighbouring : Neighbouring
        The relation that sensitivities are meant under.
    generator : numpy.random.Generator
        For the noise.
    """
    n, k = public.rows.shape
    p = private.shape[1]
    length = ROW_LENGTH * math.sqrt(k)
    norms = np.sqrt((public.rows**2).sum(axis=1))
    cut = np.minimum(1.0, length / np.maximum(norms, 1e-12))
    reach = float(np.sqrt(largest @ largest))
    if neighbouring is Neighbouring.REPLACE:
        cosine = max(-1.0, -(length**2) / (2 * reach**2))
        sensitivity = reach * math.sqrt(2 * length**2 * (1 - cosine) + 2 * reach**2 * (1 - cosine**2))
    else:
        sensitivity = math.hypot(reach * length, reach**2)
    deviation = sensitivity / mu
    cross = (private * cut[:, None]).T @ public.rows + deviation * generator.standard_normal((p, k))
    noise = deviation * generator.standard_normal((p, p))
    upper = np.triu(noise, 1) / math.sqrt(2)
    within = private.T @ private + np.diag(np.diag(noise)) + upper + upper.T
    return Moments(cross / n, within / n, deviation / n)


def add_private_directions(public: Directions, private: NDArray[np.float64], moments: Moments) -> Directions:
    """Public directions, and private columns made nearly orthonormal to them and to each other.

    Privacy
        Post-processing of released moments, but for the rows that come out: they are as private as the columns.

    Parameters
    ----------
    public : Directions
        Of the public columns.
    private : array of shape (n, p)
        Private columns, clamped and scaled by their declared bounds.
    moments : Moments
        Released second moments of these columns.
    """
    n, k = public.rows.shape
    p = private.shape[1]
    noise = moments.deviation
    cross = moments.cross * moments.cross**2 / (moments.cross**2 + noise**2)  # what may well be noise is shrunk
    values, vectors = np.linalg.eigh(moments.within - cross @ cross.T)
    least = max(LEAST_VARIANCE, 2 * math.sqrt(p) * noise)
    root = (vectors / np.sqrt(np.maximum(values, least))) @ vectors.T
    rows = np.empty((n, k + p))
    rows[:, :k] = public.rows
    with np.errstate(all="ignore"):
        rows[:, k:] = (private - public.rows @ cross.T) @ root
    matrix = np.block([[public.matrix, -public.matrix @ cross.T @ root], [np.zeros((p, k)), root]])
    return Directions(rows, np.concatenate([public.variances, np.ones(p)]), matrix, public.has_constant, False)
