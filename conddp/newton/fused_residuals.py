r"""Kernel for one pass of a Newton step over rows that are formed: every row is read from memory once.

For each record it computes the prediction, the norm of the weighted row, the clamped residual and its public ends, and
adds the clamped residual times row to the sum at once. NumPy reads the rows three or four times for that. The numbers
are those of :mod:`conddp.newton.release` up to rounding: records are added one after another within a block, and blocks
in their order. Products with a row may be added up in any order, as those of BLAS are.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from conddp._fused import Kernel, make_numbers

__all__ = ["ERROR_FUNCTION", "SUM_RESIDUALS"]

Vector = NDArray[np.float64]

PER_UNIT = 32  # intervals of the error function per unit of its argument
LARGEST = 6.0  # from here on the error function is 1 in floating point
DEGREE = 7


def _expand_error_function() -> Vector:
    """Taylor coefficients of the error function around the middle of each interval, the highest power first."""
    middles = (np.arange(int(LARGEST * PER_UNIT)) + 0.5) / PER_UNIT
    slopes = [2 / math.sqrt(math.pi) * np.exp(-(middles**2))]  # coefficients of the derivative g, with g' = -2 x g
    for m in range(1, DEGREE):
        slopes.append(-2 / m * (middles * slopes[-1] + (slopes[-2] if m > 1 else 0.0)))
    powers = [erf(middles), *(slope / (m + 1) for m, slope in enumerate(slopes))]
    return np.ascontiguousarray(np.array(powers[::-1]).T)


ERROR_FUNCTION = _expand_error_function()  # its error is below 1e-15


def _sum_residuals(
    rows: Any,
    labels: Any,
    weights: Any,
    coefficients: Any,
    direction_weights: Any,
    error_function: Any,
    clip_norm: float,
    low: float,
    high: float,
    square_limit: float,
    residual_std: float,
    square_move: float,
    by_replacement: bool,
    describe: bool,
    with_curvature: bool,
    total: Any,
    curvature: Any,
    distances: Any,
) -> tuple[float, float, float]:
    """Add the sums of a block to ``total`` and ``curvature``.

    Returns the sum of squares, and the largest moves by one record of the first sum and, with weights, of both sums.

    Privacy
        The sum of squares and ``total`` are private. All else is computed without labels, and public if the rows are.

    Parameters
    ----------
    rows, labels, weights : arrays of shape (n, k), (n,) and (n,)
        The block. An array of length 0 stands for weights of 1.
    coefficients, direction_weights : arrays of shape (k,)
        What is fixed in this pass.
    error_function : array
        :data:`ERROR_FUNCTION`.
    clip_norm, low, high, square_limit, residual_std : float
        The query, and the declared range of labels.
    square_move : float
        Largest move of the second sum by one record of weight 1.
    by_replacement : bool
        Whether a label is replaced, or the contribution of the record is set to zero.
    describe, with_curvature : bool
        Whether the moves, and the sum of the curvature, are needed.
    total, curvature : arrays of shape (k,)
        Sums so far.
    distances : array of shape (n,), or empty
        Where to write the distances between the ends of clamped residuals, if there are weights.
    """
    n, k = rows.shape
    square, farthest, alone = 0.0, 0.0, 0.0
    has_weights = weights.shape[0] > 0
    limit_of_square, per_std = square_limit * square_limit, 1 / (math.sqrt(2.0) * residual_std)
    for i in range(n):
        predicted, squared = 0.0, 0.0
        for j in range(k):
            u = rows[i, j]
            predicted += coefficients[j] * u
            squared += direction_weights[j] * (u * u)
        norm = math.sqrt(squared)
        # Comparisons are such that a factor is never beyond the limit, not even if it is NaN.
        limit = clip_norm / (norm if norm > 1e-12 else 1e-12)
        label = labels[i] if labels[i] > low else low
        label = label if label < high else high
        residual = label - predicted
        factor = residual if residual <= limit else limit
        factor = factor if factor >= -limit else -limit
        term = residual * residual
        term = term if term <= limit_of_square else limit_of_square
        left = 0.0
        if describe:
            lowest, highest = low - predicted, high - predicted
            lowest = lowest if lowest <= limit else limit
            lowest = lowest if lowest >= -limit else -limit
            highest = highest if highest <= limit else limit
            highest = highest if highest >= -limit else -limit
            distance = highest - lowest
            if not by_replacement:
                distance = max(abs(lowest), abs(highest))
            move = distance * norm
            if move > farthest or move != move:  # stays NaN if it is NaN
                farthest = move
            if has_weights:
                distances[i] = distance
                both = math.sqrt(move * move + square_move * square_move) * weights[i]
                if both > alone or both != both:
                    alone = both
            if with_curvature:
                left, x = 1.0, limit * per_std
                if x < LARGEST:
                    interval = int(x * PER_UNIT)
                    x -= (interval + 0.5) / PER_UNIT
                    left = 0.0
                    for power in error_function[interval]:
                        left = left * x + power
        if has_weights:
            factor *= weights[i]
            term *= weights[i]
            left *= weights[i]
        square += term
        if with_curvature:
            for j in range(k):
                u = rows[i, j]
                total[j] += factor * u
                curvature[j] += left * (u * u)
        else:
            for j in range(k):
                total[j] += factor * rows[i, j]
    return square, farthest, alone


def _examples() -> Iterator[list[Any]]:
    n, k = 6, 45
    for by_replacement, describe, with_curvature, num_weights in (
        (True, True, True, n),
        (False, True, False, 0),
        (False, False, False, 0),
    ):
        rows, labels = make_numbers(n, k), 2 * make_numbers(n, start=501)
        rows[2], labels[3] = 0.0, np.nan
        weights, direction_weights = np.abs(make_numbers(num_weights)), np.abs(make_numbers(k, start=601)) / k
        known = weights, make_numbers(k, start=701) / k, direction_weights, ERROR_FUNCTION
        query = 0.2, -1.0, 1.0, 0.5, 0.4, 0.1, by_replacement, describe, with_curvature
        yield [rows, labels, *known, *query, make_numbers(k), make_numbers(k), np.zeros(num_weights)]


_TYPES = [
    "float64[:, ::1]",
    *4 * ["float64[::1]"],
    "float64[:, ::1]",
    *6 * ["float64"],
    *3 * ["boolean"],
    *3 * ["float64[::1]"],
]
SUM_RESIDUALS = Kernel(
    _sum_residuals,
    [f"Tuple((float64, float64, float64))({', '.join(_TYPES)})"],
    examples=_examples,
    any_order=True,
)
