"""Units from a public column to the guarantee: columns, records, schema, weights, estimator, command line, files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold

from conddp import PrivateRegressor
from conddp.algorithms import ALGORITHMS as REGISTERED_ALGORITHMS
from conddp.algorithms import Auto, WeightedLLP
from conddp.algorithms.algorithm import Algorithm
from conddp.bounds import Bounds
from conddp.data import Labels, PrivateFeatures, PublicFeatures, Records, Schema, Units
from conddp.data.passes import use_executor
from conddp.errors import PrivacyError, SchemaError
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.noise_shape import compute_noise_shape, compute_unit_noise_shape
from conddp.features.reading import read_records
from conddp.features.row_weights import TYPICAL_CLIP_NORM, RowWeights
from conddp.features.spectrum import Spectrum
from conddp.features.unit_moves import bound_largest_move
from conddp.features.whitening import WhitenedRows
from conddp.files import compare_file, fit_file, load_records, load_units, plan_file, report_file
from conddp.heads.head import Inputs
from conddp.heads.linear import Linear
from conddp.models.saving import ModelFileError, load_model, sign_record
from conddp.planning.comparison import Comparison, compare_algorithms
from conddp.planning.plan import Plan, make_plan
from conddp.planning.storage import load_record, save_record
from conddp.privacy import Curator, PrivacyBudget, PrivacyLedger, RandomSource
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import SGD
from tests.contracts import ALGORITHMS, LABEL_ALGORITHMS, REFERENCES

BUDGET = PrivacyBudget(2.0, 1e-4)


def make_table(num_units: int = 300, *, seed: int = 0) -> pd.DataFrame:
    """A shuffled table of people with one to five records, named by text."""
    rng = np.random.default_rng(seed)
    person = rng.permutation(np.repeat(np.arange(num_units), rng.integers(1, 6, size=num_units)))
    table = pd.DataFrame(rng.normal(size=(len(person), 3)), columns=["age", "rooms", "size"])
    table.insert(1, "customer_id", [f"C-{each:04d}" for each in person])
    table["price"] = 5 + table["age"] + rng.normal(size=len(person))
    return table


SCHEMA = Schema.of(
    label="price", label_bounds=(0, 10), public=["age", "rooms"], private={"size": (-3, 3)}, unit="customer_id"
)


# --- columns and records


@pytest.mark.parametrize(
    "column",
    [
        ["ann", "bob", "ann", "eve"],
        np.array([7, -1, 7, 2**62]),
        np.array([0.5, 1.5, 0.5, -0.0]),
        pd.Series(["a", "b", "a", "c"]),
        pd.Series([1, 2, 1, 3], dtype="Int64"),
        pd.Series(["a", "b", "a", "c"], dtype="category"),
        pl.Series(["a", "b", "a", "c"]),
        pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01", "2020-01-01", "2022-01-01"])),
        np.array([1, "b", 1, None], dtype=object)[[0, 1, 2, 1]].tolist()[:3] + ["c"],
    ],
)
def test_equal_values_of_any_type_are_one_unit(column: Any) -> None:
    units = Units.of(column, name="who")
    assert units.codes.tolist() == [0, 1, 0, 2]
    assert (units.num_units, units.largest, units.sizes.tolist()) == (3, 2, [2, 1, 1])


@pytest.mark.parametrize(
    "column",
    [
        ["a", None],
        ["a", ""],
        ["a", "  "],
        [1.0, np.nan],
        pd.Series([1, None], dtype="Int64"),
        pd.Series(["a", pd.NA], dtype="string"),
        pl.Series(["a", None]),
        np.ma.array([1, 2], mask=[False, True]),
        np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
    ],
)
def test_gaps_are_refused(column: Any) -> None:
    with pytest.raises(SchemaError, match="unit column 'who' has gaps"):
        Units.of(column, name="who")


def test_values_that_cannot_be_compared_are_refused_without_showing_them() -> None:
    with pytest.raises(SchemaError, match="cannot be compared") as error:
        Units.of(np.array([{"secret": 41}, {"secret": 42}], dtype=object), name="who")
    assert "4" not in str(error.value)
    with pytest.raises(SchemaError, match="one column"):
        Units.of([[1, 2], [3, 4]])
    with pytest.raises(SchemaError, match="max_rows must be a whole number of at least 1, got max_rows=0"):
        Units.of([1, 2], max_rows=0)


def test_arranged_records_keep_the_order_of_the_table_within_a_unit() -> None:
    rng = np.random.default_rng(0)
    units = Units(rng.integers(0, 30, size=100))
    order = units.arrange()
    assert sorted(order) == list(range(100))
    arranged = units[order]
    assert (np.diff(arranged.codes) >= 0).all() and (np.diff(arranged.sizes) >= 0).all()
    for unit in range(units.num_units):
        members = np.flatnonzero(units.codes == unit)
        places = np.flatnonzero(np.isin(order, members))
        assert order[places].tolist() == members.tolist()
        assert (np.diff(places) == 1).all()
    groups = list(arranged.list_groups())
    assert sum(rows.stop - rows.start for _, _, rows in groups) == 100
    for size, of_units, rows in groups:
        assert (arranged.sizes[of_units] == size).all()
        assert set(arranged.codes[rows]) == set(range(of_units.start, of_units.stop))
    chosen = np.array([0, 3, arranged.num_units - 1])
    assert arranged.list_records(chosen).tolist() == np.flatnonzero(np.isin(arranged.codes, chosen)).tolist()
    assert arranged.list_records(np.array([], dtype=np.intp)).tolist() == []


def test_a_declared_maximum_keeps_the_first_records_of_each_unit() -> None:
    units = Units(np.array([0, 1, 0, 0, 1, 2, 0]), max_rows=2)
    assert sorted(units.arrange()) == [0, 1, 2, 4, 5]
    assert units[units.arrange()].largest == 2


def test_distinct_values_keep_the_order_of_the_table() -> None:
    assert Units.of(["z", "a", "m"]).arrange().tolist() == [0, 1, 2]


def test_records_keep_their_units_and_are_split_by_unit() -> None:
    records = read_records(make_table(), SCHEMA)[0]
    assert records.schema == SCHEMA
    train_part, test_part = records.split(test_fraction=0.3)
    assert records.units is not None and train_part.units is not None and test_part.units is not None
    assert train_part.num_records + test_part.num_records == records.num_records
    assert train_part.units.num_units + test_part.units.num_units == records.units.num_units
    assert train_part.units.num_units == 210
    arranged = records.arrange()
    pairs = {(float(y), float(x)) for y, x in zip(records.label.values, records.public.values[:, 0], strict=True)}
    assert pairs == {
        (float(y), float(x)) for y, x in zip(arranged.label.values, arranged.public.values[:, 0], strict=True)
    }
    with pytest.raises(SchemaError, match="same number of records"):
        Records(records.public, records.private, records.label, Units.of([0, 1]))


# --- schema and files


def test_a_schema_with_a_unit_survives_toml() -> None:
    schema = Schema.of(label="y", label_bounds=(0, 1), public=["x"], unit='odd "name"', max_rows=5)
    assert Schema.from_toml(schema.to_toml()) == schema
    assert schema.names == ("y", "x", 'odd "name"')
    assert Schema.from_toml(SCHEMA.to_toml()) == SCHEMA


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[unit]\nname = 'a'", "must contain column"),
        ("[unit]\ncolumn = 3", "must contain column"),
        ("[unit]\ncolumn = 'who'\nmax_rows = 0", "max_rows must be a whole number"),
        ("[unit]\ncolumn = 'who'\nmax_rows = true", "max_rows must be a number"),
        ("[unit]\ncolumn = 'x'", "is the unit and also has role=public"),
        ("[unit]\ncolumn = 'y'", "is the unit and also has role=label"),
        ("[unit]\nmax_rows = 3", "must contain column"),
    ],
)
def test_a_wrong_unit_is_refused_with_what_to_do(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.from_toml('[label]\nname = "y"\nbounds = [0, 1]\n[public]\ncolumns = ["x"]\n' + text)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_are_read_with_their_units(tmp_path: Path, suffix: str) -> None:
    table, path = make_table(), tmp_path / f"table.{suffix}"
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    expected = Units.of(table["customer_id"]).codes.tolist()
    records, units = load_records(path, SCHEMA)[0], load_units(path, SCHEMA)
    assert records.units is not None and units is not None
    assert records.units.codes.tolist() == units.codes.tolist() == expected
    table.loc[3, "customer_id"] = None
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    with pytest.raises(SchemaError, match="'customer_id' has gaps"):
        load_records(path, SCHEMA)


# --- weights


def test_weights_follow_the_noise_and_are_at_most_one() -> None:
    units = Units(np.repeat(np.arange(400), np.sort(np.random.default_rng(0).geometric(0.3, size=400))))
    moves = units.sizes.astype(float)
    noisy = RowWeights.choose(units, moves, num_directions=10, noise_std=1e4)
    quiet = RowWeights.choose(units, moves, num_directions=10, noise_std=1e-9)
    assert (quiet.values == 1).all()
    assert noisy.largest_total == pytest.approx(1.0)  # every unit counts as one record
    for weights in (noisy, quiet):
        assert weights.of_units.max() == 1.0
        assert weights.total == pytest.approx(weights.values.sum())
        assert np.allclose(weights.unit_totals, np.bincount(units.codes, weights=weights.values))


@pytest.mark.parametrize("noise_std", [0.5, 3.0, 20.0])
def test_chosen_weights_are_as_good_as_any_weights_found_by_a_numerical_optimiser(noise_std: float) -> None:
    from scipy import optimize

    sizes = np.array([1] * 20 + [2] * 10 + [4] * 5 + [9] * 2)
    units, d = Units(np.repeat(np.arange(len(sizes)), sizes)), 6

    def expect_error(of_units: Any) -> float:
        total = of_units @ sizes
        noise = d * noise_std * TYPICAL_CLIP_NORM * (of_units * sizes).max() / total
        return float(noise**2 + d * (of_units**2 @ sizes) / total**2)

    chosen = RowWeights.choose(units, sizes.astype(float), num_directions=d, noise_std=noise_std).of_units
    minimize: Any = optimize.minimize
    best = min(
        minimize(
            lambda log_weights: expect_error(np.exp(log_weights)[np.searchsorted([1, 2, 4, 9], sizes)]),
            start,
            method="Nelder-Mead",
            options={"maxiter": 4000, "xatol": 1e-6, "fatol": 1e-9},
        ).fun
        for start in (np.zeros(4), -np.log([1, 2, 4, 9]), -0.5 * np.log([1, 2, 4, 9]))
    )
    assert expect_error(chosen) <= best * 1.02


def test_weighted_rows_give_weighted_least_squares() -> None:
    rng = np.random.default_rng(0)
    units = Units(np.repeat(np.arange(60), np.sort(rng.integers(1, 5, size=60))))
    X, a = rng.normal(size=(len(units), 3)) * [1, 50, 0.1] + 7, rng.uniform(0.2, 1.0, size=60)
    weights = RowWeights(units, a / a.max(), units.sizes.astype(float))
    y = X @ [1.0, 0.1, -3.0] + rng.normal(size=len(units))
    rows = WhitenedRows.of(PublicFeatures(X), weights=weights)
    theta = rows.values.T @ (weights.values * y) / weights.total
    root = np.sqrt(weights.values)[:, None]
    design = np.column_stack([X, np.ones(len(X))])
    expected = np.linalg.lstsq(root * design, root[:, 0] * y, rcond=None)[0]
    assert np.allclose(rows.matrix @ theta, expected)
    C = ConditioningMatrix.from_spectrum(Spectrum.of(PublicFeatures(X))).reweight(PublicFeatures(X), weights.values)
    Z = C.transform(PublicFeatures(X))
    assert np.allclose((Z * weights.values[:, None]).T @ Z / weights.total, np.eye(4))
    assert np.allclose(C.fold(Z.T @ (weights.values * y) / weights.total), expected)
    assert np.allclose(C.unfold(C.fold(np.eye(4))), np.eye(4))
    assert np.allclose((rows.values * weights.values[:, None]).T @ rows.values / weights.total, np.eye(4))


def test_the_noise_shape_for_units_is_better_than_that_for_rows() -> None:
    rng = np.random.default_rng(0)
    units = Units(np.repeat(np.arange(200), np.sort(rng.integers(1, 9, size=200))))
    rows = rng.standard_t(3, size=(len(units), 4))
    rows @= np.linalg.inv(np.linalg.cholesky(rows.T @ rows)).T

    def expect_error(shape: Any) -> float:
        moved = bound_largest_move(np.linalg.solve(shape, rows.T).T, units, beside=np.zeros(200))
        return float(moved**2 * np.trace(shape @ shape.T))

    assert expect_error(compute_unit_noise_shape(rows, units)) < 0.8 * expect_error(compute_noise_shape(rows))


# --- algorithms

EVERY: dict[str, Algorithm] = {**ALGORITHMS, **LABEL_ALGORITHMS, **REFERENCES, "auto": Auto(num_simulations=0)}


def make_small(units: Any = None, *, private: bool = False, n: int = 400) -> Records:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 3))
    hidden = PrivateFeatures(rng.uniform(size=(n, 1)), (Bounds(0, 1),), ("q",)) if private else None
    label = Labels(np.clip(X[:, 0] + rng.normal(size=n), -5, 8), Bounds(-6, 8))
    return Records(PublicFeatures(X), hidden, label, units)


@pytest.mark.parametrize("name", [each for each in EVERY if "weighted-llp" not in each])
def test_a_unit_column_of_distinct_values_changes_nothing_but_the_guarantee(name: str) -> None:
    distinct = Units.of(np.random.default_rng(0).permutation(400), name="row")
    results = [
        EVERY[name].fit(make_small(units), BUDGET, random_source=RandomSource.for_neighbours(0))
        for units in (None, distinct)
    ]
    assert np.array_equal(results[0].model.parameters, results[1].model.parameters)
    assert results[0].transcript == results[1].transcript
    assert results[1].guarantee.unit == "row"


def test_distinct_units_change_nothing_with_private_columns_either() -> None:
    for name in ("cond-newton", "cond-dp-sampled", "mean"):
        results = [
            EVERY[name].fit(make_small(units, private=True), BUDGET, random_source=RandomSource.for_neighbours(0))
            for units in (None, Units(np.arange(400)))
        ]
        assert np.array_equal(results[0].model.parameters, results[1].model.parameters)


@pytest.mark.parametrize("name", [each for each in EVERY if "weighted-llp" not in each])
def test_results_do_not_depend_on_the_order_of_the_units_in_the_table(name: str) -> None:
    # Records of a unit stay in their order, and units of the same size too; otherwise noise would meet other records.
    codes = np.sort(np.random.default_rng(0).integers(0, 100, size=400))
    records = make_small(Units(codes))
    assert records.units is not None
    other = records.take(records.units.arrange())
    fits = [EVERY[name].fit(each, BUDGET, random_source=RandomSource.for_neighbours(0)) for each in (records, other)]
    if name == "non-private":  # adds up in the order of the table
        assert np.allclose(fits[0].model.parameters, fits[1].model.parameters)
    else:
        assert np.array_equal(fits[0].model.parameters, fits[1].model.parameters)


def test_a_unit_of_several_records_needs_more_noise_and_weights_reduce_it() -> None:
    rng = np.random.default_rng(0)
    codes = np.concatenate([np.zeros(100, dtype=int), np.arange(1, 301)])[rng.permutation(400)]
    for name in ("mean", "cond-newton", "one-shot", "cond-dp"):
        fits = [
            EVERY[name].fit(make_small(units), BUDGET, random_source=RandomSource.for_neighbours(0))
            for units in (None, Units(codes))
        ]
        plain, grouped = (fit.transcript.to_json()[-1] for fit in fits)
        assert grouped["sensitivity"] < 10 * plain["sensitivity"]  # not 100 times
        assert 300 <= fits[1].settings["total_weight"] < 400
        assert fits[1].guarantee.records_per_unit == 100


def test_samples_of_descent_consist_of_whole_units() -> None:
    units = Units(np.repeat(np.arange(60), np.sort(np.random.default_rng(0).integers(1, 5, size=60))))
    weights = RowWeights(units, 1.0 / units.sizes, units.sizes.astype(float))
    n, seen = len(units), []

    class Watching(Linear):
        def vjp(self, weights: Any, inputs: Inputs, trace: Any, residuals: Any, out: Any) -> None:
            seen.append((inputs.public[:, 0].astype(int), np.array(residuals)))
            super().vjp(weights, inputs, trace, residuals, out)

    features = np.column_stack([np.arange(n, dtype=float), np.ones(n)])
    head = Watching()
    train(
        TrainingPlan(200, 0.5, 1.0, 0.3),
        head,
        head.layout(2, 0),
        Inputs.of(features),
        np.full(n, 1e6),
        np.zeros((1, 2)),
        optimizer=SGD(0.0),
        curator=Curator(np.random.default_rng(0), num_records=n),
        rng=np.random.default_rng(1),
        weights=weights,
    )
    counts = np.zeros(60)
    for drawn, residuals in seen:
        chosen = np.unique(units.codes[drawn])
        counts[chosen] += 1
        assert drawn.tolist() == np.flatnonzero(np.isin(units.codes, chosen)).tolist()
        norms = np.sqrt(drawn**2.0 + 1)
        assert np.allclose(np.abs(residuals[0]) * norms, 0.5 * weights.values[drawn])
    # Each unit is drawn about 60 times out of 200; 5 standard deviations, 60 units: a false alarm in 30,000.
    assert (np.abs(counts - 60) < 5 * np.sqrt(200 * 0.3 * 0.7)).all()


def test_passes_on_another_executor_give_the_same_answer() -> None:
    from concurrent.futures import ThreadPoolExecutor

    records = make_small(Units(np.random.default_rng(0).integers(0, 90, size=400)))
    alone = EVERY["cond-newton"].fit(records, BUDGET, random_source=RandomSource.for_neighbours(0))
    with ThreadPoolExecutor(2) as pool, use_executor(pool.map):
        together = EVERY["cond-newton"].fit(records, BUDGET, random_source=RandomSource.for_neighbours(0))
    assert np.array_equal(alone.model.parameters, together.model.parameters)


def test_weighted_llp_says_what_to_use_instead() -> None:
    with pytest.raises(PrivacyError, match="'unit' says which records belong together. Use CondNewton"):
        WeightedLLP().fit(make_small(Units(np.arange(400))), BUDGET)


def test_an_algorithm_that_does_not_say_that_it_protects_units_is_refused_before_anything_is_spent() -> None:
    class Own(Algorithm):
        def run(self, task: Any) -> Any:
            raise AssertionError("must not be called")

    ledger = PrivacyLedger(BUDGET)
    with pytest.raises(PrivacyError, match="Own protects single records, but column 'unit'"):
        Own().fit(make_small(Units(np.arange(400))), BUDGET, ledger=ledger)
    assert ledger.entries == ()
    declared = {name for name, each in REGISTERED_ALGORITHMS.items() if each.protects_units or each.ignores_units}
    assert set(REGISTERED_ALGORITHMS) - declared == {"weighted-llp"}


def test_least_squares_without_privacy_ignores_units() -> None:
    grouped = make_small(Units(np.repeat(np.arange(40), 10), max_rows=1))
    fits = [EVERY["non-private"].fit(each, BUDGET) for each in (make_small(), grouped)]
    assert np.array_equal(fits[0].model.parameters, fits[1].model.parameters)


def test_randomised_labels_share_epsilon_among_the_records_of_a_unit() -> None:
    units = Units(np.repeat(np.arange(100), 4))
    result = EVERY["rr-on-bins"].fit(make_small(units), BUDGET, random_source=RandomSource.for_neighbours(0))
    histogram, labels = result.transcript
    assert (histogram.sensitivity, labels.count) == (8.0, 4)  # type: ignore[attr-defined]  # known types of releases
    assert histogram.epsilon + labels.epsilon == pytest.approx(2.0)  # type: ignore[attr-defined]  # as above
    assert "0.375 for each of 4 records of a unit" in str(result.guarantee)


# --- estimator


@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_the_estimator_takes_the_unit_column_out_of_the_table(kind: str) -> None:
    table = make_table()
    X, y = table.drop(columns="price"), table["price"]
    given: Any = {"pandas": X, "polars": pl.from_pandas(X), "array": X.to_numpy(dtype=object)}[kind]
    unit = 1 if kind == "array" else "customer_id"
    model = PrivateRegressor(label_bounds=(0, 10), unit=unit, random_state=0).fit(given, y)
    plain = PrivateRegressor(label_bounds=(0, 10), random_state=0).fit(
        X.drop(columns="customer_id"), y, unit=X["customer_id"]
    )
    assert np.array_equal(model.coef_, plain.coef_)
    assert model.n_features_in_ == 3 and len(model.coef_) == 3
    assert model.guarantee_.num_units == 300 and model.guarantee_.records_per_unit == 5
    without = (
        np.delete(given, 1, axis=1)
        if kind == "array"
        else given.drop(columns="customer_id")
        if kind == "pandas"
        else given.drop("customer_id")
    )
    assert np.array_equal(model.predict(given), model.predict(without))
    if kind != "array":
        assert list(model.feature_names_in_) == ["age", "rooms", "size"]


def test_private_columns_are_found_by_their_place_in_the_table_as_given() -> None:
    table = make_table()
    X, y = table.drop(columns="price"), table["price"]
    settings: dict[str, Any] = {"label_bounds": (0, 10), "random_state": 0}
    by_name = PrivateRegressor(unit="customer_id", private_columns={"size": (-3, 3)}, **settings).fit(X, y)
    by_place = PrivateRegressor(unit=1, private_columns={3: (-3, 3)}, **settings).fit(X, y)
    array = PrivateRegressor(unit=1, private_columns={3: (-3, 3)}, **settings).fit(X.to_numpy(dtype=object), y)
    assert np.array_equal(by_name.coef_, by_place.coef_)
    assert np.array_equal(by_name.coef_, array.coef_)
    assert array.guarantee_.public_columns == ("x0", "x2") and array.guarantee_.private_columns == ("x3",)
    assert array.guarantee_.unit == "x1"
    with pytest.raises(SchemaError, match="private column 1 is not among the features"):
        PrivateRegressor(unit=1, private_columns={1: (-3, 3)}, **settings).fit(X, y)


@pytest.mark.parametrize("unit", ["missing", 9, -1, True])
def test_an_unknown_unit_column_is_refused(unit: Any) -> None:
    table = make_table()
    with pytest.raises(SchemaError, match="is not a column of X"):
        PrivateRegressor(label_bounds=(0, 10), unit=unit).fit(table.drop(columns="price"), table["price"])


def test_units_are_given_once_and_for_every_record() -> None:
    table = make_table()
    X, y, who = table[["age", "rooms"]], table["price"], table["customer_id"]
    with pytest.raises(SchemaError, match="Give one of the two"):
        PrivateRegressor(label_bounds=(0, 10), unit="age").fit(X, y, unit=who)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        PrivateRegressor(label_bounds=(0, 10)).fit(X, y, unit=who[:-1])
    model = PrivateRegressor(label_bounds=(0, 10)).fit(X, y, unit=who)
    assert model.guarantee_.unit == "customer_id"
    assert PrivateRegressor(label_bounds=(0, 10)).fit(X, y, unit=list(who)).guarantee_.unit == "unit"
    again = clone(PrivateRegressor(unit="customer_id"))
    assert again.unit == "customer_id"
    folds = GroupKFold(3).split(X, y, groups=who)
    train_rows, test_rows = next(folds)
    assert model.fit(X.iloc[train_rows], y.iloc[train_rows], unit=who.iloc[train_rows]).predict(X.iloc[test_rows]).shape


@pytest.mark.parametrize("kind", ["pandas", "array", "passed"])
def test_a_saved_estimator_predicts_with_and_without_the_unit_column(tmp_path: Path, kind: str) -> None:
    table = make_table()
    X, y = table.drop(columns="price"), table["price"]
    if kind == "passed":
        given: Any = X[["age", "rooms", "size"]].to_numpy()
        model = PrivateRegressor(label_bounds=(0, 10)).fit(given, y, unit=X["customer_id"])
    else:
        given = X if kind == "pandas" else X.to_numpy(dtype=object)
        model = PrivateRegressor(label_bounds=(0, 10), unit=1).fit(given, y)
    model.save(tmp_path / "model")
    loaded = PrivateRegressor.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(given), model.predict(given))
    assert str(loaded.guarantee_) == str(model.guarantee_)
    if kind == "array":
        assert np.array_equal(loaded.predict(np.delete(given, 1, axis=1)), model.predict(given))
    assert "of all training records with any one of its 300 values of" in str(model.guarantee_)
    assert "(up to 5 records each" in str(model.guarantee_)


# --- files, plans and reports


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    make_table().to_csv(path, index=False)
    return path


def test_a_fit_of_a_file_names_its_unit_everywhere(data: Path, tmp_path: Path) -> None:
    saved = fit_file(data, SCHEMA, tmp_path / "model", seed=0)
    assert saved.schema == SCHEMA and saved.guarantee.unit == "customer_id"
    assert saved.ledger.entries[-1].details["unit"] == "customer_id"
    report_file(tmp_path / "model", tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text().replace("\\", "")
    for phrase in (
        "all records with any one of the 300 values of 'customer_id'",
        "their label and private columns",
        "label and private columns of all records with one value of 'customer_id'",
        "all records of a unit together can move",
        "Records with the same value of 'customer_id'",
    ):
        assert phrase in text
    assert "C-0" not in text + (tmp_path / "model" / "model.json").read_text()


def test_a_saved_model_whose_unit_was_removed_is_refused(data: Path, tmp_path: Path) -> None:
    fit_file(data, SCHEMA, tmp_path / "model", seed=0)
    path = tmp_path / "model" / "model.json"
    record = json.loads(path.read_text())
    for field, value in (("unit", ""), ("num_units", "many"), ("records_per_unit", -1)):
        changed = {**record, "guarantee": {**record["guarantee"], field: value}}
        path.write_bytes(sign_record(changed))
        with pytest.raises(ModelFileError, match="promises more than its own evidence shows|is damaged"):
            load_model(tmp_path / "model")


def test_a_saved_model_without_the_fields_of_units_still_loads(data: Path, tmp_path: Path) -> None:
    plain = Schema.of(label="price", label_bounds=(0, 10), public=["age", "rooms"])
    fit_file(data, plain, tmp_path / "model", seed=0)
    path = tmp_path / "model" / "model.json"
    record = json.loads(path.read_text())
    for field in ("unit", "num_units", "records_per_unit"):
        del record["guarantee"][field]
    path.write_bytes(sign_record(record))
    assert load_model(tmp_path / "model").guarantee.unit == ""


def test_plans_and_comparisons_are_made_for_units(data: Path, tmp_path: Path) -> None:
    public = Schema.of(label="price", label_bounds=(0, 10), public=["age", "rooms"], unit="customer_id")
    settings: dict[str, Any] = {"algorithms": ("auto", "weighted-llp", "mean"), "epsilons": (1.0,)}
    compared = compare_file(data, public, **settings)
    assert (compared.unit, compared.num_units) == ("customer_id", 300)
    assert "says which records belong together" in compared.skipped["weighted-llp"]
    plain = compare_file(data, Schema.of(label="price", label_bounds=(0, 10), public=["age", "rooms"]), **settings)
    assert compared.mean("mean")[0] > plain.mean("mean")[0]  # more noise
    assert Comparison.from_json(json.loads(json.dumps(compared.to_json()))) == compared
    plan = plan_file(data, public, epsilon=1.0, algorithms=("auto", "mean"))
    save_record(plan, tmp_path / "plan.json")
    assert load_record(tmp_path / "plan.json") == plan
    report_file(tmp_path / "plan.json", tmp_path / "plan.md")
    text = (tmp_path / "plan.md").read_text().replace("\\", "")
    assert "protects all records with one of the 300 values of 'customer_id'" in text
    assert "the formula is for single records" in text
    stored = plan.to_json()
    with pytest.raises(SchemaError, match="different units"):
        Plan.from_json(json.loads(json.dumps({**stored, "comparison": {**stored["comparison"], "unit": ""}})))


def test_a_plan_that_cannot_know_the_units_is_refused() -> None:
    records = read_records(make_table(), SCHEMA)[0]
    with pytest.raises(SchemaError, match="unit='customer_id', but the plan was given no units"):
        make_plan(records.public, SCHEMA)
    with pytest.raises(SchemaError, match="units are of 2 records"):
        compare_algorithms(records.public, units=Units.of([0, 1]))


def test_a_sample_for_simulation_consists_of_whole_units() -> None:
    from conddp.planning import comparison

    codes = np.random.default_rng(0).integers(0, 150, size=600)
    public, units = comparison.take_sample(PublicFeatures(np.arange(600.0)[:, None]), Units(codes), 200)
    kept = public.values[:, 0].astype(int)
    assert units is not None and 150 < len(kept) <= 200 and len(units) == len(kept)
    assert np.array_equal(kept, np.flatnonzero(np.isin(codes, codes[kept])))


# --- command line


def run_command(*arguments: str) -> Any:
    from typer.testing import CliRunner

    from conddp.cli.main import app

    return CliRunner().invoke(app, list(arguments))


def test_the_command_line_names_a_unit_without_a_schema_file(data: Path, tmp_path: Path) -> None:
    columns = ("--label", "price", "--label-bounds", "0,10", "--public", "all")
    options = (*columns, "--private", "size=-3,3", "--unit", "customer_id")
    done = run_command("fit", str(data), *options, "--out", str(tmp_path / "model"), "--seed", "0")
    assert done.exit_code == 0, done.output
    assert "any one of its 300 values of 'customer_id'" in " ".join(done.output.split())
    assert load_model(tmp_path / "model").schema == SCHEMA
    wrong = run_command("fit", str(data), *options[:-1], "customer", "--out", str(tmp_path / "other"))
    assert wrong.exit_code != 0
    assert not (tmp_path / "other").exists()


def test_the_command_line_refuses_a_unit_beside_a_schema_file(data: Path, tmp_path: Path) -> None:
    SCHEMA.write(tmp_path / "schema.toml")
    settings = ("--schema", str(tmp_path / "schema.toml"), "--out", str(tmp_path / "model"))
    assert run_command("fit", str(data), *settings, "--unit", "customer_id").exit_code == 2
    assert run_command("fit", str(data), *settings, "--seed", "0").exit_code == 0


def test_the_command_line_plans_for_units(data: Path) -> None:
    columns = ("--label", "price", "--label-bounds", "0,10", "--public", "all", "--unit", "customer_id")
    few = ("--algorithm", "mean", "--epsilon", "1", "--workers", "1")
    done = run_command("compare", str(data), *columns, *few)
    assert done.exit_code == 0, done.output
    assert "protecting all records with one of 300 values of 'customer_id'" in " ".join(done.output.split())
    without = run_command("compare", str(data), *columns[:4], *few)
    assert without.exit_code == 2 and "--unit" in without.output
