"""Noise on a public grid: exact in every draw, whatever the private number."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from scipy.stats import chisquare, kstest, norm

from conddp.privacy import noise
from conddp.privacy.noise import (
    BITS,
    SMALLEST_TAIL,
    NoiseShape,
    NoiseStream,
    compute_grid,
    discrete_laplace,
    draw_integers,
    draw_outcomes,
    gaussian,
    laplace,
    staircase,
)

SHAPES: dict[str, NoiseShape] = {
    "gaussian": gaussian(),
    "laplace": laplace(),
    **{f"staircase {epsilon}": staircase(epsilon) for epsilon in (1e-6, 0.01, 0.25, 1.0, 4.0, 16.0)},
    **{f"discrete laplace {scale}": discrete_laplace(scale) for scale in (0.125, 1.0, 8.0, 1e5)},
}


def make_draws(shape: NoiseShape, size: int, *, seed: int = 0) -> Any:
    return noise._Draws.of(size, shape, np.random.default_rng(seed))


def invert(shape: NoiseShape, tail: float, near: float) -> Any:
    """The t whose survival is this tail, by bisection in multiple precision."""
    with mp.workprec(200):
        low, high = mp.mpf(near) * (1 - mp.mpf(1e-6)) - 1e-6, mp.mpf(near) * (1 + mp.mpf(1e-6)) + 1e-6
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if shape.survival(middle) > mp.mpf(tail) else (low, middle)
        return low


@pytest.mark.parametrize("name", SHAPES)
def test_quantiles_are_far_more_accurate_than_their_tolerance(name: str) -> None:
    shape = SHAPES[name]
    rng = np.random.default_rng(1)
    tails = np.concatenate(
        [rng.uniform(SMALLEST_TAIL, 1, 60), np.exp(rng.uniform(math.log(SMALLEST_TAIL), 0, 60)), [SMALLEST_TAIL, 0.5]]
    )
    found = shape.quantile(tails)
    errors = [abs(float(invert(shape, tail, t) - mp.mpf(t))) for tail, t in zip(tails, found, strict=True)]
    assert max(errors) < shape.tolerance / 8
    with mp.workprec(200):  # and what it is compared with is a survival function
        assert all(0 <= shape.survival(mp.mpf(t)) <= 1 + 1e-9 for t in (1e-3, 0.5, 3.0, 40.0) if "discrete" not in name)


@pytest.mark.parametrize("epsilon", [1.0, 16.6, 19.4, 24.4, 27.0])
def test_staircases_go_from_piece_to_piece_where_they_should(epsilon: float) -> None:
    # A large epsilon makes the second piece of a step so improbable that its tail is lost beside 1.
    shape = staircase(epsilon)
    with mp.workprec(200):
        end = shape.survival(mp.mpf(epsilon) / (1 + mp.exp(mp.mpf(epsilon) / 2)))  # of the first piece
    for tail in float(end) * (1 + np.arange(-60, 61) * 2.0**-44):
        found = float(shape.quantile(np.array([tail]))[0])
        with mp.workprec(200):
            low, high = (shape.survival(mp.mpf(max(found + move, 0.0))) for move in (shape.tolerance, -shape.tolerance))
            assert low <= mp.mpf(tail) <= high


@pytest.mark.parametrize("name", SHAPES)
def test_bits_that_are_not_drawn_at_first_move_a_quantile_by_less_than_its_tolerance(name: str) -> None:
    shape = SHAPES[name]
    tails = np.exp(np.random.default_rng(3).uniform(math.log(SMALLEST_TAIL), 0, 60))
    with mp.workprec(200):
        for t in shape.quantile(np.append(tails, SMALLEST_TAIL)):
            start, step = mp.mpf(t), mp.mpf(shape.tolerance) / 2
            assert min(shape.survival(start), 1) - shape.survival(start + step) > mp.ldexp(1, -noise.BITS)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("ratio", [0.3, 2.0**20])
def test_fast_arithmetic_decides_as_multiple_precision_does(name: str, ratio: float) -> None:
    shape = SHAPES[name]
    draws = make_draws(shape, 300)
    offsets = np.random.default_rng(2).uniform(-0.5, 0.5, size=300)
    always_in_doubt = replace(shape, tolerance=1.0 / ratio)
    slowly = replace(draws, shape=always_in_doubt).round(offsets, ratio)
    np.testing.assert_array_equal(draws.round(offsets, ratio), slowly)


@pytest.mark.parametrize("offset", [0.0, 0.3, -0.5])
def test_cells_have_the_probabilities_of_the_normal_distribution(offset: float) -> None:
    # Chi-square with fixed seed; false alarm 1e-3.
    ratio = 1.7
    rounded = make_draws(gaussian(), 200_000).round(np.full(200_000, offset), ratio)
    cells = np.arange(-5, 6)
    edges = (np.concatenate([[-np.inf], cells[:-1] + 0.5, [np.inf]]) - offset) / ratio
    expected = 200_000 * np.diff(norm.cdf(edges))
    counts = [np.count_nonzero(np.clip(rounded, -5, 5) == cell) for cell in cells]
    assert chisquare(counts, expected).pvalue > 1e-3


@pytest.mark.parametrize("name", ["gaussian", "laplace", "staircase 1.0"])
def test_bits_that_do_not_decide_are_followed_by_more(name: str) -> None:
    # The first bits are those of an edge between two cells. How often the draw falls beyond is the rest of the edge.
    shape, ratio, offset = SHAPES[name], 4.0, 0.2
    with mp.workprec(200):
        edge = mp.ldexp(shape.survival((mp.mpf(3) - 0.5 - mp.mpf(offset)) / ratio), BITS)
        first, beyond = int(mp.floor(edge)), float(edge - mp.floor(edge))
    size = 600
    draws = noise._Draws(
        shape,
        np.random.default_rng(3),
        np.full(size, 2 * first, dtype=np.uint64),
        shape.quantile(np.full(size, first * 2.0**-BITS)),
    )
    rounded = draws.round(np.full(size, offset), ratio)
    assert set(rounded) <= {2.0, 3.0}
    # Four standard deviations: false alarm 1e-4, with a fixed seed.
    assert abs(np.mean(rounded == 3.0) - beyond) < 4 * math.sqrt(beyond * (1 - beyond) / size)


def test_far_tails_are_decided_too() -> None:
    for first in (0, 1, 5, 2**20):
        draws = noise._Draws(
            gaussian(), np.random.default_rng(0), np.array([2 * first], dtype=np.uint64), np.array([np.nan])
        )
        (rounded,) = draws.round(np.zeros(1), 1000.0)
        with mp.workprec(300):
            tail = mp.erfc(mp.mpf(rounded) / 1000 / mp.sqrt(2)) * 2**BITS
        assert first * (1 - 1e-2) - 1e-9 <= tail <= (first + 1) * (1 + 1e-2)


@pytest.mark.parametrize("std", [1e-9, 0.7, 1.0, 3.0, 1e12])
@pytest.mark.parametrize("value", [0.0, 1 / 3, -1e5, math.pi * 1e8])
def test_releases_lie_on_a_grid_that_depends_on_the_noise_only(std: float, value: float) -> None:
    grid = compute_grid(std)
    assert 2.0**-21 * std < grid <= 2.0**-20 * std
    assert math.frexp(grid)[0] == 0.5
    released = NoiseStream(gaussian(), np.random.default_rng(0)).add(np.full(50, value), std)
    np.testing.assert_array_equal(np.fmod(released, grid), 0.0)


def test_numbers_that_are_far_too_large_are_clamped_and_hide_nothing() -> None:
    released = NoiseStream(gaussian(), np.random.default_rng(0)).add(np.array([np.inf, -np.inf, np.nan, 1e300]), 1.0)
    assert np.isfinite(released).all()
    assert (np.fmod(released, compute_grid(1.0)) == 0).all()


def test_scales_may_differ_between_numbers() -> None:
    scales = np.array([1e-3, 5.0, 1e9])
    values = np.tile([1.0, 2.0, 3.0], 4000)
    released = NoiseStream(laplace(), np.random.default_rng(5)).add(values, np.tile(scales, 4000))
    noise_of_each = (released - values).reshape(-1, 3) / scales
    np.testing.assert_allclose(np.abs(noise_of_each).mean(axis=0), 1.0, atol=0.08)


def test_long_and_short_releases_have_the_same_distribution() -> None:
    stream = NoiseStream(gaussian(), np.random.default_rng(7))
    drawn = np.concatenate([stream.add(np.zeros(size), 1.0) for size in [1] * 500 + [3] * 500 + [20_000, 1, 9000]])
    assert len(np.unique(drawn)) > 0.97 * len(drawn)  # 31,000 draws on a grid of a million steps: few coincide
    assert abs(drawn.mean()) < 4 / math.sqrt(len(drawn))
    assert abs(drawn.var() - 1) < 4 * math.sqrt(2 / len(drawn))


@pytest.mark.parametrize("scale", [0.3, 2.0, 40.0])
def test_integers_have_discrete_laplace_probabilities(scale: float) -> None:
    # Chi-square with fixed seed; false alarm 1e-3.
    size = 200_000
    drawn = draw_integers(size, scale=scale, rng=np.random.default_rng(11))
    assert (drawn == np.rint(drawn)).all()
    last = max(1, int(3 * scale))
    integers = np.arange(-last, last + 1)
    fall = math.exp(-1 / scale)
    expected = size * (1 - fall) / (1 + fall) * fall ** np.abs(integers)
    beyond = (size - expected.sum()) / 2
    expected = np.concatenate([[beyond], expected, [beyond]])
    counts = np.bincount((np.clip(drawn, -last - 1, last + 1) + last + 1).astype(int), minlength=len(expected))
    assert chisquare(counts, expected).pvalue > 1e-3


def test_outcomes_have_exactly_their_weights() -> None:
    # Chi-square with fixed seed; false alarm 1e-3.
    weights = [0.5, 0.0, 1.0, 0.1]
    counts = np.bincount(draw_outcomes(weights, 100_000, np.random.default_rng(13)), minlength=4)
    assert counts[1] == 0
    assert chisquare(counts[[0, 2, 3]], 100_000 * np.array([0.5, 1.0, 0.1]) / 1.6).pvalue > 1e-3


def test_outcomes_at_the_end_of_a_weight_are_decided_by_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    first, size, real = 2**BITS // 3, 900, noise._draw_bits

    def draw(number: int, rng: np.random.Generator) -> Any:
        return np.full(number, 2 * first, dtype=np.uint64) if number == size else real(number, rng)

    monkeypatch.setattr(noise, "_draw_bits", draw)
    outcomes = draw_outcomes([1.0, 2.0], size, np.random.default_rng(17))
    share = np.mean(outcomes == 0)
    # The end lies at 2/3 of the last interval; four standard deviations, fixed seed.
    assert abs(share - 2 / 3) < 4 * math.sqrt(2 / 9 / size)


def test_generators_with_words_of_32_bits_give_the_same_noise() -> None:
    stream = NoiseStream(gaussian(), np.random.Generator(np.random.MT19937(3)))
    drawn = stream.add(np.zeros(4000), 1.0)
    assert kstest(drawn, "norm").pvalue > 1e-3
