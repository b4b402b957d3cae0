from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from conddp.errors import PrivacyError
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.bounded_sum import BoundedSum, bound_rounding
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.noise import NoiseStream, gaussian
from conddp.privacy.release import Curator
from conddp.privacy.transcript import GaussianRelease, UnprotectedRelease, WeightedSumRelease


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_noise_is_gaussian_with_the_standard_deviation_that_is_asked_for(dtype: str, engine: str) -> None:
    sensitivity, noise_std = np.array([1.0, 8.0], dtype=dtype), np.array([1.5, 2.0], dtype=dtype)
    value = np.full((2, 50_000), 7.0, dtype=dtype)
    generators = [np.random.default_rng(seed) for seed in (1, 2)]
    curator = Curator(generators, num_records=100, float32_without_guarantee=True)

    def to(array: Any) -> Any:
        return torch.from_numpy(array) if engine == "torch" else array

    noisy = curator.release_gaussian(BoundedSum(to(value), to(sensitivity), "sums"), noise_std=to(noise_std))
    assert isinstance(noisy, torch.Tensor if engine == "torch" else np.ndarray)
    noisy = np.asarray(noisy)
    assert noisy.dtype == dtype
    for row, scale in zip(noisy, (1.5, 2.0), strict=True):
        # Kolmogorov-Smirnov, fixed seed, false alarm 1e-3.
        assert kstest((row - 7.0) / scale, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(noisy)[0, 1]) < 0.02
    assert (value == 7.0).all()


def test_noise_is_enlarged_by_what_rounding_may_add() -> None:
    for num_records in (1, 500, 10_000_000):
        curator = Curator(np.random.default_rng(3), num_records=num_records)
        noise = curator.release_gaussian(BoundedSum(np.zeros(1000), 1.0, "nothing"), noise_std=5.0)
        factor = 1 + (1e-9 + num_records**2 * 2.0**-53)
        drawn = NoiseStream(gaussian(), np.random.default_rng(3)).add(np.zeros(1000), 5.0 * factor)
        np.testing.assert_array_equal(noise, drawn)
        assert bound_rounding(num_records) == pytest.approx(factor - 1, rel=1e-6)
        assert curator.transcript.releases == (
            GaussianRelease("nothing", 1, 1.0, 5.0 * (1 + bound_rounding(num_records))),
        )


def test_the_transcript_has_the_configuration_with_the_least_noise_for_its_sensitivity() -> None:
    curator = Curator([np.random.default_rng(seed) for seed in range(3)], num_records=10)
    sums = BoundedSum(np.zeros((3, 4)), np.array([1.0, 6.0, 2.0]), "sums")
    curator.release_gaussian(sums, noise_std=np.array([5.0, 10.0, 4.0]), sampling_probability=0.5)
    (release,) = curator.transcript
    assert release == GaussianRelease("sums", 1, 6.0, 10.0 * (1 + bound_rounding(10)), 0.5)


def test_steps_alike_are_counted_and_others_are_not_mistaken_for_them() -> None:
    curator = Curator(np.random.default_rng(0), num_records=10)
    sensitivity, noise_std = np.array([1.0]), np.array([5.0])
    for _ in range(3):
        curator.release_gaussian(BoundedSum(np.zeros((1, 2)), sensitivity, "steps"), noise_std=noise_std)
    curator.release_gaussian(BoundedSum(np.zeros((1, 2)), sensitivity, "others"), noise_std=noise_std)
    curator.release_gaussian(BoundedSum(np.zeros((1, 2)), sensitivity, "others"), noise_std=2 * noise_std)
    assert [(release.what, release.count) for release in curator.transcript] == [
        ("steps", 3),
        ("others", 1),
        ("others", 1),
    ]
    assert len(curator.transcript) == 5


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("noise_std", [0.0, -1.0, float("nan"), float("inf")])
def test_a_release_without_sensitivity_or_noise_is_refused_before_noise_is_drawn(
    sensitivity: float, noise_std: float
) -> None:
    curator = Curator(np.random.default_rng(0), num_records=10)
    for wrong in ((sensitivity, 1.0), (1.0, noise_std), (sensitivity, noise_std)):
        with pytest.raises(PrivacyError, match="positive, finite sensitivity and noise"):
            curator.release_gaussian(BoundedSum(np.zeros(2), wrong[0], "a sum"), noise_std=wrong[1])
    assert len(curator.transcript) == 0


def test_noise_that_changes_in_place_is_not_taken_for_what_it_was() -> None:
    curator = Curator(np.random.default_rng(0), num_records=10)
    sensitivity, noise_std = np.array([1.0]), np.array([100.0])
    curator.release_gaussian(BoundedSum(np.zeros((1, 2)), sensitivity, "steps"), noise_std=noise_std)
    noise_std *= 1e-6
    curator.release_gaussian(BoundedSum(np.zeros((1, 2)), sensitivity, "steps"), noise_std=noise_std)
    first, second = (release for release in curator.transcript if isinstance(release, GaussianRelease))
    assert second.noise_std == pytest.approx(1e-6 * first.noise_std)


