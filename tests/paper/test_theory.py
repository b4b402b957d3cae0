"""The theorems: against simulations of Algorithm 1, against brute force, and beside what the paper prints."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from conddp.data.parts import PublicFeatures
from conddp.errors import SchemaError
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.privacy.accounting import compute_gaussian_epsilon
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.theory import (
    bound_convex,
    bound_gradient,
    bound_nonconvex,
    bound_strongly_convex,
    calibrate_noise,
    compute_factors,
    compute_improvement,
    solve_optimum,
)

Vector = NDArray[np.float64]
BUDGET = PrivacyBudget(1.0, 1e-6)


def make_design(rng: np.random.Generator, n: int = 200) -> tuple[Vector, Vector]:
    """Ill-conditioned rows and labels that follow them."""
    X = rng.normal(size=(n, 4)) @ np.diag([1.0, 0.5, 0.2, 0.1])
    return X, X @ [0.5, -1.0, 2.0, 1.0] + 0.3 * rng.normal(size=n)


def matrices(X: Vector) -> dict[str, Vector]:
    """Conditioning matrices C, to be applied as C x: none, the paper's, and one in between."""
    _, S, Vt = np.linalg.svd(X, full_matrices=False)
    return {
        "none": np.eye(X.shape[1]),
        "paper": (Vt.T / S) @ Vt,
        "root": (Vt.T / np.sqrt(S)) @ Vt,
    }


def descend(
    gradient: Callable[[Vector], Vector],
    C: Vector,
    *,
    rates: Vector,
    noise: float,
    runs: int,
    rng: np.random.Generator,
) -> tuple[Vector, Vector]:
    """Algorithm 1: all iterates at which gradients are taken, and their mean, as weights on the features themselves."""
    d = len(C)
    theta, path = np.zeros((runs, d)), []
    for rate in rates:
        path.append(theta @ C)
        step = gradient(theta @ C) @ C.T + noise * rng.normal(size=theta.shape)
        theta = theta - rate * step
    iterates = np.array(path)
    return iterates.mean(axis=0), iterates


def huber(residual: Vector) -> Vector:
    return np.where(np.abs(residual) < 0.5, residual**2, np.abs(residual) - 0.25)


def test_the_noise_of_the_privacy_theorem_gives_its_epsilon() -> None:
    for neighbouring, factor in ((Neighbouring.REPLACE, 2.0), (Neighbouring.ZERO_OUT, 1.0)):
        noise = calibrate_noise(3.0, 50, 1000, BUDGET, neighbouring=neighbouring)
        mu = factor * 3.0 / 1000 * math.sqrt(50) / noise.value
        assert compute_gaussian_epsilon(mu, 1e-6) == pytest.approx(1.0, rel=1e-6)
    assert noise.printed is not None and noise.printed < noise.value


def test_gradients_reach_their_bound_and_two_records_are_two_bounds_apart(rng: np.random.Generator) -> None:
    """Replacement moves a sum by 2M, where the theorem prints M."""
    X, _ = make_design(rng)
    C = matrices(X)["paper"]
    rows = X @ C.T
    bound = bound_gradient(float(np.sqrt((rows**2).sum(axis=1).max())))
    longest = rows[(rows**2).sum(axis=1).argmax()]
    residuals = rng.normal(size=1000) * 10
    slopes = np.clip(2 * residuals, -1.0, 1.0)  # of the Huber loss
    gradients = slopes[:, None] * longest
    norms = np.sqrt((gradients**2).sum(axis=1))
    assert norms.max() == pytest.approx(bound.value)
    farthest = np.linalg.norm(gradients[slopes.argmax()] - gradients[slopes.argmin()])
    assert farthest == pytest.approx(2 * bound.value)
    whole = bound_gradient(3.0, slope=2.0, private_slope=4.0, longest_private=0.5, top_slope=1.0)
    assert whole.value == pytest.approx(math.sqrt(36 + 4 + 1))


