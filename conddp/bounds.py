"""Declared bounds of private values."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.errors import SchemaError

__all__ = ["Bounds"]

LARGEST_BOUND, SMALLEST_WIDTH, SMALLEST_SHARE = 1e100, 1e-100, 1e-12  # the last is the smallest ratio of width to size


@dataclass(frozen=True)
class Bounds:
    """Declared range of a private value, from domain knowledge and never from the data.

    Examples
    --------
    >>> bounds = Bounds(0, 400)
    >>> bounds.midpoint, bounds.width
    (200.0, 400.0)
    >>> bounds.clamp([-5, 20, 1000]).tolist()
    [0.0, 20.0, 400.0]
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        try:
            low, high = float(self.low), float(self.high)
        except (TypeError, ValueError):
            raise SchemaError(
                f"bounds must be two numbers [low, high], got {repr(self.low)[:80]}, {repr(self.high)[:80]}."
            ) from None
        except OverflowError:
            raise SchemaError("bounds must be finite, got a number beyond the range of floating point.") from None
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)):
            raise SchemaError(f"bounds must be finite, got [{low}, {high}].")
        if not low < high:
            raise SchemaError(f"bounds must have low < high, got [{low}, {high}].")
        size = max(abs(low), abs(high))
        if size > LARGEST_BOUND or high - low < max(SMALLEST_WIDTH, SMALLEST_SHARE * size):
            raise SchemaError(
                f"bounds [{low}, {high}] are too large, or too close together, for floating point. Change the units."
            )

    @classmethod
    def of(cls, value: object, *, column: str) -> "Bounds":
        """Create bounds from a pair (low, high), or raise an error that names the column."""
        if isinstance(value, Bounds):
            return value
        if value is None:
            raise SchemaError(
                f"column '{column}' is not public and has no bounds. Without them, scaling would have to look at the "
                "data. Give (low, high) from domain knowledge."
            )
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise SchemaError(f"bounds of column '{column}' must be a pair (low, high), got {repr(value)[:80]}.")
        pair = list(value)
        if not pair:
            raise SchemaError(f"the bounds of column '{column}' are empty. Fill in low and high from domain knowledge.")
        if len(pair) != 2:
            raise SchemaError(f"bounds of column '{column}' must be a pair (low, high), got {len(pair)} values.")
        try:
            return cls(*pair)
        except SchemaError as error:
            raise SchemaError(f"column '{column}': {error}") from None

    @property
    def midpoint(self) -> float:
        """Centre of the range."""
        return (self.low + self.high) / 2

    @property
    def width(self) -> float:
        """Length of the range."""
        return self.high - self.low

    def clamp(self, values: object) -> NDArray[np.float64]:
        """Clamp values to the range."""
        return np.clip(np.asarray(values, dtype=np.float64), self.low, self.high)
