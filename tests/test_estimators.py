import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from conddp import MLP, CondDP, Neighbouring, PrivacyBudget, PrivacyLedger, PrivateMean, PrivateRegressor
from conddp.algorithms import ALGORITHMS
from conddp.errors import BudgetExceeded, LedgerError, SchemaError
from conddp.privacy.transcript import GaussianRelease

COLUMNS = ("rooms", "age", "income")


def records(rng: np.random.Generator, n: int = 2000) -> tuple[Any, Any]:
    X = rng.uniform(0, [10, 100, 5], size=(n, 3))
    return X, X @ [10.0, -0.5, 8.0] + 50


def regressor(**settings: Any) -> PrivateRegressor:
    return PrivateRegressor(
        **{"epsilon": 2.0, "label_bounds": (0, 200), "head": "linear", "random_state": 0, **settings}
    )


OTHER_NOISE = "repeated records have other noise than weighted ones"  # one-shot shrinks both to their mean here
REPEATED = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]


@parametrize_with_checks(
    [
        PrivateRegressor(label_bounds=(-1000, 1000)),
        PrivateRegressor(label_bounds=(-1000, 1000), algorithm="dpsgd", fit_intercept=False),
        PrivateRegressor(label_bounds=(-1000, 1000), algorithm="switch-cond-dp", head=MLP(hidden=(4,))),
        PrivateRegressor(label_bounds=(-1000, 1000), algorithm="rr-on-bins"),
        PrivateRegressor(label_bounds=(-1000, 1000), algorithm="one-shot"),
    ],
    expected_failed_checks=lambda estimator: {
        "check_supervised_y_no_nan": "infinite labels are clamped: a refusal would depend on private values",
        **dict.fromkeys(REPEATED if estimator.algorithm != "one-shot" else (), OTHER_NOISE),
    },
)
@pytest.mark.filterwarnings("ignore:Skipping check_array_api_input")
def test_scikit_learn_estimator_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("private", [None, {"income": (0, 5)}])
def test_all_kinds_of_tables_give_the_same_model(rng: np.random.Generator, private: Any) -> None:
    X, y = records(rng)
    columns = dict(zip(COLUMNS, X.T, strict=True))
    by_array = regressor(private_columns=None if private is None else {2: (0, 5)}).fit(X, y)
    for make, series in ((pd.DataFrame, pd.Series), (pl.DataFrame, pl.Series), (pa.table, pa.array)):
        table: Any = make(columns)
        model = regressor(private_columns=private).fit(table, series(y))
        assert model.feature_names_in_.tolist() == list(COLUMNS)
        assert model.n_features_in_ == 3
        assert np.allclose(model.coef_, by_array.coef_)
        assert np.allclose(model.predict(table), by_array.predict(X))
        assert model.guarantee_.private_columns == (() if private is None else ("income",))


def test_the_label_is_named_after_its_series(rng: np.random.Generator) -> None:
    X, y = records(rng)
    assert regressor().fit(X, pd.Series(y, name="price")).guarantee_.label == "price"


def test_columns_are_read_by_name_in_any_order(rng: np.random.Generator) -> None:
    X, y = records(rng)
    table = pd.DataFrame(X, columns=list(COLUMNS))
    model = regressor().fit(table, y)
    other = table[["age", "rooms", "income"]].assign(more="text")
    assert model.predict(other).tolist() == model.predict(table).tolist()
    with pytest.raises(SchemaError, match="column 'age' is not among"):
        model.predict(table.drop(columns="age"))
    with pytest.raises(SchemaError, match="X has no column names"):
        model.predict(X)


def test_coefficients_recover_a_noiseless_line_at_a_generous_budget(rng: np.random.Generator) -> None:
    X, y = records(rng, n=20_000)
    model = regressor(epsilon=50.0, private_columns={2: (0, 5)}, algorithm=CondDP(num_steps=200, clip_norm=5.0)).fit(
        X, y
    )
    assert model.coef_ == pytest.approx([10.0, -0.5, 8.0], rel=0.03)
    assert model.intercept_ == pytest.approx(50.0, abs=2.0)
    inside = np.clip(X @ model.coef_ + model.intercept_, 0, 200)
    assert model.predict(X) == pytest.approx(inside, abs=1e-8)
    assert model.score(X, y) > 0.999


