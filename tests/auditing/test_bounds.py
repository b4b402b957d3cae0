"""Lower bounds on epsilon, against mechanisms whose epsilon is known exactly.

Each test repeats an audit at confidence 90 % with a fixed seed. A bound that is right in nine cases of ten is above the
truth in more than ALLOWED of the repetitions with probability 1e-4, which is the false-alarm rate of these tests.
"""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from conddp.auditing.bounds import (
    GuessCounts,
    bound_epsilon,
    bound_mu,
    bound_mu_by_accuracy,
    bound_rate,
    convert_mu,
    split_and_bound,
)
from conddp.auditing.guessing import Guesses, bound_one_run, bound_one_run_gaussian, bound_one_run_tradeoff

CONFIDENCE, REPETITIONS = 0.9, 200
ALLOWED = int(stats.binom.isf(1e-4, REPETITIONS, 1 - CONFIDENCE))
DELTA = 1e-5
Sampler = Callable[[np.random.Generator, int, int], NDArray[np.float64]]


def draw_gaussian(mu: float) -> Sampler:
    return lambda rng, side, size: rng.normal(mu * side, size=size)


def draw_laplace(epsilon: float) -> Sampler:
    return lambda rng, side, size: side + rng.laplace(scale=1 / epsilon, size=size)


def draw_response(epsilon: float) -> Sampler:
    keep = 1 / (1 + math.exp(-epsilon))
    return lambda rng, side, size: np.where(rng.random(size) < keep, side, 1 - side).astype(float)


