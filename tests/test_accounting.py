import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conddp.privacy.accounting import (
    GaussianEvent,
    calibrate_gaussian_mu,
    calibrate_noise_multiplier,
    compute_epsilon,
    compute_gaussian_delta,
    compute_gaussian_epsilon,
)
from conddp.privacy.neighbouring import Neighbouring

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
REPLACE, ZERO_OUT = Neighbouring.REPLACE, Neighbouring.ZERO_OUT

# Noise multipliers (standard deviation over clip norm) for epsilon in EPSILONS, computed elsewhere: the exact Gaussian
# for full batches, dp-accounting's privacy loss distributions at a discretisation of 1e-5 for Poisson sampling.
FULL_BATCH = {
    (128, ZERO_OUT): (174.342, 91.162, 47.797, 25.235, 13.503),
    (128, REPLACE): (348.684, 182.323, 95.594, 50.470, 27.006),
    (1024, ZERO_OUT): (493.114, 257.844, 135.190, 71.375, 38.193),
    (1024, REPLACE): (986.228, 515.688, 270.379, 142.751, 76.385),
}
POISSON = {
    (100 / 17010, 170100, 1e-6, ZERO_OUT): (37.388, 19.557, 10.274, 5.460, 2.983),
    (100 / 17010, 170100, 1e-6, REPLACE): (74.752, 39.078, 20.488, 10.817, 5.789),
    (8192 / 1386177, 8500, 1 / 1386177, ZERO_OUT): (8.602, 4.543, 2.462, 1.430, 0.941),
    (8192 / 1386177, 8500, 1 / 1386177, REPLACE): (17.104, 8.932, 4.677, 2.470, 1.348),
}


@pytest.mark.parametrize(("num_steps", "neighbouring"), FULL_BATCH)
def test_full_batch_multipliers_equal_the_table(num_steps: int, neighbouring: Neighbouring) -> None:
    found = [calibrate_noise_multiplier(e, 1e-6, num_steps=num_steps, neighbouring=neighbouring) for e in EPSILONS]
    assert found == pytest.approx(FULL_BATCH[num_steps, neighbouring], rel=2e-5)


@pytest.mark.parametrize("setting", POISSON)
@pytest.mark.parametrize("which", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 5))])
def test_poisson_multipliers_equal_the_table(setting: tuple[float, int, float, Neighbouring], which: int) -> None:
    probability, num_steps, delta, neighbouring = setting
    found = calibrate_noise_multiplier(
        EPSILONS[which], delta, num_steps=num_steps, sampling_probability=probability, neighbouring=neighbouring
    )
    assert found == pytest.approx(POISSON[setting][which], rel=2e-3)


def test_nominal_epsilons_under_zero_out_are_about_twice_as_large_under_replace() -> None:
    for nominal, true in zip(EPSILONS, (0.5245, 1.0525, 2.123, 4.318, 8.898), strict=True):
        multiplier = calibrate_noise_multiplier(nominal, 1e-6, num_steps=128, neighbouring=ZERO_OUT)
        spent = compute_epsilon(GaussianEvent(multiplier, 128, neighbouring=REPLACE), 1e-6)
        assert spent == pytest.approx(true, rel=2e-4)


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize("probability", [1.0, 0.02])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, pytest.param(6.0, marks=pytest.mark.slow)])
def test_a_calibrated_run_spends_its_budget_and_no_more(
    neighbouring: Neighbouring, probability: float, epsilon: float
) -> None:
    multiplier = calibrate_noise_multiplier(
        epsilon, 1e-5, num_steps=40, sampling_probability=probability, neighbouring=neighbouring
    )
    spent = compute_epsilon(GaussianEvent(multiplier, 40, probability, neighbouring), 1e-5)
    assert epsilon * 0.998 < spent <= epsilon


