r"""How far the records of one unit can move a sum together.

When the private values of record i change, its term of a sum moves by :math:`t_i v_i` with some :math:`|t_i| \le 1`,
where :math:`v_i` is public. When all private values of a unit change, the sum moves by :math:`\sum_i t_i v_i`, added
over the records of the unit. Its length is a convex function of :math:`t`, so the maximum is attained with all
:math:`t_i = \pm 1`; finding it is as hard as finding a maximum cut. Two bounds hold for every :math:`t`:

.. math:: \Big\|\sum_i t_i v_i\Big\|^2 = \sum_{ij} t_i t_j \langle v_i, v_j\rangle \le
   \sum_{ij} |\langle v_i, v_j\rangle|

and, with :math:`l_i = \|v_i\|` and the Cauchy-Schwarz inequality for the vector with entries :math:`t_i \sqrt{l_i}`,

.. math:: \Big\|\sum_i t_i v_i\Big\|^2 \le \Big(\sum_i l_i\Big)\, \lambda_{\max}\Big(\sum_i v_i v_i^\top / l_i\Big).

Neither is above the square of the sum of lengths, because :math:`|\langle v_i, v_j\rangle| \le l_i l_j` and because a
largest eigenvalue is at most the trace. Both equal it if all vectors of a unit are parallel. The first is exact for one
or two records and for orthogonal vectors. The second is smaller if a unit has many more records than there are
directions.
"""

import numpy as np
from numpy.typing import NDArray

from conddp.data.units import Units

__all__ = ["bound_largest_move", "bound_moves", "bound_moves_of_rows", "find_long_sums"]

Vector = NDArray[np.float64]

ALL_PAIRS = 64  # units with more records are bounded by the eigenvalue alone, since pairs grow with the square
NUM_ROUNDS = 5  # of the search for signs
AT_ONCE = 2**20  # entries of a batch of Gram matrices


def bound_moves(vectors: Vector, units: Units) -> Vector:
    r"""Bound the length of :math:`\sum_i t_i v_i` over all :math:`|t_i| \le 1`, for every unit; shape (m,).

    Privacy
        Reads public vectors only: no cost.

    Parameters
    ----------
    vectors : array of shape (n, d)
        The vectors :math:`v_i`.
    units : Units
        Units of the records, arranged (:meth:`~conddp.data.units.Units.arrange`).
    """
    bounds = _bound_by_pairs(vectors, units)
    for size, of_units, of_rows in units.list_groups():
        if size > min(vectors.shape[1], ALL_PAIRS):  # otherwise the eigenvalue hardly improves on the pairs
            bounds[of_units] = np.minimum(bounds[of_units], _bound_by_eigenvalue(_fold(vectors[of_rows], size)))
    return bounds


def bound_moves_of_rows(rows: Vector, units: Units, weights: Vector | None = None) -> Vector:
    """Bound how far the records of each unit move a sum together, in moves of one record of weight 1; shape (m,).

    Privacy
        Reads public rows only: no cost.

    Parameters
    ----------
    rows : array of shape (n, k)
        Public rows that residuals are multiplied with. Only their directions matter.
    units : Units
        Units of the records, arranged.
    weights : array of shape (n,), optional
        Weights of the records; 1 if None.
    """
    lengths = np.sqrt((rows**2).sum(axis=1))
    directions = rows / np.maximum(lengths, 1e-300)[:, None]
    if weights is None:
        return np.maximum(1.0, bound_moves(directions, units))
    heaviest = np.zeros(units.num_units)
    np.maximum.at(heaviest, units.codes, weights)
    return np.maximum(heaviest, bound_moves(directions * weights[:, None], units))


