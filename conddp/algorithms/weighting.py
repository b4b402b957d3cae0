"""Weights of the records of a task, if its units have several records."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.task import Task
from conddp.data.units import Units
from conddp.features.row_weights import RowWeights
from conddp.privacy.accounting import calibrate_gaussian_mu

__all__ = ["describe_weights", "weigh_records"]


def weigh_records(
    task: Task, *, num_directions: int, bound_moves: Callable[[Units], NDArray[np.float64]] | None = None
) -> RowWeights | None:
    """Choose weights of the records for the units and the budget of a task; None if every unit has one record.

    Privacy
        Reads the public unit column, public rows and the budget: no cost.

    Parameters
    ----------
    task : Task
        The fit.
    num_directions : int
        Number of coefficients to estimate.
    bound_moves : callable, optional
        Bounds how far the records of each unit move a sum together, in moves of one record, from public rows. Records
        of a unit whose rows point in different directions move a sum by less than their number. If None, rows may be
        private, and only their number counts.
    """
    units = task.repeated_units
    if units is None:
        return None
    moves = units.sizes.astype(np.float64) if bound_moves is None else bound_moves(units)
    mu = calibrate_gaussian_mu(task.budget.epsilon, task.budget.delta)
    noise_std = task.neighbouring.sensitivity(1.0) / mu
    return RowWeights.choose(units, moves, num_directions=num_directions, noise_std=noise_std)


def describe_weights(weights: RowWeights | None) -> dict[str, float]:
    """Settings of a fit about its units; none if every unit has one record."""
    if weights is None:
        return {}
    return {
        "num_units": weights.units.num_units,
        "records_per_unit": weights.units.largest,
        "smallest_weight": float(weights.of_units.min()),
        "total_weight": weights.total,
    }
