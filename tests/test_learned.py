"""Heads whose features are learned during the fit."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from conddp import CondNewton, PrivacyBudget, PrivateRegressor
from conddp.algorithms import DPSGD, CondDP, RROnBins
from conddp.bounds import Bounds
from conddp.data import memory
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.records import Records
from conddp.data.units import Units
from conddp.errors import PrivacyError, SchemaError
from conddp.features.column_scales import ColumnScales
from conddp.features.feature_families import Relevance
from conddp.heads import Additive, Head, Learned, Linear
from conddp.heads.auto import LearnedOrAdditive
from conddp.models.saving import load_model
from conddp.newton.rounds import WORK
from conddp.newton.rounds_setting import FEW_LENGTHS, count_directions, estimate_memory
from conddp.newton.schedule import NewtonPlan
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.randomness import RandomSource
from conddp.training.loop import Progress, StepCounter
from tests.contracts import LEARNED_HEADS

Vector = NDArray[np.float64]

BOUNDS = Bounds(-3.0, 3.0)
PLENTY, USUAL = PrivacyBudget(1e5, 1e-6), PrivacyBudget(1.0, 1e-6)


def make_columns(n: int, seed: int = 0) -> Vector:
    return np.random.default_rng(seed).normal(size=(n, 4))


def bend(X: Vector) -> Vector:
    """A function of two of the columns, with an interaction."""
    return np.asarray(np.sin(2 * X[:, 0]) + np.clip(X[:, 0] * X[:, 1], -2, 2) / 2)


def make_records(n: int = 3000, *, noise_std: float = 0.1, seed: int = 0, **others: Any) -> Records:
    X = make_columns(n, seed)
    label = bend(X) + noise_std * np.random.default_rng(seed + 1).normal(size=n)
    return Records(PublicFeatures(X), others.pop("private", None), Labels(label, BOUNDS), **others)


def compute_error(records: Records, head: Head, budget: PrivacyBudget, **settings: Any) -> float:
    """Mean squared error of a fit on new rows, over the variance of the function."""
    result = CondNewton().fit(records, budget, head=head, random_source=RandomSource.of(0), **settings)
    X = make_columns(2000, seed=9)
    return float(np.mean((result.model.predict(PublicFeatures(X)) - bend(X)) ** 2) / bend(X).var())


def test_learned_features_find_a_function_that_a_linear_model_cannot_express() -> None:
    records = make_records()
    assert compute_error(records, Linear(), USUAL) > 0.6
    assert compute_error(records, Learned(width=300), USUAL) < 0.2
    assert compute_error(records, Learned(width=1000), PLENTY) < 0.02


@pytest.mark.parametrize("head", [Learned(width=300), Additive(width=300)], ids=repr)
def test_bounds_that_are_far_too_wide_do_little_harm(head: Head) -> None:
    records = make_records()
    wide = Records(records.public, None, Labels(records.label.values, Bounds(-600.0, 600.0)))
    errors = [compute_error(wide, each, PrivacyBudget(3.0, 1e-6)) for each in (Linear(), head)]
    assert errors[1] < 0.7 * errors[0]


def test_an_additive_head_leaves_interactions_out_unless_pairs_are_allowed() -> None:
    records = make_records(noise_std=0.02)
    alone, paired = (compute_error(records, Additive(width=300, pairs=pairs), PLENTY) for pairs in (0, 3))
    X = make_columns(2000, seed=9)
    interaction = float(np.var(np.clip(X[:, 0] * X[:, 1], -2, 2) / 2) / bend(X).var())
    assert alone == pytest.approx(interaction, rel=0.15)
    assert paired < 0.3 * alone


@pytest.mark.parametrize("head", LEARNED_HEADS.values(), ids=list(LEARNED_HEADS))
def test_labels_without_any_signal_are_predicted_by_about_their_mean(head: Head) -> None:
    X, label = make_columns(2000), 1.0 + np.random.default_rng(3).normal(size=2000)
    records = Records(PublicFeatures(X), None, Labels(label, BOUNDS))
    result = CondNewton().fit(records, USUAL, head=head, random_source=RandomSource.of(0))
    predictions = result.model.predict(PublicFeatures(make_columns(500, seed=9)))
    assert np.mean((predictions - 1.0) ** 2) < 0.05


@pytest.mark.parametrize("head", LEARNED_HEADS.values(), ids=list(LEARNED_HEADS))
def test_the_releases_are_those_of_the_plan_and_cost_the_budget(head: Head) -> None:
    records, plan = make_records(400), NewtonPlan(num_steps=6)
    steps: list[int] = []

    def watch(progress: Progress) -> None:
        steps.append(progress.step)
        assert progress.num_steps == 9 and np.isfinite(progress.parameters).all()

    result = CondNewton(plan=plan).fit(records, USUAL, head=head, callback=watch)
    assert steps == list(range(1, 10))
    releases = result.transcript.releases
    assert sum(each.count for each in releases) == 9
    assert result.transcript.mu == pytest.approx(result.settings["mu"], rel=1e-6)
    assert len(result.settings["num_directions"]) == len(FEW_LENGTHS)
    assert len(result.diagnostics.steps) == 9


def test_a_callback_can_stop_a_run_at_any_step() -> None:
    for last in (1, 2, 3, 7):

        def stop(progress: Progress, last: int = last) -> bool:
            return progress.step == last

        result = CondNewton().fit(make_records(300), USUAL, head=Learned(width=30), callback=stop)
        assert sum(each.count for each in result.transcript.releases) == last
        assert np.isfinite(result.model.predict(PublicFeatures(make_columns(5)))).all()


@pytest.mark.parametrize("last", [3, 14, 17, 28])
def test_a_callback_sees_all_steps_of_a_fit_with_private_columns_and_can_stop_it(last: int) -> None:
    seen: list[int] = []

    def watch(progress: Progress) -> bool:
        seen.append(progress.step)
        assert progress.num_steps == 28
        return progress.step == last

    hidden = PrivateFeatures(make_columns(300, seed=5)[:, :1], (Bounds(-1.0, 1.0),), ("hidden",))
    records = make_records(300, private=hidden)
    result = CondNewton().fit(records, USUAL, head=Learned(width=30), callback=watch)
    assert seen == list(range(1, last + 1))
    moments = 1 if last > 14 else 0
    assert sum(each.count for each in result.transcript.releases) == last + moments
    assert np.isfinite(result.model.predict(records.public, hidden)).all()


@pytest.mark.parametrize("head", LEARNED_HEADS.values(), ids=list(LEARNED_HEADS))
@pytest.mark.parametrize("private", [False, True])
def test_a_saved_model_predicts_the_same(head: Head, private: bool, tmp_path: Path) -> None:
    X = make_columns(400)
    columns = {3: (-3.0, 3.0)} if private else None
    model = PrivateRegressor(1.0, label_bounds=(-3, 3), head=head, private_columns=columns, random_state=0)
    model.fit(X, bend(X))
    again = PrivateRegressor.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert load_model(tmp_path / "model").model.head == model.model_.head
    assert type(model.model_.head) is type(head)
    assert not hasattr(model, "coef_")


def test_seeded_fits_are_reproducible_and_units_of_a_column_make_no_difference() -> None:
    X = make_columns(600)
    scaled = PublicFeatures(X * [1.0, 1000.0, 1e-6, 1.0] + [0.0, 5.0, 0.0, -7.0])
    predictions = []
    for public in (PublicFeatures(X), PublicFeatures(X), scaled):
        records = Records(public, None, Labels(bend(X), BOUNDS))
        source = RandomSource.for_neighbours(0)  # noise that does not depend on the records
        predictions.append(
            CondNewton().fit(records, USUAL, head=Learned(width=60), random_source=source).model.predict(public)
        )
    np.testing.assert_array_equal(predictions[0], predictions[1])
    np.testing.assert_allclose(predictions[2], predictions[0], atol=0.05)


def test_private_columns_have_linear_terms_beside_the_function_of_the_public_ones() -> None:
    X, rng = make_columns(4000), np.random.default_rng(5)
    hidden = rng.uniform(-1, 1, size=(4000, 1))
    label = bend(X) + hidden[:, 0] + 0.1 * rng.normal(size=4000)
    private = PrivateFeatures(hidden, (Bounds(-1.0, 1.0),), ("hidden",))
    records = Records(PublicFeatures(X), private, Labels(label, BOUNDS))
    errors = {}
    for head in (Linear(), Learned(width=200)):
        model = CondNewton().fit(records, PrivacyBudget(4.0, 1e-6), head=head, random_source=RandomSource.of(0)).model
        errors[type(head)] = float(np.mean((model.predict(records.public, private) - label) ** 2))
    assert errors[Learned] < 0.4 * errors[Linear]
    moved = PrivateFeatures(hidden * 0 + 0.5, (Bounds(-1.0, 1.0),), ("hidden",))
    other = PrivateFeatures(hidden * 0 - 0.5, (Bounds(-1.0, 1.0),), ("hidden",))
    slope = np.median(model.predict(records.public, moved) - model.predict(records.public, other))
    assert slope == pytest.approx(1.0, abs=0.15)


def test_records_of_a_person_and_weights_are_supported() -> None:
    n = 1200
    records = make_records(n, units=Units.of(np.arange(n) // 3, name="person"))
    assert compute_error(records, Learned(width=100), PLENTY) < 0.1
    weights = np.where(np.arange(n) < 1000, 1.0, 1e-3)
    spoilt = make_records(n)
    values = spoilt.label.values.copy()
    values[1000:] = 3.0  # records of almost no weight
    spoilt = Records(spoilt.public, None, Labels(values, BOUNDS), weights=weights)
    assert compute_error(spoilt, Learned(width=100), PLENTY) < 0.1


def test_weighted_residuals_have_no_mean() -> None:
    X = make_columns(1500)
    weights, label = np.where(X[:, 0] > 0.5, 1.0, 0.003), np.where(X[:, 0] > 0.5, 1.0, -1.0) + 0.3 * X[:, 1]
    records = Records(PublicFeatures(X), None, Labels(label, BOUNDS), weights=weights)
    model = CondNewton().fit(records, PLENTY, head=Learned(width=60), random_source=RandomSource.of(0)).model
    assert abs(np.average(label - model.predict(records.public), weights=weights)) < 0.01


@pytest.mark.parametrize("head", LEARNED_HEADS.values(), ids=list(LEARNED_HEADS))
def test_odd_tables_can_be_fitted(head: Head) -> None:
    rng = np.random.default_rng(0)
    tables = {
        "one record": rng.normal(size=(1, 2)),
        "two records": rng.normal(size=(2, 2)),
        "no columns that vary": np.ones((50, 2)),
        "one column": rng.normal(size=(60, 1)),
        "flags": (rng.random((80, 3)) < 0.5).astype(float),
        "equal columns": np.repeat(rng.normal(size=(70, 1)), 3, axis=1),
        "large and tiny": rng.normal(size=(60, 2)) * [1e100, 1e-200],
        "more columns than records": rng.normal(size=(20, 40)),
        "integers far from zero": 1e9 + rng.integers(5, size=(60, 2)),
    }
    for X in tables.values():
        records = Records(PublicFeatures(X), None, Labels(rng.normal(size=len(X)), BOUNDS))
        predictions = CondNewton().fit(records, PrivacyBudget(1.0, 1e-9), head=head).model.predict(records.public)
        assert np.isfinite(predictions).all()


def test_a_table_of_text_dates_and_gaps_can_be_fitted() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "shop": np.array(["a", "b", "c", None])[rng.integers(4, size=500)],
            "size": np.where(rng.random(500) < 0.1, np.nan, rng.exponential(size=500)),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(300, size=500), unit="D"),
        }
    )
    label = np.where(table["shop"] == "a", 1.0, 0.0)
    model = PrivateRegressor(5.0, label_bounds=(-1, 2), head="learned", random_state=0).fit(table, label)
    new = table.iloc[:3].assign(shop=["a", "b", "never seen"])
    predicted = model.predict(new)
    assert predicted[0] > predicted[1] + 0.3
    assert np.isfinite(predicted).all()


def test_what_cannot_be_fitted_is_refused_before_anything_is_spent() -> None:
    records = make_records(50)
    for algorithm in (DPSGD(), CondDP(), RROnBins()):
        with pytest.raises(ValueError, match="whose features are learned from released numbers. Use CondNewton"):
            algorithm.fit(records, USUAL, head=Learned())
    with pytest.raises(ValueError, match="always has an intercept"):
        CondNewton().fit(records, USUAL, head=Additive(), fit_intercept=False)
    with pytest.raises(PrivacyError, match="no algorithm learns features with delta = 0"):
        PrivateRegressor(1.0, 0.0, label_bounds=(-3, 3), head="learned").fit(make_columns(50), bend(make_columns(50)))
    wide = Records(PublicFeatures(np.zeros((3, 2001))), None, Labels(np.zeros(3), BOUNDS))
    with pytest.raises(SchemaError, match="up to 2,000 public columns, got 2,001"):
        CondNewton().fit(wide, USUAL, head=Learned())
    with pytest.raises(SchemaError, match=r"up to 12,000, and 2,000 columns with Learned\(width=9000\) make up to 2"):
        records = Records(PublicFeatures(np.zeros((3, 2000))), None, Labels(np.zeros(3), BOUNDS))
        CondNewton().fit(records, USUAL, head=Learned(width=9000))
    large = Records(PublicFeatures(np.array([[1e200], [0.0]])), None, Labels(np.zeros(2), BOUNDS))
    with pytest.raises(SchemaError, match="too large to be squared"):
        CondNewton().fit(large, USUAL, head=Learned())
    with pytest.raises(NotImplementedError, match="fitted by CondNewton, not by gradients"):
        Learned().initialize(Learned().layout(3, 0), np.random.default_rng(0))


def test_a_fit_that_does_not_fit_into_memory_is_refused_before_anything_is_spent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 1000000 kB\nMemFree: 1 kB\nMemAvailable: 100000 kB\n")
    monkeypatch.setattr(memory, "SYSTEM", meminfo)
    ledger = PrivacyLedger(PrivacyBudget(2.0, 1e-6))
    with pytest.raises(SchemaError, match=r"50 records takes about 0\.\d GB .* and 0.1 GB are available"):
        CondNewton().fit(make_records(50), USUAL, head=Learned(), ledger=ledger)
    assert ledger.spent.epsilon == 0
    (tmp_path / "memory.max").write_text("50000000\n")
    (tmp_path / "memory.current").write_text("20000000\n")
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    assert memory.find_available_memory() == 30e6
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.find_available_memory() == 100_000 * 1024
    monkeypatch.setattr(memory, "SYSTEM", tmp_path / "nothing")
    assert memory.find_available_memory() == math.inf


def test_directions_of_many_records_are_bounded_by_memory() -> None:
    for n in (1, 3, 100, 2_000, 200_000, 600_000, 1_000_000, 50_000_000):
        for num_rounds in (1, 3, 6):
            at_most, kept = count_directions(n, num_rounds)
            assert 1 <= at_most <= 500 and kept <= 800 and (kept >= 1) == (num_rounds > 1)
            assert n * (at_most + kept) <= 9e8 or n > 3e8
    assert estimate_memory(1_000_000, 1_549, 3) < 4.2e9


@pytest.mark.parametrize("d", [1, 2, 14, 300])
@pytest.mark.parametrize("width", [1, 30, 1000, 4000])
@pytest.mark.parametrize("head", [Learned(), Additive(), Additive(pairs=0)], ids=repr)
def test_dictionaries_are_not_larger_than_announced(head: Learned, width: int, d: int) -> None:
    families = replace(head, width=width).make_families()
    rows = np.random.default_rng(0).normal(size=(60, d))
    gradients = np.random.default_rng(1).normal(size=(50, d))
    for relevance in (Relevance(np.ones(d)), Relevance.of(gradients)):
        made = families.make(ColumnScales.of(PublicFeatures(rows)), rows, relevance, seed=0)
        assert made.num_features <= families.count_most(d)


def test_more_features_than_records_are_no_problem() -> None:
    records = make_records(300)
    result = CondNewton().fit(records, PLENTY, head=Learned(width=2000), random_source=RandomSource.of(0))
    assert result.settings["num_features"] > 1000
    assert np.isfinite(result.model.predict(records.public)).all()


def test_a_counter_sees_what_is_computed_between_steps_and_changes_nothing() -> None:
    steps: list[tuple[int, int]] = []
    work: list[tuple[float, int, str]] = []
    counter = StepCounter(lambda *seen: steps.append(seen), lambda *seen: work.append(seen))
    records, source = make_records(300), RandomSource.of(0)
    counted = CondNewton().fit(records, USUAL, head=Learned(width=30), random_source=source, callback=counter)
    plain = CondNewton().fit(records, USUAL, head=Learned(width=30), random_source=RandomSource.of(0))
    assert np.array_equal(counted.model.parameters, plain.model.parameters)
    assert steps == [(step, 15) for step in range(1, 16)]
    done = [each[0] for each in work]
    assert done == sorted(done) and 2 <= done[0] and done[-1] < 15
    assert {int(each) for each in done} == {2, 6, 10}  # before every round
    assert {each[1] for each in work} == {15} and {each[2] for each in work} == set(WORK) - {"refining", "calibrating"}


def test_curves_of_an_additive_model_add_up_to_its_predictions() -> None:
    records = make_records(800)
    model = CondNewton().fit(records, PLENTY, head=Additive(width=100, pairs=0)).model
    head, X = model.head, make_columns(30, seed=4)
    assert isinstance(head, Additive)
    weights = model.layout.views(model.parameters[None])
    curves = head.compute_curves(weights, list(X.T))
    scores = model.compute_scores(PublicFeatures(X))
    np.testing.assert_allclose(np.sum(curves, axis=0) + weights["constant"][0, 0], scores, atol=1e-5)


@pytest.mark.parametrize("kind", [Additive, Learned])
def test_stopping_a_fit_after_its_last_release_changes_nothing(kind: type[Learned]) -> None:
    X = make_columns(1500)
    label = np.sin(X[:, 0]) + np.cos(X[:, 1]) if kind is Additive else np.tanh(2 * X[:, 0] * X[:, 1])
    label = np.clip(label + 0.5 * np.random.default_rng(5).normal(size=1500), -3, 3)
    records = Records(PublicFeatures(X), None, Labels(label, BOUNDS))
    settings: dict[str, Any] = {"head": LearnedOrAdditive(width=60), "random_source": RandomSource.of(0)}
    budget = PrivacyBudget(4.0, 1e-6)
    whole = CondNewton().fit(records, budget, **settings)
    stopped = CondNewton().fit(records, budget, callback=lambda at: at.step == at.num_steps, **settings)
    early = CondNewton().fit(records, budget, callback=lambda at: at.step == at.num_steps - 1, **settings)
    assert type(whole.model.head) is type(stopped.model.head) is kind
    np.testing.assert_array_equal(stopped.model.parameters, whole.model.parameters)
    assert (len(stopped.transcript), len(early.transcript)) == (len(whole.transcript), len(whole.transcript) - 1)
