"""Algorithms that protect labels only, and the reference points."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import nnls

from conddp.algorithms import NonPrivate, OneShot, PrivateMean, RandomizedLabels, RROnBins, WeightedLLP
from conddp.algorithms.algorithm import Algorithm
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.errors import BudgetExceeded, NotCalibrated, PrivacyError
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.noise_shape import compute_noise_shape
from conddp.features.spectrum import Spectrum
from conddp.heads.factorization import FactorizationMachine
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.labels.prior import LabelPrior
from conddp.privacy.accounting import calibrate_gaussian_mu, compute_gaussian_delta
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.weighted_sums import count_noisy
from tests.contracts import LABEL_ALGORITHMS, REFERENCES
from tests.silence import SilentCurator
from tests.test_algorithms import dataset

BUDGET = PrivacyBudget(4.0, 1e-5)
PURE = [name for name, algorithm in LABEL_ALGORITHMS.items() if isinstance(algorithm, RandomizedLabels)]


@pytest.mark.parametrize("name", LABEL_ALGORITHMS)
def test_every_label_algorithm_fits_and_pays_once(rng: np.random.Generator, name: str) -> None:
    algorithm = LABEL_ALGORITHMS[name]
    data = dataset(rng, n=2000, private=False)
    ledger = PrivacyLedger(BUDGET)
    result = algorithm.fit(data, BUDGET, random_source=RandomSource.of(0), ledger=ledger)
    predictions = result.model.predict(data.public)
    assert ((predictions >= -6) & (predictions <= 8)).all()
    assert len([entry for entry in ledger.entries if entry.cost.epsilon > 0]) == 1
    assert ledger.spent == algorithm.cost(BUDGET) == result.guarantee.budget
    assert (ledger.spent.delta == 0.0) == (name in PURE)
    again = algorithm.fit(data, BUDGET, random_source=RandomSource.of(0))
    assert np.array_equal(again.model.parameters, result.model.parameters)
    text = str(result.guarantee)
    assert ("is 4-differentially private" in text) == (name in PURE)


@pytest.mark.parametrize("name", [name for name, each in LABEL_ALGORITHMS.items() if each.labels_only])
def test_private_columns_are_refused_before_anything_is_spent(rng: np.random.Generator, name: str) -> None:
    algorithm, ledger = LABEL_ALGORITHMS[name], PrivacyLedger(BUDGET)
    with pytest.raises(PrivacyError, match=r"protects labels only, but columns \['q0', 'q1'\] are private"):
        algorithm.fit(dataset(rng), BUDGET, ledger=ledger)
    assert not ledger.entries


@pytest.mark.parametrize("name", [n for n in LABEL_ALGORITHMS if not n.startswith(("one-shot", "cond-newton"))])
def test_relations_without_a_meaning_are_refused(rng: np.random.Generator, name: str) -> None:
    with pytest.raises(PrivacyError, match="under neighbouring='replace' only"):
        LABEL_ALGORITHMS[name].fit(dataset(rng, private=False), BUDGET, neighbouring=Neighbouring.ZERO_OUT)


@pytest.mark.parametrize("head", [MLP(hidden=(4,)), FactorizationMachine(rank=2)])
def test_randomised_labels_train_any_head(rng: np.random.Generator, head: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.training.released.NUM_STEPS", 300)
    data = dataset(rng, n=1000, private=False)
    result = RROnBins().fit(data, PrivacyBudget(20.0, 0.0), head=head, random_source=RandomSource.of(0))
    error = np.mean((result.model.predict(data.public) - data.label.values) ** 2)
    assert error < 0.5 * np.var(data.label.values)


@pytest.mark.parametrize("algorithm", [WeightedLLP(), OneShot(), PrivateMean()])
def test_linear_algorithms_refuse_other_heads(rng: np.random.Generator, algorithm: Algorithm) -> None:
    with pytest.raises(ValueError, match="head"):
        algorithm.fit(dataset(rng, private=False), BUDGET, head=MLP())


@pytest.mark.parametrize("name", [n for n in LABEL_ALGORITHMS if not n.startswith("weighted-llp")])
def test_a_generous_budget_gives_least_squares(rng: np.random.Generator, name: str) -> None:
    data = dataset(rng, n=4000, private=False)
    optimum = NonPrivate().fit(data, BUDGET).model.predict(data.public)
    unexplained = []
    for seed in range(5):  # binary responses are the noisiest: 0.004 to 0.087 over 40 seeds, half of them below 0.02
        result = LABEL_ALGORITHMS[name].fit(data, PrivacyBudget(40.0, 1e-5), random_source=RandomSource.of(seed))
        unexplained.append(np.mean((result.model.predict(data.public) - optimum) ** 2) / np.var(optimum))
    assert np.mean(unexplained) < 0.05


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_non_private_optimum_is_least_squares_and_says_that_it_is_not_private(
    rng: np.random.Generator, fit_intercept: bool
) -> None:
    data = dataset(rng)
    assert data.private is not None
    result = NonPrivate().fit(data, BUDGET, fit_intercept=fit_intercept)
    rows = np.hstack([data.public.values, data.private.values] + ([np.ones((500, 1))] if fit_intercept else []))
    expected = rows @ np.linalg.lstsq(rows, data.label.values, rcond=None)[0]
    assert result.model.predict(data.public, data.private) == pytest.approx(np.clip(expected, -6, 8), abs=1e-6)
    assert str(result.guarantee).startswith("This model is NOT differentially private")
    with pytest.raises(BudgetExceeded, match="not private at all, and no finite budget covers it"):
        NonPrivate().fit(data, BUDGET, ledger=PrivacyLedger(PrivacyBudget(1e9, 0.5)))


def released_statistics(algorithm: Algorithm, data: Records, neighbouring: Neighbouring) -> Any:
    """Parameters of a fit whose noise is always zero: what the noise is added to."""

    return algorithm.fit(data, BUDGET, neighbouring=neighbouring, curator_class=SilentCurator)


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize(
    "algorithm",
    [OneShot(shrink=False, noise="spherical"), OneShot(shrink=False), PrivateMean()],
    ids=["spherical", "optimal", "mean"],
)
def test_one_release_moves_by_at_most_its_noise_allows(
    rng: np.random.Generator, algorithm: Any, neighbouring: Neighbouring
) -> None:
    # Every record's label is moved from bound to bound (or to the middle, which contributes nothing); the shift of the
    # release, in standard deviations of its noise, is at most mu and for the longest row equal to it.
    X = rng.standard_t(3, size=(60, 3))
    bounds = Bounds(-1, 3)
    y = rng.uniform(-1, 3, size=60)
    public = PublicFeatures(X)
    C = ConditioningMatrix.from_spectrum(Spectrum.of(public))
    Z = C.transform(public)
    shape = np.eye(4)
    if isinstance(algorithm, OneShot) and algorithm.noise == "optimal":
        shape = compute_noise_shape(Z / math.sqrt(60))
    far = bounds.low if neighbouring is Neighbouring.REPLACE else bounds.midpoint
    shifts = []
    for record in range(60):
        thetas = []
        for value in (bounds.high, far):
            changed = y.copy()
            changed[record] = value
            result = released_statistics(algorithm, Records(public, None, Labels(changed, bounds)), neighbouring)
            thetas.append(result.model.parameters)
        (release,) = result.transcript
        deviation = release.noise_std / 60
        assert result.settings["noise_std"] == pytest.approx(deviation, rel=2e-9)
        moved = thetas[0] - thetas[1]  # on the features themselves
        if isinstance(algorithm, PrivateMean):
            shifts.append(abs(moved[-1]) / deviation)
        else:
            shifts.append(np.linalg.norm(np.linalg.solve(shape, C.unfold(moved))) / deviation)
    mu = calibrate_gaussian_mu(BUDGET.epsilon, BUDGET.delta)
    assert max(shifts) <= mu * (1 + 1e-9)
    assert max(shifts) == pytest.approx(mu, rel=1e-5)


@pytest.mark.parametrize("heavy", [False, True])
def test_the_best_noise_shape_is_feasible_optimal_and_better_than_spherical(heavy: bool) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_t(2, size=(2000, 10)) if heavy else rng.normal(size=(2000, 10))
    rows = np.linalg.qr(X)[0]  # whitened: the Gram matrix is the identity
    A = compute_noise_shape(rows, num_rounds=3000, tolerance=1e-3)
    lengths = (np.linalg.solve(A, rows.T) ** 2).sum(axis=0)
    primal = np.trace(A @ A.T) * lengths.max()  # expected error for noise calibrated to the longest row
    spherical = 10 * (rows**2).sum(axis=1).max()
    # Any weights w >= 0 bound every feasible noise from below by (tr (sum w u u')^(1/2))^2 / sum w. Weights that make
    # up Q^2 on the longest rows are found by another solver.
    Q = A @ A.T
    rows = rows[lengths > 0.99 * lengths.max()]
    pairs = (rows[:, :, None] * rows[:, None, :]).reshape(-1, 100)
    weights, misfit = nnls(pairs.T, (Q @ Q).ravel())
    assert misfit < 0.02 * np.linalg.norm(Q @ Q)
    bound = np.sqrt(np.maximum(np.linalg.eigvalsh((rows * weights[:, None]).T @ rows), 0)).sum() ** 2 / weights.sum()
    assert bound <= primal <= 1.01 * bound
    assert primal < (0.7 if heavy else 0.85) * spherical


def test_bags_with_little_noise_give_least_squares(rng: np.random.Generator) -> None:
    data = dataset(rng, n=4000, private=False)
    optimum = NonPrivate().fit(data, BUDGET).model.predict(data.public)
    algorithm = WeightedLLP(noise_scale=0.05, noisy_fraction=0.5)
    result = algorithm.fit(data, PrivacyBudget(1000.0, 1e-5), random_source=RandomSource.of(0))
    assert np.mean((result.model.predict(data.public) - optimum) ** 2) < 0.02 * np.var(optimum)


def test_the_sums_of_bags_move_as_accounted(rng: np.random.Generator) -> None:
    # The bags, weights and noisy labels of a run are public; what is released of them is the noisy sums. Given the
    # weights of a bag, replacing a label by one a whole range away moves its sum by |w| and its noise has deviation
    # s sqrt(sum of squared weights of noisy labels): the mu whose mean delta the accountant integrates.
    algorithm = WeightedLLP(noisy_fraction=0.5)
    bag_size, num_bags = algorithm._plan_bags(20_000, 4, PrivacyBudget(2.0, 1e-4))
    noisy = count_noisy(bag_size, 0.5)
    w = rng.standard_normal((50_000, bag_size))
    own = rng.integers(bag_size, size=50_000)
    mu = np.abs(w[np.arange(50_000), own]) / np.sqrt((w[:, :noisy] ** 2).sum(axis=1))
    deltas = np.array([compute_gaussian_delta(float(each), 2.0) for each in mu])
    assert 0.6 * deltas.mean() <= 1e-4 + 5 * 0.6 * deltas.std() / math.sqrt(50_000)
    assert num_bags * bag_size <= 0.6 * 20_000


def test_too_few_bags_say_what_would_be_needed(rng: np.random.Generator) -> None:
    data = dataset(rng, n=300, private=False)
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    with pytest.raises(NotCalibrated) as caught:
        WeightedLLP().fit(data, PrivacyBudget(1.0, 1e-6), ledger=ledger)
    assert not ledger.entries
    message = str(caught.value)
    assert "bags of 85 labels" in message and "2 bags, fewer than the 4 coefficients" in message
    assert "567 records would be enough; with 300 records, epsilon 1.41 would be enough" in message
    WeightedLLP().fit(dataset(rng, n=567, private=False), PrivacyBudget(1.0, 1e-6))
    WeightedLLP().fit(data, PrivacyBudget(1.42, 1e-6))


def test_the_constant_predictor_is_the_mean_and_nothing_else(rng: np.random.Generator) -> None:
    data = dataset(rng)
    result = PrivateMean().fit(data, PrivacyBudget(50.0, 1e-5), random_source=RandomSource.of(0))
    predictions = result.model.predict(data.public, data.private)
    assert np.ptp(predictions) == 0.0
    assert predictions[0] == pytest.approx(data.label.bounds.clamp(data.label.values).mean(), abs=0.02)
    with pytest.raises(ValueError, match="intercept and nothing else"):
        PrivateMean().fit(data, BUDGET, fit_intercept=False)


def test_recalibration_undoes_shrinkage_where_there_is_signal_and_shrinks_where_there_is_none() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3))
    signal, noise = X @ [0.1, 0.05, 0.0], rng.uniform(-0.5, 0.5, size=20_000)
    for label, better in ((signal, True), (noise, False)):
        data = Records(PublicFeatures(X), None, Labels(label, Bounds(-0.5, 0.5)))
        target = signal if better else np.zeros(20_000)
        errors = []
        for recalibrate in (True, False):
            result = RROnBins(recalibrate=recalibrate).fit(
                data, PrivacyBudget(1.0, 0.0), random_source=RandomSource.of(0)
            )
            errors.append(np.mean((result.model.predict(data.public) - target) ** 2))
        if better:
            assert errors[0] < 0.2 * errors[1]
        else:
            assert errors[0] < 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RandomizedLabels(randomizer="coin"),  # type: ignore[arg-type]  # wrong on purpose
            "randomizer must be one of",
        ),
        (lambda: RROnBins(prior_fraction=0.0), "prior_fraction"),
        (lambda: RROnBins(prior_fraction=1.0), "prior_fraction"),
        (lambda: RROnBins(grid_size=0), "grid_size"),
        (lambda: RROnBins(smoothing=-1.0), "smoothing"),
        (lambda: WeightedLLP(noisy_fraction=0.0), "noisy_fraction"),
        (lambda: WeightedLLP(used_fraction=1.5), "used_fraction"),
        (lambda: WeightedLLP(noise_scale=0.0), "noise_scale"),
        (
            lambda: OneShot(noise="cubic"),  # type: ignore[arg-type]  # wrong on purpose
            "noise must be one of",
        ),
    ],
)
def test_impossible_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", REFERENCES)
def test_references_work_without_private_columns_too(rng: np.random.Generator, name: str) -> None:
    data = dataset(rng, private=False)
    result = REFERENCES[name].fit(data, BUDGET, head=Linear())
    assert np.isfinite(result.model.predict(data.public)).all()


def test_the_smallest_fraction_of_noisy_labels_is_private_all_the_same() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    data = Records(PublicFeatures(X), None, Labels(X @ [1.0, -1.0] + 5, Bounds(0, 10)))
    with pytest.raises(NotCalibrated):
        WeightedLLP(noisy_fraction=1e-10, used_fraction=1.0).fit(data, PrivacyBudget(0.1, 1e-6))


def test_a_known_prior_beyond_the_bounds_is_refused_before_anything_is_spent(rng: np.random.Generator) -> None:
    ledger = PrivacyLedger(BUDGET)
    prior = LabelPrior(np.array([-50.0, 60.0]), np.ones(2))
    for kind in ("bins", "binary", "unbiased"):
        with pytest.raises(ValueError, match="must lie within the label bounds"):
            RandomizedLabels(randomizer=kind, prior=prior).fit(dataset(rng, private=False), BUDGET, ledger=ledger)
    assert not ledger.entries


@pytest.mark.parametrize("name", PURE)
def test_huge_budgets_are_fine(rng: np.random.Generator, name: str) -> None:
    result = LABEL_ALGORITHMS[name].fit(dataset(rng, private=False), PrivacyBudget(1000.0, 0.0))
    assert result.settings["label_epsilon"] <= 16.0


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e10])
def test_labels_far_from_zero_round_no_worse_without_an_intercept(offset: float) -> None:
    rng = np.random.default_rng(1)
    X = 1 + rng.random((400, 1))
    bounds = Bounds(offset, offset + 1)
    y = offset + rng.random(400)
    C = ConditioningMatrix.from_spectrum(Spectrum.of(PublicFeatures(X), constant=False))
    longest = int(np.abs(X[:, 0]).argmax())
    thetas = []
    for value in (bounds.low, bounds.high):
        y[longest] = value
        data = Records(PublicFeatures(X), None, Labels(y.copy(), bounds))
        result = OneShot(shrink=False, noise="spherical").fit(
            data, BUDGET, fit_intercept=False, random_source=RandomSource.for_neighbours(0)
        )
        thetas.append(C.unfold(result.model.parameters))
    moved = abs(float(thetas[1][0] - thetas[0][0])) / result.settings["noise_std"]
    # At 1e10, the last bit of a coefficient is 4e-4 of the noise.
    assert moved == pytest.approx(calibrate_gaussian_mu(BUDGET.epsilon, BUDGET.delta), rel=1e-3)
