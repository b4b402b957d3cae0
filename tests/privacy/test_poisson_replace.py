r"""The pair of distributions that the accountant uses for Poisson samples under REPLACE is the worst one.

The proof is in docs/guarantees.md. Here all distances are computed without it. Means a and b of the replaced record lie
in the unit ball, noise has standard deviation s, and the record is sampled with probability q. Real numbers are divided
into cells. Summing :math:`(P(\text{cell}) - e^\epsilon Q(\text{cell}))_+` over cells can only underestimate the
hockey-stick divergence, so no error of discretisation can raise a divergence above that of the claimed pair. What is
left is rounding: probabilities of cells have an error of some 1e-16 each, and their sums stay below 1e-13.
"""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from conddp.privacy import GaussianEvent, Neighbouring
from conddp.privacy.accounting import compute_sampled_delta

Vector = NDArray[np.float64]
Settings = tuple[float, float, float]  # q, s, epsilon

ROUNDING = 1e-13
FEW = list(itertools.product((0.01, 0.1, 0.5, 0.9), (0.5, 1.0, 3.0), (0.0, 0.3, 1.0, 3.0)))
MANY = list(itertools.product((0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99), (0.3, 0.5, 1, 2, 5, 10), (0, 0.1, 0.3, 1, 2, 4)))


