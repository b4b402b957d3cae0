"""CondNewton as an algorithm: all heads, both relations, with and without an intercept; and the choice by Auto."""

import math
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest

import conddp.newton.release
from conddp import (
    MLP,
    Auto,
    CondNewton,
    FactorizationMachine,
    Labels,
    Neighbouring,
    PrivacyBudget,
    PrivacyLedger,
    PrivateFeatures,
    PrivateMean,
    PublicFeatures,
    Records,
    Wide,
)
from conddp.algorithms import CondDP, NonPrivate, RROnBins
from conddp.bounds import Bounds
from conddp.data.scaling import PrivateSpan, largest_private, scale_bounds, scale_label, scale_private
from conddp.errors import PrivacyError
from conddp.features.random_features import RandomFeatures
from conddp.features.whitening import WhitenedRows
from conddp.heads.head import Head, Linearity
from conddp.heads.linear import Linear
from conddp.labels.simulation import FAMILIES, Family, simulate
from conddp.newton.private_columns import PrivateRows, release_moments
from conddp.privacy.accounting import compute_gaussian_epsilon
from conddp.privacy.composition import compute_delta
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.privacy.transcript import GaussianRelease
from conddp.training.distillation import Student, mix_rows
from conddp.training.loop import Progress
from tests.test_algorithms import dataset

BUDGET = PrivacyBudget(2.0, 1e-5)


def bent(rng: np.random.Generator, n: int = 3000) -> Records:
    """A label that no linear model explains."""
    X = rng.normal(size=(n, 3)) * [1.0, 20.0, 0.01] + [0.0, 300.0, 5.0]
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = 4 + np.abs(Z[:, 0]) + np.sin(2 * Z[:, 1]) + 0.1 * rng.normal(size=n)
    return Records(PublicFeatures(X), None, Labels(y, Bounds(0, 9)))


@pytest.mark.parametrize("head", [Wide(), MLP(), MLP(hidden=(12,), activation="tanh"), FactorizationMachine()])
def test_other_heads_bend_where_a_linear_one_cannot(rng: np.random.Generator, head: Head) -> None:
    data = bent(rng)
    errors = {}
    for each in (Linear(), head):
        result = CondNewton().fit(data, BUDGET, head=each, random_source=RandomSource.of(0))
        errors[each] = np.mean((result.model.predict(data.public) - data.label.values) ** 2)
        assert result.model.head == each
    assert errors[head] < 0.7 * errors[Linear()]


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_guarantee_is_what_was_asked_for(
    rng: np.random.Generator, neighbouring: Neighbouring, fit_intercept: bool
) -> None:
    ledger = PrivacyLedger(BUDGET, neighbouring=neighbouring)
    result = CondNewton().fit(
        dataset(rng, private=False), BUDGET, neighbouring=neighbouring, fit_intercept=fit_intercept, ledger=ledger
    )
    assert ledger.spent == result.guarantee.budget == BUDGET
    releases = [release for release in result.transcript if isinstance(release, GaussianRelease)]
    mu = math.sqrt(sum(release.mu**2 for release in releases))
    assert len(result.transcript) == sum(release.count for release in releases) == 14
    assert compute_gaussian_epsilon(mu, 1e-5) == pytest.approx(2.0, rel=1e-6)
    assert compute_delta(result.transcript, 2.0, neighbouring) <= 1e-5
    assert "14 full-batch Gaussian releases were accounted exactly" in str(result.guarantee)
    assert [entry.cost.epsilon for entry in ledger.entries] == [0.0, 2.0]


