"""The cost of a transcript against a second accountant, closed forms, and what must be refused."""

import json
import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant

from conddp.errors import PrivacyError
from conddp.privacy import Neighbouring, PrivacyBudget
from conddp.privacy.accounting import (
    GaussianEvent,
    _bound_mean_loss,
    calibrate_noise_multiplier,
    compute_gaussian_delta,
)
from conddp.privacy.composition import check_cost, compute_delta, describe_transcript
from conddp.privacy.transcript import (
    GaussianRelease,
    PureRelease,
    Release,
    Transcript,
    UnprotectedRelease,
    WeightedSumRelease,
)
from conddp.privacy.weighted_sums import compute_bag_delta

REPLACE, ZERO_OUT = Neighbouring.REPLACE, Neighbouring.ZERO_OUT
STEP = GaussianRelease("a sum", 1, 2.0, 12.0)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_gaussian_releases_of_different_noise_compose_as_a_second_accountant_says(epsilon: float) -> None:
    stds, sensitivity = (3.0, 5.0, 9.0, 9.0), 1.5
    releases = tuple(GaussianRelease("a sum", 1, sensitivity, std) for std in stds)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    for std in stds:
        accountant.compose(GaussianDpEvent(std / sensitivity))
    assert compute_delta(Transcript(releases), epsilon, REPLACE) == pytest.approx(
        accountant.get_delta(epsilon), rel=1e-2
    )


def test_a_mean_of_pure_releases_costs_their_sum() -> None:
    transcript = Transcript((PureRelease("a", 1, "laplace", 2.0, 4.0), PureRelease("b", 2, "geometric", 1.0, 4.0)))
    assert compute_delta(transcript, 1.0, REPLACE) == 0.0
    assert compute_delta(transcript, 0.999, REPLACE) == 1.0
    check_cost(transcript, PrivacyBudget(1.0, 0.0), REPLACE)
    with pytest.raises(PrivacyError):
        check_cost(transcript, PrivacyBudget(0.99, 0.0), REPLACE)


def test_pure_and_gaussian_releases_together_are_bounded_from_above() -> None:
    transcript = Transcript((PureRelease("a", 1, "laplace", 1.0, 2.0), STEP))
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(LaplaceDpEvent(2.0)).compose(GaussianDpEvent(6.0))
    assert compute_delta(transcript, 1.2, REPLACE) >= accountant.get_delta(1.2)


@pytest.mark.parametrize("neighbouring", Neighbouring)
def test_a_calibrated_sampled_run_is_covered_and_one_step_more_is_not(neighbouring: Neighbouring) -> None:
    multiplier = calibrate_noise_multiplier(
        1.0, 1e-5, num_steps=20, sampling_probability=0.1, neighbouring=neighbouring
    )
    sensitivity = neighbouring.sensitivity(0.5)
    run = GaussianRelease("gradients", 20, sensitivity, 0.5 * multiplier * (1 + 1e-9), 0.1)
    check_cost(Transcript((run,)), PrivacyBudget(1.0, 1e-5), neighbouring)
    longer = GaussianRelease("gradients", 21, sensitivity, 0.5 * multiplier, 0.1)
    with pytest.raises(PrivacyError, match="more than the recorded"):
        check_cost(Transcript((longer,)), PrivacyBudget(1.0, 1e-5), neighbouring)


def test_weighted_sums_cost_what_their_own_formula_says() -> None:
    bags = WeightedSumRelease("bags", 1, 50, 25, 1.0, 0.5, 0.6)
    expected = compute_bag_delta(1.0, bag_size=50, noisy_fraction=0.5, label_range=2.0, used_fraction=0.6)
    assert compute_delta(Transcript((bags,)), 1.0, REPLACE) == expected
    with pytest.raises(PrivacyError, match="together with other releases"):
        compute_delta(Transcript((bags, STEP)), 1.0, REPLACE)
    with pytest.raises(PrivacyError, match="under replacement only"):
        compute_delta(Transcript((bags,)), 1.0, ZERO_OUT)


def test_what_is_released_unprotected_has_no_finite_cost() -> None:
    transcript = Transcript((UnprotectedRelease("labels"),))
    check_cost(transcript, PrivacyBudget(math.inf, 0.0), REPLACE)
    with pytest.raises(PrivacyError):
        check_cost(transcript, PrivacyBudget(1e6, 0.5), REPLACE)


def test_an_empty_transcript_is_refused() -> None:
    with pytest.raises(PrivacyError, match="nothing was released"):
        check_cost(Transcript(), PrivacyBudget(1.0, 1e-6), REPLACE)


def test_releases_alike_in_a_row_are_one_entry() -> None:
    transcript = Transcript()
    for _ in range(5):
        transcript = transcript.add(STEP)
    transcript = transcript.add(GaussianRelease("another sum", 1, 2.0, 12.0)).add(STEP)
    assert [release.count for release in transcript] == [5, 1, 1]
    assert len(transcript) == 7
    assert compute_delta(transcript, 1.0, REPLACE) == pytest.approx(compute_gaussian_delta(math.sqrt(7) / 6, 1.0))