def bound_largest_move(vectors: Vector, units: Units, *, beside: Vector) -> float:
    r"""Bound the largest move of any unit, together with a further coordinate that moves by at most ``beside``.

    This is the maximum of :math:`\sqrt{\mathrm{bound}^2 + \mathrm{beside}^2}` over all units, with the smaller of both
    bounds of :func:`bound_moves`. The eigenvalues are computed only for units that may attain the maximum.

    Privacy
        Reads public vectors only: no cost.

    Parameters
    ----------
    vectors : array of shape (n, d)
        The vectors :math:`v_i`.
    units : Units
        Units of the records, arranged.
    beside : array of shape (m,)
        Largest move of the further coordinate, for every unit.
    """
    bounds = np.hypot(_bound_by_pairs(vectors, units), beside)
    starts = np.cumsum(units.sizes) - units.sizes
    many = units.sizes > min(vectors.shape[1], ALL_PAIRS)
    largest, batch = float(np.max(bounds[~many], initial=0.0)), 8
    left = np.flatnonzero(many & ~(bounds <= largest))
    left = left[np.argsort(-bounds[left], kind="stable")]
    while len(left) and not bounds[left[0]] <= largest:  # the eigenvalue may show that these move less
        chosen, left, batch = left[:batch], left[batch:], 4 * batch
        for size in np.unique(units.sizes[chosen]).tolist():
            alike = chosen[units.sizes[chosen] == size]
            folded = vectors[starts[alike][:, None] + np.arange(size)]
            refined = np.minimum(np.hypot(_bound_by_eigenvalue(folded), beside[alike]), bounds[alike])
            largest = float(np.maximum(largest, refined.max()))  # NaN if either is NaN
    return largest


def find_long_sums(vectors: Vector, units: Units) -> Vector:
    r"""Search for signs that make :math:`\sum_i \pm v_i` long, and return this sum for every unit; shape (m, d).

    Starts from the signs that align all vectors with the longest one, and then repeatedly aligns them with their sum,
    which never makes the sum shorter. The result need not be the longest sum, so it must not be used as a bound.
    """
    sums = np.empty((units.num_units, vectors.shape[1]))
    for size, of_units, of_rows in units.list_groups():
        folded = _fold(vectors[of_rows], size)
        longest = np.argmax((folded**2).sum(axis=2), axis=1)
        total = folded[np.arange(len(folded)), longest]
        for _ in range(NUM_ROUNDS if size > 1 else 0):
            signs = np.where(folded @ total[:, :, None] >= 0, 1.0, -1.0)
            total = (signs * folded).sum(axis=1)
        sums[of_units] = total
    return sums


def _bound_by_pairs(vectors: Vector, units: Units) -> Vector:
    """Root of the sum of absolute inner products; sum of lengths for units with very many records."""
    bounds = np.empty(units.num_units)
    for size, of_units, of_rows in units.list_groups():
        if size == 1 or size > ALL_PAIRS:
            lengths = np.sqrt((vectors[of_rows] ** 2).sum(axis=1))
            bounds[of_units] = lengths.reshape(-1, size).sum(axis=1)
            continue
        folded = _fold(vectors[of_rows], size)
        step = max(1, AT_ONCE // size**2)
        for start in range(0, len(folded), step):
            part = folded[start : start + step]
            pairs = np.abs(part @ part.transpose(0, 2, 1)).sum(axis=(1, 2))
            bounds[of_units.start + start : of_units.start + start + len(part)] = np.sqrt(pairs)
    return bounds


def _bound_by_eigenvalue(folded: Vector) -> Vector:
    """Root of the sum of lengths times the largest eigenvalue, for units of equal size; shape (units, k, d) in."""
    lengths = np.sqrt((folded**2).sum(axis=2))
    scaled = folded / np.sqrt(np.maximum(lengths, 1e-300))[:, :, None]
    _, k, d = folded.shape
    gram = scaled @ scaled.transpose(0, 2, 1) if k <= d else scaled.transpose(0, 2, 1) @ scaled
    largest = np.full(len(gram), np.nan)
    finite = np.isfinite(gram).all(axis=(1, 2))
    largest[finite] = np.linalg.eigvalsh(gram[finite])[:, -1]
    total = lengths.sum(axis=1)
    return np.asarray(np.minimum(total, np.sqrt(np.maximum(total * largest, 0.0))))


def _fold(vectors: Vector, size: int) -> Vector:
    """Vectors of units of equal size, shape (units, size, d), without copying."""
    return vectors.reshape(-1, size, vectors.shape[1])
