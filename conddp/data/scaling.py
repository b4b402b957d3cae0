"""Labels and private features clamped and scaled by their declared bounds: nothing is taken from the data."""

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from conddp.bounds import Bounds
from conddp.data.parts import Labels, PrivateFeatures
from conddp.privacy.neighbouring import Neighbouring

__all__ = [
    "bound_label_move",
    "largest_private",
    "private_unit",
    "restore_label",
    "scale_bounds",
    "scale_label",
    "scale_private",
]


def scale_label(label: Labels, *, center: bool = True, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Labels clamped to their bounds and divided by their width; in [-1/2, 1/2] if centred on the middle.

    A model without an intercept goes through the origin, so its labels must not be moved.

    Privacy
        Record by record; the result is as private as the labels. Uses the declared bounds only.
    """
    bounds = label.bounds
    scaled = (bounds.clamp(label.values) - (bounds.midpoint if center else 0.0)) / bounds.width
    low, high = scale_bounds(bounds, center=center)
    return np.clip(scaled, low, high).astype(dtype)  # rounding may have moved a label at a bound beyond it


def scale_bounds(bounds: Bounds, *, center: bool = True) -> tuple[float, float]:
    """Ends of the range of scaled labels, which no scaled label passes by even a rounding error."""
    return (-0.5, 0.5) if center else (bounds.low / bounds.width, bounds.high / bounds.width)


def bound_label_move(bounds: Bounds, neighbouring: Neighbouring) -> float:
    """How far a label, centred and scaled, can move between neighbours: across its range, or from an end to zero."""
    if neighbouring is Neighbouring.REPLACE:
        return 1.0
    return max(bounds.midpoint - bounds.low, bounds.high - bounds.midpoint) / bounds.width


def restore_label(scaled: NDArray[Any], bounds: Bounds, *, center: bool = True) -> NDArray[np.float64]:
    """Predictions in the label's own units, clamped to its bounds."""
    values = bounds.width * np.asarray(scaled, dtype=np.float64)
    return bounds.clamp(values + (bounds.midpoint if center else 0.0))


def private_unit(bounds: Bounds) -> float:
    """Standard deviation of a value that spreads evenly over its bounds."""
    return bounds.width / math.sqrt(12)


def largest_private(bounds: Bounds, *, center: bool = True) -> float:
    """Largest absolute value that a scaled private column can have, rounding included."""
    if center:
        return math.sqrt(3)
    return max(abs(bounds.low), abs(bounds.high)) / private_unit(bounds)


def scale_private(private: PrivateFeatures, *, center: bool = True, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Private columns clamped to their bounds and scaled to unit variance if they spread evenly over them.

    Privacy
        Record by record; the result is as private as the columns. Uses the declared bounds only.
    """
    scaled = np.empty(private.values.shape, dtype=dtype)
    for number, bounds in enumerate(private.bounds):
        origin = bounds.midpoint if center else 0.0
        column = (bounds.clamp(private.values[:, number]) - origin) / private_unit(bounds)
        largest = largest_private(bounds, center=center)
        scaled[:, number] = np.clip(column, -largest, largest)  # rounding may have moved a value at a bound beyond it
    return scaled
