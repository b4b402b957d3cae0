r"""Rows with private columns, whitened with a noisy release of their second moments.

Public rows are whitened exactly, at no cost. Private columns q can be whitened only as accurately as their second
moments are known. These are released with noise: :math:`\sum_i q_i \bar u_i^\top` and :math:`\sum_i q_i q_i^\top`,
where :math:`\bar u_i` is the public row in its directions of largest variance, clipped to a known length. The
component of q along these directions is then subtracted, and the remainder is multiplied by the inverse square root of
its estimated covariance. Errors in these estimates do not affect privacy, because the estimates only define
coordinates. They do affect the fit: with hundreds of directions, the noise in their products with q would add up to
more than q itself, so only those of largest variance are used.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import run_pass
from conddp.data.scaling import PrivateSpan
from conddp.features.public_rows import DensePass
from conddp.features.row_weights import RowWeights
from conddp.features.whitening import WhitenedRows
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator

__all__ = ["Moments", "PrivateRows", "bound_moments", "release_moments"]

ROW_LENGTH = 1.0  # length to which public rows are clipped, in units of the square root of the number of directions
MOST_DIRECTIONS = 32  # public directions whose products with private columns are released, the constant included
LEAST_VARIANCE = 0.01  # lower bound on the variance of a private direction; a uniform column has variance 1


@dataclass(frozen=True)
class Moments:
    """Noisy second moments of private features.

    Parameters
    ----------
    cross : array of shape (p, m)
        Mean over records of private feature times each of the first m public directions, with clipped public rows.
    within : array of shape (p, p)
        Mean over records of private feature times private feature.
    noise_std : float
        Standard deviation of the noise in ``cross`` and on the diagonal of ``within``.
    """

    cross: NDArray[np.float64]
    within: NDArray[np.float64]
    noise_std: float


@dataclass(frozen=True)
class SecondMoments:
    """Second moments of approximately whitened private directions, estimated from what has been released.

    Parameters
    ----------
    values : array of shape (p, k)
        Second moments of private directions with all directions. Those of whitened rows are one for a direction with
        itself, and zero otherwise.
    errors : array of shape (p, k)
        Expected squared errors of the values.
    """

    values: NDArray[np.float64]
    errors: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        moments: Moments,
        cross: NDArray[np.float64],
        root: NDArray[np.float64],
        clipped: NDArray[np.float64],
        *,
        num_public: int,
    ) -> "SecondMoments":
        r"""Estimate the second moments of directions :math:`R^\top (q - C u)`.

        Privacy
            Post-processing of released moments, with public rows: no cost.

        Parameters
        ----------
        moments : Moments
            Released moments.
        cross : array of shape (p, m)
            C, the multiples of public directions that were subtracted from the private columns.
        root : array of shape (p, p)
            R, the matrix that the remainder was multiplied by.
        clipped : array of shape (m, m)
            Second moments of clipped and whole public rows, by which clipping reduced the released moments.
        num_public : int
            Number of public directions. Moments with those after the first m were not released; they are assumed to
            be like the others.
        """
        p, m = cross.shape
        inverse = np.linalg.pinv(clipped)
        whole, noise_variance = moments.cross @ inverse, moments.noise_std**2
        lengths = (root**2).sum(axis=0)
        values, errors = np.zeros((p, num_public + p)), np.empty((p, num_public + p))
        values[:, :m] = root.T @ (whole - cross)
        errors[:, :m] = noise_variance * lengths[:, None] * (inverse**2).sum(axis=0)
        typical = max(float((moments.cross**2).mean()) - noise_variance, 0.0)
        errors[:, m:num_public] = typical * lengths[:, None]
        within = moments.within - whole @ cross.T - cross @ whole.T + cross @ cross.T
        values[:, num_public:] = root.T @ within @ root
        errors[:, num_public:] = noise_variance * np.outer(lengths, lengths)
        return cls(values, errors)


@dataclass(frozen=True)
class PrivateRows:
    """Rows that include private columns. They are as private as these columns.

    Privacy
        For rows of this type, a release bounds the sensitivity by the clip norm alone.

    Parameters
    ----------
    values : array of shape (n, k)
        Approximately whitened rows. The first column is the constant, if there is one.
    variances, matrix, has_constant, weights
        Same as in :class:`~conddp.features.whitening.WhitenedRows`. They have been released, so they are public.
    second_moments : SecondMoments, optional
        What is known about how far the rows are from being whitened.
    """

    values: NDArray[np.float64]
    variances: NDArray[np.float64]
    matrix: NDArray[np.float64]
    has_constant: bool
    weights: RowWeights | None = None
    second_moments: SecondMoments | None = None

    @classmethod
    def of(cls, public: WhitenedRows, private: NDArray[np.float64], moments: Moments) -> "PrivateRows":
        """Append private columns to public rows, approximately orthonormal to them and to each other.

        Privacy
            Post-processing of released moments, except for ``values``, which are as private as the columns.

        Parameters
        ----------
        public : WhitenedRows
            Whitened rows of the public columns.
        private : array of shape (n, p)
            Private columns, clamped and scaled by their declared bounds.
        moments : Moments
            Released second moments of the private columns.
        """
        n, k = public.values.shape
        p, m = moments.cross.shape
        noise_std = moments.noise_std
        clipped, cross = _sum_clipped(public, m), moments.cross.copy()
        if public.has_constant and m:  # clipping public rows moves the means, and a wrong mean would move all labels
            cross[:, 0] = (cross @ np.linalg.pinv(clipped))[:, 0]
        cross = cross * cross**2 / (cross**2 + noise_std**2)  # shrink small, noisy entries
        eigenvalues, vectors = np.linalg.eigh(moments.within - cross @ cross.T)
        least = max(LEAST_VARIANCE, 2 * math.sqrt(p) * noise_std)
        root = (vectors / np.sqrt(np.maximum(eigenvalues, least))) @ vectors.T
        values = np.empty((n, k + p))
        values[:, :k] = public.values
        with np.errstate(all="ignore"):
            values[:, k:] = (private - public.values[:, :m] @ cross.T) @ root
        matrix = np.block([[public.matrix, -public.matrix[:, :m] @ cross.T @ root], [np.zeros((p, k)), root]])
        variances = np.concatenate([public.variances, np.ones(p)])
        estimated = SecondMoments.of(moments, cross, root, clipped, num_public=k)
        return cls(values, variances, matrix, public.has_constant, public.weights, estimated)

    def start_pass(self, coefficients: NDArray[np.float64], direction_weights: NDArray[np.float64]) -> DensePass:
        """Prepare a pass over the rows. All that it computes is as private as the columns."""
        return DensePass(self.values, coefficients, direction_weights)

    def pool(self, variance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the variances unchanged: every direction may have a weight of its own."""
        return variance

    @property
    def num_records(self) -> int:
        """Number of records n."""
        return len(self.values)

    @property
    def total_weight(self) -> float:
        """Sum of the weights of the records; n without weights."""
        return float(len(self.values)) if self.weights is None else self.weights.total

    @property
    def num_directions(self) -> int:
        """Number of directions k, including the constant."""
        return int(self.values.shape[1])