def test_predictions_stay_within_the_label_bounds(rng: np.random.Generator) -> None:
    X, y = records(rng)
    model = regressor(label_bounds=(60, 90)).fit(X, y)
    predictions = model.predict(1000 * X)
    assert predictions.min() >= 60 and predictions.max() <= 90


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_named_algorithm_fits_a_linear_head(rng: np.random.Generator, name: str) -> None:
    X, y = records(rng)
    model = regressor(algorithm=name, epsilon=8.0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert model.coef_.shape == (3,)
    if name == "non-private":
        assert "NOT differentially private" in str(model.guarantee_)
    else:
        assert model.guarantee_.epsilon == 8.0


@pytest.mark.parametrize("head", ["linear", "mlp", "fm", MLP(hidden=(3,), activation="tanh")])
@pytest.mark.parametrize("algorithm", ["dpsgd", "cond-dp", "switch-cond-dp", CondDP(num_steps=5)])
def test_algorithms_and_heads_are_named_or_given(rng: np.random.Generator, algorithm: Any, head: Any) -> None:
    X, y = records(rng, n=300)
    model = regressor(algorithm=algorithm, head=head).fit(X, y)
    assert hasattr(model, "coef_") == (head == "linear")
    assert np.isfinite(model.predict(X)).all()


def test_pickles_predict_alike_and_keep_the_guarantee(rng: np.random.Generator) -> None:
    X, y = records(rng)
    model = regressor().fit(X, y)
    loaded = pickle.loads(pickle.dumps(model))
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert str(loaded.guarantee_) == str(model.guarantee_)
    assert loaded.ledger_.spent == model.ledger_.spent


def test_works_in_a_pipeline_and_in_searches(rng: np.random.Generator) -> None:
    X, y = records(rng)
    model = make_pipeline(StandardScaler(), regressor()).fit(X, y)
    assert model.score(X, y) > 0.9
    assert cross_val_score(regressor(), X, y, cv=3).shape == (3,)
    search = GridSearchCV(regressor(), {"algorithm": [CondDP(clip_norm=c) for c in (0.2, 0.4)]}, cv=2).fit(X, y)
    assert search.best_estimator_.score(X, y) > 0.9


def test_clones_keep_settings_and_share_the_ledger() -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-5))
    original = regressor(algorithm=CondDP(num_steps=7), head=MLP(hidden=(3,)), ledger=ledger)
    copy = clone(original)
    assert copy.ledger is ledger
    assert copy.algorithm == original.algorithm
    assert copy.head == original.head


def test_an_algorithm_of_ones_own_is_taken(rng: np.random.Generator) -> None:
    class Constant(PrivateMean):
        """The mean, by another name."""

    X = rng.normal(size=(50, 2))
    model: Any = regressor(algorithm=Constant()).fit(X, X[:, 0])
    assert "Constant" in [entry.what for entry in model.ledger_.entries]
    with pytest.raises(ValueError, match="or an instance"):
        regressor(algorithm=Constant).fit(X, X[:, 0])


def test_a_search_cannot_overspend_a_ledger(rng: np.random.Generator) -> None:
    X, y = records(rng)
    ledger = PrivacyLedger(PrivacyBudget(3.0, 1e-6))
    with pytest.raises(BudgetExceeded):
        cross_val_score(regressor(ledger=ledger), X, y, cv=3, error_score="raise")
    assert ledger.plain_sum.epsilon == pytest.approx(4.0)
    assert 2.9 < ledger.spent.epsilon < 3.0