@pytest.mark.parametrize(("num_generators", "shape"), [(3, (1, 4)), (1, (3, 4)), (2, (4,)), (1, (1, 1, 1)), (1, ())])
def test_a_sum_is_released_once_for_each_generator(num_generators: int, shape: tuple[int, ...]) -> None:
    curator = Curator([np.random.default_rng(0) for _ in range(num_generators)], num_records=10)
    with pytest.raises(PrivacyError, match="cannot release a sum of shape"):
        curator.release_gaussian(BoundedSum(np.zeros(shape), 1.0, "a sum"), noise_std=1.0)
    assert len(curator.transcript) == 0


def test_one_standard_deviation_does_for_all_configurations() -> None:
    curator = Curator([np.random.default_rng(seed) for seed in range(2)], num_records=10)
    noisy = curator.release_gaussian(BoundedSum(np.zeros((2, 3)), 1.0, "sums"), noise_std=2.0)
    alone = [Curator(np.random.default_rng(seed), num_records=10) for seed in range(2)]
    expected = [each.release_gaussian(BoundedSum(np.zeros(3), 1.0, "sums"), noise_std=2.0) for each in alone]
    np.testing.assert_array_equal(noisy, expected)


def test_sums_in_float32_are_refused_or_count_as_unprotected() -> None:
    sums = BoundedSum(np.zeros(2, dtype=np.float32), 1.0, "sums")
    with pytest.raises(PrivacyError, match="must be in float64"):
        Curator(np.random.default_rng(0), num_records=10).release_gaussian(sums, noise_std=1.0)
    open_curator = Curator(np.random.default_rng(0), num_records=10, float32_without_guarantee=True)
    open_curator.release_gaussian(sums, noise_std=1.0)
    assert isinstance(open_curator.transcript.releases[0], UnprotectedRelease)


def test_a_table_of_equal_rows_is_recorded_too() -> None:
    curator = Curator(np.random.default_rng(0), num_records=10)
    curator.release_response(np.zeros(10, dtype=np.intp), np.full((3, 2), 0.5), what="every label, once")
    assert len(curator.transcript) == 1


def test_a_table_with_an_impossible_answer_is_refused() -> None:
    curator = Curator(np.random.default_rng(0), num_records=10)
    with pytest.raises(PrivacyError, match="every possible outcome"):
        curator.release_response(np.zeros(10, dtype=np.intp), np.array([[1.0, 0.0], [0.5, 0.5]]), what="labels")


def test_the_text_of_a_sum_shows_no_value() -> None:
    bounded = BoundedSum(np.array([123.456, 789.012]), 2.0, "labels")
    assert "123" not in repr(bounded) and "789" not in repr(bounded)
    assert repr(bounded) == "BoundedSum('labels', shape=(2,), sensitivity=2.0)"


def test_weighted_sums_have_the_noise_that_is_recorded() -> None:
    curator = Curator(np.random.default_rng(5), num_records=80_000)
    weights = np.random.default_rng(6).normal(size=(20_000, 4))
    label = np.random.default_rng(7).uniform(-0.5, 0.5, size=weights.shape)
    sums = curator.release_weighted_sums(
        label, weights, label_range=1.0, num_noisy=3, noise_std=2.0, used_fraction=1.0, what="bags"
    )
    (release,) = curator.transcript
    assert release == WeightedSumRelease("bags", 1, 4, 3, 1.0, 2.0 * (1 + bound_rounding(80_000)), 1.0)
    noise = (sums - (weights * label).sum(axis=1)) / np.sqrt((weights[:, :3] ** 2).sum(axis=1))
    assert kstest(noise / 2.0, "norm").pvalue > 1e-3  # fixed seed; false alarm 1e-3


def test_the_noise_of_weighted_sums_covers_rounding_too() -> None:
    def noise(num_records: int) -> Any:
        curator = Curator(np.random.default_rng(5), num_records=num_records)
        zeros, ones = np.zeros((4, 3)), np.ones((4, 3))
        settings = {"label_range": 1.0, "num_noisy": 3, "noise_std": 2.0, "used_fraction": 1.0, "what": "bags"}
        return curator.release_weighted_sums(zeros, ones, **settings)  # type: ignore[arg-type]  # settings of different types

    factor = (1 + bound_rounding(10_000_000)) / (1 + bound_rounding(1))
    np.testing.assert_allclose(noise(10_000_000) / noise(1), factor, rtol=1e-5)  # the grid is 1e-6 of the noise
    assert factor > 1.01


def test_releases_beyond_the_budget_are_refused_before_noise_is_drawn() -> None:
    generator = np.random.default_rng(0)
    curator = Curator(generator, num_records=10, budget=PrivacyBudget(1.0, 1e-6))
    sums = BoundedSum(np.zeros(2), 1.0, "sums")
    noise_std = 1.0 / calibrate_gaussian_mu(1.0, 1e-6)
    for _ in range(4):
        curator.release_gaussian(sums, noise_std=2 * noise_std)
    before = generator.bit_generator.state
    for attempt in (
        lambda: curator.release_gaussian(sums, noise_std=2 * noise_std),
        lambda: curator.release_laplace(np.zeros(2), sensitivity=1.0, epsilon=0.1, what="labels"),
    ):
        with pytest.raises(PrivacyError, match="would cost more"):
            attempt()
    assert generator.bit_generator.state == before
    assert len(curator.transcript) == 4