def test_a_model_through_the_origin_is_found_far_from_it(rng: np.random.Generator) -> None:
    X = rng.uniform(1, 2, size=(4000, 2))
    y = X @ [300.0, 500.0] + rng.normal(scale=5.0, size=4000)
    data = Records(PublicFeatures(X), None, Labels(y, Bounds(700, 1700)))
    result = CondNewton().fit(data, PrivacyBudget(4.0, 1e-5), fit_intercept=False, random_source=RandomSource.of(0))
    coefficients, _, intercept = result.model.compute_linear_coefficients()
    assert intercept == 0.0
    assert coefficients == pytest.approx([300.0, 500.0], rel=0.05)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_no_scaled_label_passes_the_ends_that_sensitivity_is_computed_from(fit_intercept: bool) -> None:
    for low, high in ((1e12 + 0.1, 1e12 + 1.2), (1.7e9, 1.7e9 + 99.7), (0.1, 0.7), (-3.0, 1e-3)):
        bounds = Bounds(low, high)
        labels = Labels(np.array([low, high, (low + high) / 2, -1e99, 1e99]), bounds)
        ends = scale_bounds(bounds, center=fit_intercept)
        scaled = scale_label(labels, center=fit_intercept)
        assert ends[0] <= scaled.min() < scaled.max() <= ends[1]
        assert (scaled.min(), scaled.max()) == pytest.approx(ends, rel=1e-3)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_no_scaled_private_value_is_larger_than_sensitivity_assumes(fit_intercept: bool) -> None:
    for low, high in ((1e12, 1e12 + 1.1), (717720087660.305, 717720087661.3052), (2010.0, 2024.3), (0.1, 0.7)):
        bounds = Bounds(low, high)
        values = PrivateFeatures(np.array([[low], [high], [-1e99], [1e99]]), (bounds,))
        largest = largest_private(bounds, center=fit_intercept)
        assert np.abs(scale_private(values, center=fit_intercept)).max() <= largest


def test_units_of_public_columns_change_nothing(rng: np.random.Generator) -> None:
    data = dataset(rng, private=False)
    scaled = replace(data, public=PublicFeatures(data.public.values * [1e6, 1e-3, 1.0] + [5.0, 0.0, -2.0]))
    for head in (Linear(), Wide(width=20)):
        first, second = (
            CondNewton()
            .fit(each, BUDGET, head=head, random_source=RandomSource.for_neighbours(0))
            .model.predict(each.public)
            for each in (data, scaled)
        )
        assert first == pytest.approx(second, abs=1e-5)


def test_a_callback_sees_releases_and_may_stop(rng: np.random.Generator) -> None:
    seen: list[Progress] = []

    def watch(progress: Progress) -> bool:
        seen.append(progress)
        return progress.step == 3

    CondNewton().fit(dataset(rng, private=False), BUDGET, callback=watch)
    assert [(progress.step, progress.num_steps) for progress in seen] == [(1, 14), (2, 14), (3, 14)]


def test_hidden_units_are_drawn_from_a_fixed_seed_on_standardised_columns(rng: np.random.Generator) -> None:
    public = PublicFeatures(rng.normal(size=(500, 3)) * [1.0, 1e5, 1e-5] + [0.0, 1e6, 0.0])
    first, second = RandomFeatures.of(public, 50), RandomFeatures.of(public, 50)
    assert np.array_equal(first.weights, second.weights)
    widened = first.transform(public).values
    assert widened[:, :3] == pytest.approx(public.values)
    assert np.array_equal(widened[:, 3:], np.tanh(public.values @ first.weights.T + first.biases))
    assert 0.3 < widened[:, 3:].std(axis=0).mean() < 0.9  # neither flat nor saturated
    odd = RandomFeatures.of(public, 50, constant=False)
    flipped = odd.transform(PublicFeatures(-public.values)).values[:, 3:]
    assert flipped == pytest.approx(-odd.transform(public).values[:, 3:])


def test_distillation_repeats_what_it_is_given(rng: np.random.Generator) -> None:
    data = bent(rng, n=1500)
    target = (np.abs(data.public.values[:, 0]) - 1) / 5
    head = MLP()
    columns = np.column_stack([data.public.values, np.ones(1500)])
    student = Student.of(head, data.public, constant=True)
    for wanted in (target, 0.1 - target):
        student.learn(wanted, rng)
        found = head.predict(head.layout(4, 0).views(student.export()[None]), columns, None)[0]
        assert np.mean((found - wanted) ** 2) < 0.02 * np.var(wanted)


