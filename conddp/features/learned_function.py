"""A function of public columns: a weighted sum of the features of a dictionary, possibly calibrated."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import list_blocks
from conddp.features.calibration import Calibration
from conddp.features.dictionary import Dictionary

__all__ = ["LearnedFunction"]

Vector = NDArray[np.float64]

ROWS_AT_ONCE = 4096  # for which features are evaluated at once


@dataclass(frozen=True)
class LearnedFunction:
    """A function of public columns, in units of the label range, relative to its middle.

    Privacy
        Public columns and numbers that have been released: no cost.

    Parameters
    ----------
    dictionary : Dictionary
        Features.
    weights : array of shape (M,)
        Their weights.
    constant : float
        Constant term.
    calibration : Calibration
        Converts the sum to predictions; by default, they are the same.
    """

    dictionary: Dictionary
    weights: Vector
    constant: float
    calibration: Calibration = Calibration()

    def predict(self, X: NDArray[np.floating]) -> Vector:
        """Compute the function for public rows, shape (n,)."""
        parts = [
            self.dictionary.predict(X[span], self.weights) for span in list_blocks(len(X), block_size=ROWS_AT_ONCE)
        ]
        total = np.concatenate([np.empty(0), *parts]) + self.constant
        return total if self.calibration.is_identity else self.calibration.apply(total)

    @property
    def is_sum(self) -> bool:
        """Whether the function is a weighted sum of its features."""
        return not len(self.calibration.bends)

    def straighten(self) -> "LearnedFunction":
        """Return the same function without calibration, which must be a straight line."""
        line = self.calibration
        constant = float(line.apply(np.array([self.constant]))[0])
        return replace(self, weights=line.slope * self.weights, constant=constant, calibration=Calibration())

    @cached_property
    def coefficients(self) -> tuple[Vector, Vector]:
        """Coefficients of standardised columns and of products in the sum, shapes (d,) and (P,)."""
        scaled, number = self.weights * self.dictionary.gains, self.dictionary.axes.shape[1]
        return self.dictionary.axes @ scaled[:number], scaled[number:]
