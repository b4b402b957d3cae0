import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import chisquare, kstest

from conddp.bounds import Bounds
from conddp.labels.prior import LabelPrior
from conddp.labels.randomizers import (
    AdditiveNoise,
    FiniteRandomizer,
    compute_optimal_bins,
    make_binary_response,
    make_response_on_bins,
    make_unbiased_response,
)
from conddp.privacy.release import Curator

UNIT = Bounds(0, 1)
GRID = np.linspace(0, 1, 41)
EXPONENTIAL = LabelPrior(GRID, np.exp(-6 * GRID))


def make_curator(num_records: int, seed: int = 0) -> Curator:
    return Curator(np.random.default_rng(seed), num_records=num_records)


def random_prior(seed: int, size: int) -> LabelPrior:
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=size) ** rng.uniform(0.3, 4)
    weights[rng.random(size) < 0.2] = 0.0
    weights[rng.integers(size)] += 1e-3
    return LabelPrior(np.cumsum(rng.exponential(size=size)), weights)


def bin_error(prior: LabelPrior, first: int, last: int, epsilon: float) -> float:
    weights = prior.weights.copy()
    weights[first:last] *= math.exp(epsilon)
    output = weights @ prior.grid / weights.sum()
    return float(weights @ (output - prior.grid) ** 2)


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.floats(0.05, 8.0))
def test_optimal_bins_equal_exhaustive_search(seed: int, size: int, epsilon: float) -> None:
    prior = random_prior(seed, size)
    best = math.inf
    for cuts in itertools.product([False, True], repeat=size - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), size]
        total = sum(bin_error(prior, first, last, epsilon) for first, last in itertools.pairwise(edges))
        best = min(best, total / (len(edges) - 2 + math.exp(epsilon)))
    _, _, found = compute_optimal_bins(prior, epsilon)
    assert found == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert make_response_on_bins(prior, epsilon).compute_error(prior) == pytest.approx(best, rel=1e-9, abs=1e-12)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(20, 60), st.floats(0.2, 8.0))
def test_optimal_bins_equal_the_full_dynamic_program(seed: int, size: int, epsilon: float) -> None:
    prior = random_prior(seed, size)
    cost = np.array(
        [[bin_error(prior, r, i, epsilon) if r < i else np.inf for i in range(size + 1)] for r in range(size)]
    )
    layer = np.full(size + 1, np.inf)
    layer[0], best = 0.0, math.inf
    for d in range(1, size + 1):
        layer = np.concatenate([[np.inf], [np.min(layer[:i] + cost[:i, i]) for i in range(1, size + 1)]])
        best = min(best, layer[size] / (d - 1 + math.exp(epsilon)))
    assert compute_optimal_bins(prior, epsilon)[2] == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_no_private_randomiser_has_a_smaller_error_than_the_best_bins(seed: int) -> None:
    # The linear program over all epsilon-private tables with many outputs, those of the best bins among them.
    prior, epsilon = random_prior(seed, 6), 1.0
    best = make_response_on_bins(prior, epsilon)
    outputs = np.union1d(np.linspace(prior.grid[0], prior.grid[-1], 61), best.outputs)
    k, m = 6, len(outputs)
    objective = (prior.weights[:, None] * (outputs[None, :] - prior.grid[:, None]) ** 2).ravel()
    rows, bounds = [], []
    for one, other in itertools.permutations(range(k), 2):
        for o in range(m):
            row = np.zeros(k * m)
            row[one * m + o], row[other * m + o] = 1.0, -math.exp(epsilon)
            rows.append(row)
            bounds.append(0.0)
    sums = np.kron(np.eye(k), np.ones((1, m)))
    solved = linprog(objective, A_ub=np.array(rows), b_ub=bounds, A_eq=sums, b_eq=np.ones(k), method="highs")
    assert best.compute_error(prior) == pytest.approx(solved.fun, rel=1e-5)


FINITE: dict[str, Any] = {
    "bins": lambda epsilon: make_response_on_bins(EXPONENTIAL, epsilon),
    "binary": lambda epsilon: make_binary_response(UNIT, epsilon, GRID),
    "unbiased": lambda epsilon: make_unbiased_response(
        LabelPrior(GRID[::4], EXPONENTIAL.weights[::4]), epsilon, bounds=UNIT
    ),
}


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("kind", FINITE)
def test_the_largest_likelihood_ratio_is_e_to_the_epsilon(kind: str, epsilon: float) -> None:
    randomizer = FINITE[kind](epsilon)
    assert randomizer.probabilities.sum(axis=1) == pytest.approx(np.ones(len(randomizer.grid)))
    assert randomizer.epsilon <= epsilon * (1 + 1e-12)
    assert randomizer.epsilon == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize("kind", FINITE)
