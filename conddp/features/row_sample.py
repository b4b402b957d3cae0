"""A sample of rows, drawn from a fixed seed."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw_rows"]


def draw_rows(
    num_records: int, at_most: int, weights: NDArray[np.float64] | None = None
) -> slice | NDArray[np.integer]:
    """Return the places of about so many rows, from everywhere; all of them if there are no more.

    One row is drawn at random from each of ``at_most`` stretches of equal length, or of equal weight. Rows at equal
    distances would all be of one kind in a table whose rows take turns, such as before and after.

    Privacy
        Depends on public numbers only.

    Parameters
    ----------
    num_records : int
        Number of rows.
    at_most : int
        Largest number of rows that are drawn.
    weights : array of shape (n,), optional
        Public weights. Rows are then drawn as often as their weights say, so that means of the sample are about those
        of all rows with their weights, and there may be repetitions.

    Examples
    --------
    >>> draw_rows(3, 5)
    slice(None, None, None)
    >>> [len(draw_rows(100, 7)), len(draw_rows(3, 5, np.ones(3)))]
    [7, 3]
    """
    if num_records <= at_most and weights is None:
        return slice(None)
    number = min(num_records, at_most)
    drawn = (np.arange(number) + np.random.default_rng(0).uniform(size=number)) / number
    if weights is None:
        return np.asarray((drawn * num_records).astype(np.intp))
    reached = np.cumsum(weights)
    return np.asarray(np.minimum(np.searchsorted(reached, drawn * reached[-1], side="right"), num_records - 1))
