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

Records may also have weights of their own, as in weighted least squares: public numbers :math:`s_i \le 1` that the user
gives. The weight of record i of unit u is then :math:`a_i = a_u s_i`. The sampling variance is taken to be that of
records whose variance is inverse to :math:`s_i`, for which the weights of the user are best, so that they are kept if
there is little noise. M is at least 1, the largest weight of a single record: units of one record always keep theirs.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
    """Public weights of records: chosen for units that have several records, given by the user, or both.

    Privacy
        Computed from the public unit column, public rows, public weights of the user and the budget: no cost.

    Parameters
    ----------
    units : Units
        Units of the records, arranged. If every record is protected on its own, it is a unit.
    of_units : array of shape (m,)
        Weight of the unit, at most 1, by which the weights of its records are multiplied.
    moves : array of shape (m,)
        How far the records of a unit can move a sum together if the unit has weight 1, in moves of one record of
        weight 1: at most the sum of the weights of its records.
    of_records : array of shape (n,), optional
        Weights of single records, at most 1. If None, all of them are 1.
    """

    units: Units
    of_units: Vector
    moves: Vector
    of_records: Vector | None = None

    @classmethod
    def give(cls, of_records: Vector) -> "RowWeights":
        """Give single records, each protected on its own, these weights."""
        units = Units(np.arange(len(of_records)))
        return cls(units, np.ones(len(of_records)), of_records, of_records)

    @classmethod
    def choose(
        cls,
        units: Units,
        moves: Vector,
        *,
        num_directions: int,
        noise_std: float,
        of_records: Vector | None = None,
    ) -> "RowWeights":
        """Choose the weights of units with the least expected error from noise and sampling.

        Parameters
        ----------
        units, moves, of_records
            See the class.
        num_directions : int
            Number of coefficients.
        noise_std : float
            Standard deviation of the noise in a sum to which one record contributes a vector of length at most 1.
        """
        sums: NDArray[Any] = units.sizes if of_records is None else units.add_up(of_records)
        usual = np.maximum(np.sqrt(moves * sums), 1e-300)
        limits = np.unique(np.maximum(np.quantile(usual, np.linspace(0, 1, MOST_CANDIDATES)), 1.0))
        errors = []
        for limit in limits:
            weights = np.minimum(1.0, limit / usual)
            total = weights @ sums
            noise = num_directions * noise_std * TYPICAL_CLIP_NORM * (weights * usual).max() / total
            errors.append(noise**2 + num_directions * float(weights**2 @ sums) / total**2)
        return cls(units, np.minimum(1.0, limits[int(np.argmin(errors))] / usual), moves, of_records)

    @cached_property
    def values(self) -> Vector:
        """Weight of each record, shape (n,)."""
        values = np.asarray(self.of_units[self.units.codes])
        return values if self.of_records is None else values * self.of_records

    @cached_property
    def unit_totals(self) -> Vector:
        """Sum of the weights of each unit, shape (m,)."""
        if self.of_records is None:
            return self.of_units * self.units.sizes
        return self.units.add_up(self.values)

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
        if self.of_records is None:
            return float(self.total**2 / (self.of_units**2 @ (sizes * (1 + LIKENESS * (sizes - 1.0)))))
        squares = (1 - LIKENESS) * (self.values @ self.values) + LIKENESS * (self.unit_totals @ self.unit_totals)
        return float(self.total**2 / squares)

    @property
    def noise_records(self) -> float:
        """Number of records, each protected on its own, whose mean would need the same noise."""
        return float(self.total / (self.of_units * self.moves).max())

    def compute_move(self, per_record: float, beside: float) -> float:
        """Move of both parts of a sum by one unit, if one record of weight 1 moves them by these distances."""
        return float(np.hypot(per_record * self.of_units * self.moves, beside * self.unit_totals).max())
