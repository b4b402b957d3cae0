"""Clamping and scaling of labels and private features by their declared bounds, never by statistics of the data."""

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
    """Clamp labels to their bounds and scale them to a range of unit width; to [-1/2, 1/2] if centred.

    A model without an intercept passes through the origin, so its labels must not be centred.

    Privacy
        Applied to each record separately, using the declared bounds only. The result is as private as the labels.
    """
    bounds = label.bounds
    scaled = (bounds.clamp(label.values) - (bounds.midpoint if center else 0.0)) / bounds.width
    low, high = scale_bounds(bounds, center=center)
    return np.clip(scaled, low, high).astype(dtype)  # rounding may have moved a label beyond its bound


def scale_bounds(bounds: Bounds, *, center: bool = True) -> tuple[float, float]:
    """Return the range of scaled labels. No scaled label exceeds it, not even by a rounding error."""
    return (-0.5, 0.5) if center else (bounds.low / bounds.width, bounds.high / bounds.width)


def bound_label_move(bounds: Bounds, neighbouring: Neighbouring) -> float:
    """Bound the change of a centred, scaled label between neighbours: its full range, or the distance to zero."""
    if neighbouring is Neighbouring.REPLACE:
        return 1.0
    return max(bounds.midpoint - bounds.low, bounds.high - bounds.midpoint) / bounds.width


def restore_label(scaled: NDArray[Any], bounds: Bounds, *, center: bool = True) -> NDArray[np.float64]:
    """Convert scaled predictions to the units of the label, clamped to its bounds."""
    values = bounds.width * np.asarray(scaled, dtype=np.float64)
    return bounds.clamp(values + (bounds.midpoint if center else 0.0))


def private_unit(bounds: Bounds) -> float:
    """Return the standard deviation of a uniform distribution over the bounds."""
    return bounds.width / math.sqrt(12)


def largest_private(bounds: Bounds, *, center: bool = True) -> float:
    """Return the largest absolute value of a scaled private column, including rounding errors."""
    if center:
        return math.sqrt(3)
    return max(abs(bounds.low), abs(bounds.high)) / private_unit(bounds)


def scale_private(private: PrivateFeatures, *, center: bool = True, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Clamp private columns to their bounds and scale them; a uniform column gets unit variance.

    Privacy
        Applied to each record separately, using the declared bounds only. The result is as private as the columns.
    """
    scaled = np.empty(private.values.shape, dtype=dtype)
    for number, bounds in enumerate(private.bounds):
        origin = bounds.midpoint if center else 0.0
        column = (bounds.clamp(private.values[:, number]) - origin) / private_unit(bounds)
        largest = largest_private(bounds, center=center)
        scaled[:, number] = np.clip(column, -largest, largest)  # rounding may have moved a value beyond its bound
    return scaled