@pytest.mark.parametrize("kind", ["none", "paper", "root"])
@pytest.mark.parametrize("num_steps", [10, 100])
def test_runs_stay_below_the_convex_bound(rng: np.random.Generator, kind: str, num_steps: int) -> None:
    X, y = make_design(rng)
    n, d = X.shape
    C = matrices(X)[kind]

    def loss(weights: Vector) -> Vector:
        return huber(weights @ X.T - y).mean(axis=-1)

    def objective(weights: Vector) -> float:
        return float(loss(weights))

    best = minimize(objective, np.zeros(d), method="BFGS", tol=1e-10)
    optimum = best.x
    longest = float(np.sqrt(((X @ C.T) ** 2).sum(axis=1).max()))
    M = bound_gradient(longest).value
    distance = float(np.linalg.norm(np.linalg.solve(C.T, optimum)))
    noise = calibrate_noise(M, num_steps, n, BUDGET).value
    bound = bound_convex(M, distance, noise=noise, num_parameters=d, num_steps=num_steps)

    def gradient(weights: Vector) -> Vector:
        return np.clip(2 * (weights @ X.T - y), -1.0, 1.0) @ X / n

    rates = np.full(num_steps, bound.terms["learning rate"])
    output, _ = descend(gradient, C, rates=rates, noise=noise, runs=200, rng=rng)
    excess = loss(output).mean() - best.fun
    assert 0 < excess <= bound.value
    assert bound.value < 40 * excess + 10 * best.fun  # not vacuous by orders of magnitude
    assert bound.value == pytest.approx(math.hypot(bound.terms["optimisation"], bound.terms["privacy"]))


def test_noise_has_the_same_size_in_the_norm_of_every_conditioning(rng: np.random.Generator) -> None:
    """The step of the proof that makes the privacy term d sigma^2, whatever C is."""
    X, _ = make_design(rng)
    for C in matrices(X).values():
        noise = 0.7 * rng.normal(size=(20_000, 4))
        moved = noise @ C  # W b with W = C^T
        lengths = np.einsum("ij,jk,ik->i", moved, np.linalg.inv(C.T @ C), moved)
        assert lengths.mean() == pytest.approx(4 * 0.49, rel=0.03)


def test_runs_stay_below_the_strongly_convex_bound(rng: np.random.Generator) -> None:
    X, y = make_design(rng)
    n, d = X.shape
    gram = 2 * X.T @ X / n + 0.1 * np.eye(d)
    optimum = np.linalg.solve(gram, 2 * X.T @ y / n)
    eigenvalues = np.linalg.eigvalsh(gram)
    num_steps, noise = 300, 0.02
    for C in matrices(X).values():
        scales = np.linalg.svd(C, compute_uv=False)
        low = scales[-1] ** 2

        def gradient(weights: Vector) -> Vector:
            return weights @ gram - 2 * X.T @ y / n

        rates = 1 / (eigenvalues[0] * low * np.arange(1, num_steps + 1))
        output, iterates = descend(gradient, C, rates=rates, noise=noise, runs=100, rng=rng)
        M = float(np.sqrt(((gradient(iterates) @ C.T) ** 2).sum(axis=-1).max()))  # what the run did meet
        bound = bound_strongly_convex(
            M,
            smoothness=float(eigenvalues[-1]),
            convexity=float(eigenvalues[0]),
            largest_scale=float(scales[0]),
            smallest_scale=float(scales[-1]),
            noise=noise,
            num_parameters=d,
            num_steps=num_steps,
        )
        gap = output - optimum
        excess = 0.5 * np.einsum("ij,jk,ik->i", gap, gram, gap).mean()
        assert excess <= bound.value
        printed = (scales[0] / scales[-1]) ** 2 * max(scales[0] ** 2, scales[-1] ** -2.0)
        assert bound.terms["K"] <= printed * (1 + 1e-12)


