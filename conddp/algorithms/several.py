"""Several labels of the same records in one fit: how the budget is divided, and the models that come of it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from conddp._validate import positive_integer
from conddp.algorithms.algorithm import Algorithm
from conddp.data.records import Records
from conddp.errors import NotCalibrated, SchemaError
from conddp.models.result import FitResult
from conddp.privacy.accounting import SMALLEST_EPSILON, calibrate_gaussian_mu, compute_gaussian_epsilon
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.joint_guarantee import JointGuarantee
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.total import JointCost
from conddp.privacy.transcript import Transcript

__all__ = ["JointFit", "check_outputs", "divide_budget", "guess_part", "join_events"]

MOST_ROUNDS = 60
EXACT, SAMPLED = 5e-7, 2e-3  # fraction of epsilon that may be left over; the accountant of samples is no more precise


@dataclass(frozen=True)
class JointFit:
    """Models for several labels of the same records, with one guarantee for all of them.

    Parameters
    ----------
    results : tuple of FitResult
        The fit of each label, in the order of the labels.
    guarantee : JointGuarantee
        Guarantee of all models together, and of each alone.
    """

    results: tuple[FitResult, ...]
    guarantee: JointGuarantee


def check_outputs(outputs: Sequence[Records]) -> None:
    """Raise unless these are labels of different names of the same records.

    Privacy
        Whether private columns are the same is decided by identity, not by their values.
    """
    if not outputs:
        raise SchemaError("a fit needs at least one label, got none.")
    first, names = outputs[0], [each.label.name for each in outputs]
    if len(set(names)) < len(names):
        raise SchemaError(f"labels of one fit must have different names, got {names}.")
    for other in outputs[1:]:
        same = (
            (other.public is first.public or _have_same_cells(first, other))
            and other.private is first.private
            and (other.units is first.units or _have_same_units(first, other))
            and (other.weights is first.weights or _have_same_weights(first, other))
        )
        if not same:
            raise SchemaError(
                f"label '{other.label.name}' belongs to other records than label '{first.label.name}'. Labels of one "
                "fit share public columns, private columns, units and weights: make one from the other."
            )


def _have_same_cells(one: Records, other: Records) -> bool:
    if one.public.sparse is not None or other.public.sparse is not None:
        return False  # compared by identity only
    return one.public.names == other.public.names and np.array_equal(one.public.values, other.public.values)


def _have_same_units(one: Records, other: Records) -> bool:
    if one.units is None or other.units is None:
        return False
    named = (one.units.name, one.units.max_rows) == (other.units.name, other.units.max_rows)
    return named and np.array_equal(one.units.codes, other.units.codes)


def _have_same_weights(one: Records, other: Records) -> bool:
    return one.weights is not None and other.weights is not None and np.array_equal(one.weights, other.weights)


def guess_part(budget: PrivacyBudget, number: int) -> PrivacyBudget:
    """Budget of one of several fits that are Gaussian mechanisms; an equal part of epsilon if delta is 0."""
    if budget.delta == 0 or budget.epsilon < SMALLEST_EPSILON:
        return PrivacyBudget(budget.epsilon / number, budget.delta)
    mu = calibrate_gaussian_mu(budget.epsilon, budget.delta) / math.sqrt(number)
    return PrivacyBudget(compute_gaussian_epsilon(mu, budget.delta), budget.delta)


def join_events(events: Sequence[Transcript | None]) -> Transcript | None:
    """Event of several fits together; None if the event of any of them is not known."""
    if any(event is None or not len(event) for event in events):
        return None
    return Transcript(tuple(release for event in events if event is not None for release in event))


def divide_budget(
    algorithm: Algorithm,
    budget: PrivacyBudget,
    number: int,
    *,
    neighbouring: Neighbouring,
    foresee: Callable[[PrivacyBudget], Transcript | None],
) -> PrivacyBudget:
    """Find the largest budget that each of several equal fits may have, so that all together stay within a budget.

    Fits whose event is known are composed exactly: Gaussian ones get mu over the square root of their number, and the
    epsilon that goes with it; pure ones get an equal part of epsilon. If only (epsilon, delta) is known, each gets an
    equal part of both.

    Privacy
        Reads no data. The exact total of the fits is never above the budget.

    Parameters
    ----------
    algorithm : Algorithm
        Algorithm of all fits.
    budget : PrivacyBudget
        Budget of all fits together.
    number : int
        Number of fits.
    neighbouring : Neighbouring
        Neighbouring relation under which the budget is stated.
    foresee : callable
        Function that returns the event of one fit with a budget (:meth:`Algorithm.foresee
        <conddp.algorithms.algorithm.Algorithm.foresee>`).
    """
    positive_integer(number=number)
    whole = algorithm.cost(budget)
    if number == 1 or math.isinf(whole.epsilon):
        return budget
    equal = PrivacyBudget(budget.epsilon / number, budget.delta / number)
    if whole.delta == 0:
        return PrivacyBudget(equal.epsilon, budget.delta)
    part, low, high = guess_part(budget, number), 0.0, math.inf
    for _ in range(MOST_ROUNDS):
        try:
            event = foresee(part)
        except NotCalibrated:  # so little that no noise is found for it
            break
        if event is None or not len(event):
            return equal
        joint = JointCost.of([(algorithm.cost(part), event)] * number, neighbouring)
        spent, tolerance = joint.epsilon(whole.delta), SAMPLED if event.sampled else EXACT
        if spent <= whole.epsilon and joint.is_covered_by(whole):
            low = part.epsilon
            if spent >= whole.epsilon * (1 - tolerance) or low >= budget.epsilon:
                break
        else:
            high = part.epsilon
        if high < math.inf and high - low <= 1e-12 * high:
            break
        aimed = part.epsilon * whole.epsilon * (1 - tolerance / 2) / spent if spent else math.inf
        if not low < aimed < high:
            aimed = (low + high) / 2 if high < math.inf else 2 * part.epsilon
        part = PrivacyBudget(min(aimed, budget.epsilon), budget.delta)
    return PrivacyBudget(low, budget.delta) if low else equal
