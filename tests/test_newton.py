import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import ndtr

from conddp.data.parts import PublicFeatures
from conddp.data.passes import BLOCK_SIZE
from conddp.features.whitening import WhitenedRows
from conddp.losses import Squared
from conddp.newton.clipping_bias import ClippingBias
from conddp.newton.posterior import ResidualScale, RunningMean, UnclampedMean
from conddp.newton.prior import CONSTANT_VARIANCE, VAGUE, Posterior
from conddp.newton.release import ResidualQuery, StepEstimate, release_residuals
from conddp.newton.run import run_newton
from conddp.newton.schedule import CANDIDATES, NewtonPlan, allot_weights, choose_clip_norm
from conddp.privacy.bounded_sum import bound_rounding
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator
from conddp.privacy.transcript import GaussianRelease
from tests.silence import SilentCurator


def ask(rows: Any, label: Any, coefficients: Any, *, curator: Curator | None = None, **changes: Any) -> StepEstimate:
    query: dict[str, Any] = {
        "clip_norm": 0.2,
        "direction_weights": np.full(rows.shape[1], 1 / rows.shape[1]),
        "residual_std": 0.1,
        "square_limit": 0.4,
        "square_weight": 0.5,
    }
    n, k = rows.shape
    return release_residuals(
        WhitenedRows(rows, np.ones(k), np.eye(k), has_constant=False),
        label,
        (-0.5, 0.5),
        coefficients,
        ResidualQuery(**{**query, **changes}),
        mu=1.0,
        neighbouring=Neighbouring.REPLACE,
        curator=curator or SilentCurator(np.random.default_rng(0), num_records=n),
        loss=Squared(),
    )


def get_release(curator: Curator) -> GaussianRelease:
    """The only release of a curator."""
    (release,) = curator.transcript
    assert isinstance(release, GaussianRelease) and release.count == 1
    return release


def test_a_release_without_noise_is_the_mean_of_clamped_residuals_times_rows(rng: np.random.Generator) -> None:
    n = BLOCK_SIZE + 100
    rows, label, theta = rng.normal(size=(n, 3)), rng.uniform(-0.5, 0.5, size=n), np.array([0.1, -0.1, 0.05])
    weights, curator = np.array([0.7, 0.3, 0.0]), SilentCurator(rng, num_records=n)
    answer = ask(rows, label, theta, direction_weights=weights, curator=curator)
    residuals = label - rows @ theta
    limits = 0.2 / np.sqrt(rows**2 @ weights)
    expected = (np.clip(residuals, -limits, limits)[:, None] * rows).mean(axis=0)
    assert answer.step == pytest.approx([expected[0], expected[1], 0.0], abs=1e-12)
    assert answer.mean_square == pytest.approx(np.minimum(residuals**2, 0.16).mean())
    assert np.isinf(answer.noise_variance[2])
    assert answer.noise_variance[:2] == pytest.approx((get_release(curator).noise_std / n) ** 2 / weights[:2])


def test_noise_is_as_large_as_it_says(rng: np.random.Generator) -> None:
    rows, label = rng.normal(size=(20, 3)), rng.uniform(-0.5, 0.5, size=20)
    silent, noisy = SilentCurator(rng, num_records=20), Curator(rng, num_records=20)
    exact = ask(rows, label, np.zeros(3), curator=silent)
    answers = [ask(rows, label, np.zeros(3), curator=noisy) for _ in range(4000)]
    scores = np.stack([(answer.step - exact.step) / np.sqrt(answer.noise_variance) for answer in answers])
    squares = [(a.mean_square - exact.mean_square) / a.mean_square_std for a in answers]
    assert np.cov(np.column_stack([scores, squares]).T) == pytest.approx(np.eye(4), abs=0.1)
    assert np.mean(scores, axis=0) == pytest.approx(np.zeros(3), abs=0.07)
    release = get_release(silent)
    assert release.noise_std == release.sensitivity * (1 + bound_rounding(20))  # mu = 1
    assert len(noisy.transcript) == 4000


def test_curvature_is_the_fraction_of_a_newton_step_that_clamping_leaves(rng: np.random.Generator) -> None:
    n, k = 200_000, 2
    rows = rng.normal(size=(n, k))
    truth = np.array([0.004, -0.004])  # small, so that the clamped mean is linear in it
    label = np.clip(rows @ truth + rng.normal(scale=0.1, size=n), -0.5, 0.5)
    answer = ask(rows, label, np.zeros(k), clip_norm=0.05)
    assert answer.step / answer.curvature == pytest.approx(truth, abs=4 * 0.1 / math.sqrt(n) / answer.curvature.min())


