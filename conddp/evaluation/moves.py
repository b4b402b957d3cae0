r"""How far one label can move the moments of an evaluation.

A record with error e contributes :math:`\varphi(e) = (w_2 e^2, w_1 |e|, w_0 e, w_c e g, w_b e 1_k)` to the moments,
where g and the bin k are public. If a label is replaced, e moves within an interval :math:`[-m, h]` that contains zero
and is public. The squared length of the move is

.. math:: D(e, e') = w_2^2 (e^2 - e'^2)^2 + w_1^2 (|e| - |e'|)^2 + L (e - e')^2, \qquad L = w_0^2 + w_c^2 g^2 + w_b^2 .

If both errors have the same sign, moving the smaller one to zero makes the move longer. Otherwise let
:math:`u = e \ge 0` and :math:`v = -e' \ge 0`. The sum of both partial derivatives of D is
:math:`4 (u + v) (w_2^2 (u - v)^2 + L)`, which is positive away from the origin, so that the maximum lies on the edge
:math:`u = h` or on the edge :math:`v = m`. On an edge D is a polynomial of degree four, and its derivative is
:math:`4 w_2^2` times a cubic without a square term. The maximum is at an end of the edge or at the middle one of three
roots of the cubic.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.evaluation.predicted import Predicted
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["MomentWeights", "bound_square", "find_largest_move", "measure_moves"]

Vector = NDArray[np.float64]

_ROUNDING = 1e-9


@dataclass(frozen=True)
class MomentWeights:
    """Weights of the moments in their joint release: a larger one gives less noise.

    Parameters
    ----------
    square, absolute, error, product, bins : float
        Of the sums of squared errors, absolute errors, errors, errors times centred predictions, and of the sums of
        errors per bin.
    """

    square: float
    absolute: float
    error: float
    product: float
    bins: float


def measure_moves(
    scaled: Vector, deviations: Vector, weights: MomentWeights, neighbouring: Neighbouring
) -> NDArray[np.float64]:
    """Length of the longest move of the weighted moments by the label of each record, exactly.

    Privacy
        Reads public predictions only: no cost. Under REPLACE the label moves within its bounds. Under ZERO_OUT the
        whole contribution of the record is set to zero.

    Parameters
    ----------
    scaled, deviations : arrays of shape (n,)
        Scaled predictions, and their distances from their mean.
    weights : MomentWeights
        Weights of the moments.
    neighbouring : Neighbouring
        Neighbouring relation.
    """
    linear = weights.error**2 + (weights.product * deviations) ** 2 + weights.bins**2
    squared = bound_square(0.5 - scaled, 0.5 + scaled, linear, weights, neighbouring)
    return np.asarray(np.sqrt(squared) * (1 + _ROUNDING))


def bound_square(
    high: Vector, low: Vector, linear: Vector, weights: MomentWeights, neighbouring: Neighbouring
) -> NDArray[np.float64]:
    """Squared length of the longest move, exactly, if errors reach ``high`` above zero and ``low`` below it.

    Parameters
    ----------
    high, low : arrays of shape (n,)
        How far the error of each record can reach.
    linear : array of shape (n,)
        Sum of the squared weights of all moments that are linear in the error.
    weights : MomentWeights
        Weights of the squared and absolute errors.
    neighbouring : Neighbouring
        Neighbouring relation.
    """
    squared = np.maximum(
        _measure(high, np.zeros_like(high), linear, weights), _measure(low, np.zeros_like(low), linear, weights)
    )
    if neighbouring is Neighbouring.REPLACE:
        for end, other in ((high, low), (low, high)):
            turn = np.minimum(_find_turn(end, linear, weights), other)
            squared = np.maximum(squared, _measure(end, turn, linear, weights))
        squared = np.maximum(squared, _measure(high, low, linear, weights))
    return np.asarray(squared)


def find_largest_move(predicted: Predicted, weights: MomentWeights, neighbouring: Neighbouring) -> float:
    """Bound how far the labels of one unit can move the weighted moments together.

    The moves of the records of a unit are added up, each times the weight of its record. This is exact for units of one
    record, and attained if the records of a unit have the same prediction.

    Privacy
        Reads public predictions, weights and units only: no cost.
    """
    moves = measure_moves(predicted.scaled, predicted.deviations, weights, neighbouring)
    return float(predicted.add_up_units(moves).max())


def _measure(u: Vector, v: Vector, linear: Vector, weights: MomentWeights) -> Vector:
    """Squared length of the move from an error of u to one of -v."""
    even = (weights.square * (u - v) * (u + v)) ** 2 + (weights.absolute * (u - v)) ** 2
    return np.asarray(even + linear * (u + v) ** 2)


def _find_turn(end: Vector, linear: Vector, weights: MomentWeights) -> Vector:
    """Place on an edge where the squared length has a local maximum; 0 if there is none."""
    scale = 2 * weights.square**2
    slope = (weights.absolute**2 + linear) / scale - end**2
    constant = end * (linear - weights.absolute**2) / scale
    has_three = (slope < 0) & (4 * slope**3 + 27 * constant**2 < 0)
    p, q = np.where(has_three, slope, -1.0), np.where(has_three, constant, 0.0)
    angle = np.arccos(np.clip(1.5 * q / p * np.sqrt(-3 / p), -1.0, 1.0))
    middle = 2 * np.sqrt(-p / 3) * np.cos(angle / 3 - 2 * math.pi / 3)
    return np.where(has_three, np.maximum(middle, 0.0), 0.0)