def test_the_printed_learning_rate_does_not_keep_the_printed_bound() -> None:
    """With C = I / 20 a rate of 1 / (mu t) hardly moves; the rate of the proof has lambda_min in it."""
    num_steps, scale, target = 4000, 0.05, 3.0
    C = np.array([[scale]])

    def run(factor: float) -> float:
        rates = factor / np.arange(1, num_steps + 1)
        output, _ = descend(
            lambda weights: weights - target, C, rates=rates, noise=0.0, runs=1, rng=np.random.default_rng(0)
        )
        return float(0.5 * (output[0, 0] - target) ** 2)

    bound = bound_strongly_convex(
        scale * target,
        smoothness=1.0,
        convexity=1.0,
        largest_scale=scale,
        smallest_scale=scale,
        noise=0.0,
        num_parameters=1,
        num_steps=num_steps,
    )
    assert bound.printed is not None
    assert run(1.0) > bound.printed
    assert run(1 / scale**2) < bound.value <= bound.printed


def test_parameters_beside_the_public_ones_count_in_the_eigenvalues() -> None:
    for largest, smallest, constant in ((0.5, 0.1, 1.0 / 0.01**2), (5.0, 2.0, 25.0)):
        bound = bound_strongly_convex(
            1.0,
            smoothness=1.0,
            convexity=1.0,
            largest_scale=largest,
            smallest_scale=smallest,
            noise=0.0,
            num_parameters=2,
            num_steps=10,
            other_blocks=True,
        )
        assert bound.terms["K"] == pytest.approx(constant)


def run_nonconvex(
    rng: np.random.Generator, C: Vector, X: Vector, y: Vector, *, num_steps: int, noise: float, runs: int
) -> tuple[float, float, float, float]:
    """Mean squared gradient in the norm of W W^T; M, L_0 and the smoothness, for the loss r^2 / (1 + r^2)."""
    n = len(X)

    def gradient(weights: Vector) -> Vector:
        r = weights @ X.T - y
        return (2 * r / (1 + r**2) ** 2) @ X / n

    rows = X @ C.T
    smoothness = 2 * float(np.linalg.eigvalsh(rows.T @ rows / n)[-1])
    M = 3 * math.sqrt(3) / 8 * float(np.sqrt((rows**2).sum(axis=1).max()))
    rates = np.full(num_steps, 1 / (smoothness * math.sqrt(num_steps)))
    _, iterates = descend(gradient, C, rates=rates, noise=noise, runs=runs, rng=rng)
    lengths = ((gradient(iterates) @ C.T) ** 2).sum(axis=-1).mean()
    return float(lengths), M, float((y**2 / (1 + y**2)).mean()), smoothness


@pytest.mark.parametrize("kind", ["none", "paper", "root"])
def test_runs_stay_below_the_nonconvex_bound(rng: np.random.Generator, kind: str) -> None:
    X, y = make_design(rng)
    C = matrices(X)[kind]
    for num_steps in (5, 50):
        M = 3 * math.sqrt(3) / 8 * float(np.sqrt(((X @ C.T) ** 2).sum(axis=1).max()))
        noise = calibrate_noise(M, num_steps, len(X), BUDGET).value
        measured, M, start, smoothness = run_nonconvex(rng, C, X, y, num_steps=num_steps, noise=noise, runs=100)
        bound = bound_nonconvex(M, start, smoothness=smoothness, noise=noise, num_parameters=4, num_steps=num_steps)
        assert measured <= bound.value  # L* is at least 0


