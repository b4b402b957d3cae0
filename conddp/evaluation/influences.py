r"""Influences: how the label of a record moves each figure of an evaluation.

A figure is a function of sums over records. To first order, its sampling error is the sum of the influences
:math:`\psi_i` of all records, and its sampling variance is the sum over units of the squared sum of their influences.
Every influence here is :math:`\alpha e^2 + \beta e + \gamma + \eta |e|` in the error e of the record, with public
predictions and released numbers in the coefficients.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.evaluation.moments import Moments
from conddp.evaluation.predicted import Predicted

__all__ = ["FIGURES", "Influence", "list_influences"]

Vector = NDArray[np.float64]

FIGURES = ("mse", "r2", "mae", "bias", "slope")  # those that have an influence, in this order


@dataclass(frozen=True, eq=False)
class Influence:
    """Coefficients of an influence, for each record.

    Parameters
    ----------
    square, linear, constant, absolute : float, or array of shape (n,)
        Factors of the squared error, the error, one, and the absolute error.
    """

    square: Vector | float
    linear: Vector | float
    constant: Vector | float
    absolute: float = 0.0

    def evaluate(self, errors: Vector) -> Vector:
        """Influences of records with these errors."""
        bent = self.absolute * np.abs(errors)
        return np.asarray((self.square * errors + self.linear) * errors + self.constant + bent)

    def bound(self, predicted: Predicted) -> Vector:
        """Largest absolute influence that each record can have, whatever its label is; shape (n,).

        An influence is convex or concave between its ends, zero, and the turn of its square part.

        Privacy
            Reads public predictions and released numbers only: no cost.
        """
        high, low = predicted.find_reach()
        with np.errstate(divide="ignore", invalid="ignore"):
            turn = np.nan_to_num(np.broadcast_to(-np.divide(self.linear, 2 * np.asarray(self.square)), high.shape))
        ends = (high, -low, np.zeros_like(high), np.clip(turn, -low, high))
        return np.asarray(np.max([np.abs(self.evaluate(end)) for end in ends], axis=0))


def list_influences(moments: Moments, predicted: Predicted) -> list[Influence]:
    """Influences on the sums that figures are made of, in the order of ``FIGURES``.

    Privacy
        Reads public predictions and released numbers only: no cost.
    """
    total, g = predicted.total, predicted.deviations
    mse, mae = np.clip(moments.square / total, 0, 1), np.clip(moments.absolute / total, 0, 1)
    bias = float(np.clip(moments.error / total, -1, 1))
    tilt = float(np.clip(moments.product / max(predicted.square, 1e-12 * total), -2, 2))
    spread = predicted.square + 2 * moments.product + moments.square - moments.error**2 / total
    ratio = float(np.clip(moments.square / spread, 0, 1.5)) if spread > 0 else 1.0
    away = g - bias
    return [
        Influence(1.0, 0.0, -float(mse)),
        Influence(1 - ratio, -2 * ratio * away, -ratio * away**2),
        Influence(0.0, 0.0, -float(mae), 1.0),
        Influence(0.0, 1.0, -bias),
        Influence(0.0, g, -g * (bias + tilt * g)),
    ]
