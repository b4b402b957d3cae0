r"""Weights of records, so that units with many records do not decide how much noise is needed.

A sum over records needs noise for the unit that can move it most. Least squares may give the records of unit u a
weight :math:`a_u \le 1`; this is a public choice. If the records of unit u together can move the sum by :math:`f_u`
moves of one record, weights limit this to :math:`M = \max_u a_u f_u`. The noise of the weighted mean is proportional
to :math:`M / A` with :math:`A = \sum_i a_i`, and the sampling variance to :math:`\sum_i a_i^2 / A^2`. For a given M
the best weights are :math:`a_u = \min(1, M / f_u)`: sampling alone prefers equal weights, and only this bound keeps the
noise down. M is chosen to minimise the sum of both errors. With little noise all weights are one.

A sum may ask for all directions of the rows or for few of them. The fewer there are, the nearer :math:`f_u` comes to
the number of records of the unit, which is also what the mean of the labels and their mean square are moved by. The
weights are therefore chosen for the geometric mean of :math:`f_u` over all directions and the number of records
(measured with ``benchmarks/units.py``). Sensitivities are computed from the weights and do not depend on this.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from conddp.data.units import Units

__all__ = ["RowWeights"]

Vector = NDArray[np.float64]

LIKENESS = 0.3  # assumed correlation between residuals of the same unit, for the sampling variance of coefficients
TYPICAL_CLIP_NORM = 2.0  # in standard deviations of the residual
MOST_CANDIDATES = 200


@dataclass(frozen=True, eq=False)
class RowWeights:
    """Public weights of records whose units have several records.

    Privacy
        Computed from the public unit column, public rows and the budget: no cost.

    Parameters
    ----------
    units : Units
        Units of the records, arranged.
    of_units : array of shape (m,)
        Weight of every record of a unit, at most 1.
    moves : array of shape (m,)
        How far the records of a unit can move an unweighted sum together, in moves of one record: at most its number
        of records.
    """

    units: Units
    of_units: Vector
    moves: Vector

    @classmethod
    def choose(cls, units: Units, moves: Vector, *, num_directions: int, noise_std: float) -> "RowWeights":
        """Choose the weights with the least expected error from noise and sampling.

        Parameters
        ----------
        units, moves
            See the class.
        num_directions : int
            Number of coefficients.
        noise_std : float
            Standard deviation of the noise in a sum to which one record contributes a vector of length at most 1.
        """
        usual = np.sqrt(moves * units.sizes)
        limits = np.unique(np.quantile(usual, np.linspace(0, 1, MOST_CANDIDATES)))
        errors = []
        for limit in limits:
            weights = np.minimum(1.0, limit / usual)
            total = weights @ units.sizes
            noise = num_directions * noise_std * TYPICAL_CLIP_NORM * (weights * usual).max() / total
            errors.append(noise**2 + num_directions * float(weights**2 @ units.sizes) / total**2)
        return cls(units, np.minimum(1.0, limits[int(np.argmin(errors))] / usual), moves)

    @cached_property
    def values(self) -> Vector:
        """Weight of each record, shape (n,)."""
        return np.asarray(self.of_units[self.units.codes])

    @cached_property
    def unit_totals(self) -> Vector:
        """Sum of the weights of each unit, shape (m,)."""
        return self.of_units * self.units.sizes

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self.unit_totals.sum())

    @property
    def largest_total(self) -> float:
        """Largest sum of the weights of a unit."""
        return float(self.unit_totals.max())

    @property
    def sampling_records(self) -> float:
        """Number of independent records of equal weight whose mean has the same sampling variance."""
        sizes = self.units.sizes
        return float(self.total**2 / (self.of_units**2 @ (sizes * (1 + LIKENESS * (sizes - 1.0)))))

    @property
    def noise_records(self) -> float:
        """Number of records, each protected on its own, whose mean would need the same noise."""
        return float(self.total / (self.of_units * self.moves).max())

    def compute_move(self, per_record: float, beside: float) -> float:
        """Move of both parts of a sum by one unit, if one record of weight 1 moves them by these distances."""
        return float(np.hypot(per_record * self.of_units * self.moves, beside * self.unit_totals).max())