def test_the_printed_nonconvex_bound_is_broken_by_many_noisy_steps() -> None:
    """Its privacy term falls with T; what is measured grows. The start is the optimum."""
    rng = np.random.default_rng(1)
    X, y = np.eye(40)[rng.integers(40, size=200)] * 0.2, np.zeros(200)
    measured = []
    for num_steps in (100, 1600, 25_600):
        noise = 0.008 * math.sqrt(num_steps)
        lengths, M, start, smoothness = run_nonconvex(
            rng, 20 * np.eye(40), X, y, num_steps=num_steps, noise=noise, runs=2
        )
        bound = bound_nonconvex(M, start, smoothness=smoothness, noise=noise, num_parameters=40, num_steps=num_steps)
        assert lengths <= bound.value
        measured.append(lengths)
    assert measured[0] < measured[1] < measured[2]
    assert bound.printed is not None and measured[2] > 1.2 * bound.printed


def test_the_optimum_is_least_squares_and_the_printed_one_is_not(rng: np.random.Generator) -> None:
    X, y = make_design(rng)
    Q = rng.normal(size=(200, 2)) + X[:, :2]
    y = y + Q @ [1.0, -2.0]
    expected = np.linalg.lstsq(np.hstack([X, Q]), y, rcond=None)[0]
    found = solve_optimum(X, y, Q)
    np.testing.assert_allclose(np.concatenate([found.public, found.private]), expected, rtol=1e-9)
    assert np.abs(found.printed_public - found.public).max() > 0.1
    U, S, Vt = np.linalg.svd(X, full_matrices=False)
    np.testing.assert_allclose(Vt.T @ (found.projected_label / S), found.public)
    alone = solve_optimum(X, y)
    np.testing.assert_allclose(alone.public, np.linalg.lstsq(X, y, rcond=None)[0])
    np.testing.assert_array_equal(alone.public, alone.printed_public)
    np.testing.assert_allclose(alone.projected_label, U.T @ y)
    for singular in (np.ones((5, 2)), rng.normal(size=(3, 5)), np.empty((5, 0))):
        with pytest.raises(SchemaError, match="full rank"):
            solve_optimum(singular, np.ones(len(singular)))
    with pytest.raises(SchemaError, match="not unique"):
        solve_optimum(X, y, X[:, :1])


def test_the_mean_that_algorithm_1_prints_can_break_the_convex_bound() -> None:
    """It leaves out the start and takes in the last iterate; the proof is about the iterates with gradients."""
    angle = 2 * math.asin(0.25)
    pieces = np.array([[0.0, 1.0], [math.sin(angle), -math.cos(angle)]])
    start = np.array([math.sqrt(15 / 16), 0.25])

    def loss(theta: Vector) -> float:
        return max(float((pieces @ theta).max()), 0.0)

    bound = bound_convex(1.0, 1.0, noise=0.0, num_parameters=2, num_steps=1)
    gradient = pieces[(pieces @ start).argmax()]
    after = start - bound.terms["learning rate"] * gradient
    assert np.linalg.norm(start) == pytest.approx(1.0) and np.linalg.norm(gradient) == pytest.approx(1.0)
    assert loss(start) <= bound.value  # the mean of the one iterate with a gradient
    assert loss(after) > 1.1 * bound.value  # the mean of what is printed