def test_gaussian_formula_agrees_with_dp_accounting() -> None:
    from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian

    for epsilon in EPSILONS:
        assert 1 / calibrate_gaussian_mu(epsilon, 1e-6) == pytest.approx(get_sigma_gaussian(epsilon, 1e-6), rel=1e-6)
    for mu in (0.01, 0.3, 2.0, 20.0):
        assert compute_gaussian_epsilon(mu, 1e-6) == pytest.approx(get_epsilon_gaussian(1 / mu, 1e-6), rel=1e-5)


def test_gaussian_delta_agrees_with_integration_of_the_densities() -> None:
    from scipy.integrate import quad
    from scipy.stats import norm

    for mu, epsilon in ((0.5, 0.1), (1.0, 1.0), (3.0, 2.0)):
        edge = epsilon / mu + mu / 2  # above it the first density exceeds e^epsilon times the second

        def excess(x: float, mu: float = mu, epsilon: float = epsilon) -> float:
            return float(norm.pdf(x - mu) - math.exp(epsilon) * norm.pdf(x))

        area, _ = quad(excess, edge, edge + 30, epsabs=1e-13)
        assert compute_gaussian_delta(mu, epsilon) == pytest.approx(area, rel=1e-7)


@pytest.mark.parametrize("neighbouring", Neighbouring)
def test_poisson_epsilon_agrees_with_simulated_privacy_losses(neighbouring: Neighbouring) -> None:
    # Losses of the accounted pair of outputs, drawn directly. With 400,000 runs the standard error of delta = 0.01 is
    # about 1e-4; five of them are allowed (false alarm below 1e-6), the seed is fixed.
    probability, noise_multiplier, num_steps, delta = 0.1, 1.5, 30, 1e-2
    epsilon = compute_epsilon(GaussianEvent(noise_multiplier, num_steps, probability, neighbouring), delta)
    rng = np.random.default_rng(3)
    other = -1.0 if neighbouring is REPLACE else 0.0

    def log_density(x: NDArray[Any], mean: float) -> NDArray[Any]:
        square = (x - mean) ** 2 - x**2
        return np.log1p(probability * np.expm1(-square / (2 * noise_multiplier**2)))

    def simulate(first: float, second: float) -> tuple[float, float]:
        loss = np.zeros(400_000)
        for _ in range(num_steps):
            sampled = rng.random(len(loss)) < probability
            x = first * sampled + noise_multiplier * rng.normal(size=len(loss))
            loss += log_density(x, first) - log_density(x, second)
        terms = np.maximum(0.0, -np.expm1(epsilon - loss))
        return float(terms.mean()), float(terms.std() / math.sqrt(len(loss)))

    directions = [simulate(1.0, other)] + ([simulate(0.0, 1.0)] if neighbouring is ZERO_OUT else [])
    worst, error = max(directions)
    assert worst <= delta + 5 * error
    assert worst >= delta * 0.98 - 5 * error


def test_poisson_under_zero_out_agrees_with_opacus_prv() -> None:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(1.0, 0.01, 1000)]
    second = accountant.get_epsilon(1e-5, eps_error=1e-3)
    ours = compute_epsilon(GaussianEvent(1.0, 1000, 0.01, ZERO_OUT), 1e-5)
    assert ours == pytest.approx(second, rel=2e-3)


def test_poisson_at_probability_near_one_tends_to_the_exact_gaussian() -> None:
    exact = compute_epsilon(GaussianEvent(8.0, 10), 1e-6)
    assert compute_epsilon(GaussianEvent(8.0, 10, 0.9999), 1e-6) == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, 2.0, float("nan")])
def test_impossible_deltas_are_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must lie strictly between 0 and 1"):
        calibrate_noise_multiplier(1.0, delta, num_steps=1)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_epsilons_are_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon must be"):
        calibrate_noise_multiplier(epsilon, 1e-6, num_steps=1)


def test_extreme_budgets_are_calibrated() -> None:
    assert calibrate_noise_multiplier(1e-4, 1e-12, num_steps=1) > 1e4
    assert calibrate_noise_multiplier(500.0, 1e-6, num_steps=1) < 0.2