def test_a_network_can_learn_on_more_rows_than_there_are_records(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.column_stack([rng.normal(size=(50, 2)), np.repeat(np.eye(3), [20, 20, 10], axis=0)])
    public = PublicFeatures(X, groups=np.array([0, 1, 2, 2, 2]))
    mixed = mix_rows(public)
    assert mixed is not None and 19_000 < len(mixed) <= 20_000
    assert np.array_equal(mixed.values, mix_rows(public).values)  # type: ignore[union-attr]
    for column in range(5):
        assert set(mixed.values[:, column]) <= set(X[:, column])
    assert (mixed.values[:, 2:].sum(axis=1) == 1).all()  # a category has one level
    assert len(np.unique(mixed.values[:, :2], axis=0)) > 1000
    weights = rng.uniform(size=50)
    student = Student.of(MLP(), public, constant=True, weights=weights, mixed=mixed)
    assert student.inputs.public.shape[0] == 50 + len(mixed) and student.weights is not None
    assert student.weights.values[50:] == pytest.approx(np.full(len(mixed), weights.mean()))
    monkeypatch.setattr("conddp.training.distillation.MOST_MIXED_CELLS", 35)
    assert 1 <= len(mix_rows(public) or []) <= 7  # five columns each
    monkeypatch.setattr("conddp.training.distillation.MOST_MIXED_CELLS", 4)
    assert mix_rows(public) is None


def test_networks_find_interactions_that_a_random_layer_misses(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    X = rng.normal(size=(3000, 10))
    y = 3 + 2 * np.abs(X[:, :2].sum(axis=1)) * (X[:, 2] > 0) + 0.1 * rng.normal(size=3000)
    data = Records(PublicFeatures(X), None, Labels(y, Bounds(0, 12)))
    errors = []
    for most in (10, 9):  # columns that features are learned from
        monkeypatch.setattr("conddp.algorithms.cond_newton.MOST_COLUMNS", most)
        fit = CondNewton().fit(data, BUDGET, head=MLP(), random_source=RandomSource.of(0))
        errors.append(np.mean((fit.model.predict(data.public) - y) ** 2))
        assert ("num_hidden" in fit.settings) == (most == 9)
        assert "at no further cost" in str(fit.guarantee)
    assert errors[0] < 0.6 * errors[1] < 0.6 * y.var()


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("most", [3, 2])
def test_a_network_is_fitted_far_from_zero_in_both_ways(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, fit_intercept: bool, most: int
) -> None:
    monkeypatch.setattr("conddp.algorithms.cond_newton.MOST_COLUMNS", most)
    near = bent(rng, n=1500)
    data = replace(near, label=Labels(near.label.values + 90, Bounds(90, 99)))
    result = CondNewton(width=100).fit(
        data, PrivacyBudget(20.0, 1e-5), head=MLP(), fit_intercept=fit_intercept, random_source=RandomSource.of(0)
    )
    errors = (result.model.predict(data.public) - data.label.values) ** 2
    assert np.mean(errors) < 0.6 * np.var(data.label.values)


def test_a_network_that_says_nothing_adds_nothing(rng: np.random.Generator) -> None:
    data = Records(PublicFeatures(np.ones((750, 1))), None, Labels(rng.uniform(0, 9, size=750), Bounds(0, 9)))
    predictions = (
        CondNewton().fit(data, BUDGET, head=MLP(), random_source=RandomSource.of(0)).model.predict(data.public)
    )
    assert predictions == pytest.approx(4.5, abs=1.0)


class MadeUp:
    """Takes the place of ``release_residuals``: remembers what it was asked, and answers with numbers of its own."""

    def __init__(self) -> None:
        self.release = conddp.newton.release.release_residuals
        self.rng, self.asked = np.random.default_rng(1), list[list[Any]]()

    def __call__(self, rows: Any, label: Any, label_range: Any, coefficients: Any, query: Any, **settings: Any) -> Any:
        answer = self.release(rows, label, label_range, coefficients, query, **settings)
        curator = settings.pop("curator")
        released = [astuple(release) for release in curator.transcript]
        self.asked.append([rows.values, label_range, coefficients, *astuple(query), *settings.values(), *released])
        step = np.where(np.isfinite(answer.noise_variance), 0.1 * self.rng.normal(size=rows.num_directions), 0.0)
        return replace(answer, step=step, mean_square=0.01)


@pytest.mark.parametrize("head", [Linear(), Wide(width=20), MLP(), FactorizationMachine()], ids=repr)
def test_given_what_was_released_labels_change_nothing(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, head: Head
) -> None:
    public = dataset(rng, n=300, private=False).public
    asked, parameters = [], []
    for y in (rng.uniform(0, 9, size=300), rng.uniform(0, 9, size=300) ** 2 / 9):
        made_up = MadeUp()
        with monkeypatch.context() as patch:
            for module in ("run", "rounds"):
                patch.setattr(f"conddp.newton.{module}.release_residuals", made_up)
            data = Records(public, None, Labels(y, Bounds(0, 9)))
            parameters.append(
                CondNewton().fit(data, BUDGET, head=head, random_source=RandomSource.for_neighbours(0)).model.parameters
            )
        asked.append(made_up.asked)
    learns = head.linear_in is Linearity.NOTHING  # from the predictions of learned features
    assert len(asked[0]) == len(asked[1]) == 14 + learns
    for first, second in zip(*asked, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert np.array_equal(parameters[0], parameters[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_simulated_labels_are_what_the_family_says(rng: np.random.Generator, family: Family) -> None:
    simulation = simulate(PublicFeatures(rng.normal(size=(5000, 6))), family, rng)
    label = simulation.records.label
    assert label.bounds == Bounds(0.0, 1.0)
    assert label.values.min() >= 0 and label.values.max() <= 1
    assert label.values.std() == pytest.approx(family.spread, rel=0.25)
    assert np.corrcoef(simulation.signal, label.values)[0, 1] ** 2 == pytest.approx(family.signal_fraction, abs=0.3)
    assert simulation.compute_error(simulation.signal) == 1.0


class Untouchable:
    """Stands for labels and private columns: any use but of their number is an error."""

    def __init__(self, num_records: int) -> None:
        self.num_records = num_records

    def __len__(self) -> int:
        return self.num_records

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a private value was touched: {name}")


@pytest.mark.parametrize("num_simulations", [0, 1])
def test_the_choice_never_looks_at_labels(rng: np.random.Generator, num_simulations: int) -> None:
    data = dataset(rng, n=400, private=False)
    object.__setattr__(data.label, "values", Untouchable(400))
    choice = Auto(num_simulations=num_simulations).choose(data.public, data.schema, BUDGET, Linear())
    assert isinstance(choice.algorithm, CondNewton)
    tried = {"CondNewton with 12 steps", "CondNewton with 24 steps", "RROnBins", "PrivateMean"}
    assert set(choice.errors) == (tried if num_simulations else set())
    ledger = PrivacyLedger(BUDGET)
    with pytest.raises(AssertionError, match="a private value was touched"):
        Auto(num_simulations=num_simulations).fit(data, BUDGET, ledger=ledger)
    assert ledger.entries[0].what == "Auto: choice of algorithm"
    assert ledger.spent == BUDGET  # all was paid for before the first touch


def test_auto_says_why_and_records_that_the_choice_was_free(rng: np.random.Generator) -> None:
    ledger = PrivacyLedger(BUDGET)
    result = Auto().fit(dataset(rng, private=False), BUDGET, ledger=ledger)
    assert result.settings["algorithm"] == "CondNewton"
    assert "CondNewton was chosen because all features are public" in str(result.guarantee)
    assert "choice of algorithm" in ledger.entries[0].what
    assert ledger.entries[0].cost == PrivacyBudget(0.0, 0.0)
    assert ledger.spent == BUDGET


def test_auto_takes_what_the_task_allows(rng: np.random.Generator) -> None:
    data = dataset(rng)
    assert isinstance(Auto().choose(data.public, data.schema, BUDGET, MLP()).algorithm, CondDP)
    private = Auto().choose(data.public, data.schema, BUDGET, Linear())
    assert isinstance(private.algorithm, CondNewton)
    assert "private" in private.reason
    pure = PrivacyBudget(2.0, 0.0)
    data = dataset(rng, private=False)
    result = Auto().fit(data, pure)
    assert result.settings["algorithm"] == "RROnBins"
    assert result.guarantee.budget == pure
    assert isinstance(Auto().choose(data.public, data.schema, pure, MLP()).algorithm, RROnBins)


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize(("head", "fit_intercept"), [(Linear(), False), (Wide(width=20), True), (Linear(), True)])
def test_simulations_try_what_the_task_allows(
    rng: np.random.Generator, head: Head, fit_intercept: bool, neighbouring: Neighbouring, monkeypatch: Any
) -> None:
    monkeypatch.setattr("conddp.training.released.NUM_STEPS", 20)
    result = Auto(num_simulations=1).fit(
        dataset(rng, n=120, private=False),
        PrivacyBudget(5.0, 1e-5),
        head=head,
        neighbouring=neighbouring,
        fit_intercept=fit_intercept,
    )
    errors: dict[str, float] = result.settings["simulated_errors"]
    worst: dict[str, float] = result.settings["simulated_worst_cases"]
    assert min(errors, key=lambda name: errors[name] * worst[name]).startswith(result.settings["algorithm"])
    assert min(worst.values()) >= 1.0
    assert ("RROnBins" in errors) == (neighbouring is Neighbouring.REPLACE)
    assert ("PrivateMean" in errors) == (isinstance(head, Linear) and fit_intercept)


def test_simulations_prefer_the_mean_where_nothing_else_can_be_learned(rng: np.random.Generator) -> None:
    data = dataset(rng, n=12, private=False)
    choice = Auto(num_simulations=3).choose(data.public, data.schema, PrivacyBudget(0.5, 1e-5), Linear())
    scores = {name: choice.errors[name] * choice.worst_cases[name] for name in choice.errors}
    assert min(scores, key=lambda name: scores[name]).startswith(type(choice.algorithm).__name__)
    assert "simulated labels" in choice.reason
    assert isinstance(choice.algorithm, (CondNewton, PrivateMean))


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_private_columns_are_learned_from_too(
    rng: np.random.Generator, neighbouring: Neighbouring, fit_intercept: bool
) -> None:
    data = dataset(rng, n=6000)
    result = CondNewton().fit(
        data,
        PrivacyBudget(8.0, 1e-5),
        neighbouring=neighbouring,
        fit_intercept=fit_intercept,
        random_source=RandomSource.of(0),
    )
    optimum = NonPrivate().fit(data, BUDGET, fit_intercept=fit_intercept).model.predict(data.public, data.private)
    found = result.model.predict(data.public, data.private)
    assert np.mean((found - optimum) ** 2) < 0.03 * np.var(optimum)
    assert "27 full-batch Gaussian releases" in str(result.guarantee)
    assert "the private columns 'q0', 'q1'" in str(result.guarantee)


@pytest.mark.parametrize("center", [20.0, 100.0, 170.0])
def test_a_private_column_far_from_the_middle_of_its_range_does_not_move_predictions(
    rng: np.random.Generator, center: float
) -> None:
    n = 12_000
    public, private = rng.uniform(18, 80, size=(n, 1)), rng.normal(center, 10, size=(n, 1)).clip(0, 200)
    label = (10 + 0.5 * private[:, 0] + 0.2 * public[:, 0] + rng.normal(0, 10, n)).clip(0, 150)
    hidden = PrivateFeatures(private, (Bounds(0, 200),))
    records = Records(PublicFeatures(public), hidden, Labels(label, Bounds(0, 150)))
    result = CondNewton().fit(records, PrivacyBudget(20.0, 1e-6), random_source=RandomSource.of(0))
    assert abs(np.mean(label - result.predict(records.public, hidden))) < 0.3  # clipped public rows alone lead to 1.9


def test_private_columns_need_a_head_that_is_linear_in_fixed_features(rng: np.random.Generator) -> None:
    with pytest.raises(
        PrivacyError, match="with private columns CondNewton supports the heads 'linear', 'wide', 'additive'"
    ):
        CondNewton().fit(dataset(rng), BUDGET, head=MLP())


def test_private_directions_are_nearly_orthonormal_with_little_noise(rng: np.random.Generator) -> None:
    X = rng.normal(size=(5000, 3))
    public = WhitenedRows.of(PublicFeatures(X))
    values = np.column_stack([0.5 * X[:, 0] + 0.5 * rng.normal(size=5000), rng.uniform(-1, 1, 5000)])
    private, span = np.clip(values, -1.7, 1.7), PrivateSpan.of([Bounds(0, 1)] * 2)

    def add(mu: float) -> PrivateRows:
        curator = Curator(rng, num_records=5000)
        moments = release_moments(public, private, span, mu=mu, neighbouring=Neighbouring.REPLACE, curator=curator)
        return PrivateRows.of(public, private, moments)

    whole = add(1e4)
    assert not isinstance(whole, WhitenedRows)  # of which releases assume that they are public
    assert whole.values.T @ whole.values / 5000 == pytest.approx(np.eye(6), abs=0.25)  # long public rows are cut
    columns = np.column_stack([X, np.ones(5000), private])
    assert columns @ whole.matrix == pytest.approx(whole.values, abs=1e-9)
    noisy = add(1e-3)
    assert np.isfinite(noisy.values).all()
    assert np.sqrt(np.mean(noisy.values[:, 4:] ** 2)) < 2  # noise chooses bad coordinates, but no huge ones


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coefficients_are_as_uncertain_as_they_are_said_to_be(epsilon: float, fit_intercept: bool) -> None:
    """With light tails: the errors of coefficients, over their stated deviations, have about unit size."""
    rng = np.random.default_rng(5)
    scores = []
    for seed in range(40):
        X = rng.normal(size=(1500, 4)) @ rng.normal(size=(4, 4)) + (2.0 if fit_intercept else 0.0)
        truth = rng.normal(size=4)
        signal = X @ truth
        y = signal + signal.std() * rng.normal(size=1500)
        reach = 4 * np.abs(y - y.mean() * fit_intercept).max() / 3
        middle = y.mean() if fit_intercept else 0.0
        dataset = Records(PublicFeatures(X), None, Labels(y, Bounds(middle - reach, middle + reach)))
        result = CondNewton().fit(
            dataset, PrivacyBudget(epsilon, 1e-6), fit_intercept=fit_intercept, random_source=RandomSource.of(seed)
        )
        slopes, _, _ = result.model.compute_linear_coefficients()
        scores.append((slopes - truth) / np.array(result.diagnostics.coefficient_deviations[:4]))
    size = float(np.sqrt(np.mean(np.square(scores))))
    assert 0.6 < size < 1.5
    assert np.mean(np.abs(scores) < 2) > 0.85


def test_columns_whose_squared_coefficients_overflow_do_not_end_a_fit_after_its_budget_is_spent() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    label = Labels(np.clip(X[:, 0], -4, 4), Bounds(-4, 4))
    small, usual = (
        CondNewton().fit(
            Records(PublicFeatures(factor * X), None, label), PrivacyBudget(2.0, 1e-6), random_source=RandomSource.of(0)
        )
        for factor in (1e-160, 1.0)
    )
    assert small.diagnostics.coefficient_deviations == ()
    assert len(usual.diagnostics.coefficient_deviations) == 4
    again = small.predict(PublicFeatures(1e-160 * X))
    np.testing.assert_allclose(again, usual.predict(PublicFeatures(X)), atol=0.5)
