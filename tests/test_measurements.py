"""The posterior of a function given releases along different directions, against dense linear algebra."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from conddp.data.parts import PublicFeatures
from conddp.features.column_scales import ColumnScales
from conddp.features.dictionary import Dictionary
from conddp.features.feature_families import Families, Relevance
from conddp.newton import measurements as measurements_module
from conddp.newton.component_variances import COMMON_STD, OWN_STD, estimate_variances
from conddp.newton.measurements import JITTER, FunctionPosterior, Measurements, Overlap
from conddp.newton.schedule import allot_weights

Vector = NDArray[np.float64]

Raw = list[tuple[Vector, Vector, Vector]]  # directions, values and variances of their noise

N = 250


@pytest.fixture(scope="module")
def rows() -> Vector:
    return np.random.default_rng(0).normal(size=(N, 3))


@pytest.fixture(scope="module")
def dictionary(rows: Vector) -> Dictionary:
    return Families(40).make(ColumnScales.of(PublicFeatures(rows)), rows, Relevance(np.ones(3)), seed=0)


def measure(rows: Vector, dictionary: Dictionary, weights: Vector | None = None) -> tuple[Measurements, Overlap, Raw]:
    """Measurements in two rounds along different directions, combined and as they were made."""
    rng = np.random.default_rng(1)
    label = np.sin(rows[:, 0]) * rows[:, 1] + 0.1 * rng.normal(size=N)
    total = N if weights is None else weights.sum()
    averaged = np.eye(N) / total if weights is None else np.diag(weights) / total
    measurements, raw = Measurements(np.empty((N, 30))), []
    for number in (7, 12):
        mixed = np.tanh(rows @ rng.normal(size=(3, number)) + rng.normal(size=number))
        root = np.linalg.cholesky(mixed.T @ averaged @ mixed)
        directions = mixed @ np.linalg.inv(root).T
        variance = rng.uniform(0.001, 0.01, size=number)
        values = directions.T @ averaged @ label + np.sqrt(variance) * rng.normal(size=number)
        measurements, _ = measurements.add(directions, measurements.rows.T @ averaged @ directions, values, variance)
        raw.append((directions, values, variance))
    return measurements, Overlap.of(dictionary, rows, measurements, weights), raw


@pytest.mark.parametrize("weighted", [False, True])
def test_products_are_those_of_all_rows(rows: Vector, dictionary: Dictionary, weighted: bool) -> None:
    weights = np.random.default_rng(2).uniform(0.1, 1, size=N) if weighted else None
    measurements, overlap, _ = measure(rows, dictionary, weights)
    averaged = np.full(N, 1 / N) if weights is None else weights / weights.sum()
    features, directions = overlap.dictionary.evaluate(rows).astype(float), measurements.rows
    np.testing.assert_allclose(features @ averaged, 0, atol=1e-6)
    np.testing.assert_allclose(overlap.gram, features * averaged @ features.T, atol=1e-5)
    np.testing.assert_allclose(overlap.along, (directions.T * averaged) @ features.T, atol=1e-5)
    np.testing.assert_allclose((directions.T * averaged) @ directions, np.eye(19), atol=1e-9)


def test_without_a_gram_matrix_the_posterior_is_the_same(rows: Vector, dictionary: Dictionary) -> None:
    made, full, _ = measure(rows, dictionary)
    brief = Overlap.of(dictionary, rows, made, None, with_gram=False)
    np.testing.assert_array_equal(full.along, brief.along)
    np.testing.assert_array_equal(full.dictionary.means, brief.dictionary.means)
    kept = np.arange(dictionary.num_features) % 2 == 0
    posteriors = [
        FunctionPosterior.of(each.take(kept), made, signal_variance=0.1, sampling_variance=1e-4)
        for each in (full, brief)
    ]
    np.testing.assert_array_equal(posteriors[0].weights, posteriors[1].weights)


@pytest.mark.parametrize("room", [30, 11])
@pytest.mark.parametrize("orthonormal", [True, False])
def test_directions_are_combined_in_place_as_the_formula_says(
    rows: Vector, monkeypatch: pytest.MonkeyPatch, room: int, orthonormal: bool
) -> None:
    monkeypatch.setattr(measurements_module, "ROWS_AT_ONCE", 64)
    rng = np.random.default_rng(4)
    old, new = (np.linalg.qr(np.tanh(rows @ rng.normal(size=(3, k)) + rng.normal(size=k)))[0] for k in (7, 9))
    old, new = old * np.sqrt(N), new * np.sqrt(N)
    new = new if orthonormal else new @ (np.eye(9) + 0.1 * rng.normal(size=(9, 9)))
    within = None if orthonormal else new.T @ new / N
    values, variance = rng.normal(size=16), rng.uniform(0.1, 1.0, size=16)
    buffer = np.empty((N, room))
    first, _ = Measurements(buffer).add(old, np.empty((0, 7)), values[:7], variance[:7])
    kept = first.rows.copy()
    stored, along, places = np.column_stack([np.ones(N), new, np.zeros(N)]), kept.T @ new / N, 1 + np.arange(9)
    both, matrix = first.add(stored, along, values[7:], variance[7:], within=within, places=places)
    assert both.rows.shape == (N, min(room, 16)) and np.shares_memory(both.rows, buffer)
    np.testing.assert_allclose(both.rows, np.hstack([kept, new]) @ matrix, atol=1e-10)
    np.testing.assert_allclose(both.rows.T @ both.rows / N, np.eye(min(room, 16)), atol=1e-9)
    V, precision = np.hstack([old, new]), np.diag(1 / variance)
    information = V @ precision @ V.T / N**2  # of the labels
    known = np.sort(np.linalg.eigvalsh(information))[::-1][: len(both.values)] * N
    np.testing.assert_allclose(1 / both.noise_variance, known, rtol=1e-9)
    if room == 30:
        expected = V @ precision @ values / N
        np.testing.assert_allclose(both.rows @ (both.values / both.noise_variance) / N, expected, atol=1e-9)
    without, same = first.leave_rows().add(stored, along, values[7:], variance[7:], within=within, places=places)
    assert without.buffer.size == 0
    np.testing.assert_allclose(without.values[: len(both.values)], both.values, atol=1e-9)
    np.testing.assert_allclose(same[:, : matrix.shape[1]], matrix, atol=1e-9)


def test_products_do_not_depend_on_threads_and_little_on_blocks(
    rows: Vector, dictionary: Dictionary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conddp.data.passes.CELLS_FOR_THREADS", 1)
    monkeypatch.setattr(measurements_module, "FEATURES_AT_ONCE", 16)
    monkeypatch.setattr(measurements_module, "ROWS_IN_CACHE", 32)
    found = []
    for number, size in ((1, 100), (3, 100), (2, 37)):
        monkeypatch.setattr("conddp.data.threads.count_threads", lambda number=number: number)
        monkeypatch.setattr(measurements_module, "ROWS_AT_ONCE", size)
        measurements, overlap, _ = measure(rows, dictionary, np.linspace(0.5, 1.0, N))
        found.append((overlap.gram, overlap.along, overlap.dictionary.means, measurements.rows))
    for one, same, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, same)
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_fraction_of_rows_that_are_read_is_shown(
    rows: Vector, dictionary: Dictionary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurements_module, "ROWS_AT_ONCE", 100)
    seen: list[float] = []
    Overlap.of(dictionary, rows, Measurements(np.empty((N, 0))), None, watch=seen.append)
    assert seen == [0.4, 0.8, 1.0]


def test_the_posterior_mean_is_that_of_the_gaussian_process(rows: Vector, dictionary: Dictionary) -> None:
    measurements, overlap, raw = measure(rows, dictionary)
    posterior = FunctionPosterior.of(overlap, measurements, signal_variance=0.5, sampling_variance=0.02 / N)
    features, A = overlap.dictionary.evaluate(rows).astype(float), np.hstack([each[0] for each in raw]).T / N
    values, variance = (np.concatenate([each[place] for each in raw]) for place in (1, 2))
    kernel = (features.T * posterior.variances[dictionary.component]) @ features
    covariance = A @ (kernel + 0.02 * np.eye(N)) @ A.T + np.diag(variance)
    expected = kernel @ A.T @ np.linalg.solve(covariance, values)
    np.testing.assert_allclose(posterior.weights @ features, expected, atol=1e-4)


def test_directions_are_orthonormal_and_have_the_largest_posterior_variance(
    rows: Vector, dictionary: Dictionary
) -> None:
    measurements, overlap, raw = measure(rows, dictionary)
    posterior = FunctionPosterior.of(overlap, measurements, signal_variance=1e-6, sampling_variance=0.02 / N)
    matrix, variances = posterior.find_directions(at_most=10, least=0.0)
    features = dictionary.evaluate(rows).astype(float)
    directions = features.T @ matrix
    np.testing.assert_allclose(directions.T @ directions / N, np.eye(10), atol=2e-2)
    assert (posterior.variances > posterior.guesses).all()  # so that curiosity changes nothing
    A, noise = np.hstack([each[0] for each in raw]).T / N, np.diag(np.concatenate([each[2] for each in raw]))
    kernel = (features.T * posterior.variances[dictionary.component]) @ features
    gain = kernel @ A.T @ np.linalg.inv(A @ (kernel + 0.02 * np.eye(N)) @ A.T + noise)
    left = (kernel - gain @ A @ kernel) / N
    expected = np.linalg.eigvalsh(left)[::-1][:10]
    np.testing.assert_allclose(variances, expected, rtol=1e-2, atol=10 * JITTER * np.trace(kernel) / N)


def test_directions_that_are_not_worth_asking_for_are_left_out(rows: Vector, dictionary: Dictionary) -> None:
    measurements, overlap, _ = measure(rows, dictionary)
    posterior = FunctionPosterior.of(overlap, measurements, signal_variance=0.5, sampling_variance=0.02 / N)
    every, variances = posterior.find_directions(at_most=30, least=0.0)
    some, known = posterior.find_directions(at_most=30, least=float(variances[4]))
    number = np.count_nonzero(allot_weights(variances[:4], float(variances[4])))
    assert 1 <= len(known) == number <= 4
    np.testing.assert_allclose(some, every[:, :number], atol=1e-6 * np.abs(every).max())
    assert len(posterior.find_directions(at_most=30, least=np.inf)[1]) == 1


def test_nothing_is_predicted_before_anything_is_measured(rows: Vector, dictionary: Dictionary) -> None:
    nothing = Measurements(np.empty((N, 0)))
    overlap = Overlap.of(dictionary, rows, nothing, None)
    posterior = FunctionPosterior.of(overlap, nothing, signal_variance=0.5, sampling_variance=0.0)
    assert not posterior.weights.any()
    np.testing.assert_allclose(posterior.variances, 0.5 * dictionary.fractions)


def test_variances_are_at_the_mode_of_their_posterior() -> None:
    rng = np.random.default_rng(5)
    factors = [rng.normal(size=(40, 15)) * scale for scale in (1.0, 0.7, 0.1)]
    kernels, noise, guesses = [each @ each.T for each in factors], 0.3 * np.eye(40), np.array([0.5, 0.5, 0.2])
    measured = factors[0] @ rng.normal(size=15) + 0.5 * rng.normal(size=40)
    precision = np.linalg.inv(OWN_STD**2 * np.eye(3) + COMMON_STD**2)

    def cost(at: Vector) -> float:
        covariance = noise + sum(np.exp(each) * kernel for each, kernel in zip(at, kernels, strict=True))
        moved = at - np.log(guesses)
        return float(0.5 * moved @ precision @ moved - multivariate_normal.logpdf(measured, cov=covariance))

    best = minimize(cost, np.log(guesses), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    found = np.log(estimate_variances(measured, noise, kernels, guesses)[0])
    assert cost(found) <= best.fun + 0.06  # steps that gain less than a twentieth are not taken
    assert found[0] > found[1]


def test_variances_of_pure_noise_shrink() -> None:
    rng = np.random.default_rng(6)
    kernels = [np.eye(60), np.diag(np.linspace(0, 2, 60))]
    found, _ = estimate_variances(0.1 * rng.normal(size=60), 0.01 * np.eye(60), kernels, np.array([1.0, 1.0]))
    assert (found < 0.2).all()