def test_the_clip_norm_has_the_least_expected_error_of_all_candidates(rng: np.random.Generator) -> None:
    for _ in range(50):
        k = int(rng.integers(1, 30))
        variance = rng.lognormal(-8, 2, size=k)
        bias, unit_std = ClippingBias(rng.uniform(0.001, 0.3), rng.uniform(0, 3)), 10.0 ** rng.uniform(-5, 0)
        chosen = choose_clip_norm(Posterior(np.zeros(k), variance), bias, unit_std)

        def expect(clip_norm: float, v: Any = variance, b: ClippingBias = bias, u: float = unit_std) -> float:
            noise_variance = (clip_norm * u / (2 * ndtr(clip_norm / b.residual_std) - 1)) ** 2
            left = float((v * noise_variance / (v * allot_weights(v, noise_variance) + noise_variance)).sum())
            return left + float(b.expect(clip_norm, kept=1 - left / float(v.sum())))

        errors = [expect(float(each)) for each in CANDIDATES * bias.residual_std]
        assert expect(chosen) == pytest.approx(min(errors), rel=1e-12)
        assert chosen in CANDIDATES * bias.residual_std


def test_direction_weights_leave_the_least_error(rng: np.random.Generator) -> None:
    for _ in range(20):
        variance, noise = rng.lognormal(sigma=1.5, size=4), rng.lognormal(sigma=1.5)
        weights = allot_weights(variance, noise)

        def error(x: Any, v: Any = variance, s: float = noise) -> float:
            fractions = np.exp(x) / np.exp(x).sum()
            return float((v * s / (v * fractions + s)).sum())

        found = minimize(error, np.zeros(4), method="Nelder-Mead", options={"maxiter": 20_000, "xatol": 1e-10})
        assert weights.sum() == pytest.approx(1.0)
        assert (variance * noise / (variance * weights + noise)).sum() <= found.fun * (1 + 1e-6)


def test_clip_norms_shrink_with_noise_and_never_all_at_once() -> None:
    posterior, bias = Posterior(np.zeros(10), np.full(10, 0.002)), ClippingBias(0.1)
    clip_norms = [choose_clip_norm(posterior, bias, unit) for unit in (1e-5, 1e-2, 1.0)]
    assert clip_norms[0] > clip_norms[1] > clip_norms[2] >= 0.035 - 1e-12
    assert choose_clip_norm(posterior, bias, 1.0, at_least=0.3) == 0.3
    assert choose_clip_norm(posterior, ClippingBias(10.0), 1e-9, at_most=2.0) == 2.0


def test_the_scale_follows_measurements_as_far_as_they_are_precise() -> None:
    vague, exact = ResidualScale.of(0.04, 10.0), ResidualScale.of(0.04, 1e-4)
    assert exact.mean_square == pytest.approx(0.04, rel=0.03)
    assert vague.residual_std == pytest.approx(0.12, rel=0.2)
    assert ResidualScale.of(-5.0, 0.01).mean_square > 0
    exact.update(0.01, 1e-6)
    assert exact.mean_square == pytest.approx(0.01, rel=1e-3)
    exact.update(-1.0, 1e-6)
    assert exact.mean_square == pytest.approx(0.15 * 0.01, rel=1e-3)


def test_fractions_of_the_budget_add_up_to_one() -> None:
    for plan in (NewtonPlan(), NewtonPlan(num_steps=1), NewtonPlan(num_steps=100, growth=1.3, opening_fraction=0.2)):
        for num_records, num_steps in ((100, 12), (5000, 24), (1_000_000, 12)):
            fractions = plan.divide_budget(num_records)
            assert len(fractions) == (plan.num_steps or num_steps) + 2
            assert math.fsum(fractions) == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(ValueError, match="num_steps"):
        NewtonPlan(num_steps=0)
    with pytest.raises(ValueError, match="growth"):
        NewtonPlan(growth=1e40)
    with pytest.raises(ValueError, match="opening_fraction"):
        NewtonPlan(opening_fraction=0.9)


@pytest.mark.parametrize("constant", [True, False])
def test_with_hardly_any_noise_it_is_least_squares(rng: np.random.Generator, constant: bool) -> None:
    X = rng.normal(size=(3000, 4)) @ rng.normal(size=(4, 4))
    label = np.clip(X @ [0.02, 0.01, -0.02, 0.0] + 0.1 * constant + rng.normal(scale=0.05, size=3000), -0.5, 0.5)
    rows = WhitenedRows.of(PublicFeatures(X), constant=constant)
    start = np.zeros(rows.num_directions)
    run = run_newton(rows, label, (-0.5, 0.5), start, mu=100.0, curator=Curator(rng, num_records=3000))
    exact = rows.values.T @ label / 3000
    assert np.sum((run.coefficients - exact) ** 2) < 1e-3 * np.sum((label - rows.values @ exact) ** 2) / 3000
    assert run.residual_stds[-1] == pytest.approx(0.05, rel=0.1)


def make_skewed(rng: np.random.Generator) -> tuple[WhitenedRows, Any]:
    """Exponential labels in a range that is eight times as wide as their standard deviation."""
    X = rng.normal(size=(5000, 5))
    label = -0.5 + 0.1 * np.exp(0.4 * X[:, 0] - 0.2 * X[:, 1]) * rng.exponential(size=5000)
    return WhitenedRows.of(PublicFeatures(X)), np.minimum(label, 0.5)


