"""The joint cost of several fits, against closed forms, a second accountant, numeric convolution and simulation."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
)
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st

from conddp.errors import BudgetExceeded, PrivacyError
from conddp.privacy import Neighbouring, PrivacyBudget, PrivacyLedger
from conddp.privacy.accounting import (
    GaussianEvent,
    calibrate_gaussian_mu,
    calibrate_noise_multiplier,
    compute_gaussian_epsilon,
)
from conddp.privacy.entry import LedgerEntry
from conddp.privacy.events import check_event, expect_event, make_gaussian_event, make_pure_event, make_run_event
from conddp.privacy.total import JointCost
from conddp.privacy.transcript import Transcript, UnprotectedRelease

REPLACE, ZERO_OUT = Neighbouring.REPLACE, Neighbouring.ZERO_OUT
DELTA = 1e-6


def pay(epsilon: float, delta: float = DELTA) -> tuple[PrivacyBudget, Transcript | None]:
    return PrivacyBudget(epsilon, delta), expect_event(PrivacyBudget(epsilon, delta))


def make_ledger(payments: list[tuple[PrivacyBudget, Transcript | None]], budget: PrivacyBudget) -> PrivacyLedger:
    ledger = PrivacyLedger(budget)
    for cost, event in payments:
        ledger.spend(LedgerEntry("a fit", cost, event=event))
    return ledger


@pytest.mark.parametrize(
    ("count", "epsilon", "together"),
    [(4, 1.0, 2.12), (10, 1.0, 3.52), (100, 1.0, 13.5), (4, 4.0, 8.9), (10, 0.25, 0.86)],
)
def test_gaussian_fits_cost_what_one_gaussian_mechanism_costs(count: int, epsilon: float, together: float) -> None:
    ledger = make_ledger([pay(epsilon)] * count, PrivacyBudget(count * epsilon, DELTA))
    assert ledger.spent.epsilon == pytest.approx(together, rel=3e-3)
    assert ledger.spent.delta == DELTA
    exact = compute_gaussian_epsilon(math.sqrt(count) * calibrate_gaussian_mu(epsilon, DELTA), DELTA)
    assert ledger.spent.epsilon == pytest.approx(exact, rel=1e-6)
    assert ledger.plain_sum.epsilon == count * epsilon
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    accountant.compose(GaussianDpEvent(2 / calibrate_gaussian_mu(epsilon, DELTA)), count)
    assert ledger.spent.epsilon == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)


def test_a_fit_is_accepted_if_and_only_if_the_total_stays_within_the_budget() -> None:
    exact = JointCost.of([pay(1.0)] * 4, REPLACE).epsilon(DELTA)
    make_ledger([pay(1.0)] * 4, PrivacyBudget(exact * 1.00001, DELTA))
    with pytest.raises(BudgetExceeded, match=r"needs epsilon=1 at delta=1e-06, but of .* could have epsilon=0.99\d+"):
        make_ledger([pay(1.0)] * 4, PrivacyBudget(exact * 0.9999, DELTA))


@given(
    st.lists(st.floats(0.05, 3.0), max_size=6),
    st.lists(st.floats(0.05, 1.0), max_size=4),
    st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.0, 1e-7)), max_size=3),
)
def test_what_remains_can_be_spent_and_a_little_more_cannot(
    gaussian: list[float], pure: list[float], plain: list[tuple[float, float]]
) -> None:
    budget = PrivacyBudget(6.0, DELTA)
    payments: list[tuple[PrivacyBudget, Transcript | None]] = [pay(epsilon) for epsilon in gaussian]
    payments += [pay(epsilon, 0.0) for epsilon in pure]
    payments += [(PrivacyBudget(*cost), None) for cost in plain]
    joint = JointCost.of(payments, REPLACE)
    rest = joint.find_rest(budget)
    if not joint.is_covered_by(budget):
        assert rest.epsilon == 0
        return
    if rest.epsilon:
        assert joint.add(rest, expect_event(rest)).is_covered_by(budget)
    more = PrivacyBudget(rest.epsilon * 1.001 + (0.0 if rest.epsilon else 0.01), budget.delta)
    assert not payments or not joint.add(more, expect_event(more)).is_covered_by(budget)


@given(
    st.lists(st.floats(0.05, 3.0), max_size=6),
    st.lists(st.floats(0.05, 2.0), max_size=5),
    st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.0, 1e-7)), max_size=3),
)
def test_the_total_is_never_above_the_plain_sum_nor_below_its_largest_part(
    gaussian: list[float], pure: list[float], plain: list[tuple[float, float]]
) -> None:
    payments: list[tuple[PrivacyBudget, Transcript | None]] = [pay(epsilon, 1e-7) for epsilon in gaussian]
    payments += [pay(epsilon, 0.0) for epsilon in pure]
    payments += [(PrivacyBudget(*cost), None) for cost in plain]
    joint = JointCost.of(payments, REPLACE)
    delta = max(joint.total.delta, 1e-9)
    assert joint.epsilon(delta) <= joint.total.epsilon * (1 + 1e-9)
    alone = [JointCost.of([each], REPLACE).epsilon(delta) for each in payments]
    assert joint.epsilon(delta) >= max(alone, default=0.0) * (1 - 1e-6)
    if 0 < joint.epsilon(delta) < joint.total.epsilon:
        assert joint.delta(joint.epsilon(delta)) <= delta * (1 + 1e-5)
        assert joint.delta(joint.epsilon(delta) * 0.999) > delta * (1 - 1e-5)


def convolve_losses(mu: float, epsilons: list[float], epsilon: float) -> float:
    """Delta by summing over every outcome of the responses and integrating over the Gaussian loss, in small steps."""
    losses, step = np.linspace(mu**2 / 2 - 12 * mu, mu**2 / 2 + 12 * mu, 400_001, retstep=True)
    density = np.exp(-((losses - mu**2 / 2) ** 2) / (2 * mu**2)) / (mu * math.sqrt(2 * math.pi))
    total = 0.0
    for signs in itertools.product((-1, 1), repeat=len(epsilons)):
        shift = sum(sign * each for sign, each in zip(signs, epsilons, strict=True))
        chance = math.prod(1 / (1 + math.exp(-sign * each)) for sign, each in zip(signs, epsilons, strict=True))
        total += chance * float((density * np.maximum(0.0, -np.expm1(epsilon - shift - losses))).sum() * step)
    return total


@pytest.mark.parametrize("pure", [[], [0.5], [0.5, 0.5, 0.5], [0.1, 0.7, 1.3]])
@pytest.mark.parametrize("epsilon", [0.5, 1.5, 3.0])
def test_gaussian_and_pure_parts_are_convolved_exactly(pure: list[float], epsilon: float) -> None:
    joint = JointCost(REPLACE).add(PrivacyBudget(0.0, 0.0), make_gaussian_event(0.6))
    joint = joint.add(PrivacyBudget(0.0, 0.0), make_gaussian_event(0.8))
    if pure:
        joint = joint.add(PrivacyBudget(0.0, 0.0), make_pure_event(*pure))
    assert joint.delta(epsilon) == pytest.approx(convolve_losses(1.0, pure, epsilon), rel=1e-6)


@pytest.mark.parametrize("count", [1, 3, 100])
def test_pure_fits_compose_as_a_second_accountant_says(count: int) -> None:
    epsilon = 0.1
    joint = JointCost.of([pay(epsilon, 0.0)] * count, REPLACE)
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-4)
    for _ in range(count):  # dp-accounting 0.6 ignores a count for this event
        accountant.compose(RandomizedResponseDpEvent(2 / (math.exp(epsilon) + 1), 2))
    for delta in (1e-6, 1e-3):
        second = accountant.get_epsilon(delta)  # rounds every loss up, by at most the interval
        assert second - 1e-4 * count <= joint.epsilon(delta) <= second
    assert joint.epsilon(0.0) == pytest.approx(count * epsilon)
    assert count < 100 or joint.epsilon(1e-6) < 5  # half the plain sum


def test_the_joint_delta_of_laplace_and_gaussian_releases_is_what_a_simulation_finds() -> None:
    """False alarms: the bound must not be below the estimate by five of its standard errors, 3e-7 per case."""
    rng, count = np.random.default_rng(0), 2_000_000
    mu, scale = 0.8, 2.0  # Laplace noise of scale 2 on a sensitivity of 1: epsilon 0.5
    joint = JointCost(REPLACE).add(PrivacyBudget(0.0, 0.0), make_gaussian_event(mu))
    joint = joint.add(PrivacyBudget(0.0, 0.0), make_pure_event(1 / scale))
    noise = rng.laplace(scale=scale, size=count)
    losses = mu * rng.standard_normal(count) + mu**2 / 2 + (np.abs(noise + 1) - np.abs(noise)) / scale
    for epsilon in (0.5, 1.0, 2.0):
        excess = np.maximum(0.0, -np.expm1(epsilon - losses))
        error = excess.std() / math.sqrt(count)
        assert joint.delta(epsilon) >= excess.mean() - 5 * error
        assert joint.delta(epsilon) <= 2 * excess.mean()  # and is not far above: Laplace noise is nearly the worst


def test_more_distinct_pure_epsilons_than_can_be_spread_are_added() -> None:
    epsilons = [0.01 + number * 1e-4 for number in range(30)]
    joint = JointCost.of([pay(epsilon, 0.0) for epsilon in epsilons], REPLACE)
    assert joint.epsilon(1e-6) <= sum(epsilons)
    fewer = JointCost.of([pay(0.01, 0.0)] * 30, REPLACE)
    assert joint.epsilon(1e-6) >= fewer.epsilon(1e-6)


@pytest.fixture(scope="module")
def run() -> GaussianEvent:
    noise_multiplier = calibrate_noise_multiplier(1.0, DELTA, num_steps=20, sampling_probability=0.05)
    return GaussianEvent(noise_multiplier, 20, 0.05)


def test_a_mix_with_sampled_runs_agrees_with_a_second_accountant(run: GaussianEvent) -> None:
    fit = PrivacyBudget(1.0, DELTA)
    payments = [(fit, make_run_event(run))] * 2 + [pay(1.0), pay(0.3, 0.0)]
    joint = JointCost.of(payments, REPLACE)
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-4)
    accountant.compose(PoissonSampledDpEvent(0.05, GaussianDpEvent(run.noise_multiplier)), 40)
    accountant.compose(GaussianDpEvent(2 / calibrate_gaussian_mu(1.0, DELTA)))
    assert joint.epsilon(DELTA) == pytest.approx(accountant.get_epsilon(DELTA) + 0.3, rel=2e-3)
    accountant.compose(RandomizedResponseDpEvent(2 / (math.exp(0.3) + 1), 2))
    assert joint.epsilon(DELTA) >= accountant.get_epsilon(DELTA)
    assert joint.epsilon(DELTA) < joint.total.epsilon == 3.3
    budget = PrivacyBudget(2.5, DELTA)
    rest = joint.find_rest(budget)
    assert 0 < rest.epsilon < 2.2 and joint.add(rest, expect_event(rest)).is_covered_by(budget)
    assert not joint.is_covered_by(PrivacyBudget(joint.epsilon(DELTA) * 0.99, DELTA))


def test_one_sampled_run_fits_into_its_own_budget_and_two_into_less_than_twice_that(run: GaussianEvent) -> None:
    fit = PrivacyBudget(1.0, DELTA)
    ledger = make_ledger([(fit, make_run_event(run))], fit)
    assert ledger.spent == fit and ledger.remaining.epsilon < 0.02  # noise is calibrated to a thousandth
    assert make_ledger([pay(1.0)], fit).remaining == PrivacyBudget(0.0, DELTA)
    with pytest.raises(BudgetExceeded):
        ledger.spend(LedgerEntry("a fit", fit, event=make_run_event(run)))
    assert make_ledger([(fit, make_run_event(run))] * 2, PrivacyBudget(1.6, DELTA)).spent.epsilon < 1.6


def test_runs_that_no_grid_can_hold_are_charged_their_cost() -> None:
    run = make_run_event(GaussianEvent(1e-6, 10**8, 0.5))
    joint = JointCost.of([(PrivacyBudget(7.0, DELTA), run)], REPLACE)
    assert joint.epsilon(DELTA) == 7.0 and joint.delta(8.0) == 1.0
    assert joint.is_covered_by(PrivacyBudget(7.0, DELTA)) and not joint.is_covered_by(PrivacyBudget(6.9, DELTA))


def test_costs_without_an_event_add_as_before() -> None:
    ledger = make_ledger([(PrivacyBudget(0.5, 2e-7), None)] * 2 + [pay(1.0, 5e-7)], PrivacyBudget(2.5, DELTA))
    exact = 1.0 + compute_gaussian_epsilon(calibrate_gaussian_mu(1.0, 5e-7), DELTA - 4e-7)
    assert ledger.joint.epsilon(DELTA) == pytest.approx(exact, rel=1e-6)
    with pytest.raises(BudgetExceeded):
        ledger.spend(LedgerEntry("a fit", PrivacyBudget(0.55, 1e-7)))


def test_deltas_of_costs_without_an_event_may_use_up_everything() -> None:
    ledger = make_ledger([(PrivacyBudget(0.5, DELTA), None)], PrivacyBudget(2.0, DELTA))
    assert ledger.spent == PrivacyBudget(0.5, DELTA)
    assert ledger.remaining.epsilon < 0.7  # a Gaussian fit needs delta, and only the tolerance for rounding is left
    ledger.spend(LedgerEntry("a fit", *(pay(1.5, 0.0)[:1]), event=make_pure_event(1.5)))
    assert ledger.spent == PrivacyBudget(2.0, DELTA)


def test_a_ledger_without_delta_covers_pure_fits_only() -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 0.0))
    ledger.spend(LedgerEntry("a fit", PrivacyBudget(0.4, 0.0), event=make_pure_event(0.4)))
    assert ledger.spent == PrivacyBudget(0.4, 0.0) and ledger.remaining == PrivacyBudget(0.6, 0.0)
    with pytest.raises(BudgetExceeded):
        ledger.spend(LedgerEntry("a fit", PrivacyBudget(0.1, 1e-9), event=expect_event(PrivacyBudget(0.1, 1e-9))))


def test_nothing_finite_covers_an_unprotected_release() -> None:
    ledger, cost = PrivacyLedger(PrivacyBudget(9.0, DELTA)), PrivacyBudget(math.inf, 0.0)
    with pytest.raises(BudgetExceeded, match="not private at all"):
        ledger.spend(LedgerEntry("a fit", cost, event=Transcript((UnprotectedRelease("labels"),))))
    endless = PrivacyLedger(PrivacyBudget(math.inf, 0.0))
    endless.spend(LedgerEntry("a fit", cost, event=Transcript((UnprotectedRelease("labels"),))))
    assert endless.spent.epsilon == endless.remaining.epsilon == math.inf


@pytest.mark.parametrize(
    "event",
    [
        Transcript(),
        make_gaussian_event(calibrate_gaussian_mu(1.01, DELTA)),
        make_pure_event(1.01),
        make_run_event(GaussianEvent(1e-3, 5, 0.5)),
        Transcript((UnprotectedRelease("labels"),)),
    ],
)
def test_an_event_must_not_cost_more_than_its_entry_says(event: Transcript) -> None:
    ledger = PrivacyLedger(PrivacyBudget(9.0, DELTA))
    with pytest.raises(PrivacyError, match="must cost at most its stated cost"):
        ledger.spend(LedgerEntry("a fit", PrivacyBudget(1.0, DELTA), event=event))
    assert not ledger.entries


def test_under_zero_out_the_same_noise_costs_less() -> None:
    run = GaussianEvent(10.0, 16)
    costs = []
    for relation in (REPLACE, ZERO_OUT):
        event = make_run_event(GaussianEvent(run.noise_multiplier, run.num_steps, 1.0, relation))
        costs.append(JointCost(relation).add(PrivacyBudget(0.0, 0.0), event))
    assert [round(each._epsilon_on_grid(DELTA, 0.0), 4) for each in costs] == [3.7974, 1.7656]


def test_deltas_that_sum_to_one_are_no_error() -> None:
    assert sum([PrivacyBudget(1.0, 0.6)] * 3, PrivacyBudget(0.0, 0.0)).delta < 1


def test_many_small_pure_releases_do_not_pay_for_a_large_one() -> None:
    small, large = make_pure_event(*[0.01] * 100), make_pure_event(1.0)
    with pytest.raises(PrivacyError, match="more than the event"):
        check_event(large, small)
    check_event(small, large)  # together they are one mechanism of epsilon 1
    check_event(small, small)
    check_event(make_pure_event(0.3, 0.2, 0.5), make_pure_event(0.5, 0.5))
    with pytest.raises(PrivacyError, match="more than the event"):
        check_event(make_pure_event(0.4, 0.4, 0.2), make_pure_event(0.5, 0.5))