def test_a_second_fit_adds_up_and_a_third_is_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    X, y = records(rng)
    ledger = PrivacyLedger(PrivacyBudget(3.0, 1e-6), path=tmp_path / "ledger.jsonl")
    model = regressor(ledger=ledger)
    model.fit(X, y).fit(X, y)
    with pytest.raises(BudgetExceeded, match="needs epsilon=2 .* but of epsilon=3 .* could have epsilon=0"):
        model.fit(X, y)
    loaded = PrivacyLedger.load(tmp_path / "ledger.jsonl")
    assert loaded.plain_sum.epsilon == pytest.approx(4.0) and loaded.spent == ledger.spent
    regressor(ledger=loaded, epsilon=loaded.remaining.epsilon).fit(X, y)  # what remains can be spent


def test_a_copied_memory_ledger_cannot_pay(rng: np.random.Generator) -> None:
    X, y = records(rng, n=100)
    ledger = pickle.loads(pickle.dumps(PrivacyLedger(PrivacyBudget(4.0, 1e-5))))
    with pytest.raises(LedgerError, match="copy"):
        regressor(ledger=ledger).fit(X, y)


def test_fits_without_a_seed_differ_and_say_so(rng: np.random.Generator) -> None:
    X, y = records(rng)
    one, two = (regressor(random_state=None).fit(X, y) for _ in range(2))
    assert not np.array_equal(one.coef_, two.coef_)
    assert "cryptographic generator" in str(one.guarantee_)
    assert "came from a seed, for research only" in str(regressor().fit(X, y).guarantee_)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_bounds": None}, "label_bounds=.* is missing"),
        ({"label_bounds": (5, 5)}, "low < high"),
        ({"label_bounds": 7}, "must be a pair"),
        ({"epsilon": 0}, "epsilon must be above 0"),
        ({"epsilon": -1}, "epsilon must be above 0"),
        ({"epsilon": float("inf")}, "epsilon must be finite"),
        ({"epsilon": "1"}, "epsilon must be a number"),
        ({"delta": 1}, "delta must lie strictly between 0 and 1"),
        ({"algorithm": "newton"}, "algorithm must be one of"),
        ({"algorithm": CondDP}, "algorithm must be one of"),
        ({"head": "tree"}, "head must be one of"),
        ({"neighbouring": "add-remove"}, "neighbouring must be one of 'replace', 'zero-out'"),
        ({"random_state": "x"}, "random_state must be"),
        ({"ledger": "ledger.jsonl"}, "ledger must be a PrivacyLedger"),
        ({"private_columns": {"nowhere": (0, 1)}}, "private column 'nowhere' is not among the features"),
        ({"private_columns": {7: (0, 1)}}, "private column 7 is not among the features"),
        ({"private_columns": {1: None}}, "column 'x1' is not public and has no bounds"),
        ({"private_columns": {1: (2, 1)}}, "column 'x1': bounds must have low < high"),
        ({"private_columns": {1: (0, 1), "x1": (0, 1)}}, "names a column twice"),
    ],
)
def test_bad_settings_say_what_to_do(rng: np.random.Generator, settings: dict[str, Any], message: str) -> None:
    X, y = records(rng, n=50)
    with pytest.raises(ValueError, match=message):
        regressor(**settings).fit(X, y)


def test_integer_column_labels_are_labels_and_not_positions(rng: np.random.Generator) -> None:
    X, y = records(rng, n=100)
    table = pd.DataFrame(X, columns=[2, 0, 1])
    model = regressor(private_columns={2: (0, 10)}).fit(table, y)
    assert model.guarantee_.private_columns == ("x2",)
    by_position = regressor(private_columns={0: (0, 10)}).fit(X, y)
    assert np.allclose(model.coef_, by_position.coef_)
    with pytest.raises(SchemaError, match="private column True is not among the features"):
        regressor(private_columns={True: (0, 10)}).fit(X, y)


def test_private_text_columns_are_named(rng: np.random.Generator) -> None:
    X, y = records(rng, n=20)
    table = pd.DataFrame(X, columns=list(COLUMNS)).assign(city="Paris")
    with pytest.raises(SchemaError, match="column 'city' holds text where a number is expected"):
        regressor(private_columns={"city": (0, 1)}).fit(table, y)


