"""Weights of the records of a task, if its units have several records or the user gave weights."""

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.task import Task
from conddp.features.row_weights import RowWeights
from conddp.features.unit_moves import bound_moves
from conddp.privacy.accounting import calibrate_gaussian_mu

__all__ = ["describe_weights", "weigh_records"]


def weigh_records(task: Task, *, num_directions: int, rows: NDArray[np.float64] | None = None) -> RowWeights | None:
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
    rows : array of shape (n, k), optional
        Public rows that residuals are multiplied with. Records of a unit whose rows point in different directions move
        a sum by less than their number. If None, rows may be private, and only their number counts.
    """
    units, given = task.repeated_units, task.weights
    if units is None:
        return None if given is None else RowWeights.give(given)
    moves = units.sizes.astype(np.float64) if given is None else units.add_up(given)
    if rows is not None:
        lengths = np.sqrt((rows**2).sum(axis=1))
        vectors, least = rows / np.maximum(lengths, 1e-300)[:, None], np.ones(units.num_units)
        if given is not None:
            vectors = vectors * given[:, None]
            least = np.zeros(units.num_units)
            np.maximum.at(least, units.codes, given)
        moves = np.maximum(least, bound_moves(vectors, units))
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
