import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from conddp.data.parts import PublicFeatures
from conddp.features.whitening import ROWS_AT_ONCE, Directions
from conddp.newton.posterior import Level, ResidualScale, Track
from conddp.newton.prior import CONSTANT_VARIANCE, VAGUE, Belief
from conddp.newton.release import release
from conddp.newton.run import run_newton
from conddp.newton.schedule import NewtonPlan, allot_gains, choose_window
from conddp.privacy.neighbouring import Neighbouring


class NoNoise:
    """A generator whose noise is zero."""

    def standard_normal(self, size: int) -> Any:
        return np.zeros(size)


def ask(rows: Any, label: Any, coefficients: Any, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "window": 0.2,
        "gains": np.full(rows.shape[1], 1 / rows.shape[1]),
        "scale": 0.1,
        "scale_window": 0.4,
        "scale_weight": 0.5,
        "mu": 1.0,
        "neighbouring": Neighbouring.REPLACE,
        "generator": NoNoise(),
    }
    return release(rows, label, (-0.5, 0.5), lambda part: rows[part] @ coefficients, **{**settings, **changes})


def test_a_release_without_noise_is_the_mean_of_clamped_residuals_times_rows(rng: np.random.Generator) -> None:
    n = ROWS_AT_ONCE + 100
    rows, label, theta = rng.normal(size=(n, 3)), rng.uniform(-0.5, 0.5, size=n), np.array([0.1, -0.1, 0.05])
    gains = np.array([0.7, 0.3, 0.0])
    answer = ask(rows, label, theta, gains=gains)
    residuals = label - rows @ theta
    limits = 0.2 / np.sqrt(rows**2 @ gains)
    expected = (np.clip(residuals, -limits, limits)[:, None] * rows).mean(axis=0)
    assert answer.step == pytest.approx([expected[0], expected[1], 0.0], abs=1e-12)
    assert answer.mean_square == pytest.approx(np.minimum(residuals**2, 0.16).mean())
    assert np.isinf(answer.noise[2])
    assert answer.noise[:2] == pytest.approx((answer.deviation / n) ** 2 / gains[:2])


def test_noise_is_as_large_as_it_says(rng: np.random.Generator) -> None:
    rows, label = rng.normal(size=(20, 3)), rng.uniform(-0.5, 0.5, size=20)
    exact = ask(rows, label, np.zeros(3))
    answers = [ask(rows, label, np.zeros(3), generator=rng) for _ in range(4000)]
    scores = np.stack([(answer.step - exact.step) / np.sqrt(answer.noise) for answer in answers])
    squares = [(a.mean_square - exact.mean_square) / a.mean_square_deviation for a in answers]
    assert np.cov(np.column_stack([scores, squares]).T) == pytest.approx(np.eye(4), abs=0.1)
    assert np.mean(scores, axis=0) == pytest.approx(np.zeros(3), abs=0.07)
    assert exact.deviation == exact.sensitivity  # mu = 1


def test_curvature_is_the_share_of_a_newton_step_that_clamping_leaves(rng: np.random.Generator) -> None:
    n, k = 200_000, 2
    rows = rng.normal(size=(n, k))
    truth = np.array([0.004, -0.004])  # small, so that the clamped mean is linear in it
    label = np.clip(rows @ truth + rng.normal(scale=0.1, size=n), -0.5, 0.5)
    answer = ask(rows, label, np.zeros(k), window=0.05)
    assert answer.step / answer.curvature == pytest.approx(truth, abs=4 * 0.1 / math.sqrt(n) / answer.curvature.min())


