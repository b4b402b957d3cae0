"""The automatic choice of a head: before the fit from public information, at the end from what was released."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from conddp import PrivacyBudget, PrivacyLedger, PrivateRegressor
from conddp.algorithms import DPSGD, Auto, CondNewton, FitRequest
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.records import Records
from conddp.data.units import Units
from conddp.heads import HEADS, Additive, Learned, Linear
from conddp.heads.auto import FEWEST_NOISE_RECORDS, MOST_COLUMNS, MOST_RECORDS
from conddp.heads.head import Circumstances
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.randomness import RandomSource
from conddp.report import render_markdown, report_fit

Vector = NDArray[np.float64]
HERE = Circumstances(epsilon=1.0, delta=1e-6, num_protected=4000)


def make_records(label: Any, n: int = 3000) -> Records:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 4))
    y = np.clip(label(X) + 0.3 * rng.normal(size=n), -5, 5)
    return Records(PublicFeatures(X), None, Labels(y, Bounds(-5, 5)))


def settle(n: int = 4000, d: int = 4, **changes: Any) -> tuple[str, str]:
    features = PublicFeatures(np.random.default_rng(0).normal(size=(n, d)))
    head, reason = HEADS["auto"].settle(features, replace(HERE, num_protected=n, **changes))
    return type(head).__name__, reason


def test_features_are_learned_if_nothing_speaks_against_it() -> None:
    assert settle() == (
        "LearnedOrAdditive",
        "Features are learned, because there are enough records to tell curves from noise; the model is close to a "
        "linear one where the releases do not say more, and additive if they do not speak for interactions.",
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"learns_features": False}, "the algorithm"),
        ({"delta": 0.0}, "delta is 0"),
        ({"fit_intercept": False}, "no intercept"),
        ({"num_private": 1, "n": 1000}, "too few records"),
        ({"in_memory": False}, "not in memory"),
        ({"epsilon": 0.05}, "too few records"),
        ({"n": MOST_RECORDS, "d": 1}, "minutes"),
        ({"d": MOST_COLUMNS + 1}, "minutes"),
        ({"d": 0}, "no public columns"),
    ],
)
def test_a_model_is_linear_for_public_reasons(changes: dict[str, Any], reason: str) -> None:
    name, given = settle(**changes)
    assert name == "Linear" and reason in given


def test_the_number_of_people_counts_and_not_that_of_their_records() -> None:
    features = PublicFeatures(np.random.default_rng(0).normal(size=(4000, 3)))
    enough = FEWEST_NOISE_RECORDS / calibrate_gaussian_mu(1.0, 1e-6)
    for number, kind in ((int(enough) + 1, Learned), (int(enough) - 1, Linear)):
        assert isinstance(HEADS["auto"].settle(features, replace(HERE, num_protected=number))[0], kind)


def test_the_result_is_additive_unless_releases_speak_for_interactions() -> None:
    budget = PrivacyBudget(4.0, 1e-6)
    for label, kind in (
        (lambda X: np.sin(3 * X[:, 0]) + X[:, 1] ** 2, Additive),
        (lambda X: 3 * X[:, 0] * X[:, 1], Learned),
    ):
        result = Auto().fit(make_records(label), budget, head=HEADS["auto"], random_source=RandomSource.of(0))
        assert type(result.model.head) is kind
        assert (result.diagnostics.effects is not None) == (kind is Additive)
        name, speak = ("additive", "do not speak") if kind is Additive else ("learned", "speak")
        assert result.settings["head"] == f"{name}, chosen by auto"
        assert f"The result is {result.model.head.name_model()}, because" in result.guarantee.choice
        assert f"the releases {speak} for interactions" in result.guarantee.choice
        assert result.guarantee.budget == budget


def test_the_ledger_has_the_choice_before_the_fit_and_no_class_that_users_do_not_know(tmp_path: Any) -> None:
    records = make_records(lambda X: np.sin(3 * X[:, 0]), n=1500)
    outputs = [records, records.with_label(Labels(-records.label.values, records.label.bounds, "other"))]
    for number in (1, 2):
        ledger = PrivacyLedger(PrivacyBudget(4.0, 1e-6), path=tmp_path / f"{number}.jsonl")
        fits = FitRequest(4.0, ledger=ledger, random_state=0).run_several(outputs[:number])
        entries = [entry for entry in ledger.entries if entry.what == "Auto: choice of head"]
        assert len(entries) == number and all(entry.cost == PrivacyBudget(0.0, 0.0) for entry in entries)
        assert all(entry.reason.startswith("Features are learned, because") for entry in entries)
        assert entries[0].time <= next(entry.time for entry in ledger.entries if entry.cost.epsilon)
        paid = [entry for entry in ledger.entries if entry.cost.epsilon]
        assert {entry.details["head"] for entry in paid} == {
            "features learned, additive if the releases do not speak for interactions"
        }
        for each in fits.results:
            assert "The result is " in each.guarantee.choice and "CondNewton was chosen" in each.guarantee.choice
            shown = (tmp_path / f"{number}.jsonl").read_text() + repr(each.settings) + render_markdown(report_fit(each))
            assert not re.search("LearnedOrAdditive|AutoHead|SettledAuto", shown)
        assert str(fits.guarantee).count("The result is ") == number


def test_several_linear_models_say_why_they_are_linear() -> None:
    records = make_records(lambda X: X[:, 0], n=100)
    outputs = [records, records.with_label(Labels(-records.label.values, records.label.bounds, "other"))]
    for each in FitRequest(1.0, random_state=0).run_several(outputs).results:
        assert "The model is linear, because there are too few records" in each.guarantee.choice
        assert "Auto: choice of head" in [entry.what for entry in each.ledger.entries]


def test_a_single_column_gets_a_curve() -> None:
    records = make_records(lambda X: 2 * np.sin(3 * X[:, 0]))
    single = Records(PublicFeatures(records.public.values[:, :1]), None, records.label)
    result = Auto().fit(single, PrivacyBudget(4.0, 1e-6), head=HEADS["auto"], random_source=RandomSource.of(0))
    assert type(result.model.head) is Additive
    assert "there is one public column" in result.guarantee.choice


def test_a_fit_that_was_stopped_says_so() -> None:
    settings: dict[str, Any] = {"head": HEADS["auto"], "random_source": RandomSource.of(0)}
    records = make_records(lambda X: X[:, 0])
    result = Auto().fit(records, PrivacyBudget(4.0, 1e-6), callback=lambda _: True, **settings)
    assert "because the fit was stopped" in result.guarantee.choice


def test_the_guarantee_says_where_simulations_decide_nothing() -> None:
    records, budget = make_records(lambda X: X[:, 0], n=1000), PrivacyBudget(4.0, 1e-6)
    for number in (0, 1):
        result = Auto(num_simulations=number).fit(
            records, budget, head=Learned(width=20), random_source=RandomSource.of(0)
        )
        assert ("no labels were simulated, because no other" in result.guarantee.choice) == (number > 0)
        assert not result.settings["simulated_errors"]


def test_a_head_that_is_given_is_not_explained() -> None:
    records = make_records(lambda X: X[:, 0], n=500)
    for head in (Additive(width=50), Learned(width=50)):
        ledger = PrivacyLedger(PrivacyBudget(4.0, 1e-6))
        result = CondNewton().fit(records, ledger.budget, head=head, ledger=ledger, random_source=RandomSource.of(0))
        assert result.settings["head"] == repr(head) and not result.guarantee.choice
        assert "choice of head" not in str([entry.what for entry in ledger.entries])


def test_heads_that_are_settled_fit_as_if_they_were_given() -> None:
    records = make_records(lambda X: X[:, 0])
    small = PrivacyBudget(0.05, 1e-6)
    for algorithm, budget in ((CondNewton(), small), (DPSGD(num_steps=4), PrivacyBudget(4.0, 1e-6))):
        auto, linear = (
            algorithm.fit(records, budget, head=head, random_source=RandomSource.of(1))
            for head in (HEADS["auto"], Linear())
        )
        np.testing.assert_array_equal(auto.model.parameters, linear.model.parameters)
        assert auto.guarantee.choice.startswith("The model is linear, because") and not linear.guarantee.choice


def test_private_columns_need_more_records() -> None:
    records = make_records(lambda X: 2 * np.sin(3 * X[:, 0]))
    private = PrivateFeatures(np.random.default_rng(1).uniform(size=(3000, 1)), (Bounds(0, 1),))
    mixed = Records(records.public, private, records.label)
    for epsilon, is_linear in ((0.5, True), (4.0, False)):
        budget = PrivacyBudget(epsilon, 1e-6)
        result = Auto().fit(mixed, budget, head=HEADS["auto"], random_source=RandomSource.of(0))
        assert (type(result.model.head) is Linear) == is_linear
        assert "CondNewton was chosen" in result.guarantee.choice


def test_records_of_little_weight_count_for_little() -> None:
    records = make_records(lambda X: X[:, 0])
    heavy = np.arange(3000) < 300
    units = Units(np.arange(3000) // 2)
    for weights, persons, number in (
        (None, None, 3000),
        (np.where(heavy, 1.0, 0.0), None, 300),
        (np.where(heavy, 5.0, 0.5), None, 570),
        (None, units, 1500),
        (np.where(heavy, 1.0, 0.25), units, 150 + 675),
    ):
        given = replace(records, weights=weights, units=persons)
        assert CondNewton().describe(given, PrivacyBudget(1.0, 1e-6), fit_intercept=True).num_protected == number


def test_the_estimator_takes_it_by_default_and_saved_models_are_what_was_chosen(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 3))
    y = np.clip(X[:, 0] ** 2 + 0.2 * rng.normal(size=3000), -1, 2)
    model = PrivateRegressor(4.0, label_bounds=(-1, 2), random_state=0).fit(X, y)
    assert not hasattr(model, "coef_") and len(model.curves_) == 3
    loaded = PrivateRegressor.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    few = PrivateRegressor(4.0, label_bounds=(-1, 2), random_state=0).fit(X[:100], y[:100])
    assert few.coef_.shape == (3,) and not hasattr(few, "curves_")
    with pytest.raises(AttributeError, match="is an additive model, and .* curves_ has .* fit with head='linear'"):
        _ = model.coef_
    with pytest.raises(AttributeError, match="is a linear model, and .* coef_ has .* fit with head='additive'"):
        _ = few.curves_
    Y = np.column_stack([y, -y])
    both = PrivateRegressor(8.0, label_bounds=(-2, 2), random_state=0).fit(X, Y)
    assert both.predict(X).shape == (3000, 2)


@pytest.mark.parametrize("size", [None, "", [], {}, 2.5, -1, True])
def test_sizes_in_damaged_files_are_refused(size: Any) -> None:
    with pytest.raises(ValueError, match="size must be"):
        Learned(num_hinges=size)


def test_what_a_model_does_not_have_is_explained_and_hasattr_is_false() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = PrivateRegressor(1.0, label_bounds=(-5, 5), head=Learned(width=20), random_state=0)
    for name in ("coef_", "coef_names_", "intercept_", "curves_"):
        assert not hasattr(model, name)
        with pytest.raises(NotFittedError):
            getattr(model, name)
    model.fit(X, X[:, 0])
    for name in ("coef_", "coef_names_", "intercept_", "curves_"):
        assert not hasattr(model, name)
        with pytest.raises(AttributeError, match=f"no {name}: the model of 'label' is a model with learned features"):
            getattr(model, name)
    model.set_params(head="linear").fit(X, X[:, 0])
    assert model.coef_.shape == (2,) and isinstance(model.intercept_, float) and len(model.coef_names_) == 2


def test_the_head_itself_has_no_parameters() -> None:
    with pytest.raises(ValueError, match="stands for another one"):
        HEADS["auto"].layout(3, 0)