def test_the_guarantee_has_everything_as_fields(rng: np.random.Generator) -> None:
    X, y = records(rng)
    guarantee = regressor(private_columns={1: (0, 100)}, neighbouring=Neighbouring.ZERO_OUT).fit(X, y).guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (2.0, 1e-6)
    assert guarantee.neighbouring is Neighbouring.ZERO_OUT
    assert guarantee.public_columns == ("x0", "x2")
    assert guarantee.private_columns == ("x1",)
    assert guarantee.num_records == 2000
    assert guarantee.seeded
    text = str(guarantee)
    assert "\n" not in text
    for part in (
        "(2, 1e-06)-differentially private",
        "'x1'",
        "ZERO_OUT",
        "[0, 200]",
        "Not covered",
        "accounted exactly",
    ):
        assert part in text


def test_a_mini_batch_guarantee_says_how_it_was_accounted(rng: np.random.Generator) -> None:
    X, y = records(rng)
    sampled = regressor(algorithm=CondDP(batch_size=200, num_steps=20)).fit(X, y)
    (release,) = sampled.transcript_
    assert isinstance(release, GaussianRelease) and release.count == 20
    assert release.sampling_probability == pytest.approx(0.1)
    assert "Poisson-sampled" in str(sampled.guarantee_) and "upper bound" in str(sampled.guarantee_)
    whole = regressor(algorithm=CondDP(batch_size=10_000, num_steps=20)).fit(X, y)
    (release,) = whole.transcript_
    assert isinstance(release, GaussianRelease) and release.count == 20
    assert release.sampling_probability == 1.0
    assert "Poisson-sampled" not in str(whole.guarantee_) and "accounted exactly" in str(whole.guarantee_)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_a_saved_regressor_is_loaded_and_predicts_the_same(tmp_path: Path, named: bool, private: bool) -> None:
    rng = np.random.default_rng(0)
    X: Any = rng.normal(size=(300, 3))
    y = X @ [1.0, 2.0, -1.0]
    columns = {1: (-3, 3)} if private else {}
    if named:
        X = pd.DataFrame(X, columns=["age", "income", "rooms"])
    model = PrivateRegressor(
        2.0, 1e-4, label_bounds=(-8, 8), private_columns=columns, head="linear", random_state=0
    ).fit(X, y)
    assert model.diagnostics_.steps and len(model.transcript_) > 1
    loaded = PrivateRegressor.load(model.save(tmp_path / "model"))
    assert loaded.coef_names_.tolist() == model.coef_names_.tolist()
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    with pytest.raises(LedgerError, match="copy of a ledger"):
        loaded.fit(X, y)
    shuffled = X[["rooms", "income", "age"]].assign(more="text") if named else X
    np.testing.assert_array_equal(loaded.predict(shuffled), model.predict(X))
    assert str(loaded.guarantee_) == str(model.guarantee_)
    assert loaded.transcript_ == model.transcript_
    assert loaded.intercept_ == model.intercept_
    if named:
        with pytest.raises(SchemaError, match="X has no column names"):
            loaded.predict(X.to_numpy())
        with pytest.raises(SchemaError, match="'income'"):
            loaded.predict(X.drop(columns="income"))


