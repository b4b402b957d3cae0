"""Kernels for noise on a public grid: the same numbers as :mod:`conddp.privacy.noise`, computed in fewer passes.

The normal quantile is interpolated. Numbers between :math:`2^{-20}` and 1 are divided into 32 intervals between any two
powers of two, and in each of these Q is a polynomial of degree 6 through its values at Chebyshev points. Its error is
that of these values, below :math:`2^{-48}`. A release does not depend on it, because it is the nearest point of the
grid to a sum with ideal noise: rounding that an error could change is decided in multiple precision.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from conddp._fused import Kernel, make_numbers

__all__ = ["FILL_NORMALS", "ROUND_TO_GRID", "make_quantile_table"]

Vector = NDArray[np.float64]

POWERS = 20  # of two, from 2**-20 to 1
STEPS = 5  # bits of the number of intervals between two powers
DEGREE = 6
_SHIFT = 52 - STEPS  # the first bits of a float64, up to here, number its interval
_FIRST = (1023 - POWERS) << STEPS  # of 2**-20
_MASK = (1 << _SHIFT) - 1
_HALF = 2.0 ** (1 - _SHIFT)


@cache
def make_quantile_table() -> Vector:
    """Compute the coefficients of all intervals, shape (intervals, degree + 1), the highest power first.

    The argument of a polynomial runs from -1 to 1 over its interval. The last row is for the number 1 itself.
    """
    points = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
    starts = ((np.arange(POWERS << STEPS) + _FIRST) << _SHIFT).view(np.float64)
    widths = 2.0 ** (np.floor(np.log2(starts)) - STEPS)
    tails = starts[:, None] + widths[:, None] * (points + 1) / 2
    coefficients = np.linalg.solve(np.vander(points), -ndtri(0.5 * tails).T).T
    return np.ascontiguousarray(np.vstack([coefficients, np.zeros(DEGREE + 1)]))


def _fill_normals(drawn: Any, table: Any, values: Any) -> None:
    """Turn 64 random bits each into normal variables; NaN below the smallest tail, as they are decided elsewhere."""
    size = drawn.shape[0]
    for i in range(size):
        bits = drawn[i] >> np.uint64(1)
        values[i] = max(np.float64(np.int64(bits)) * 2.0**-63, 2.0**-POWERS)
    codes = values.view(np.int64)
    for i in range(size):
        code = codes[i]
        row = table[np.uint64((code >> _SHIFT) - _FIRST)]  # unsigned: no check for places counted from the end
        x = np.float64(code & _MASK) * _HALF - 1.0
        square = x * x  # pairs of powers, so that fewer operations wait for one another
        t = (row[0] * square + (row[1] * x + row[2])) * square + (row[3] * x + row[4])
        t = t * square + (row[5] * x + row[6])
        t = -t if drawn[i] & np.uint64(1) else t
        values[i] = t if drawn[i] >= np.uint64(1 << (64 - POWERS)) else np.nan


def _round_to_grid(
    sums: Any, noise: Any, grid: float, ratio: float, tolerance: float, largest: float, out: Any, doubtful: Any
) -> int:
    """Write the nearest points of the grid to sums plus noise, and the places at which they are doubtful."""
    size, limit, factor = sums.shape[0], 0.5 - ratio * tolerance - 2.0**-50, 1 / grid
    clear = 0
    for i in range(size):
        multiple = sums[i] * factor
        multiple = multiple if multiple > -largest else -largest
        multiple = multiple if multiple < largest else largest
        whole = np.rint(multiple)
        noisy = (multiple - whole) + ratio * noise[i]
        nearest = np.rint(noisy)
        out[i] = (whole + nearest) * grid
        clear += 1 if abs(noisy - nearest) < limit else 0
    count = 0
    for i in range(size if clear < size else 0):  # which ones; a list above would keep the loop from being vectorised
        multiple = sums[i] * factor
        multiple = multiple if multiple > -largest else -largest
        multiple = multiple if multiple < largest else largest
        noisy = (multiple - np.rint(multiple)) + ratio * noise[i]
        if not abs(noisy - np.rint(noisy)) < limit:
            doubtful[count] = i
            count += 1
    return count


def _fill_examples() -> Iterator[list[Any]]:
    drawn = np.arange(75, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # as good as random
    drawn[5:10] >>= np.uint64(17)  # far out in the tails
    drawn[10:12] = np.iinfo(np.uint64).max  # in the middle
    yield [drawn, make_quantile_table(), np.ones(75)]


def _round_examples() -> Iterator[list[Any]]:
    sums, noise = 1e3 * make_numbers(75), 3 * make_numbers(75, start=76)
    sums[5:9], noise[9:11] = [np.nan, np.inf, -np.inf, 1e300], np.nan
    noise[11:20] = np.arange(9) * 2.0**-22  # halfway between two points of the grid, or nearly
    sums[11:20] = 0.0
    yield [sums, noise, 2.0**-20, 1.5 * 2.0**20, 2.0**-44, 2.0**51, np.ones(75), np.zeros(75, dtype=np.int64)]


FILL_NORMALS = Kernel(
    _fill_normals,
    ["void(uint64[::1], float64[:, ::1], float64[::1])"],
    examples=_fill_examples,
    any_order=True,
    rounding=2.0**-50,
)
ROUND_TO_GRID = Kernel(
    _round_to_grid,
    ["int64(float64[::1], float64[::1], float64, float64, float64, float64, float64[::1], int64[::1])"],
    examples=_round_examples,
)