def compute_claimed(q: float, s: float, alpha: Vector | float) -> Vector:
    """Divergence of (1-q) N(0) + q N(-1) from (1-q) N(0) + q N(1), in closed form, for any factor alpha > 0.

    Where alpha is at least 1 the likelihood ratio exceeds it below one point t. With u = exp(-t/s^2) that point solves
    q u^2 - (alpha-1)(1-q) e^(1/2s^2) u - alpha q = 0. Otherwise both distributions are exchanged.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    at_least = np.maximum(alpha, 1 / alpha)
    middle = (at_least - 1) * (1 - q) * math.exp(1 / (2 * s**2))
    t = -(s**2) * np.log((middle + np.sqrt(middle**2 + 4 * at_least * q**2)) / (2 * q))
    found = q * ndtr((t + 1) / s) - (at_least - 1) * (1 - q) * ndtr(t / s) - at_least * q * ndtr((t - 1) / s)
    return np.where(alpha >= 1, found, 1 - alpha + alpha * found)


def make_cells(s: float, number: int) -> Vector:
    """Boundaries of the cells; the outermost reach to infinity."""
    return np.concatenate([[-np.inf], np.linspace(-1 - 8 * s, 1 + 8 * s, number - 1), [np.inf]])


def weigh(cells: Vector, mean: float, s: float) -> Vector:
    """Probabilities of all cells under a normal distribution."""
    return np.diff(ndtr((cells - mean) / s))


def mix(cells: Vector, mean: float, q: float, s: float) -> Vector:
    return (1 - q) * weigh(cells, 0.0, s) + q * weigh(cells, mean, s)


def find_largest_ratio_on_a_line(settings: list[Settings], means: Vector, num_cells: int) -> float:
    """Largest divergence of all pairs of means, divided by that of the claimed pair."""
    largest = 0.0
    for q, s, epsilon in settings:
        cells, alpha = make_cells(s, num_cells), math.exp(epsilon)
        claimed = float(compute_claimed(q, s, alpha))
        mixtures = np.stack([mix(cells, mean, q, s) for mean in means])
        found = max(float(np.maximum(each - alpha * mixtures, 0.0).sum(axis=1).max()) for each in mixtures)
        assert found <= claimed + ROUNDING, (q, s, epsilon)
        if claimed > 1e-6:  # smaller ones are compared up to rounding only
            largest = max(largest, found / claimed)
    return largest


def find_largest_ratio_in_a_plane(
    settings: list[Settings], lengths: list[tuple[float, float]], angles: Vector, num_cells: int
) -> float:
    """The same for means that are not collinear. Noise is spherical, so only the plane that they span matters."""
    largest = 0.0
    for q, s, epsilon in settings:
        cells, alpha = make_cells(s, num_cells), math.exp(epsilon)
        claimed = float(compute_claimed(q, s, alpha))
        neither = weigh(cells, 0.0, s)
        for (first, second), angle in itertools.product(lengths, angles):
            a = np.outer(weigh(cells, first, s), neither)
            b = np.outer(weigh(cells, second * math.cos(angle), s), weigh(cells, second * math.sin(angle), s))
            difference = q * a - (alpha - 1) * (1 - q) * np.outer(neither, neither) - alpha * q * b
            found = float(np.maximum(difference, 0.0).sum())
            assert found <= claimed + ROUNDING, (q, s, epsilon, first, second, angle)
            if claimed > 1e-6:  # smaller ones are compared up to rounding only
                largest = max(largest, found / claimed)
    return largest


def compute_claimed_twice(q: float, s: float, epsilon: float) -> float:
    """Divergence of two steps of the claimed pair: that of the second step, at every outcome of the first."""
    x = np.linspace(-1 - 10 * s, 1 + 10 * s, 4001)

    def density(mean: float) -> Vector:
        return np.exp(-((x - mean) ** 2) / (2 * s**2)) / (s * math.sqrt(2 * math.pi))

    p, other = (1 - q) * density(0.0) + q * density(-1.0), (1 - q) * density(0.0) + q * density(1.0)
    return float((p * compute_claimed(q, s, math.exp(epsilon) * other / p)).sum() * (x[1] - x[0]))


def find_largest_ratio_of_two_steps(settings: list[Settings], means: Vector, num_cells: int) -> float:
    """Two steps of all pairs of means; the pair of the second step is the worst one after each outcome of the first."""
    largest = 0.0
    for q, s, epsilon in settings:
        cells, alpha = make_cells(s, num_cells), math.exp(epsilon)
        claimed = compute_claimed_twice(q, s, epsilon)
        mixtures = {mean: mix(cells, mean, q, s) for mean in means}
        pairs = list(itertools.permutations(means, 2))
        for first, second in pairs:
            p, other = mixtures[first][:, None], alpha * mixtures[second][:, None]
            best = np.zeros(len(p))
            for then, instead in pairs:
                found = np.maximum(p * mixtures[then] - other * mixtures[instead], 0.0).sum(axis=1)
                best = np.maximum(best, found)
            total = float(best.sum())
            assert total <= claimed * (1 + 1e-9) + ROUNDING, (q, s, epsilon, first, second)
            if claimed > 1e-6:  # smaller ones are compared up to rounding only
                largest = max(largest, total / claimed)
    return largest


@pytest.mark.parametrize(("q", "s", "epsilon"), FEW)
def test_the_closed_form_is_the_best_half_line(q: float, s: float, epsilon: float) -> None:
    alpha = math.exp(epsilon)

    def gain(t: float) -> float:
        p = (1 - q) * ndtr(t / s) + q * ndtr((t + 1) / s)
        return float(p - alpha * ((1 - q) * ndtr(t / s) + q * ndtr((t - 1) / s)))

    start = min(np.linspace(-1 - 8 * s, 1, 2001), key=lambda t: -gain(t))
    best = minimize_scalar(lambda t: -gain(t), bounds=(start - s, start + s), options={"xatol": 1e-12})
    assert float(compute_claimed(q, s, alpha)) == pytest.approx(-best.fun, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(("q", "s", "epsilon"), [(0.1, 1.0, 1.0), (0.01, 0.5, 0.3), (0.5, 3.0, 0.3)])
@pytest.mark.parametrize("num_steps", [1, 2])
def test_the_accountant_uses_this_pair(q: float, s: float, epsilon: float, num_steps: int) -> None:
    # An upper bound that is tight to its discretisation.
    event = GaussianEvent(s, num_steps, q, Neighbouring.REPLACE)
    exact = float(compute_claimed(q, s, math.exp(epsilon))) if num_steps == 1 else compute_claimed_twice(q, s, epsilon)
    bound = compute_sampled_delta([event], epsilon, 1e-3)
    assert exact * (1 - 1e-9) <= bound <= exact * (1 + 1e-2)


def test_no_pair_on_a_line_is_worse() -> None:
    largest = find_largest_ratio_on_a_line(FEW, np.linspace(-1, 1, 21), 1500)
    assert 0.999 < largest <= 1 + 1e-9  # attained by the claimed pair itself


def test_no_pair_in_a_plane_is_worse() -> None:
    few = [(q, s, epsilon) for q in (0.05, 0.6) for s in (0.5, 2.0) for epsilon in (0.0, 1.0)]
    largest = find_largest_ratio_in_a_plane(few, [(1.0, 1.0), (1.0, 0.4), (0.4, 1.0)], np.linspace(0, np.pi, 9), 250)
    assert 0.98 < largest <= 1 + 1e-9


def test_no_two_steps_are_worse_even_if_the_second_depends_on_the_first() -> None:
    few = [(0.1, 1.0, 0.5), (0.5, 2.0, 0.3), (0.02, 0.6, 1.0)]
    largest = find_largest_ratio_of_two_steps(few, np.array([-1.0, -0.3, 0.0, 1.0]), 300)
    assert 0.98 < largest <= 1 + 1e-9


def test_a_weaker_pair_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # With means of -0.99 and 0.99, as in noise that is 1 % larger, the claim would be wrong, and every search says so.
    whole = compute_claimed
    monkeypatch.setattr(f"{__name__}.compute_claimed", lambda q, s, alpha: whole(q, s / 0.99, alpha))
    setting, ends = [(0.1, 1.0, 1.0)], np.array([-1.0, 1.0])
    with pytest.raises(AssertionError):
        find_largest_ratio_on_a_line(setting, ends, 1500)
    with pytest.raises(AssertionError):
        find_largest_ratio_in_a_plane(setting, [(1.0, 1.0)], np.array([np.pi]), 1000)
    with pytest.raises(AssertionError):
        find_largest_ratio_of_two_steps(setting, ends, 300)


@pytest.mark.slow
def test_no_pair_is_worse_on_a_larger_grid() -> None:
    assert find_largest_ratio_on_a_line(MANY, np.linspace(-1, 1, 41), 4000) <= 1 + 1e-9
    plane = [(q, s, epsilon) for q in (0.01, 0.1, 0.5, 0.9) for s in (0.4, 1.0, 4.0) for epsilon in (0.0, 0.5, 2.0)]
    lengths = list(itertools.product((1.0, 0.7, 0.2), (1.0, 0.7, 0.2)))
    assert find_largest_ratio_in_a_plane(plane, lengths, np.linspace(0, np.pi, 17), 400) <= 1 + 1e-9
    two = [(q, s, epsilon) for q in (0.01, 0.1, 0.5, 0.9) for s in (0.5, 1.0, 3.0) for epsilon in (0.1, 0.5, 2.0)]
    assert find_largest_ratio_of_two_steps(two, np.linspace(-1, 1, 7), 400) <= 1 + 1e-9