def test_outputs_come_as_often_as_claimed(kind: str) -> None:
    # Chi-square, 30,000 draws for each of three labels, fixed seed, false alarm 1e-3 each.
    randomizer = FINITE[kind](1.5)
    curator = make_curator(30_000, seed=2)
    for cell in (0, len(randomizer.grid) // 3, len(randomizer.grid) - 1):
        drawn = randomizer.randomize(np.full(30_000, randomizer.grid[cell]), curator)
        observed = np.array([np.sum(drawn == output) for output in randomizer.outputs])
        assert observed.sum() == 30_000
        expected = 30_000 * randomizer.probabilities[cell]
        keep = expected > 5
        rest = np.array([observed[~keep].sum()]) if (~keep).any() else np.array([])
        wanted = np.array([expected[~keep].sum()]) if (~keep).any() else np.array([])
        both = np.append(observed[keep], rest), np.append(expected[keep], wanted)
        assert chisquare(both[0], both[1] * both[0].sum() / both[1].sum()).pvalue > 1e-3


def test_impossible_outputs_never_come() -> None:
    randomizer = FiniteRandomizer(np.array([0.0]), np.array([1.0, 2.0, 3.0]), np.array([[0.5, 0.5, 0.0]]))
    assert set(randomizer.randomize(np.zeros(1000), make_curator(1000))) == {1.0, 2.0}


def staircase_density(x: NDArray[Any], epsilon: float) -> NDArray[Any]:
    """Density of staircase noise for unit width, from its definition."""
    fraction = 1 / (1 + math.exp(epsilon / 2))
    top = (1 - math.exp(-epsilon)) / (2 * (fraction + math.exp(-epsilon) * (1 - fraction)))
    step = np.floor(np.abs(x))
    return top * np.exp(-epsilon * (step + (np.abs(x) - step >= fraction)))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_staircase_noise_has_its_density_and_its_epsilon(epsilon: float) -> None:
    noise = AdditiveNoise(Bounds(0, 1), epsilon, "staircase").randomize(np.zeros(40_000), make_curator(40_000, seed=1))
    grid = np.linspace(-60, 60, 1_200_001)
    distribution = np.cumsum(staircase_density(grid, epsilon)) * (grid[1] - grid[0])
    assert distribution[-1] == pytest.approx(1.0, abs=1e-4)
    assert kstest(noise, lambda x: np.interp(x, grid, distribution)).pvalue > 1e-3
    # Moving the label by its whole range changes the density by e^epsilon at most, and attains it.
    points = np.linspace(-6, 6, 12_001)
    for shift in (0.3, 1.0):
        ratio = staircase_density(points, epsilon) / staircase_density(points - shift, epsilon)
        assert np.log(ratio).max() <= epsilon * (1 + 1e-9)
    assert np.log(ratio).max() == pytest.approx(epsilon)


def test_laplace_noise_has_scale_width_over_epsilon() -> None:
    noisy = AdditiveNoise(Bounds(-1, 3), 0.8, "laplace").randomize(np.full(40_000, 9.0), make_curator(40_000, seed=1))
    assert kstest(noisy - 3.0, "laplace", args=(0, 4 / 0.8)).pvalue > 1e-3  # 9 is clamped to 3


@pytest.mark.parametrize(
    ("epsilon", "bins", "unbiased", "binary"),
    [(0.5, 0.0246, 3.97, 4.02), (1.0, 0.0223, 0.965, 1.02), (2.0, 0.0166, 0.192, 0.285), (4.0, 0.0069, 0.0227, 0.123)],
)
def test_errors_equal_values_computed_elsewhere(epsilon: float, bins: float, unbiased: float, binary: float) -> None:
    assert make_response_on_bins(EXPONENTIAL, epsilon).compute_error(EXPONENTIAL) == pytest.approx(bins, abs=6e-5)
    assert make_binary_response(UNIT, epsilon, GRID).compute_error(EXPONENTIAL) == pytest.approx(binary, rel=6e-3)
    # On a grid of 25 the linear program is within 1 % of its value on the grid of 41 and eight times faster.
    grid = np.linspace(0, 1, 25)
    coarse = LabelPrior(grid, np.exp(-6 * grid))
    found = make_unbiased_response(coarse, epsilon, bounds=UNIT)
    assert found.compute_error(coarse) == pytest.approx(unbiased, rel=0.01)
    assert found.compute_error(coarse) <= make_binary_response(UNIT, epsilon, grid).compute_error(coarse) + 1e-9
    assert found.means == pytest.approx(grid, abs=1e-6)
    assert found.compute_slope(coarse) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "value", "digit"), [(0.5, 3.97, 0.01), (1.0, 0.965, 0.001), (2.0, 0.192, 0.001), (4.0, 0.0227, 0.0001)]
)
def test_the_unbiased_program_on_the_full_grid_equals_values_computed_elsewhere(
    epsilon: float, value: float, digit: float
) -> None:
    found = make_unbiased_response(EXPONENTIAL, epsilon, bounds=UNIT, num_outputs=161)
    # The values are rounded to three digits, and their candidate outputs are not known exactly: between spans of 1.25
    # and 2.5 times the binary response's the optimum moves by 6e-4 of itself (measured at epsilon 2).
    assert found.compute_error(EXPONENTIAL) == pytest.approx(value, abs=digit / 2 + 1e-3 * value)
    assert found.means == pytest.approx(GRID, abs=1e-6)


