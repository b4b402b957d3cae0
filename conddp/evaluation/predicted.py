"""Predictions of held-out records with everything about them that is public."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from conddp.bounds import Bounds
from conddp.data.units import Units

__all__ = ["Predicted"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Predicted:
    r"""Public predictions of held-out records, their weights and units, and the bins of the calibration curve.

    Predictions are scaled as labels are, to [-1/2, 1/2]. The error of a record, :math:`e_i = t_i - q_i` with the scaled
    label :math:`t_i` and the scaled prediction :math:`q_i`, then lies in :math:`[-1/2 - q_i, 1/2 - q_i]`, which
    contains zero.

    Privacy
        Predictions depend on public columns and on a model that is released. So does everything here.

    Parameters
    ----------
    scaled : array of shape (n,)
        Scaled predictions.
    bins : array of shape (n,)
        Bin of each record, from 0.
    num_bins : int
        Number of bins; each has records.
    weights : array of shape (n,)
        Public weights of the records, of which the largest is 1.
    units : Units, optional
        Units of the records, arranged. If None, each record is protected on its own.
    """

    scaled: Vector
    bins: NDArray[np.intp]
    num_bins: int
    weights: Vector
    units: Units | None = None

    @classmethod
    def of(
        cls,
        predictions: Vector,
        bounds: Bounds,
        *,
        num_bins: int,
        weights: Vector | None = None,
        units: Units | None = None,
    ) -> "Predicted":
        """Scale predictions and divide them into bins of about equal numbers of records."""
        scaled = np.clip((bounds.clamp(predictions) - bounds.midpoint) / bounds.width, -0.5, 0.5)
        edges = np.unique(np.quantile(scaled, np.arange(1, num_bins) / num_bins))
        bins = np.searchsorted(edges, scaled, side="right")
        used, bins = np.unique(bins, return_inverse=True)
        weights = np.ones(len(scaled)) if weights is None else weights
        return cls(scaled, bins.reshape(-1).astype(np.intp), len(used), weights, units)

    def __len__(self) -> int:
        return len(self.scaled)

    @cached_property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weights.sum())

    @cached_property
    def center(self) -> float:
        """Mean prediction."""
        return float(self.weights @ self.scaled / self.total)

    @cached_property
    def deviations(self) -> Vector:
        """Distances of the predictions from their mean."""
        return self.scaled - self.center

    @cached_property
    def square(self) -> float:
        """Sum of the squared distances."""
        return float(self.weights @ self.deviations**2)

    @cached_property
    def bin_totals(self) -> Vector:
        """Sum of the weights in each bin."""
        return np.asarray(np.bincount(self.bins, self.weights, self.num_bins), dtype=np.float64)

    @cached_property
    def bin_means(self) -> Vector:
        """Mean prediction in each bin."""
        return np.asarray(np.bincount(self.bins, self.weights * self.scaled, self.num_bins) / self.bin_totals)

    @cached_property
    def unit_codes(self) -> NDArray[np.intp]:
        """The unit of each record; without units, each record is one."""
        return np.arange(len(self)) if self.units is None else self.units.codes

    def add_up_units(self, values: Vector) -> Vector:
        """Sum of weighted values of the records of each unit."""
        return np.asarray(np.bincount(self.unit_codes, self.weights * values), dtype=np.float64)

    def find_reach(self) -> tuple[Vector, Vector]:
        """How far the error of each record can reach above and below zero."""
        return 0.5 - self.scaled, 0.5 + self.scaled
