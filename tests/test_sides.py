"""Disjoint sides of a split: the worst of them counts, and splits add up."""

import itertools

import pytest

from conddp.errors import BudgetExceeded
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.events import make_gaussian_event, make_pure_event
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.sides import MOST_CHOICES, Side, WorstCost
from conddp.privacy.total import JointCost
from conddp.privacy.transcript import Transcript

R = Neighbouring.REPLACE
DELTA = 1e-6


def pay(epsilon: float, side: Side | None = None) -> tuple[PrivacyBudget, Transcript, Side | None]:
    return PrivacyBudget(epsilon, DELTA), make_gaussian_event(calibrate_gaussian_mu(epsilon, DELTA)), side


def pay_pure(epsilon: float, side: Side | None = None) -> tuple[PrivacyBudget, Transcript, Side | None]:
    return PrivacyBudget(epsilon, 0.0), make_pure_event(epsilon), side


def find_worst(*payments: tuple[PrivacyBudget, Transcript, Side | None]) -> float:
    """Largest joint epsilon over all records, by going through all sides that they may be on."""
    splits = sorted({side.split for _, _, side in payments if side})
    names = [sorted({side.name for _, _, side in payments if side and side.split == split}) for split in splits]
    return max(
        JointCost.of(
            [
                (cost, event)
                for cost, event, side in payments
                if side is None or (side.split, side.name) in zip(splits, on, strict=True)
            ],
            R,
        ).epsilon(DELTA)
        for on in itertools.product(*names)
    )


ONE, TWO, OTHER = Side("a", "training"), Side("a", "held out"), Side("b", "training")


@pytest.mark.parametrize(
    "payments",
    [
        [pay(1.0, ONE), pay(1.0, TWO)],
        [pay(0.5, ONE), pay(1.0, TWO)],
        [pay(1.0), pay(0.5, ONE), pay(0.25, TWO)],
        [pay(1.0, ONE), pay(0.5, TWO), pay(0.5, TWO), pay(0.5, TWO), pay(0.5, TWO), pay(0.5, TWO)],
        [pay(1.0, ONE), pay(1.0, TWO), pay(1.0, OTHER), pay(2.0, Side("b", "held out"))],
        [pay_pure(1.0, ONE), pay(0.9, TWO), pay(1.0)],
        [pay_pure(2.0, ONE), pay(0.9, TWO), pay(1.0, OTHER), pay_pure(1.2, Side("b", "held out"))],
    ],
)
def test_the_worst_side_counts(payments: list[tuple[PrivacyBudget, Transcript, Side | None]]) -> None:
    assert WorstCost.of(payments, R).epsilon(DELTA) == pytest.approx(find_worst(*payments), rel=1e-6)


def test_payments_without_sides_add_up_as_ever() -> None:
    payments = [pay(1.0), pay_pure(0.5), pay(0.3)]
    joint = JointCost.of([(cost, event) for cost, event, _ in payments], R)
    worst = WorstCost.of(payments, R)
    assert worst.epsilon(DELTA) == joint.epsilon(DELTA) and worst.total == joint.total
    budget = PrivacyBudget(3.0, DELTA)
    assert worst.find_rest(budget) == joint.find_rest(budget)


def test_many_splits_that_cannot_be_compared_count_with_both_sides() -> None:
    payments = []
    for number in range(8):
        payments += [pay_pure(0.1, Side(str(number), "one")), pay(0.1, Side(str(number), "two"))]
    worst = WorstCost.of(payments, R)
    assert len(worst.choices) <= MOST_CHOICES
    assert worst.epsilon(DELTA) >= find_worst(*payments) * (1 - 1e-6)


def test_a_ledger_counts_both_sides_once_and_everything_else_beside(tmp_path: object) -> None:
    budget = PrivacyBudget(1.0, DELTA)
    path = f"{tmp_path}/ledger.jsonl"
    ledger = PrivacyLedger(budget, path=path)
    for cost, event, side in (pay(1.0, ONE), pay(1.0, TWO)):
        ledger.spend(LedgerEntry("a fit", cost, event=event, side=side))
    loaded = PrivacyLedger.load(path)
    assert loaded.spent.epsilon == pytest.approx(1.0) and loaded.remaining.epsilon == 0
    assert [entry.side for entry in loaded.entries] == [ONE, TWO]
    assert loaded.plain_sum == budget
    cost, event, _ = pay(0.1)
    for side in (None, ONE, OTHER):
        with pytest.raises(BudgetExceeded):
            loaded.spend(LedgerEntry("another fit", cost, event=event, side=side))


@pytest.mark.parametrize("stored", [{"split": "a"}, {"split": "", "name": "b"}, {"split": 1, "name": "b"}, "a", ["a"]])
def test_a_damaged_side_is_refused(stored: object) -> None:
    entry = LedgerEntry("a fit", PrivacyBudget(1.0, DELTA)).to_json()
    with pytest.raises((TypeError, ValueError)):
        LedgerEntry.from_json({**entry, "side": stored})
