"""The attack on low-order bits succeeds on the old release."""

from typing import Any

import numpy as np
import pytest
from randomgen import AESCounter

from conddp.algorithms import CondNewton, PrivateMean
from conddp.algorithms.algorithm import Algorithm
from conddp.privacy import BoundedSum
from tests.privacy.bit_attack import (
    WIDTHS,
    OldCurator,
    attack,
    attack_thinly,
    compute_widths,
    could_have_been_released,
    fit_with,
    make_target,
    predict_normal,
)

ALGORITHMS = [
    pytest.param(PrivateMean(), 3000, id="mean"),
    pytest.param(CondNewton(), 500, id="cond-newton"),
]


def test_the_table_read_from_the_sampler_has_layers_of_equal_area() -> None:
    assert np.allclose(WIDTHS, compute_widths(), rtol=1e-12, atol=0)


def test_the_table_predicts_what_the_sampler_draws() -> None:
    drawn, predicted = [], []
    for key in range(200):
        words = AESCounter(key=key).random_raw(64)
        each = predict_normal(words)
        common = int(np.argmax(np.append(np.isnan(each), True)))  # every draw of the common branch takes one word
        predicted.append(each[:common])
        drawn.append(np.random.Generator(AESCounter(key=key)).standard_normal(common))
    assert sum(map(len, predicted)) > 7000
    assert np.array_equal(np.concatenate(drawn), np.concatenate(predicted))


def test_every_number_of_the_old_release_is_found_possible_and_many_others_are_not() -> None:
    # Sums, standard deviations and noise of all sizes.
    rng = np.random.default_rng(0)
    for std in (4.2247, 0.37, 1e6, 3e-5):
        total = rng.normal(size=20_000) * std * rng.choice([1e-3, 0.1, 1.0, 30.0], size=20_000)
        noise = rng.standard_normal(20_000)
        noise *= std
        noise += total
        assert could_have_been_released(noise, total, std).all()
    small = rng.standard_normal(300_000)
    small = small[np.abs(small) < 2.0**-8]  # where doubles are far denser than the sampler's numbers
    assert could_have_been_released(small, 0.0, 1.0).all()
    assert could_have_been_released(np.nextafter(small, np.inf), 0.0, 1.0).mean() < 0.5


@pytest.mark.parametrize("algorithm", [PrivateMean(), CondNewton()], ids=["mean", "cond-newton"])
def test_the_attacker_computes_what_the_public_sees_from_what_was_released(algorithm: Algorithm) -> None:
    # The attack repeats the operations after a release; here it is compared with the fits themselves.
    released: list[float] = []

    class Recording(OldCurator):
        def release_gaussian(self, bounded: BoundedSum, **settings: Any) -> Any:
            noisy = super().release_gaussian(bounded, **settings)
            released.append(float(noisy[0]))
            return noisy

    rng = np.random.default_rng(0)
    for _ in range(10):
        target = make_target(algorithm, rng)
        released.clear()
        seen = np.array(fit_with(Recording, algorithm, target.records, 10))
        assert np.array_equal(target.how.compute(np.array(released)), seen)
        assert (target.how.trace_back(seen) == released).any(axis=0).all()
        assert could_have_been_released(np.array(released), target.totals[0], target.std).all()


@pytest.mark.parametrize(("algorithm", "num_fits"), ALGORITHMS)
def test_the_old_release_proves_labels(algorithm: Algorithm, num_fits: int) -> None:
    # About 11 % of the fits of a mean and 6 % of those of CondNewton prove which of two labels is true. Noise is drawn
    # without a seed; fewer than the fractions below have a probability of less than 3e-6.
    verdict = attack(algorithm, OldCurator, num_targets=25, fits_each=num_fits // 25)
    assert verdict.num_fits == num_fits
    assert verdict.fraction_proved > (0.06 if isinstance(algorithm, PrivateMean) else 0.015)
    assert verdict.num_wrong == 0
    thin = attack_thinly(algorithm, num_targets=100, fits_each=500)
    assert thin.fraction_proved > 0.04
    assert thin.num_wrong == 0


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [PrivateMean(), CondNewton()], ids=["mean", "cond-newton"])
def test_the_old_release_proves_labels_in_50_000_fits(algorithm: Algorithm) -> None:
    # One or two minutes each. Both paths see the same fraction, to four standard errors (false alarm 6e-5); the fits
    # of one data set are alike, so the error is estimated from data sets.
    verdict = attack(algorithm, OldCurator, num_targets=500, fits_each=100)
    assert verdict.fraction_proved > 0.04
    assert verdict.num_wrong == 0
    thin = attack_thinly(algorithm, num_targets=500, fits_each=100)
    assert verdict.fraction_proved == pytest.approx(thin.fraction_proved, abs=4 * (2 * 0.11 / 50_000) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [PrivateMean(), CondNewton()], ids=["mean", "cond-newton"])
def test_the_old_release_singles_out_one_label_of_sixteen(algorithm: Algorithm) -> None:
    verdict = attack_thinly(algorithm, num_targets=100, fits_each=2000, num_candidates=16)
    assert verdict.num_proved > 0
    assert verdict.num_wrong == 0