def test_gains_leave_the_least_error(rng: np.random.Generator) -> None:
    for _ in range(20):
        variance, noise = rng.lognormal(sigma=1.5, size=4), rng.lognormal(sigma=1.5)
        gains = allot_gains(variance, noise)

        def error(x: Any, v: Any = variance, s: float = noise) -> float:
            shares = np.exp(x) / np.exp(x).sum()
            return float((v * s / (v * shares + s)).sum())

        found = minimize(error, np.zeros(4), method="Nelder-Mead", options={"maxiter": 20_000, "xatol": 1e-10})
        assert gains.sum() == pytest.approx(1.0)
        assert (variance * noise / (variance * gains + noise)).sum() <= found.fun * (1 + 1e-6)


def test_windows_shrink_with_noise_and_never_all_at_once() -> None:
    belief = Belief(np.zeros(10), np.full(10, 0.002))
    windows = [choose_window(belief, 0.1, unit, NewtonPlan(), at_least=0.0) for unit in (1e-5, 1e-2, 1.0)]
    assert windows[0] > windows[1] > windows[2] >= 0.035 - 1e-12
    assert choose_window(belief, 0.1, 1.0, NewtonPlan(), at_least=0.3) == 0.3
    assert choose_window(belief, 10.0, 1e-9, NewtonPlan(), at_least=0.0) == 0.5


def test_the_scale_follows_measurements_as_far_as_they_are_precise() -> None:
    vague, exact = ResidualScale.of(0.04, 10.0), ResidualScale.of(0.04, 1e-4)
    assert exact.mean_square == pytest.approx(0.04, rel=0.03)
    assert vague.standard_deviation == pytest.approx(0.12, rel=0.2)
    assert ResidualScale.of(-5.0, 0.01).mean_square > 0
    exact.update(0.01, 1e-6)
    assert exact.mean_square == pytest.approx(0.01, rel=1e-3)
    exact.update(-1.0, 1e-6)
    assert exact.mean_square == pytest.approx(0.15 * 0.01, rel=1e-3)


def test_shares_of_the_budget_add_up_to_one() -> None:
    for plan in (NewtonPlan(), NewtonPlan(num_steps=1), NewtonPlan(num_steps=100, growth=1.3, opening_share=0.2)):
        for num_records, num_steps in ((100, 12), (5000, 24), (1_000_000, 12)):
            shares = plan.shares(num_records)
            assert len(shares) == (plan.num_steps or num_steps) + 2
            assert math.fsum(shares) == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(ValueError, match="num_steps"):
        NewtonPlan(num_steps=0)
    with pytest.raises(ValueError, match="growth"):
        NewtonPlan(growth=1e40)
    with pytest.raises(ValueError, match="opening_share"):
        NewtonPlan(opening_share=0.9)


@pytest.mark.parametrize("constant", [True, False])
def test_with_hardly_any_noise_it_is_least_squares(rng: np.random.Generator, constant: bool) -> None:
    X = rng.normal(size=(3000, 4)) @ rng.normal(size=(4, 4))
    label = np.clip(X @ [0.02, 0.01, -0.02, 0.0] + 0.1 * constant + rng.normal(scale=0.05, size=3000), -0.5, 0.5)
    directions = Directions.of(PublicFeatures(X), constant=constant)
    start = np.zeros(directions.num_directions)
    run = run_newton(directions, label, (-0.5, 0.5), start, mu=100.0, generator=rng)
    exact = directions.rows.T @ label / 3000
    assert np.sum((run.coefficients - exact) ** 2) < 1e-3 * np.sum((label - directions.rows @ exact) ** 2) / 3000
    assert run.scales[-1] == pytest.approx(0.05, rel=0.1)


def test_the_constant_stays_near_the_mean_of_skewed_labels(rng: np.random.Generator) -> None:
    X = rng.normal(size=(5000, 20))
    directions = Directions.of(PublicFeatures(X))
    label = np.clip(-0.4 + 0.03 * np.exp(0.3 * X[:, 0]) * rng.exponential(size=5000), -0.5, 0.5)
    misses = []
    for _ in range(20):
        run = run_newton(directions, label, (-0.5, 0.5), np.zeros(21), mu=0.1, generator=rng)
        residuals = label - directions.rows @ run.coefficients
        misses.append(residuals.mean() / residuals.std())
    assert abs(np.mean(misses)) < 0.1  # clamped steps alone end at 0.14, the median is at 0.3