def test_factors_are_those_of_the_bound_and_their_product_ignores_the_scale_of_c(rng: np.random.Generator) -> None:
    X, y = make_design(rng)
    public, optimum = PublicFeatures(X), solve_optimum(X, y)
    C = ConditioningMatrix.from_spectrum(Spectrum.of(public, constant=False))
    longest, distance = compute_factors(public, C, optimum.public)
    U, _, _ = np.linalg.svd(X, full_matrices=False)
    leverage = (U**2).sum(axis=1).max()
    assert longest == pytest.approx(math.sqrt(len(X) * leverage))
    assert distance == pytest.approx(np.linalg.norm(optimum.projected_label) / math.sqrt(len(X)))
    doubled = ConditioningMatrix(2 * C.matrix, C.inverse / 2, False)
    assert math.prod(compute_factors(public, doubled, optimum.public)) == pytest.approx(longest * distance)
    start = C.unfold(optimum.public)
    assert compute_factors(public, C, optimum.public, start)[1] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("exponent", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("constant", [False, True])
def test_the_improvement_is_the_ratio_of_the_factors_and_lies_between_its_extremes(
    rng: np.random.Generator, exponent: float, constant: bool
) -> None:
    X, y = make_design(rng)
    public = PublicFeatures(X + (3.0 if constant else 0.0))
    spectrum = Spectrum.of(public, constant=constant)
    C = ConditioningMatrix.from_spectrum(spectrum, exponent=exponent)
    plain = ConditioningMatrix.identity(spectrum)
    A = np.column_stack([public.values, np.ones(len(X))]) if constant else public.values
    U, S, Vt = np.linalg.svd(A, full_matrices=False)
    found = []
    for label in (y, *rng.normal(size=(20, len(X))), U[:, 0], U[:, -1]):
        optimum = Vt.T @ (U.T @ label / S)
        ratio = math.prod(compute_factors(public, plain, optimum)) / math.prod(compute_factors(public, C, optimum))
        improvement = compute_improvement(public, conditioning=C, label=label, constant=constant)
        assert improvement.exact_actual == pytest.approx(ratio, rel=1e-6)
        assert improvement.exact_worst * (1 - 1e-9) <= ratio <= improvement.exact_best * (1 + 1e-9)
        found.append(ratio)
    if exponent == 1.0:  # the extremes are reached at the singular directions
        assert found[-1] == pytest.approx(improvement.exact_best)
        assert found[-2] == pytest.approx(improvement.exact_worst)
        along = U.T @ y
        paper = math.sqrt(((along * S[0] / S) ** 2).sum() / (along**2).sum())
        assert compute_improvement(public, label=y, constant=constant).actual == pytest.approx(paper)
        assert improvement.best == pytest.approx(S[0] / S[-1])


def test_the_paper_bounds_row_norms_loosely(rng: np.random.Generator) -> None:
    X, _ = make_design(rng, n=2000)
    U, S, _ = np.linalg.svd(X, full_matrices=False)
    assert (U**2).sum(axis=1).max() < 0.05  # the paper says at most 1
    assert np.sqrt((X**2).sum(axis=1).max()) < S[0] / 5  # the paper says at most sigma_max


def test_sentences_say_what_the_factor_means(rng: np.random.Generator) -> None:
    even = PublicFeatures(np.linalg.qr(rng.normal(size=(400, 3)))[0])
    assert "nearly conditioned as they are" in compute_improvement(even).describe()
    X, _ = make_design(rng)
    assert (
        "times larger for labels along the strongest"
        in compute_improvement(PublicFeatures(X * [1, 1, 1, 1e-3])).describe()
    )


def compute_cost(public: PublicFeatures, C: ConditioningMatrix) -> float:
    Z = C.transform(public)
    return float((Z**2).sum(axis=1).max() * np.trace(np.linalg.inv(Z.T @ Z)))


@pytest.mark.parametrize("constant", [False, True])
def test_the_optimal_matrix_beats_the_papers_and_its_neighbours(rng: np.random.Generator, constant: bool) -> None:
    X = rng.standard_t(2.5, size=(500, 4)) @ rng.normal(size=(4, 4))
    public = PublicFeatures(X)
    C = ConditioningMatrix.optimal(public, constant=constant)
    Z = C.transform(public)
    assert (Z**2).mean() == pytest.approx(1.0)
    weights = rng.normal(size=C.num_parameters)
    np.testing.assert_allclose(C.unfold(C.fold(weights)), weights)
    best = compute_cost(public, C)
    assert best < 0.75 * compute_cost(public, ConditioningMatrix.from_spectrum(Spectrum.of(public, constant=constant)))
    for _ in range(30):
        size = C.num_parameters
        nudge = np.eye(size) + 0.05 * rng.normal(size=(size, size))
        other = ConditioningMatrix(C.matrix @ nudge, np.linalg.inv(nudge) @ C.inverse, constant)
        assert compute_cost(public, other) > best * 0.985
