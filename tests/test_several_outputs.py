"""Several labels and sample weights through the estimator, as scikit-learn users pass them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from conddp import PrivacyBudget, PrivacyLedger, PrivateRegressor
from conddp.errors import BudgetExceeded, SchemaError
from conddp.models import ModelFileError
from conddp.models.saving import digest_file
from conddp.privacy.joint_guarantee import JointGuarantee

N = 3000


def make_table() -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(size=N), "city": rng.choice(["Lyon", "Nice", "Paris"], N)})
    visits = X["age"] + rng.normal(0, 0.1, N)
    cost = 2.0 * (X["city"] == "Paris") + rng.normal(0, 0.1, N)
    return X, pd.DataFrame({"visits": visits, "cost": cost})


X, Y = make_table()
BOUNDS = {"visits": (-4, 4), "cost": (-1, 3)}


def fit(epsilon: float = 1.0, **settings: Any) -> PrivateRegressor:
    return PrivateRegressor(epsilon, 1e-5, label_bounds=BOUNDS, head="linear", random_state=0, **settings).fit(X, Y)


def test_several_labels_have_a_column_of_predictions_each() -> None:
    model = fit(50.0)
    assert model.predict(X).shape == (N, 2)
    assert model.coef_.shape == (2, len(model.coef_names_)) and model.intercept_.shape == (2,)
    for place, name in enumerate(Y):
        errors = model.predict(X)[:, place] - Y[name]
        assert errors.std() == pytest.approx(0.1, rel=0.05)
        assert errors.mean() == pytest.approx(0.0, abs=0.01)
    assert [each.guarantee.label for each in model.results_] == ["visits", "cost"]
    assert not hasattr(model, "result_")


def test_the_ledger_adds_up_to_the_budget_of_all_labels() -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-5))
    model = fit(1.0, ledger=ledger)
    paid = [entry for entry in ledger.entries if entry.cost.epsilon]
    assert len(paid) == 2 and all(entry.cost.epsilon < 1 for entry in paid)
    assert ledger.spent.epsilon == pytest.approx(1.0, rel=1e-5) and ledger.spent.epsilon <= 1.0
    assert isinstance(model.guarantee_, JointGuarantee) and (model.guarantee_.epsilon, model.guarantee_.delta) == (
        1,
        1e-5,
    )
    assert "These 2 models together are (1, 1e-05)-differentially private" in str(model.guarantee_)
    with pytest.raises(BudgetExceeded):
        fit(0.1, ledger=ledger)
    assert len([entry for entry in ledger.entries if entry.cost.epsilon]) == 2


def test_labels_are_refused_together_before_anything_is_spent() -> None:
    ledger = PrivacyLedger(PrivacyBudget(0.9, 1e-5))
    with pytest.raises(BudgetExceeded):
        fit(1.0, ledger=ledger)
    assert not ledger.entries


def test_models_of_several_labels_are_saved_and_loaded_together(tmp_path: Path) -> None:
    model = fit(private_columns={"age": (-4, 4)})
    loaded = PrivateRegressor.load(model.save(tmp_path / "models"))
    shuffled = X[["city", "age"]].assign(more=1)
    np.testing.assert_array_equal(loaded.predict(shuffled), model.predict(X))
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    assert str(loaded.guarantee_) == str(model.guarantee_)
    index = tmp_path / "models" / "models.json"
    stored = json.loads(index.read_text())
    for change, message in (
        ({"budget": {"epsilon": 0.9, "delta": 1e-5}}, "cost more than the joint budget"),
        ({"records": stored["records"][::-1]}, "does not belong to its models.json"),
        ({"records": stored["records"][:1]}, "not of a format"),
        ({"conddp_models": 2}, "not of a format"),
        ({"budget": "all"}, "is damaged"),
    ):
        index.write_text(json.dumps({**stored, **change}))
        with pytest.raises(ModelFileError, match=message):
            PrivateRegressor.load(tmp_path / "models")
    other = PrivateRegressor(0.5, 1e-5, label_bounds=(0, 4), random_state=0).fit(X[:200], Y["cost"][:200])
    shutil.rmtree(tmp_path / "models" / "2")
    other.save(tmp_path / "models" / "2")
    digests = [stored["records"][0], digest_file(tmp_path / "models" / "2" / "model.json")]
    index.write_text(json.dumps({**stored, "records": digests}))
    with pytest.raises(ModelFileError, match="not of different labels of the same records"):
        PrivateRegressor.load(tmp_path / "models")
    with pytest.raises(ValueError, match=r"a report is about one label: pass label=, one of "):
        model.report(tmp_path / "report.html")
    model.report(tmp_path / "cost.md", label="cost")
    assert "model of 'cost' from" in (tmp_path / "cost.md").read_text()


def test_the_name_of_a_column_is_not_taken_for_labels() -> None:
    for name in ("visits", ["visits"]):
        with pytest.raises(SchemaError, match="y must hold the labels, got the name of a column"):
            PrivateRegressor(label_bounds=(-4, 4)).fit(X, name)


def test_one_column_of_labels_is_one_label() -> None:
    one = PrivateRegressor(label_bounds=(-4, 4), random_state=0).fit(X, Y["visits"])
    with pytest.warns(Warning, match="column-vector"):
        same = PrivateRegressor(label_bounds=[(-4, 4)], random_state=0).fit(X, Y[["visits"]].to_numpy())
    assert one.predict(X).shape == same.predict(X).shape == (N,)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([(0, 1)] * 3, "3 pairs .* but y has 2 labels"),
        ({"visits": (0, 1)}, "a pair .* for each of the labels"),
        (None, "label_bounds=.* is missing"),
        ([(0, 1), (1, 0)], "column 'cost': bounds must have low < high"),
    ],
)
def test_bounds_of_several_labels_are_checked(bounds: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        PrivateRegressor(label_bounds=bounds).fit(X, Y)


def test_a_label_that_is_also_a_feature_is_refused() -> None:
    with pytest.raises(SchemaError, match="'cost' is the label and also a feature"):
        PrivateRegressor(label_bounds=BOUNDS).fit(X.assign(cost=1.0), Y)


def test_records_that_miss_any_label_are_dropped_if_that_is_public() -> None:
    gaps = Y.assign(cost=Y["cost"].where(np.arange(N) % 2 == 0), visits=Y["visits"].where(np.arange(N) % 3 > 0))
    model = PrivateRegressor(label_bounds=BOUNDS, missing_labels="public", head="linear", random_state=0).fit(X, gaps)
    kept = gaps.notna().all(axis=1)
    assert model.results_[0].guarantee.num_records == kept.sum()
    same = PrivateRegressor(label_bounds=BOUNDS, missing_labels="public", head="linear", random_state=0).fit(
        X[kept], Y[kept]
    )
    np.testing.assert_array_equal(model.coef_, same.coef_)


def test_sample_weights_give_weighted_least_squares_at_a_generous_budget() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(N, 2))
    y = features[:, 0] + 0.5 * features[:, 1] ** 2 + rng.normal(0, 0.1, N)  # weights matter: the line is wrong
    weight = np.where(features[:, 1] > 0, 5.0, 0.5)
    model = PrivateRegressor(200.0, label_bounds=(-6, 12), head="linear", random_state=0).fit(
        features, y, sample_weight=weight
    )
    plain = PrivateRegressor(200.0, label_bounds=(-6, 12), head="linear", random_state=0).fit(features, y)
    exact, unweighted = LinearRegression().fit(features, y, weight), LinearRegression().fit(features, y)
    assert np.abs(exact.coef_ - unweighted.coef_).max() > 0.5
    assert model.coef_ == pytest.approx(exact.coef_, abs=0.1)
    assert plain.coef_ == pytest.approx(unweighted.coef_, abs=0.1)
    assert "the weights of the records" in str(model.guarantee_)
    same = PrivateRegressor(200.0, label_bounds=(-6, 12), head="linear", random_state=0).fit(
        features, y, sample_weight=7 * weight
    )
    assert same.coef_ == pytest.approx(model.coef_, rel=1e-9)
    with pytest.raises(ValueError, match="[Nn]egative|at least 0"):
        PrivateRegressor(label_bounds=(-6, 12)).fit(features, y, sample_weight=-weight)
    with pytest.raises(ValueError, match="sample_weight.shape"):
        PrivateRegressor(label_bounds=(-6, 12)).fit(features, y, sample_weight=weight[:5])
    with pytest.raises(ValueError, match="sample_weight holds text") as refused:
        PrivateRegressor(label_bounds=(-6, 12)).fit(features, y, sample_weight=["SECRET"] * N)
    assert "SECRET" not in str(refused.value)
