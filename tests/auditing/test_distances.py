"""The privacy of a pair of neighbours from measured distances, against brute force and another accountant."""

import math
from typing import Any

import numpy as np
import pytest

from conddp.auditing import CoupledFits, Question, audit_algorithm, compute_pair_epsilon, measure_move
from conddp.auditing.noise import check_noise
from conddp.auditing.watching import Recorder
from conddp.privacy import Curator, GaussianEvent, PrivacyBudget, compute_epsilon, compute_gaussian_epsilon
from conddp.privacy.bounded_sum import BoundedSum

X = np.linspace(-14.0, 16.0, 20_001)


def make_question(method: str, private: Any, **public: Any) -> Question:
    return Question(method, np.array(private), public, np.zeros(1), lambda curator: None)


def couple(*pairs: tuple[Question, Question]) -> CoupledFits:
    return CoupledFits([one for one, _ in pairs], [other for _, other in pairs], ())


def make_gaussian(move: float, **public: Any) -> tuple[Question, Question]:
    settings = {"sensitivity": 2.0, "noise_std": 8.0, "what": "a sum", **public}
    return (
        make_question("release_gaussian", [1.0, 0.0], **settings),
        make_question("release_gaussian", [1.0, move], **settings),
    )


def test_full_batch_releases_add_up_to_one_gaussian_release() -> None:
    fits = couple(make_gaussian(2.0), make_gaussian(1.0), make_gaussian(0.0))
    expected = compute_gaussian_epsilon(math.hypot(2 / 8, 1 / 8), 1e-6)
    assert compute_pair_epsilon([fits], 1e-6) == pytest.approx(expected, rel=1e-6)
    half = compute_gaussian_epsilon(math.hypot(4 / 8, 2 / 8), 1e-6)
    assert compute_pair_epsilon([fits], 1e-6, scale=0.5) == pytest.approx(half, rel=1e-6)
    assert compute_pair_epsilon([fits, couple(make_gaussian(1.0))], 1e-6) < expected  # the smallest path counts


def test_sampled_releases_come_close_to_the_accountant_from_below() -> None:
    q, count = 0.25, 12
    steps = [make_gaussian(2.0 * (number % 4 == 0), sampling_probability=q) for number in range(count)]
    claimed = compute_epsilon(GaussianEvent(8.0, count, q), 1e-6)
    assert 0.97 * claimed < compute_pair_epsilon([couple(*steps)], 1e-6) < claimed


def compute_mixture_delta(first: float, second: float, q: float, epsilon: float) -> float:
    """Delta of (1 - q) N(0) + q N(first) against the same with the second mean, by a sum over a grid."""
    one, other = ((1 - q) * np.exp(-(X**2) / 2) + q * np.exp(-((X - mean) ** 2) / 2) for mean in (first, second))
    excess = [np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((one, other), (other, one))]
    return float(max(excess) * (X[1] - X[0]) / math.sqrt(2 * math.pi))


@pytest.mark.parametrize("q", [0.01, 0.25, 0.5])
@pytest.mark.parametrize("distance", [0.2, 1.0, 4.0])
def test_mixtures_at_a_distance_are_hardest_to_tell_apart_symmetrically_about_zero(q: float, distance: float) -> None:
    for epsilon in (0.0, 0.05, 0.5, 1.0):
        middle = compute_mixture_delta(-distance / 2, distance / 2, q, epsilon)
        for position in np.linspace(0, distance, 9):
            assert compute_mixture_delta(-position, distance - position, q, epsilon) >= middle * (1 - 1e-6) - 1e-13


@pytest.mark.parametrize("move", [0.1, 0.7, 1.0, 1.3])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_pure_releases_have_their_largest_likelihood_ratio(move: float, epsilon: float) -> None:
    grid = np.linspace(-6, 6, 24_013)
    fraction = 1 / (1 + math.exp(epsilon / 2))

    def laplace(x: Any) -> Any:
        return np.exp(-epsilon * np.abs(x))

    def staircase(x: Any) -> Any:
        step = np.floor(np.abs(x))
        return np.exp(-epsilon * (step + (np.abs(x) - step >= fraction)))

    densities: dict[str, Any] = {"release_laplace": laplace, "release_staircase": staircase}
    for method, density in densities.items():
        questions = [make_question(method, [0.0, y], sensitivity=1.0, epsilon=epsilon) for y in (0.0, move)]
        brute = float(np.abs(np.log(density(grid) / density(grid - move))).max())
        assert compute_pair_epsilon([couple((questions[0], questions[1]))], 0.0) == pytest.approx(brute, rel=1e-3)


def test_randomised_response_has_the_ratio_of_its_table() -> None:
    table = np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.1, 0.3, 0.6]])
    one, other = (make_question("release_response", [1, row], **{"argument 0": table}) for row in (0, 2))
    assert compute_pair_epsilon([couple((one, other))], 0.0) == pytest.approx(math.log(5))
    assert measure_move(one, make_question("release_response", [0, 2])) == math.inf  # two records moved


class LessNoise(Curator):
    """Half of the noise in every mechanism but the Gaussian."""

    def release_laplace(self, values: Any, **settings: Any) -> Any:
        """Release with half of the noise."""
        return (super().release_laplace(values, **settings) + values) / 2

    def release_staircase(self, values: Any, **settings: Any) -> Any:
        """Release with half of the noise."""
        return (super().release_staircase(values, **settings) + values) / 2

    def release_integers(self, counts: Any, **settings: Any) -> Any:
        """Release with half of the noise."""
        return np.round((super().release_integers(counts, **settings) + counts) / 2)

    def release_response(self, rows: Any, probabilities: Any, **settings: Any) -> Any:
        """Release the likeliest outcome in a fifth of all cases."""
        drawn = super().release_response(rows, probabilities, **settings)
        return np.where(np.arange(len(rows)) % 5 == 0, probabilities.argmax(axis=1)[rows], drawn)

    def release_weighted_sums(self, label: Any, weights: Any, **settings: Any) -> Any:
        """Release with half of the noise."""
        return (super().release_weighted_sums(label, weights, **settings) + (label * weights).sum(axis=1)) / 2


@pytest.mark.parametrize("name", ["laplace", "staircase", "binary-rr", "rr-on-bins", "weighted-llp"])
def test_too_little_noise_is_found_in_every_mechanism(name: str) -> None:
    audit = audit_algorithm(name, PrivacyBudget(1.0, 1e-6), num_fits=6, curator_class=LessNoise)
    assert not audit.passed
    assert any("does not have the declared distribution" in finding for finding in audit.findings)


def test_right_noise_raises_no_alarm_and_its_scale_is_bounded_from_above() -> None:
    # At confidence 90 % the limit is below the truth in a tenth of all cases; more than 12 of 40 have chance 1e-4.
    below = 0
    for seed in range(40):
        fits = []
        for number in range(3):
            recorder = Recorder()
            curator = recorder.make_class()(np.random.default_rng((seed, number)), num_records=10)
            for _ in range(4):
                curator.release_gaussian(BoundedSum(np.zeros(50), 1.0, "a sum"), noise_std=3.0)
            fits.append(recorder.questions)
        check = check_noise(fits, Curator, num_records=10, confidence=0.9, seed=seed)
        assert not check.findings and not check.cancels
        below += check.scale < 1
        assert check.scale < 1.05
    assert 1 <= below <= 12
