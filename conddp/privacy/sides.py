r"""Sides of a public split, and what releases from them cost together.

A public split divides the records of a table, or its units, into disjoint sides. A record is on one side only, so what
is released from the other sides does not depend on its private values, except through what has been released from its
own. Neighbouring data sets therefore differ on one side, and of all releases from the sides of a split only those of
one side count: the total is that of the worst side, not the sum. This is parallel composition; it stays true if
releases from one side are chosen after looking at those from another.

Sides of different splits overlap. A record may be on any side of each of them, so the total is the largest over all
choices of one side per split.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.total import JointCost
from conddp.privacy.transcript import Transcript

__all__ = ["Side", "WorstCost"]

MOST_CHOICES = 64  # of sides; the splits beyond count with all of their sides

Payment = tuple[PrivacyBudget, Transcript | None, "Side | None"]


@dataclass(frozen=True)
class Side:
    """One side of a public split of the records of a table.

    Parameters
    ----------
    split : str
        Name of the split, which no other split has.
    name : str
        Name of the side.
    """

    split: str
    name: str

    def __post_init__(self) -> None:
        if not (isinstance(self.split, str) and isinstance(self.name, str) and self.split and self.name):
            raise ValueError("the side of a split needs the name of the split and its own.")


@dataclass(frozen=True)
class WorstCost:
    """What payments cost together, for records that may be on any side of each split.

    Privacy
        Reads no data. Every result is exact or an upper bound.

    Parameters
    ----------
    choices : tuple of JointCost
        Joint cost for each choice of one side per split. Those that another one exceeds in all respects are left out.
    payments : tuple
        Cost, event and side of each payment.
    neighbouring : Neighbouring
        Neighbouring relation under which all costs are stated.

    Examples
    --------
    >>> from conddp.privacy.events import expect_event
    >>> cost = PrivacyBudget(1.0, 1e-6)
    >>> event = expect_event(cost)
    >>> worst = WorstCost.of([(cost, event, Side("a", "one")), (cost, event, Side("a", "two"))], Neighbouring.REPLACE)
    >>> round(worst.epsilon(1e-6), 4)
    1.0
    """

    choices: tuple[JointCost, ...]
    payments: tuple[Payment, ...]
    neighbouring: Neighbouring

    @classmethod
    def of(cls, payments: Iterable[Payment], neighbouring: Neighbouring) -> "WorstCost":
        """Collect costs with their events and sides; a side of None stands for all records."""
        payments = tuple(payments)
        common = [(cost, event) for cost, event, side in payments if side is None]
        splits: dict[str, dict[str, list[tuple[PrivacyBudget, Transcript | None]]]] = {}
        for cost, event, side in payments:
            if side is not None:
                splits.setdefault(side.split, {}).setdefault(side.name, []).append((cost, event))
        choices: list[list[list[tuple[PrivacyBudget, Transcript | None]]]] = []
        number = 1
        for sides in splits.values():
            worst = _drop_cheaper(list(sides.values()), neighbouring)
            number *= len(worst)
            if number > MOST_CHOICES:
                worst, number = [[each for side in worst for each in side]], number // len(worst)
            choices.append(worst)
        joint = [
            JointCost.of([*common, *(each for side in chosen for each in side)], neighbouring)
            for chosen in product(*choices)
        ]
        return cls(tuple(joint), payments, neighbouring)

    @property
    def total(self) -> PrivacyBudget:
        """Largest sum of costs by basic composition."""
        totals = [each.total for each in self.choices]
        return PrivacyBudget(max(each.epsilon for each in totals), max(each.delta for each in totals))

    def add(self, cost: PrivacyBudget, event: Transcript | None, side: Side | None = None) -> "WorstCost":
        """Return the cost with one more payment."""
        return WorstCost.of([*self.payments, (cost, event, side)], self.neighbouring)

    def epsilon(self, delta: float) -> float:
        """Compute the smallest epsilon at ``delta`` that covers every choice; infinite if there is none."""
        return max(each.epsilon(delta) for each in self.choices)

    def is_covered_by(self, budget: PrivacyBudget) -> bool:
        """Whether every choice stays within a budget."""
        return all(each.is_covered_by(budget) for each in self.choices)

    def find_rest(self, budget: PrivacyBudget) -> PrivacyBudget:
        """Find the largest epsilon that one more Gaussian fit to all records could have."""
        return min((each.find_rest(budget) for each in self.choices), key=lambda rest: rest.epsilon)


def _drop_cheaper(
    sides: list[list[tuple[PrivacyBudget, Transcript | None]]], neighbouring: Neighbouring
) -> list[list[tuple[PrivacyBudget, Transcript | None]]]:
    """Leave out sides that cost no more than another one in every respect, whatever is added to both."""
    kept: list[tuple[JointCost, list[tuple[PrivacyBudget, Transcript | None]]]] = []
    for payments in sides:
        joint = JointCost.of(payments, neighbouring)
        if any(_exceeds(other, joint) for other, _ in kept):
            continue
        kept = [*((other, each) for other, each in kept if not _exceeds(joint, other)), (joint, payments)]
    return [payments for _, payments in kept]


def _exceeds(large: JointCost, small: JointCost) -> bool:
    """Whether a joint cost is at least another one in every respect."""
    return (
        large.total.covers(small.total)
        and large.others.covers(small.others)
        and large.mu_squared >= small.mu_squared
        and not Counter(small.pure) - Counter(large.pure)
        and (not small.runs or small.runs == large.runs)
    )
