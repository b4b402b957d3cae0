"""The attack on low-order bits succeeds on the old release and fails on the present one."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from randomgen import AESCounter
from scipy.stats import chi2_contingency, chisquare, kstest, norm

from conddp.algorithms import CondNewton, PrivateMean
from conddp.algorithms.algorithm import Algorithm
from conddp.auditing import Recorder, fit_watched
from conddp.bounds import Bounds
from conddp.data import Labels, PublicFeatures, Records
from conddp.privacy import BoundedSum, Curator
from tests.privacy.bit_attack import (
    BUDGET,
    WIDTHS,
    OldCurator,
    attack,
    attack_thinly,
    compute_widths,
    could_have_been_released,
    enlarge,
    fit_with,
    is_on_grid,
    judge_all,
    make_target,
    make_targets,
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
    # Two to four minutes each. Both paths see the same fraction of the same data sets: six standard errors.
    verdict = attack(algorithm, OldCurator, num_targets=500, fits_each=100)
    assert verdict.fraction_proved > 0.04
    assert verdict.num_wrong == 0
    thin = attack_thinly(algorithm, num_targets=500, fits_each=100)
    assert verdict.fraction_proved == pytest.approx(thin.fraction_proved, abs=6 * (2 * 0.11 / 50_000) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [PrivateMean(), CondNewton()], ids=["mean", "cond-newton"])
def test_the_old_release_singles_out_one_label_of_sixteen(algorithm: Algorithm) -> None:
    verdict = attack_thinly(algorithm, num_targets=100, fits_each=2000, num_candidates=16)
    assert verdict.num_proved > 0
    assert verdict.num_wrong == 0


# The present release


@pytest.mark.parametrize(("algorithm", "num_fits"), ALGORITHMS)
def test_the_release_proves_no_label(algorithm: Algorithm, num_fits: int) -> None:
    verdict = attack(algorithm, Curator, num_targets=25, fits_each=num_fits // 25)
    assert (verdict.num_fits, verdict.num_proved, verdict.num_wrong) == (num_fits, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [PrivateMean(), CondNewton()], ids=["mean", "cond-newton"])
def test_the_release_proves_no_label_in_50_000_fits(algorithm: Algorithm) -> None:
    # Two to four minutes each. An attacker who still assumes the old release is wrong about as often as right: 50 % of
    # 2,000 to 5,000 claims have a standard error of at most 1.2 %, so 60 % is eight of them.
    targets = make_targets(algorithm, 500, 2)
    seen = np.array([fit_with(Curator, algorithm, each.records, 100) for each in targets])
    verdict = judge_all(targets, seen)
    assert (verdict.num_fits, verdict.num_proved, verdict.num_wrong) == (50_000, 0, 0)
    believed = judge_all(targets, seen, with_grid=False)
    assert believed.num_wrong > 500
    assert believed.num_proved < 0.6 * (believed.num_proved + believed.num_wrong)


NUM_DRAWN = 400_000
STD = 4.2247


def release(total: float, *, std: float = STD, seed: int = 0, size: int = NUM_DRAWN) -> NDArray[np.float64]:
    """The same sum in every coordinate, each with noise of its own."""
    curator = Curator(np.random.default_rng(seed), num_records=20)
    return np.asarray(curator.release_gaussian(BoundedSum(np.full(size, total), 1.0, "a sum"), noise_std=std))


def find_grid(values: NDArray[np.float64]) -> float:
    """Largest power of two of which all numbers are multiples."""
    mantissas, exponents = np.frexp(values[values != 0])
    whole = (mantissas * 2.0**53).astype(np.int64)
    return float(np.ldexp(1.0, int((exponents - 53 + np.log2(whole & -whole)).min())))


# Neighbouring sums: on a grid of any power of two, between its points, near zero, and beyond the noise.
NEIGHBOURS = [(1.0, 2.0), (0.1, 1.1 - 2.0**-30), (1e-9, -1.0 + 1e-7), (1234.5678, 1235.5), (-1e5 / 3, -1e5 / 3 + 0.7)]


@pytest.mark.parametrize("std", [STD, 0.03, 77.7, 1e-7, 3e9])
def test_released_numbers_lie_on_a_grid_that_depends_on_public_numbers_only(std: float) -> None:
    grids = {
        find_grid(release(total * std / STD, std=std, seed=seed, size=5_000))
        for seed, total in enumerate([each for pair in NEIGHBOURS for each in pair])
    }
    assert len(grids) == 1  # a finer grid would show in half of all numbers: false alarm 2^-5000
    (grid,) = grids
    assert std * 2.0**-24 <= grid <= std * 2.0**-8


@pytest.mark.parametrize("algorithm", [PrivateMean(), CondNewton()], ids=["mean", "cond-newton"])
def test_every_release_of_a_fit_lies_on_a_grid(algorithm: Algorithm) -> None:
    rng, bounds = np.random.default_rng(0), Bounds(0.0, 10.0)
    public, labels = PublicFeatures(rng.normal(size=(20, 2))), rng.uniform(0, 10, 20)
    for label in (0.0, 10.0):
        recorder = Recorder()
        for seed in range(20):
            data = Records(public, None, Labels(np.append(labels[:-1], label), bounds))
            fit_watched(algorithm, data, BUDGET, recorder, seed=seed)
        assert recorder.questions
        assert all(is_on_grid(each.released, each.noise_std).all() for each in recorder.questions)


@pytest.mark.parametrize("pair", NEIGHBOURS)
def test_low_order_bits_do_not_depend_on_the_sum(pair: tuple[float, float]) -> None:
    # Noise spans thousands of points of the grid, so residues are uniform whatever the sum is; also where noise is
    # small and doubles are dense. 2 sums, 4 tests each against uniform and 4 between both: 12 tests at 1e-7 in each of
    # 5 cases, false alarm 6e-6 for a new seed.
    one, other = (release(total, seed=seed) for seed, total in enumerate(pair))
    grid = find_grid(np.append(one, other))
    for modulus in (2, 4, 256):
        counts = [count_residues(each, grid, modulus) for each in (one, other)]
        for each in counts:
            assert chisquare(each).pvalue > 1e-7
        assert chi2_contingency(np.stack(counts)).pvalue > 1e-7
    small = [
        count_residues(each[np.abs(each - total) < STD / 16], grid, 4)
        for each, total in zip((one, other), pair, strict=True)
    ]
    for each in small:
        assert each.sum() > 15_000
        assert chisquare(each).pvalue > 1e-7
    assert chi2_contingency(np.stack(small)).pvalue > 1e-7


def count_residues(values: NDArray[np.float64], grid: float, modulus: int) -> NDArray[np.intp]:
    return np.bincount(np.fmod(values / grid, modulus).astype(np.int64) % modulus, minlength=modulus)


@pytest.mark.parametrize("pair", [(1.0, 2.0), (0.1, 1.1 - 2.0**-30), (1e-9, -1.0 + 1e-7)])
def test_neighbouring_sums_reach_the_same_numbers(pair: tuple[float, float]) -> None:
    # Of the distinct numbers released from one sum, count those also released from the other. If the other could reach
    # only some of them, it would reach these more often and fewer in all. The count has the mean and variance of
    # independent hits with the probabilities of the normal distribution; six standard errors, false alarm 6e-9.
    size, std = 1_000_000, STD * enlarge(20)
    one, other = (np.unique(release(total, seed=seed, size=size)) for seed, total in enumerate(pair))
    grid = find_grid(np.append(one, other))
    hit = -np.expm1(-size * grid / std * norm.pdf((one - pair[1]) / std))
    assert abs(np.isin(one, other).sum() - hit.sum()) < 6 * np.sqrt((hit * (1 - hit)).sum())
    assert 1000 < hit.sum() < 0.95 * len(one)  # otherwise the test says little


@pytest.mark.parametrize("pair", NEIGHBOURS)
def test_released_noise_is_normal(pair: tuple[float, float]) -> None:
    # Kolmogorov-Smirnov, 10 tests at 1e-7: false alarm 1e-6.
    for seed, total in enumerate(pair):
        noise = (release(total, seed=10 + seed) - total) / (STD * enlarge(20))
        assert kstest(noise, "norm").pvalue > 1e-7
