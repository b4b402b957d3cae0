"""Weights of the records of a task, if its units have several records or the user gave weights."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.task import Task
from conddp.data.units import Units
from conddp.features.row_weights import RowWeights
from conddp.privacy.accounting import calibrate_gaussian_mu

__all__ = ["describe_weights", "weigh_records"]


def weigh_records(
    task: Task,
    *,
    num_directions: int,
    bound_moves: Callable[[Units, NDArray[np.float64] | None], NDArray[np.float64]] | None = None,
) -> RowWeights | None:
    """Choose weights of the records for the units and the budget of a task, times the weights that the user gave.

    None if every unit has one record and there are no weights of the user. Units with one record each keep the weights
    of the user.

    Privacy
        Reads the public unit column, public rows, public weights of the user and the budget: no cost.

    Parameters
    ----------
    task : Task
        The fit.
    num_directions : int
        Number of coefficients to estimate.
    bound_moves : callable, optional
        Bounds how far the records of each unit, with these weights, move a sum together, in moves of one record of
        weight 1, from public rows. Records of a unit whose rows point in different directions move a sum by less than
        their number. If None, rows may be private, and only the sum of the weights counts.
    """
    units, given = task.repeated_units, task.weights
    if units is None:
        return None if given is None else RowWeights.give(given)
    if bound_moves is not None:
        moves = bound_moves(units, given)
    else:
        moves = units.sizes.astype(np.float64) if given is None else units.add_up(given)
    mu = calibrate_gaussian_mu(task.budget.epsilon, task.budget.delta)
    noise_std = task.neighbouring.sensitivity(1.0) / mu
    return RowWeights.choose(units, moves, num_directions=num_directions, noise_std=noise_std, of_records=given)


def describe_weights(weights: RowWeights | None) -> dict[str, float]:
    """Settings of a fit about its units and weights; none if every unit has one record and all weights are equal."""
    if weights is None:
        return {}
    units = {"num_units": weights.units.num_units, "records_per_unit": weights.units.largest}
    return {
        **(units if weights.units.largest > 1 else {}),
        "smallest_weight": float(weights.values.min()),
        "total_weight": weights.total,
    }