ENTRIES: list[Release] = [
    STEP,
    PureRelease("every label, once", 1, "laplace", 2.0, 4.0),
    WeightedSumRelease("bags", 1, 50, 25, 1.0, 0.5, 0.6),
    UnprotectedRelease("labels"),
]


def test_a_transcript_is_stored_and_read_back() -> None:
    transcript = Transcript(tuple(ENTRIES))
    assert Transcript.from_json(json.loads(json.dumps(transcript.to_json()))) == transcript


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {},
        [1],
        [{"kind": "unknown", "what": "x"}],
        [{"what": "x"}],
        [{"kind": ["gaussian"], "what": "x"}],
        [{"kind": "gaussian", "what": "x", "sensitivity": "1", "noise_std": 1.0}],
        [{"kind": "gaussian", "what": "x", "sensitivity": -1.0, "noise_std": 1.0}],
        [{"kind": "gaussian", "what": "x", "sensitivity": 1.0, "noise_std": 0.0}],
        [{"kind": "gaussian", "what": "x", "sensitivity": 1.0, "noise_std": float("nan")}],
        [{"kind": "gaussian", "what": "x", "sensitivity": 1.0, "noise_std": 1.0, "count": 0}],
        [{"kind": "gaussian", "what": "x", "sensitivity": 1.0, "noise_std": 1.0, "sampling_probability": 2.0}],
        [{"kind": "gaussian", "what": 3, "sensitivity": 1.0, "noise_std": 1.0}],
        [{"kind": "gaussian", "what": "x", "surprise": 1.0}],
        [{"kind": "pure", "what": "x", "mechanism": "laplace", "sensitivity": 1.0, "noise_scale": True}],
    ],
)
def test_a_damaged_transcript_is_refused(stored: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        Transcript.from_json(stored)


def test_sentences_name_what_was_released() -> None:
    assert describe_transcript(Transcript((STEP,)), REPLACE).startswith("One Gaussian release, a sum,")
    many = describe_transcript(Transcript((STEP, GaussianRelease("b", 3, 2.0, 12.0))), REPLACE)
    assert many.startswith("4 full-batch Gaussian releases were accounted exactly")
    assert "epsilon 0.5" in describe_transcript(Transcript((ENTRIES[1],)), REPLACE)
    assert "bags of 50 labels" in describe_transcript(Transcript((ENTRIES[2],)), REPLACE)
    sampled = GaussianRelease("gradients", 20, 2.0, 12.0, 0.1)
    assert "Poisson-sampled" in describe_transcript(Transcript((sampled,)), REPLACE)


def test_sensitivities_and_noise_of_numpy_numbers_are_plain_numbers_in_the_transcript() -> None:
    release = GaussianRelease("a", 1, float(np.float64(1.0)), float(np.float32(2.0)))
    assert json.dumps(Transcript((release,)).to_json())


@pytest.mark.parametrize("neighbouring", [REPLACE, ZERO_OUT])
@pytest.mark.parametrize(("noise", "probability"), [(0.4, 0.01), (1.0, 0.3), (3.0, 0.001), (0.05, 0.9)])
def test_the_bound_on_the_mean_privacy_loss_holds(neighbouring: Neighbouring, noise: float, probability: float) -> None:
    """Against the divergence of the two mixtures, integrated numerically."""
    x = np.linspace(-2 - 12 * noise, 2 + 12 * noise, 400_001)
    far = -1.0 if neighbouring is REPLACE else 0.0

    def log_mixture(mean: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        logs = [
            np.log(q) - (x - center) ** 2 / (2 * noise**2)
            for q, center in ((probability, mean), (1 - probability, 0.0))
        ]
        return np.logaddexp(*logs) - math.log(noise * math.sqrt(2 * math.pi))

    first, second = log_mixture(1.0), log_mixture(far)
    divergence = float(np.trapezoid(np.exp(first) * (first - second), x))
    bound = _bound_mean_loss(GaussianEvent(noise, 7, probability, neighbouring))
    assert 7 * divergence <= bound * (1 + 1e-6)


def test_a_sampled_run_with_hardly_any_noise_is_refused_without_composing_it() -> None:
    for release in (
        GaussianRelease("a sum", 10**8, 1.0, 1.0, 0.5),
        GaussianRelease("a sum", 1, 1.0, 1e-9, 0.5),
        GaussianRelease("a sum", 1000, 1.0, 0.03, 0.9),
    ):
        assert compute_delta(Transcript((release,)), 1.0, REPLACE) == 1.0
    many = tuple(GaussianRelease("a sum", 1, 1.0, 100.0 + number, 0.5) for number in range(300))
    assert compute_delta(Transcript(many), 1.0, REPLACE) == 1.0