MECHANISMS: dict[str, tuple[Sampler, float, float, bool]] = {  # how to draw, true epsilon, delta, is it Gaussian
    "gaussian, mu 0.3": (draw_gaussian(0.3), convert_mu(0.3, DELTA), DELTA, True),
    "gaussian, mu 2": (draw_gaussian(2.0), convert_mu(2.0, DELTA), DELTA, True),
    "gaussian without knowing it": (draw_gaussian(1.0), convert_mu(1.0, 0.01), 0.01, False),
    "laplace": (draw_laplace(1.0), 1.0, 0.0, False),
    "randomised response": (draw_response(1.5), 1.5, 0.0, False),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_bound_is_above_the_truth_no_more_often_than_its_confidence_says(name: str) -> None:
    draw, truth, delta, gaussian = MECHANISMS[name]
    rng = np.random.default_rng(0)
    above = 0
    for _ in range(REPETITIONS):
        negatives, positives = draw(rng, 0, 120), draw(rng, 1, 120)
        bound, _ = split_and_bound(negatives, positives, delta, confidence=CONFIDENCE, gaussian=gaussian)
        above += bound > truth
    assert above <= ALLOWED


@pytest.mark.parametrize("name", [name for name in MECHANISMS if "without" not in name])
def test_a_bound_is_close_to_the_truth_with_many_samples(name: str) -> None:
    draw, truth, delta, gaussian = MECHANISMS[name]
    rng = np.random.default_rng(1)
    bound, counts = split_and_bound(
        draw(rng, 0, 200_000), draw(rng, 1, 200_000), delta, confidence=0.999, gaussian=gaussian
    )
    assert counts.num_negatives == counts.num_positives == 100_000  # the other half has chosen the threshold
    assert 0.9 * truth < bound < truth


@pytest.mark.parametrize("confidence", [0.9, 0.999])
def test_rates_are_bounded_as_by_clopper_and_pearson(confidence: float) -> None:
    for successes, trials in product((0, 1, 7, 50), (50, 400)):
        reference = stats.binomtest(successes, trials, alternative="less").proportion_ci(confidence, "exact").high
        assert bound_rate(successes, trials, confidence) == pytest.approx(reference, rel=1e-9)


@pytest.mark.parametrize("mu", [0.2, 1.0, 2.5])
def test_bounds_on_mu_hold_for_the_threshold_in_the_middle(mu: float) -> None:
    # For every possible outcome, so without chance: how likely is a bound above the truth?
    n, p = 60, float(stats.norm.sf(mu / 2))
    for bound in (bound_mu, bound_mu_by_accuracy):
        wrong = 0.0
        for positives, negatives in product(range(n + 1), repeat=2):
            if bound(GuessCounts(n, n, positives, negatives), confidence=CONFIDENCE) > mu:
                wrong += float(stats.binom.pmf(positives, n, p) * stats.binom.pmf(negatives, n, p))
        assert wrong <= 1 - CONFIDENCE


def test_choosing_the_threshold_on_the_same_fits_would_be_wrong() -> None:
    # Scores that tell nothing: a bound above zero is false. Chosen and counted on the same scores it often is.
    rng = np.random.default_rng(2)
    naive = honest = 0
    for _ in range(REPETITIONS):
        negatives, positives = rng.normal(size=(2, 100))
        honest += split_and_bound(negatives, positives, DELTA, confidence=CONFIDENCE, gaussian=True)[0] > 0
        naive += any(
            bound_mu_by_accuracy(GuessCounts.of(negatives, positives, threshold), confidence=CONFIDENCE) > 0
            for threshold in negatives
        )
    assert honest <= ALLOWED < naive


def test_a_useless_test_gives_zero_and_a_perfect_one_is_limited_by_the_number_of_fits() -> None:
    assert bound_epsilon(GuessCounts(50, 50, 25, 25), 0.0, confidence=0.95) == 0
    assert bound_mu(GuessCounts(50, 50, 50, 50), confidence=0.95) == 0
    assert bound_mu_by_accuracy(GuessCounts(50, 50, 30, 30), confidence=0.95) == 0
    perfect = bound_epsilon(GuessCounts(1000, 1000, 0, 0), 1e-6, confidence=0.95)
    limit = 1 - 0.025 ** (1 / 1000)  # no error in 1000 trials
    assert perfect == pytest.approx(math.log((1 - limit - 1e-6) / limit), rel=1e-9)


@pytest.mark.parametrize(
    ("num_correct", "num_canaries", "expected"),
    [(100, 100, 3.49), (1000, 1000, 5.8), (75, 100, 0.70), (750, 1000, 0.98), (60, 100, 0.05), (600, 1000, 0.30)],
)
def test_one_run_bounds_are_those_of_the_formula(num_correct: int, num_canaries: int, expected: float) -> None:
    guesses = Guesses(num_canaries, num_canaries, num_correct)
    assert bound_one_run(guesses, 1e-6, confidence=0.95) == pytest.approx(expected, abs=0.01)
    # The trade-off function of the same (epsilon, delta) says almost the same by another argument.
    assert bound_one_run_tradeoff(guesses, 1e-6, confidence=0.95) == pytest.approx(expected, abs=0.03)


def guess(scores: NDArray[np.float64], coins: NDArray[np.bool_], num_guesses: int) -> Guesses:
    clearest = np.argsort(-np.abs(scores))[:num_guesses]
    return Guesses(len(coins), num_guesses, int(((scores > 0) == coins)[clearest].sum()))


@pytest.mark.parametrize("num_guesses", [200, 40])
@pytest.mark.parametrize("mu", [0.3, 1.5])
def test_one_run_bounds_hold_for_independent_gaussian_canaries(mu: float, num_guesses: int) -> None:
    rng = np.random.default_rng(3)
    truth, above = convert_mu(mu, DELTA), {"any": 0, "gaussian": 0, "trade-off": 0}
    for _ in range(100):
        coins = rng.random(200) < 0.5
        guesses = guess(rng.normal(np.where(coins, mu / 2, -mu / 2)), coins, num_guesses)
        above["any"] += bound_one_run(guesses, DELTA, confidence=CONFIDENCE) > truth
        above["gaussian"] += bound_one_run_gaussian(guesses, DELTA, confidence=CONFIDENCE) > truth
        above["trade-off"] += bound_one_run_tradeoff(guesses, DELTA, confidence=CONFIDENCE) > truth
    assert max(above.values()) <= int(stats.binom.isf(1e-4, 100, 1 - CONFIDENCE))


def test_one_run_bounds_hold_where_they_are_tight() -> None:
    # Randomised response of every coin is the worst case of the first bound: binomial with the probability it assumes.
    rng = np.random.default_rng(4)
    epsilon, above = 1.0, [0, 0]
    for _ in range(REPETITIONS):
        guesses = Guesses(300, 300, int(rng.binomial(300, 1 / (1 + math.exp(-epsilon)))))
        above[0] += bound_one_run(guesses, 0.0, confidence=CONFIDENCE) > epsilon
        above[1] += bound_one_run_tradeoff(guesses, 0.0, confidence=CONFIDENCE) > epsilon
    assert 5 < above[0] <= ALLOWED  # it uses most of what it may
    assert above[1] <= ALLOWED
    many = Guesses(100_000, 100_000, int(rng.binomial(100_000, 1 / (1 + math.exp(-epsilon)))))
    assert 0.95 < bound_one_run(many, 0.0, confidence=0.999) < 1.0


def test_the_gaussian_one_run_bound_shows_more_than_the_general_one() -> None:
    rng = np.random.default_rng(5)
    coins = rng.random(1000) < 0.5
    guesses = guess(rng.normal(np.where(coins, 1.0, -1.0)), coins, 200)
    general, gaussian = (bound(guesses, DELTA, confidence=0.95) for bound in (bound_one_run, bound_one_run_gaussian))
    assert 1.5 * general < gaussian < convert_mu(2.0, DELTA)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: GuessCounts(10, 10, 11, 0),
        lambda: Guesses(10, 11, 5),
        lambda: Guesses(10, 5, 6),
        lambda: bound_rate(1, 10, 1.0),
        lambda: bound_mu_by_accuracy(GuessCounts(10, 20, 1, 1), confidence=0.9),
        lambda: split_and_bound(np.zeros(1), np.zeros(1), 0.0, confidence=0.9, gaussian=False),
    ],
)
def test_impossible_counts_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        wrong()