def test_a_regressor_writes_a_report_about_itself(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = PrivateRegressor(2.0, 1e-4, label_bounds=(-8, 8), random_state=0).fit(X, X.sum(axis=1))
    page = model.report(tmp_path / "report.html").read_text()
    assert "What was released" in page and "clamped residuals times rows" in page
    with pytest.raises(Exception, match="exists already"):
        model.report(tmp_path / "report.html")


def test_an_estimator_that_is_not_fitted_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        PrivateRegressor().save(tmp_path / "model")


@pytest.mark.parametrize(
    ("settings", "table", "message"),
    [
        ({"private_columns": ["a"]}, None, "must give each private column its range"),
        ({"label_bounds": None}, None, "label_bounds=.* is missing"),
        ({"label_bounds": ()}, None, "are empty"),
        ({}, pd.DataFrame(np.eye(4), columns=["a", "a", "b", "c"]), "columns of the same name"),
    ],
)
def test_mistakes_of_newcomers_are_explained(settings: dict[str, Any], table: Any, message: str) -> None:
    X = pd.DataFrame(np.eye(4), columns=list("abcd")) if table is None else table
    with pytest.raises(SchemaError, match=message):
        PrivateRegressor(**{"label_bounds": (0, 1), **settings}).fit(X, np.ones(4))


def make_table() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    return X, X[:, 0] + rng.normal(size=60)


def test_a_seed_repeats_a_fit_and_no_other() -> None:
    X, y = make_table()
    other_label = y.copy()
    other_label[7] += 1.0
    settings: dict[str, Any] = {"label_bounds": (-4, 4), "random_state": 5, "algorithm": "mean"}

    def noise(X: Any, y: Any, **changed: Any) -> float:
        """What the fit adds to the mean, in standard deviations of its noise."""
        model = PrivateRegressor(**settings | changed).fit(X, y)
        return float((model.intercept_ - np.clip(y, -4, 4).mean()) / (8 * model.settings_["noise_std"]))

    first = noise(X, y)
    assert noise(X, y) == first
    others = [
        noise(X, other_label),
        noise(X + 1.0, y),
        noise(X, y, epsilon=2.0),
        noise(X, y, delta=1e-7),
        noise(X, y, random_state=6),
        noise(X, y, label_bounds=(-4.0, 4.1)),
        noise(X, y, private_columns={0: (-1, 1)}),
    ]
    # A grid of a millionth of the noise, and nine numbers: none coincide by chance.
    assert len({round(each, 4) for each in [first, *others]}) == len(others) + 1


def test_two_seeded_fits_cannot_be_subtracted_to_remove_the_noise() -> None:
    # The attack: with the same seed, noise used to be z * std(epsilon), so two budgets gave two equations for z and y.
    X, y = make_table()
    models = [
        PrivateRegressor(epsilon, label_bounds=(-4, 4), random_state=5, algorithm="mean").fit(X, y)
        for epsilon in (1.0, 2.0)
    ]
    stds = [8 * model.settings_["noise_std"] for model in models]
    intercepts = [model.intercept_ for model in models]
    solved = (intercepts[0] * stds[1] - intercepts[1] * stds[0]) / (stds[1] - stds[0])
    assert abs(solved - np.clip(y, -4, 4).mean()) > 1e-6


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_clones_share_a_generator_and_never_repeat_its_noise(make: Any) -> None:
    X, y = make_table()
    model = PrivateRegressor(label_bounds=(-4, 4), random_state=make(3), algorithm="mean")
    copies = [clone(model) for _ in range(3)]
    assert all(copy.random_state is model.random_state for copy in copies)
    assert len({copy.fit(X, y).intercept_ for copy in copies}) == 3


def test_clones_keep_what_scikit_learn_keeps() -> None:
    model = PrivateRegressor(2.0, label_bounds=(0, 1), private_columns={"a": (0, 1)}, ledger=None)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.private_columns is not model.private_columns


def test_units_and_settings_of_own_algorithms_change_the_noise_of_a_seed() -> None:
    from conddp.algorithms.identity import list_public, list_settings
    from conddp.bounds import Bounds
    from conddp.data import Labels, PublicFeatures, Records
    from conddp.data.units import Units
    from conddp.privacy.digest import update_digest

    public, label = PublicFeatures(np.ones((4, 1))), Labels(np.zeros(4), Bounds(0, 1))
    groupings = [None, [0, 0, 1, 2], [0, 1, 1, 2], [0, 1, 2, 3]]
    described = [
        update_digest(
            hashlib.sha256(), list_public(Records(public, None, label, None if each is None else Units.of(each)))
        )
        for each in groupings
    ]
    assert len({each.digest() for each in described}) == len(groupings)

    class Own:
        def __init__(self, setting: Any) -> None:
            self.setting = setting

    settings = [Own(1), Own(2), Own(np.zeros(2000)), Own(np.append(np.zeros(1999), 1e-17))]
    assert len({tuple(list_settings(each)) for each in settings}) == 4
    assert list_settings(Own(1)) == list_settings(Own(1))
