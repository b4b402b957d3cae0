r"""Kernel for one pass of a Newton step over rows that are formed: every row is read from memory once.

For each record it computes the prediction, the norm of the weighted row, the clamped residual and its public ends, and
adds the clamped residual times row to the sum at once. NumPy reads the rows three or four times for that. The numbers
are those of :mod:`conddp.newton.release` up to rounding: a block is added up by 64 records, which are in the processor
cache, and blocks in their order. Within 64 records, and within the product with a row, numbers may be added up in any
order, as BLAS does. Rows may be stored in float32; every number is converted to float64 before it is used.
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
DEGREE = 7  # the kernel writes the polynomial out
AT_ONCE = 64  # records
FEW_COLUMNS = 24  # fewer do not fill the lanes of the processor


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
        The block. An array of length 0 stands for weights of 1. Rows may be in float32.
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
    has_weights, are_few = weights.shape[0] > 0, k < FEW_COLUMNS
    limit_of_square, per_std = square_limit * square_limit, 1 / (math.sqrt(2.0) * residual_std)
    predicted, norms, limits = np.empty(AT_ONCE), np.empty(AT_ONCE), np.empty(AT_ONCE)
    factors, terms, moves, left = np.empty(AT_ONCE), np.empty(AT_ONCE), np.empty(AT_ONCE), np.empty(AT_ONCE)
    columns = np.empty((k if are_few else 0, AT_ONCE))
    for start in range(0, n, AT_ONCE):
        m = min(AT_ONCE, n - start)
        if are_few:  # lanes of the processor hold records
            for i in range(m):
                predicted[i], norms[i] = 0.0, 0.0
                for j in range(k):
                    columns[j, i] = rows[start + i, j]
            for j in range(k):
                coefficient, direction_weight = coefficients[j], direction_weights[j]
                for i in range(m):
                    u = columns[j, i]
                    predicted[i] += coefficient * u
                    norms[i] += direction_weight * (u * u)
        else:  # lanes of the processor hold columns
            for i in range(m):
                product, squared = 0.0, 0.0
                for j in range(k):
                    u = np.float64(rows[start + i, j])  # float() would leave float32 as it is
                    product += coefficients[j] * u
                    squared += direction_weights[j] * (u * u)
                predicted[i], norms[i] = product, squared
        for i in range(m):
            norm = math.sqrt(norms[i])
            # Comparisons are such that a factor is never beyond the limit, not even if it is NaN.
            limit = clip_norm / (norm if norm > 1e-12 else 1e-12)
            label = labels[start + i] if labels[start + i] > low else low
            label = label if label < high else high
            residual = label - predicted[i]
            factor = residual if residual <= limit else limit
            factor = factor if factor >= -limit else -limit
            term = residual * residual
            term = term if term <= limit_of_square else limit_of_square
            norms[i], limits[i], factors[i], terms[i] = norm, limit, factor, term
        if describe:
            for i in range(m):
                limit, lowest, highest = limits[i], low - predicted[i], high - predicted[i]
                lowest = lowest if lowest <= limit else limit
                lowest = lowest if lowest >= -limit else -limit
                highest = highest if highest <= limit else limit
                highest = highest if highest >= -limit else -limit
                distance = highest - lowest
                if not by_replacement:
                    distance = max(abs(lowest), abs(highest))
                moves[i] = distance * norms[i]
                if has_weights:
                    distances[start + i] = distance
            for i in range(m):
                move = moves[i]
                if move > farthest or move != move:  # stays NaN if it is NaN
                    farthest = move
                if has_weights:
                    both = math.sqrt(move * move + square_move * square_move) * weights[start + i]
                    if both > alone or both != both:
                        alone = both
        if with_curvature:
            for i in range(m):
                left[i], x = 1.0, limits[i] * per_std
                if x < LARGEST:
                    interval = int(x * PER_UNIT)
                    x -= (interval + 0.5) / PER_UNIT
                    p, x2 = error_function[interval], x * x  # pairs of powers, which are independent of each other
                    upper = (p[0] * x + p[1]) * x2 + (p[2] * x + p[3])
                    left[i] = upper * (x2 * x2) + ((p[4] * x + p[5]) * x2 + (p[6] * x + p[7]))
        if has_weights:
            for i in range(m):
                weight = weights[start + i]
                factors[i] *= weight
                terms[i] *= weight
                left[i] *= weight
        for i in range(m):
            square += terms[i]
        if are_few:
            for j in range(k):
                added = 0.0
                for i in range(m):
                    added += factors[i] * columns[j, i]
                total[j] += added
                if with_curvature:
                    added = 0.0
                    for i in range(m):
                        u = columns[j, i]
                        added += left[i] * (u * u)
                    curvature[j] += added
            continue
        for i in range(0, m - 3, 4):
            one, two, three, four = factors[i], factors[i + 1], factors[i + 2], factors[i + 3]
            r = start + i
            for j in range(k):
                total[j] += (one * rows[r, j] + two * rows[r + 1, j]) + (three * rows[r + 2, j] + four * rows[r + 3, j])
        for i in range(m - m % 4, m):
            factor = factors[i]
            for j in range(k):
                total[j] += factor * rows[start + i, j]
        if with_curvature:
            for i in range(m):
                factor = left[i]
                for j in range(k):
                    u = np.float64(rows[start + i, j])
                    curvature[j] += factor * (u * u)
    return square, farthest, alone


def _examples() -> Iterator[list[Any]]:
    n = 6
    for kind, k, by_replacement, describe, with_curvature, num_weights in (
        ("float64", 45, True, True, True, n),
        ("float64", 45, False, True, False, 0),
        ("float64", 45, False, False, False, 0),
        ("float64", 5, True, True, True, n),
        ("float32", 45, True, True, True, n),
        ("float32", 5, False, False, False, 0),
    ):
        rows, labels = make_numbers(n, k).astype(kind), 2 * make_numbers(n, start=501)
        rows[2], labels[3] = 0.0, np.nan
        weights, direction_weights = np.abs(make_numbers(num_weights)), np.abs(make_numbers(k, start=601)) / k
        known = weights, make_numbers(k, start=701) / k, direction_weights, ERROR_FUNCTION
        query = 0.2, -1.0, 1.0, 0.5, 0.4, 0.1, by_replacement, describe, with_curvature
        yield [rows, labels, *known, *query, make_numbers(k), make_numbers(k), np.zeros(num_weights)]


_TYPES = [
    *4 * ["float64[::1]"],
    "float64[:, ::1]",
    *6 * ["float64"],
    *3 * ["boolean"],
    *3 * ["float64[::1]"],
]
_SIGNATURES = [
    f"Tuple((float64, float64, float64))({kind}[:, ::1], {', '.join(_TYPES)})" for kind in ("float64", "float32")
]
SUM_RESIDUALS = Kernel(_sum_residuals, _SIGNATURES, examples=_examples, any_order=True)
