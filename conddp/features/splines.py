r"""Piecewise linear functions of a public number, as features.

With knots :math:`t_1 < \dots < t_m`, the m-th hat is 1 at its own knot, 0 at all others, and linear in between. Beyond
the outermost knots the outermost hats are 1. Weighted sums of hats are the continuous functions that are linear between
knots and constant beyond them.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["FEWEST_KNOTS", "MOST_KNOTS", "choose_knots", "make_hats"]

Vector = NDArray[np.float64]

FEWEST_KNOTS, MOST_KNOTS = 5, 13
SMALLEST, LARGEST = 1e-290, 1e290  # smaller knots count as zero; with larger ones, differences could overflow
DECIMALS = 9  # of logarithms and exponentials, whose last bits differ between processors


def choose_knots(known: Vector, number: int, *, num_records: int) -> tuple[float, ...]:
    r"""Choose knots at quantiles of a public column.

    The levels of the quantiles have equal distances in log-odds, from :math:`1/\sqrt n` to :math:`1 - 1/\sqrt n`. So
    knots are about equally far apart in rank in the middle, and each step into a tail leaves the same fraction of the
    records beyond it. The last :math:`\sqrt n` records on either side share a hat.

    Privacy
        Reads a public column: no cost.

    Parameters
    ----------
    known : array of shape (m,)
        Values of the column without gaps, or a sample of them.
    number : int
        Number of knots. There are fewer if quantiles are the same.
    num_records : int
        Number of records n of the table.

    Returns
    -------
    tuple of float
        Increasing knots; empty if there would be fewer than three, between which a function would be linear.

    Examples
    --------
    >>> choose_knots(np.arange(10_001.0), 5, num_records=10_000)
    (100.0, 913.0, 5000.0, 9086.0, 9900.0)
    """
    farthest = math.log(math.sqrt(num_records) - 1.0)
    levels = 1.0 / (1.0 + np.exp(-np.linspace(-farthest, farthest, number)))
    found = np.quantile(known, np.round(levels, DECIMALS), method="lower")
    knots = np.unique(np.where(np.abs(found) < SMALLEST, 0.0, found))
    return tuple(knots.tolist()) if len(knots) > 2 and np.abs(knots).max() <= LARGEST else ()


def make_hats(values: Vector, knots: Vector) -> sparse.csr_array:
    """Evaluate all hats, a CSR array of shape (n, m) with one or two cells in each row.

    Parameters
    ----------
    values : array of shape (n,)
        Numbers without gaps.
    knots : array of shape (m,)
        Increasing knots, at least two.
    """
    inside = np.clip(values, knots[0], knots[-1])
    left = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 2)
    share = (inside - knots[left]) / (knots[left + 1] - knots[left])
    cells, places = np.column_stack([1.0 - share, share]), np.column_stack([left, left + 1])
    starts = np.arange(0, 2 * len(values) + 1, 2)
    hats = sparse.csr_array((cells.ravel(), places.ravel(), starts), shape=(len(values), len(knots)))
    hats.eliminate_zeros()
    return hats