def test_the_constant_is_the_mean_of_labels_at_the_ends_of_the_range(rng: np.random.Generator) -> None:
    label = np.where(rng.uniform(size=20_000) < 0.1, 0.5, -0.5)
    directions = Directions.of(PublicFeatures(rng.normal(size=(20_000, 2))))
    runs = [run_newton(directions, label, (-0.5, 0.5), np.zeros(3), mu=1.0, generator=rng) for _ in range(5)]
    assert np.mean([run.coefficients[0] for run in runs]) == pytest.approx(label.mean(), abs=0.01)


def test_precise_measurements_are_averaged_and_the_first_is_not_taken_for_exact() -> None:
    level = Level()
    track = Track(np.zeros(1), np.full(1, VAGUE))
    for estimate in (0.1, 0.2):
        level.add(estimate, 3e-8)
        track.add(np.array([estimate]), np.array([3e-8]))
    assert level.mean == pytest.approx(0.15)
    assert level.noise == pytest.approx(1.5e-8)
    assert 0.0 < track.noise[0] < 1.0


def test_directions_that_are_added_half_way_are_learned_and_the_others_kept(rng: np.random.Generator) -> None:
    X, more = rng.normal(size=(4000, 5)), rng.normal(size=(4000, 3))
    label = np.clip(0.1 * X[:, 0] + 0.1 * more[:, 0] + 0.03 * rng.normal(size=4000), -0.5, 0.5)
    directions = Directions.of(PublicFeatures(X))
    calls: list[Any] = []

    def widen(coefficients: Any) -> Directions:
        calls.append(coefficients)
        return directions.complement(lambda part: more[part], at_most=3)

    run = run_newton(directions, label, (-0.5, 0.5), np.zeros(6), mu=3.0, generator=rng, widen=widen)
    (before,) = calls
    assert run.rows.shape == (4000, 9)
    assert len(run.coefficients) == len(run.belief.variance) == 9
    exact = run.rows.T @ label / 4000
    assert before == pytest.approx(exact[:6], abs=0.01)  # known before there were others
    assert run.coefficients == pytest.approx(exact, abs=0.005)
    assert run.scales[-1] == pytest.approx(0.03, rel=0.3)

    empty = directions.complement(lambda part: X[part], at_most=3)
    run = run_newton(directions, label, (-0.5, 0.5), np.zeros(6), mu=3.0, generator=rng, widen=lambda _: empty)
    assert len(run.coefficients) == 6


def test_with_hardly_any_budget_it_is_little_worse_than_the_middle(rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 40))
    directions = Directions.of(PublicFeatures(X))
    label = rng.uniform(-0.2, 0.2, size=60)
    errors = []
    for _ in range(50):
        run = run_newton(directions, label, (-0.5, 0.5), np.zeros(41), mu=0.01, generator=rng)
        errors.append(np.mean((np.clip(directions.rows @ run.coefficients, -0.5, 0.5) - label) ** 2))
    # The mean of the labels may lie anywhere, so what noise leaves of it adds to the error; slopes add nothing.
    assert np.mean(errors) < np.mean(label**2) + 0.5 * CONSTANT_VARIANCE


def test_a_watcher_sees_every_release_and_may_end_the_run(rng: np.random.Generator) -> None:
    directions = Directions.of(PublicFeatures(rng.normal(size=(50, 2))))
    seen: list[int] = []

    def watch(number: int, coefficients: Any) -> bool:
        seen.append(number)
        return number == 5

    run = run_newton(directions, np.zeros(50), (-0.5, 0.5), np.zeros(3), mu=1.0, generator=rng, watch=watch)
    assert seen == [1, 2, 3, 4, 5]
    assert (len(run.windows), len(run.scales)) == (3, 5)