def test_binary_response_has_the_label_as_its_mean_and_the_stated_variance() -> None:
    bounds, epsilon, grid = Bounds(-2, 4), 1.3, np.linspace(-2, 4, 7)
    randomizer = make_binary_response(bounds, epsilon, grid)
    assert randomizer.means == pytest.approx(grid)
    factor = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    variances = (randomizer.probabilities * (randomizer.outputs[None, :] - grid[:, None]) ** 2).sum(axis=1)
    assert variances == pytest.approx((3 * factor) ** 2 - (grid - 1) ** 2)


def test_a_prior_on_one_label_gives_that_label() -> None:
    randomizer = make_response_on_bins(LabelPrior(np.array([2.0]), np.array([1.0])), 1.0)
    assert randomizer.randomize(np.array([0.0, 5.0]), make_curator(2)).tolist() == [2.0, 2.0]
    assert randomizer.epsilon == 0.0


@pytest.mark.parametrize("bounds", [(0, 1e6), (1e5, 2e5), (1e6, 1e6 + 1), (0, 1e-6), (-1e12, 1e12)])
@pytest.mark.parametrize("epsilon", [1e-3, 0.05, 1.0, 12.0])
def test_the_unbiased_response_works_in_any_units(bounds: tuple[float, float], epsilon: float) -> None:
    declared = Bounds(*bounds)
    grid = np.linspace(*bounds, 9)
    found = make_unbiased_response(LabelPrior(grid, np.arange(9, 0, -1.0)), epsilon, bounds=declared)
    assert found.epsilon <= epsilon * (1 + 1e-9)
    assert found.means == pytest.approx(grid, abs=1e-6 * declared.width)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_grid_labels_beyond_the_bounds_do_not_weaken_the_binary_response(epsilon: float) -> None:
    randomizer = make_binary_response(Bounds(0, 10), epsilon, np.array([-5.0, 3.0, 15.0]))
    assert randomizer.epsilon <= epsilon * (1 + 1e-12)
    assert randomizer.grid.tolist() == [0.0, 3.0, 10.0]


def test_a_prior_beyond_the_bounds_is_refused_by_the_unbiased_response() -> None:
    with pytest.raises(ValueError, match="must lie within the bounds"):
        make_unbiased_response(LabelPrior(np.array([-5.0, 15.0]), np.ones(2)), 1.0, bounds=Bounds(0, 10))


def test_what_is_no_table_of_probabilities_is_refused() -> None:
    for table in ([[1.1, -0.1]], [[0.5, 0.4]], [[float("nan"), 1.0]]):
        with pytest.raises(ValueError, match="table of probabilities"):
            FiniteRandomizer(np.zeros(1), np.zeros(2), np.array(table))


@pytest.mark.parametrize("epsilon", [16.0, 45.0, 100.0])
def test_optimal_bins_end_at_large_epsilon(epsilon: float) -> None:
    for seed in range(20):
        starts, outputs, _ = compute_optimal_bins(random_prior(seed, 24), epsilon)
        assert len(starts) == len(outputs) > 1