def test_with_more_budget_skewed_labels_lead_to_least_squares(rng: np.random.Generator) -> None:
    rows, label = make_skewed(rng)
    exact, errors, widest = rows.values.T @ label / 5000, [], []
    variance = np.mean((label - rows.values @ exact) ** 2)
    for mu in (0.2, 2.0, 20.0, 200.0):
        run = run_newton(rows, label, (-0.5, 0.5), np.zeros(6), mu=mu, curator=Curator(rng, num_records=5000))
        errors.append(float(np.sum((run.coefficients - exact) ** 2) / variance))
        widest.append(max(run.clip_norms))
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[2] < 1e-4  # with clip norms up to half of the range the bias alone is 1e-3
    assert errors[3] < 1e-5
    assert widest[0] < widest[2]


def test_the_interval_of_a_measurement_holds_least_squares_on_skewed_labels(rng: np.random.Generator) -> None:
    rows, label = make_skewed(rng)
    exact = rows.values.T @ label / 5000
    for mu in (0.1, 0.5, 2.0, 10.0):
        hits, alone = [], []
        for _ in range(20):
            found = run_newton(
                rows, label, (-0.5, 0.5), np.zeros(6), mu=mu, curator=Curator(rng, num_records=5000)
            ).measurement
            error = np.abs(found.mean - exact)
            hits.append(error < 1.96 * np.sqrt(found.noise_variance + found.bias_variance))
            alone.append(error < 1.96 * np.sqrt(found.noise_variance))
        # The range is wide enough for labels that are not skewed, so at a small budget too little bias is expected.
        assert np.mean(hits) > (0.7 if mu == 0.1 else 0.85), mu
        assert np.mean(hits) > np.mean(alone)


def test_the_constant_stays_near_the_mean_of_skewed_labels(rng: np.random.Generator) -> None:
    X = rng.normal(size=(5000, 20))
    rows = WhitenedRows.of(PublicFeatures(X))
    label = np.clip(-0.4 + 0.03 * np.exp(0.3 * X[:, 0]) * rng.exponential(size=5000), -0.5, 0.5)
    misses = []
    for _ in range(20):
        run = run_newton(rows, label, (-0.5, 0.5), np.zeros(21), mu=0.1, curator=Curator(rng, num_records=5000))
        residuals = label - rows.values @ run.coefficients
        misses.append(residuals.mean() / residuals.std())
    assert abs(np.mean(misses)) < 0.1  # clamped steps alone end at 0.14, the median is at 0.3


def test_the_constant_is_the_mean_of_labels_at_the_ends_of_the_range(rng: np.random.Generator) -> None:
    label = np.where(rng.uniform(size=20_000) < 0.1, 0.5, -0.5)
    rows = WhitenedRows.of(PublicFeatures(rng.normal(size=(20_000, 2))))
    runs = [
        run_newton(rows, label, (-0.5, 0.5), np.zeros(3), mu=1.0, curator=Curator(rng, num_records=20_000))
        for _ in range(5)
    ]
    assert np.mean([run.coefficients[0] for run in runs]) == pytest.approx(label.mean(), abs=0.01)


def test_precise_measurements_are_averaged_and_the_first_is_not_taken_for_exact() -> None:
    unclamped = UnclampedMean()
    running = RunningMean(np.zeros(1), np.full(1, VAGUE))
    for estimate in (0.1, 0.2):
        unclamped.add(estimate, 3e-8)
        running.add(np.array([estimate]), np.array([3e-8]))
    assert unclamped.mean == pytest.approx(0.15)
    assert unclamped.variance == pytest.approx(1.5e-8)
    assert 0.0 < running.variance[0] < 1.0


def test_with_hardly_any_budget_it_is_little_worse_than_the_middle(rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 40))
    rows = WhitenedRows.of(PublicFeatures(X))
    label = rng.uniform(-0.2, 0.2, size=60)
    errors = []
    for _ in range(50):
        run = run_newton(rows, label, (-0.5, 0.5), np.zeros(41), mu=0.01, curator=Curator(rng, num_records=60))
        errors.append(np.mean((np.clip(rows.values @ run.coefficients, -0.5, 0.5) - label) ** 2))
    # The mean of the labels may lie anywhere, so what noise leaves of it adds to the error; slopes add nothing.
    assert np.mean(errors) < np.mean(label**2) + 0.5 * CONSTANT_VARIANCE


def test_a_callback_sees_every_release_and_may_end_the_run(rng: np.random.Generator) -> None:
    rows = WhitenedRows.of(PublicFeatures(rng.normal(size=(50, 2))))
    seen: list[int] = []

    def watch(number: int, coefficients: Any) -> bool:
        seen.append(number)
        return number == 5

    run = run_newton(
        rows, np.zeros(50), (-0.5, 0.5), np.zeros(3), mu=1.0, curator=Curator(rng, num_records=50), callback=watch
    )
    assert seen == [1, 2, 3, 4, 5]
    assert (len(run.clip_norms), len(run.residual_stds)) == (3, 5)
