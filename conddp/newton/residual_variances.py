r"""Variances of least-squares coefficients whose residuals differ in size, from one further release.

With rows :math:`z_i` in which coordinate l is that of coefficient l in :math:`(X^\top X / n)^{-1} x_i`, scaled to unit
second moment, the sampling variance of this coefficient is :math:`\tfrac1n \sum_i r_i^2 z_{il}^2 / n` (White's
estimator). It is :math:`\sigma^2 / n` times a factor, which is one if the size of residuals has nothing to do with the
columns. For all coefficients together, and a last coordinate :math:`z_{i0} = 1` to compare with, this is released:

.. math:: \sum_i \min(r_i^2, w^2)\, v_i + N(0, s^2 I), \qquad
   v_i = \min\Big(1, \frac{L}{\|z_i \circ z_i\|}\Big)\, z_i \circ z_i
"""

import math

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import Sliceable, list_blocks, run_pass
from conddp.features.whitening import WhitenedRows
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.release import Curator

__all__ = ["release_variance_factors"]

Vector = NDArray[np.float64]

LIMIT = 4.0  # w, in standard deviations of the residuals
REACH = 3.0  # L, in typical lengths of the squares of normal rows
PRIOR_STD = 1.0  # of a factor about one, before the release
LEAST_FACTOR = 0.5


@np.errstate(all="ignore")  # warnings must not depend on labels
def release_variance_factors(
    rows: WhitenedRows,
    label: Sliceable,
    label_range: tuple[float, float],
    coefficients: Vector,
    residual_std: float,
    slopes: Vector,
    *,
    mu: float,
    curator: Curator,
) -> Vector:
    r"""Release by which factors the sampling variances of coefficients differ from those of equal residuals.

    Privacy
        One Gaussian release whose sensitivity is ``mu`` standard deviations. Rows are public. Record i adds
        :math:`t_i v_i` with :math:`0 \le t_i \le w^2` and a public vector :math:`v_i`. Replacing its label, or setting
        its contribution to zero, changes the sum by at most :math:`w^2 \|v_i\|`. Records of a unit are multiplied by
        their public weights :math:`a_i`, and move the sum by at most :math:`w^2 \sum_i a_i \|v_i\|` together (triangle
        inequality). The sensitivity is the largest of these, and at least :math:`w^2` times the largest weight of a
        record, so that the noise covers rounding errors of sums.

    Parameters
    ----------
    rows : WhitenedRows
        Whitened public rows, shape (n, k).
    label : array of shape (n,)
        Labels within ``label_range``, in units of their range.
    label_range : (low, high)
        Declared bounds in the same units.
    coefficients : array of shape (k,)
        Coefficients of the directions; already released.
    residual_std : float
        Released standard deviation of the residuals.
    slopes : array of shape (m, k)
        Derivatives of the coefficients of interest with respect to those of the directions.
    mu : float
        Sensitivity divided by the standard deviation of the noise.
    curator : Curator
        Curator through which the sum is released.
    """
    lengths = np.sqrt((slopes**2).sum(axis=1))
    units = slopes / np.where(lengths > 0, lengths, 1.0)[:, None]
    limit = (LIMIT * residual_std) ** 2
    longest = REACH * math.sqrt(3 * len(slopes) + 1)
    weights = np.ones(rows.num_records) if rows.weights is None else rows.weights.values

    def square_rows(block: Vector) -> Vector:
        squares = np.column_stack([(block @ units.T) ** 2, np.ones(len(block))])
        norms = np.sqrt((squares**2).sum(axis=1))
        return np.asarray(squares * np.minimum(1.0, longest / np.maximum(norms, 1e-12))[:, None])

    def sum_block(span: slice, labels: Vector, block: Vector) -> Vector:
        residuals = labels.clip(*label_range) - block @ coefficients
        return np.asarray((np.minimum(residuals**2, limit) * weights[span]) @ square_rows(block))

    blocks = [square_rows(rows.values[span]) for span in list_blocks(rows.num_records)]
    moves = weights * np.concatenate([np.sqrt((block**2).sum(axis=1)) for block in blocks])
    public = weights @ np.concatenate(blocks)
    if rows.weights is not None:
        moves = rows.weights.units.add_up(moves)
    sensitivity = limit * max(float(moves.max()), float(weights.max()))
    total = run_pass(sum_block, label, rows.values)
    sums = BoundedSum(total, sensitivity, "squared residuals times squared rows")
    noise_std = sensitivity / mu
    released = curator.release_gaussian(sums, noise_std=noise_std)
    means, noise_stds = released / np.maximum(public, 1e-300), noise_std / np.maximum(public, 1e-300)
    common = max(float(means[-1]), 0.5 * residual_std**2)  # of clamped squares, whatever the columns
    trust = PRIOR_STD**2 / (PRIOR_STD**2 + (noise_stds[:-1] / common) ** 2)
    factors = np.maximum(1 + trust * (means[:-1] / common - 1), LEAST_FACTOR)
    return np.where(lengths > 0, factors, 1.0)
