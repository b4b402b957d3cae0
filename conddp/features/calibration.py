"""A piecewise linear function that converts predictions to calibrated ones."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Calibration", "bend"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """A continuous, piecewise linear function of predictions in the units of scaled labels.

    Beyond the ends of a range, predictions are moved as far as at its ends.

    Parameters
    ----------
    constant, slope : float
        a and b.
    bends, changes : arrays of shape (m,)
        Predictions t at which the slope changes, and by how much.
    low, high : float
        Ends of the range.
    slope_std : float
        Standard deviation of the slope given the release.
    """

    constant: float = 0.0
    slope: float = 1.0
    bends: Vector = field(default_factory=lambda: np.empty(0))
    changes: Vector = field(default_factory=lambda: np.empty(0))
    low: float = -math.inf
    high: float = math.inf
    slope_std: float = 0.0

    @property
    def is_identity(self) -> bool:
        """Whether predictions stay as they are."""
        return self.constant == 0.0 and self.slope == 1.0 and not self.changes.any()

    def apply(self, predictions: Vector) -> Vector:
        """Calibrate predictions.

        Examples
        --------
        >>> Calibration(0.0, 2.0, np.array([1.0]), np.array([-1.0])).apply(np.array([0.5, 1.0, 3.0])).tolist()
        [1.0, 2.0, 4.0]
        """
        within = np.clip(predictions, self.low, self.high)
        heights = self.constant + bend(within, self.bends) @ np.concatenate([[self.slope], self.changes])
        return np.asarray(predictions - within + heights)


def bend(predictions: Vector, bends: Vector) -> Vector:
    """Return predictions and their hinges, shape (n, 1 + m)."""
    return np.column_stack([predictions, np.maximum(predictions[:, None] - bends, 0.0)])
