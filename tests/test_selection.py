"""The price of choosing the best of several private runs."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, dp_event, rdp

from conddp.errors import NotCalibrated
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.selection import (
    RunDistribution,
    calibrate_selection_mu,
    compute_selection_delta,
    compute_selection_epsilon,
    draw_num_runs,
)

SHAPES: dict[RunDistribution, int] = {"geometric": 1, "logarithmic": 0}


@pytest.mark.parametrize("distribution", SHAPES)
@pytest.mark.parametrize("expected_runs", [2, 10, 100])
@pytest.mark.parametrize("base", [0.25, 1.0, 4.0])
def test_epsilon_equals_that_of_a_second_accountant(
    base: float, expected_runs: int, distribution: RunDistribution
) -> None:
    mu = calibrate_gaussian_mu(base, 1e-6)
    accountant = rdp.RdpAccountant(orders=[1 + step for step in np.geomspace(1e-2, 1e4, 1500)])
    accountant.compose(dp_event.RepeatAndSelectDpEvent(GaussianDpEvent(1 / mu), expected_runs, SHAPES[distribution]))
    found = compute_selection_epsilon(mu, 1e-6, expected_runs=expected_runs, distribution=distribution)
    # That accountant looks for the inner order among its own orders; ours is exact, so never larger by more than that.
    assert found == pytest.approx(accountant.get_epsilon(1e-6), rel=2e-3)


@pytest.mark.parametrize("distribution", SHAPES)
def test_a_calibrated_run_costs_what_was_asked_for(distribution: RunDistribution) -> None:
    for epsilon in (0.25, 1.0, 4.0):
        mu = calibrate_selection_mu(epsilon, 1e-6, expected_runs=10, distribution=distribution)
        spent = compute_selection_epsilon(mu, 1e-6, expected_runs=10, distribution=distribution)
        assert epsilon * (1 - 1e-6) < spent <= epsilon * (1 + 1e-8)
        assert mu < calibrate_gaussian_mu(epsilon, 1e-6)


@pytest.mark.parametrize("distribution", SHAPES)
def test_the_bound_holds_where_the_best_of_many_runs_can_be_computed(distribution: RunDistribution) -> None:
    # A run releases one Gaussian number, which is its own score: the best is the maximum of K draws, whose
    # distribution is known. Its exact delta, by numerical integration, must not exceed the bound.
    mu, expected = 0.5, 5.0
    grid = np.linspace(-12, 12, 200_001)
    gammas = {"geometric": 1 / expected, "logarithmic": None}
    from scipy.optimize import brentq
    from scipy.stats import norm

    gamma = gammas[distribution] or brentq(lambda g: (1 / g - 1) / -math.log(g) - expected, 1e-9, 0.999)

    def density(shift: float) -> np.ndarray:
        below = norm.cdf(grid - shift)
        if distribution == "geometric":  # generating function gamma s / (1 - (1 - gamma) s)
            generated = gamma * below / (1 - (1 - gamma) * below)
        else:  # log(1 - (1 - gamma) s) / log(gamma)
            generated = np.log1p(-(1 - gamma) * below) / math.log(gamma)
        return np.diff(generated)

    one, other = density(0.0), density(mu)
    for epsilon in (0.5, 1.0, 2.0):
        exact = max(
            np.maximum(one - math.exp(epsilon) * other, 0).sum(), np.maximum(other - math.exp(epsilon) * one, 0).sum()
        )
        bound = compute_selection_delta(mu, epsilon, expected_runs=expected, distribution=distribution)
        assert 0 < exact <= bound


@pytest.mark.parametrize("distribution", SHAPES)
def test_the_number_of_runs_has_its_mean(distribution: RunDistribution) -> None:
    # Fixed seed; the standard error of the mean is below 0.1.
    rng = np.random.default_rng(3)
    drawn = [draw_num_runs(8.0, distribution, rng) for _ in range(20_000)]
    assert min(drawn) == 1
    assert np.mean(drawn) == pytest.approx(8.0, abs=0.4)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="expected_runs must be above 1"):
        compute_selection_delta(0.1, 1.0, expected_runs=1.0)
    with pytest.raises(NotCalibrated, match="Raise epsilon"):
        calibrate_selection_mu(1e-7, 1e-9, expected_runs=10)