def _sum_clipped(public: WhitenedRows, number: int) -> NDArray[np.float64]:
    """Mean of clipped times whole public rows in their first directions, as :func:`release_moments` clips them."""
    first, weights = public.values[:, :number], public.weights
    cut = _cut_rows(first)
    return np.asarray((first * (cut if weights is None else cut * weights.values)[:, None]).T @ first) / (
        public.total_weight
    )


def _cut_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Factors by which public rows are multiplied, so that none is longer than their typical length."""
    length = ROW_LENGTH * math.sqrt(rows.shape[1])
    cut = np.minimum(1.0, length / np.maximum(np.sqrt((rows**2).sum(axis=1)), 1e-12))
    return np.asarray(cut)


def bound_moments(row_length: float, private_length: float, diameter: float, neighbouring: Neighbouring) -> float:
    r"""Bound the L2 sensitivity of the second moments of private columns.

    Let :math:`|q| \le r`, :math:`|q - q'| \le D` and :math:`|\bar u| \le B`. Replacing q by q' changes both sums
    together by at most the square root of :math:`B^2 |q - q'|^2 + |q q^\top - q' q'^\top|^2`. Write
    :math:`a = |q|^2`, :math:`b = |q'|^2` and :math:`t = |q - q'|^2`. The second term is
    :math:`(a - b)^2 / 2 + (a + b) t - t^2 / 2`, which is convex in (a, b). For a given :math:`t = r^2 x^2` it is
    therefore largest at an extreme point of the possible (a, b). Either both vectors have length r, or they are
    collinear and one of them has length r. It is then :math:`r^4 x^2 \max(2 - x^2 / 2, (2 - x)^2)`. Together with the
    first term, this increases in x up to :math:`x^2 = \min(4, 2 + B^2 / r^2)` and decreases from there, so the bound is
    attained at the smaller of this x and :math:`D / r`. Setting the contribution of a record to zero changes the sums
    by at most the square root of :math:`r^2 B^2 + r^4`.

    Parameters
    ----------
    row_length : float
        Largest length B of a public row.
    private_length : float
        Largest length r of the private features of a record.
    diameter : float
        Largest distance D between the private features of two records. Values above 2r have no effect.
    neighbouring : Neighbouring
        Neighbouring relation.

    Examples
    --------
    >>> bound_moments(2.0, 1.0, 2.0, Neighbouring.REPLACE), bound_moments(0.0, 1.0, 2.0, Neighbouring.ZERO_OUT)
    (4.0, 1.0)
    """
    B, r = row_length, private_length
    if neighbouring is Neighbouring.ZERO_OUT:
        return math.hypot(r * B, r**2)
    x = min(diameter / r, 2.0, math.sqrt(2 + (B / r) ** 2))
    return r * x * math.sqrt(B**2 + r**2 * max(2 - x**2 / 2, (2 - x) ** 2))


@np.errstate(all="ignore")  # warnings must not depend on private values
def release_moments(
    public: WhitenedRows,
    private: NDArray[np.float64],
    span: PrivateSpan,
    *,
    mu: float,
    neighbouring: Neighbouring,
    curator: Curator,
) -> Moments:
    r"""Release the second moments of private columns with noise.

    Privacy
        One Gaussian release whose sensitivity, :func:`bound_moments`, is ``mu`` standard deviations. Both copies of an
        off-diagonal entry count towards the sensitivity. They receive independent noise and are averaged. With units,
        each record's contribution is multiplied by its public weight. Replacing all records of a unit changes the sums
        by at most the sum of their weights times the bound for one record (triangle inequality), so the sensitivity is
        multiplied by the largest such sum.

    Parameters
    ----------
    public : WhitenedRows
        Whitened rows of the public columns.
    private : array of shape (n, p)
        Private features, scaled by the declared bounds and categories.
    span : PrivateSpan
        How far the private features of a record can reach.
    mu : float
        Sensitivity divided by the standard deviation of the noise.
    neighbouring : Neighbouring
        Neighbouring relation for the sensitivity.
    curator : Curator
        Curator through which the moments are released.
    """
    k, p = min(public.num_directions, MOST_DIRECTIONS), private.shape[1]
    if span.num_features != p:
        raise ValueError(f"{p} private features need the span of as many, got {span.num_features}.")
    length = ROW_LENGTH * math.sqrt(k)

    weights, total = public.weights, public.total_weight

    def sum_block(
        span: slice, rows: NDArray[np.float64], block: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        first = rows[:, :k]
        scaled = block if weights is None else block * weights.values[span, None]
        return (scaled * _cut_rows(first)[:, None]).T @ first, scaled.T @ block

    cross, within = run_pass(sum_block, public.values, private)
    sensitivity = bound_moments(length, span.length, span.diameter, neighbouring)
    sensitivity *= 1.0 if weights is None else max(1.0, weights.largest_total)
    sums = BoundedSum(np.concatenate([cross.ravel(), within.ravel()]), sensitivity, "second moments of private columns")
    noisy = curator.release_gaussian(sums, noise_std=sensitivity / mu)
    cross, within = noisy[: p * k].reshape(p, k), noisy[p * k :].reshape(p, p)
    return Moments(cross / total, (within + within.T) / 2 / total, sensitivity / mu / total)
