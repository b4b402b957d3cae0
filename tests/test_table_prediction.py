"""What models do with tables that differ from the training table. Nothing goes wrong in silence."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from conddp import PrivateRegressor
from conddp.data import Schema
from conddp.errors import SchemaError
from conddp.files import fit_file, load_public, load_records, load_units, predict_file
from conddp.heads import Linear
from conddp.models import load_model

N = 600


def make_table(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "rooms": rng.integers(1, 9, N).astype(float),
            "city": rng.choice(["Lyon", "Nice", "Paris"], N),
            "zip": rng.choice([1001, 1002, 9000], N),
            "sold": pd.Timestamp("2022-03-01") + pd.to_timedelta(rng.integers(0, 900, N), unit="D"),
            "garden": rng.random(N) < 0.3,
            "income": rng.normal(60, 18, N).clip(0, 150).round(),
        }
    )
    table.loc[rng.random(N) < 0.1, "rooms"] = np.nan
    return table


TABLE = make_table()
LABEL = pd.Series(
    100 + 10 * TABLE["rooms"].fillna(4) + 60 * (TABLE["city"] == "Paris") + 0.5 * TABLE["income"], name="price"
)


@pytest.fixture(scope="module", params=["linear", "auto"])
def fitted(request: pytest.FixtureRequest) -> PrivateRegressor:
    table = TABLE.assign(zip=TABLE["zip"].astype("category"))
    model = PrivateRegressor(
        4.0, 1e-4, label_bounds=(0, 400), private_columns={"income": (0, 150)}, head=request.param, random_state=0
    )
    model.fit(table, LABEL)
    assert (model.result_.model.head == Linear()) == (request.param == "linear")
    return model


@pytest.fixture(scope="module", params=["fitted", "loaded"])
def model(request: pytest.FixtureRequest, fitted: PrivateRegressor, tmp_path_factory: Any) -> PrivateRegressor:
    if request.param == "fitted":
        return fitted
    return PrivateRegressor.load(fitted.save(tmp_path_factory.mktemp("saved") / "model"))


SAME: dict[str, Callable[[], Any]] = {
    "columns in another order": lambda: TABLE[list(TABLE)[::-1]],
    "additional columns": lambda: TABLE.assign(id=np.arange(N), price=0.0),
    "polars": lambda: pl.from_pandas(TABLE),
    "Arrow": lambda: pa.Table.from_pandas(TABLE, preserve_index=False),
    "Arrow dictionaries": lambda: pa.table({**_columns(), "city": pa.array(TABLE["city"]).dictionary_encode()}),
    "nullable types": lambda: TABLE.convert_dtypes(),
    "categories": lambda: TABLE.assign(city=TABLE["city"].astype("category")),
    "categories with other levels": lambda: TABLE.assign(
        city=pd.Categorical(TABLE["city"], categories=["Rome", "Paris", "Nice", "Lyon"])
    ),
    "polars enumerations": lambda: pl.from_pandas(TABLE).with_columns(
        city=pl.col("city").cast(pl.Enum(["Paris", "Nice", "Lyon"]))
    ),
    "codes as text": lambda: TABLE.assign(zip=TABLE["zip"].astype(str)),
    "codes as fractions": lambda: TABLE.assign(zip=TABLE["zip"].astype(float)),
    "dates as text": lambda: TABLE.assign(sold=TABLE["sold"].dt.strftime("%Y-%m-%d")),
    "dates with times": lambda: TABLE.assign(sold=TABLE["sold"].astype("datetime64[ns]")),
    "numbers as text": lambda: TABLE.assign(rooms=TABLE["rooms"].map("{:g}".format).replace("nan", None)),
    "flags as numbers": lambda: TABLE.assign(garden=TABLE["garden"].astype(float)),
}


def _columns() -> dict[str, Any]:
    return dict(zip(TABLE.columns.tolist(), pa.Table.from_pandas(TABLE, preserve_index=False).columns, strict=True))


@pytest.mark.parametrize("name", list(SAME))
def test_the_same_records_in_another_form_have_the_same_predictions(model: PrivateRegressor, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.predict(SAME[name]()), model.predict(TABLE))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "missing": (lambda: TABLE.drop(columns="city"), "column 'city' is not among the 5 columns"),
    "two missing": (lambda: TABLE[["rooms", "zip", "sold", "income"]], "columns 'city', 'garden' are not among"),
    "private missing": (lambda: TABLE.drop(columns="income"), "column 'income' is not among"),
    "renamed": (lambda: TABLE.rename(columns={"city": "City"}), "column 'city' is not among the 6 columns"),
    "an array": (lambda: TABLE.to_numpy(), "X has no column names"),
    "text for a number": (lambda: TABLE.assign(rooms="many"), "column 'rooms' holds text that is not a number"),
    "a date for a number": (lambda: TABLE.assign(rooms=TABLE["sold"]), "column 'rooms' holds dates"),
    "a number for a date": (lambda: TABLE.assign(sold=3.0), "column 'sold' holds a number where a date"),
    "text for a date": (lambda: TABLE.assign(sold="yesterday"), "column 'sold' holds text that is not a date"),
    "infinity": (lambda: TABLE.assign(rooms=np.inf), "column 'rooms' contains infinity"),
    "a lazy table": (lambda: pl.from_pandas(TABLE).lazy(), r"Call .collect\(\) first"),
    "lists": (lambda: pl.from_pandas(TABLE).with_columns(city=pl.lit([1])), "column 'city' holds List"),
    "two columns of a name": (
        lambda: pd.concat([TABLE, TABLE[["city"]]], axis=1),
        "columns of the same name",
    ),
    "no rows": (lambda: TABLE.head(0), "X has no records"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_other_tables_are_refused_with_what_is_wrong(model: PrivateRegressor, name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises((SchemaError, ValueError), match=message):
        model.predict(make())


@pytest.mark.parametrize("fitted", ["linear"], indirect=True)
def test_new_levels_and_gaps_have_known_effects(model: PrivateRegressor) -> None:
    first = TABLE.head(1).assign(city="Paris", rooms=3.0)
    coefficients = dict(zip(model.coef_names_, model.coef_, strict=True))
    known = model.predict(first)[0]
    assert model.predict(first.assign(city="Rome"))[0] == pytest.approx(known - coefficients["city=Paris"])
    assert model.predict(first.assign(city=None))[0] == pytest.approx(known - coefficients["city=Paris"])
    median = float(TABLE["rooms"].median())
    gap = model.predict(first.assign(rooms=np.nan))[0]
    moved = coefficients["rooms"] * (median - 3.0) + coefficients["rooms is missing"]
    assert gap == pytest.approx(known + moved)


def test_a_column_of_new_levels_only_raises_a_warning(model: PrivateRegressor) -> None:
    with pytest.warns(UserWarning, match="no value of column 'city' occurred in training"):
        model.predict(TABLE.assign(city=TABLE["city"].str.upper()))


def test_arrays_are_for_models_fitted_to_arrays() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = PrivateRegressor(label_bounds=(0, 1), random_state=0).fit(X, X[:, 0])
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    with pytest.warns(UserWarning, match="X has feature names, but PrivateRegressor was fitted without"):
        np.testing.assert_array_equal(model.predict(table), model.predict(X))
    with pytest.raises(ValueError, match="X has 2 features, but PrivateRegressor is expecting 3"):
        model.predict(X[:, :2])
    numbered = pd.DataFrame(X)  # columns 0, 1, 2
    np.testing.assert_array_equal(model.predict(numbered[[2, 0, 1]]), model.predict(X))

    with pytest.raises(SchemaError, match="column 'x1' is not among"):
        model.predict(numbered.rename(columns={1: 5}))


def test_a_flag_that_holds_other_numbers_is_refused(model: PrivateRegressor) -> None:
    with pytest.raises(SchemaError, match="column 'garden' was true or false in training"):
        model.predict(TABLE.assign(garden=7))


def test_codes_and_flags_may_be_written_differently() -> None:
    for trained, later in ((["1", "2"], ["1.0", "2.0"]), (["1.0", "2.0"], [1, 2]), ([True, False], ["True", "False"])):
        table = pd.DataFrame({"a": pd.Series(trained * 50, dtype=object).astype("category")})
        model = PrivateRegressor(8.0, label_bounds=(0, 3), random_state=0).fit(table, [1.0, 2.0] * 50)
        again = pd.DataFrame({"a": pd.Series(later * 5, dtype=object)})
        np.testing.assert_array_equal(model.predict(again), model.predict(table[:10]))


def test_dates_in_another_time_zone_are_refused() -> None:
    days = pd.Series(pd.date_range("2022-01-01", periods=200, freq="7h", tz="Europe/Berlin"))
    model = PrivateRegressor(label_bounds=(0, 1), random_state=0).fit(pd.DataFrame({"d": days}), np.arange(200) % 2)
    with pytest.raises(SchemaError, match="time zone Europe/Berlin in training and is in UTC now"):
        model.predict(pd.DataFrame({"d": days.dt.tz_convert("UTC")}))


def test_a_file_that_can_be_fitted_can_be_scored(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    odd = pd.DataFrame(
        {
            "zone": pd.date_range("2022-01-01", periods=200, freq="h").strftime("%Y-%m-%dT%H:%M:%SZ"),
            "clock": [f"{hour:02d}:30" for hour in rng.integers(0, 24, 200)],
            "money": [f"{amount:,.1f}" for amount in rng.uniform(900, 9000, 200)],
            "y": rng.uniform(0, 1, 200),
        }
    )
    odd.to_csv(tmp_path / "odd.csv", index=False)
    schema = Schema.of(
        label="y", label_bounds=(0, 1), public=["zone", "clock", "money"], kinds={"money": "number", "zone": "date"}
    )
    fit_file(tmp_path / "odd.csv", schema, tmp_path / "model", delta=1e-4, seed=0)
    assert predict_file(tmp_path / "model", tmp_path / "odd.csv", tmp_path / "out.csv") == 200


def test_gaps_in_arrays_are_filled_and_marked() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = X[:, 0].copy()
    X[rng.random(400) < 0.3, 1] = np.nan
    model = PrivateRegressor(label_bounds=(-3, 3), head="linear", random_state=0).fit(X, y)
    assert model.coef_names_.tolist() == ["x0", "x1", "x1 is missing"]
    assert np.isfinite(model.predict(X)).all()


def test_missing_labels_are_dropped_only_if_that_is_declared_public() -> None:
    y = LABEL.where(np.arange(N) % 3 > 0)
    table = TABLE.drop(columns="income")
    with pytest.raises(SchemaError, match="contains NaN. If everyone may know which labels are missing"):
        PrivateRegressor(label_bounds=(0, 400)).fit(table, y)
    model = PrivateRegressor(label_bounds=(0, 400), missing_labels="public", random_state=0).fit(table, y)
    kept = y.notna()
    assert model.guarantee_.num_records == kept.sum()
    same = PrivateRegressor(label_bounds=(0, 400), random_state=0).fit(table[kept], y[kept])
    np.testing.assert_array_equal(model.coef_, same.coef_)


@pytest.mark.parametrize(
    ("head", "tolerance"),
    [("linear", 1e-12), ("auto", 1e-6)],  # learned features are computed in float32
)
def test_a_file_is_scored_piece_by_piece_with_columns_to_keep(
    head: str, tolerance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema.of(
        label="price",
        label_bounds=(0, 400),
        public=["rooms", "city", "zip", "sold", "garden"],
        private={"income": (0, 150)},
        kinds={"zip": "category"},
    )
    table = TABLE.assign(price=LABEL, id=np.arange(N))
    table.to_csv(tmp_path / "train.csv", index=False)
    fit_file(tmp_path / "train.csv", schema, tmp_path / "model", epsilon=4.0, delta=1e-4, head=head, seed=0)
    whole = load_model(tmp_path / "model").predict_table(TABLE)
    new = table.drop(columns="price")[["id", *list(TABLE)[::-1]]]
    new.to_csv(tmp_path / "new.csv", index=False)
    pa.parquet.write_table(pa.Table.from_pandas(new), tmp_path / "new.parquet", row_group_size=100)
    monkeypatch.setattr("conddp.data.readers.BLOCK", 4096)
    for source in ("new.csv", "new.parquet"):
        for target in ("out.csv", "out.parquet"):
            count = predict_file(tmp_path / "model", tmp_path / source, tmp_path / target, keep=["id"], overwrite=True)
            read = pa.csv.read_csv if target.endswith("csv") else pa.parquet.read_table
            written = read(tmp_path / target)
            assert count == N and written.column_names == ["id", "price_predicted"]
            assert written["id"].to_pylist() == list(range(N))
            np.testing.assert_allclose(written["price_predicted"].to_numpy(), whole, rtol=tolerance)


def test_zones_of_time_stamps_and_gaps_of_stata_are_read_in_training_and_in_scoring(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stamps = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 8_000, 400), unit="h")
    rate = rng.normal(size=400)
    table = pd.DataFrame({"at": stamps, "rate": rate, "y": np.clip(rate + (stamps.hour > 12), -3, 3)})
    table.loc[::7, "rate"] = np.nan
    plain, other = tmp_path / "plain.csv", tmp_path / "other.csv"
    table.to_csv(plain, index=False)
    zoned = table.assign(at=stamps.strftime("%Y-%m-%dT%H:%M:%SZ"), rate=table["rate"].astype(object).fillna("."))
    zoned.to_csv(other, index=False)
    schema = Schema.of(label="y", label_bounds=(-3, 3), public=["at", "rate"])
    scores = {}
    for name in (plain, other):
        model, out = tmp_path / f"model of {name.stem}", tmp_path / f"scores of {name.name}"
        encoding = fit_file(name, schema, model, seed=0).encoding
        assert encoding is not None
        assert {"at: time of day, sine 1", "rate is missing"} <= set(encoding.features)
        predict_file(model, name, out)
        scores[name] = pd.read_csv(out)["y_predicted"].to_numpy()
    np.testing.assert_allclose(scores[plain], scores[other])
    assert np.std(scores[plain]) > 0.1


def test_scoring_that_fails_leaves_no_file(tmp_path: Path, fitted: PrivateRegressor) -> None:
    fitted.save(tmp_path / "model")
    bad = TABLE.assign(rooms=TABLE["rooms"].astype(object).where(np.arange(N) < N - 1, "many"))
    bad.to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(SchemaError):
        predict_file(tmp_path / "model", tmp_path / "new.csv", tmp_path / "out.csv")
    with pytest.raises(SchemaError, match="'nowhere' is declared but not among"):
        predict_file(tmp_path / "model", tmp_path / "new.csv", tmp_path / "out.csv", keep=["nowhere"])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model", "new.csv"]


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_it_works_behind_a_column_transformer(output: str) -> None:
    public = make_column_transformer(
        (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["city", "zip"]), (StandardScaler(), ["garden"])
    )
    public.set_output(transform=output)
    pipeline = make_pipeline(public, PrivateRegressor(4.0, 1e-4, label_bounds=(0, 400), random_state=0))
    predictions = pipeline.fit(TABLE, LABEL).predict(TABLE[list(TABLE)[::-1]])
    assert np.corrcoef(predictions, LABEL)[0, 1] > 0.7  # 0.76 without noise: rooms and income are not used


def test_no_cell_of_a_private_column_is_in_a_message_about_tables() -> None:
    secret = "SECRETtext17"
    table = TABLE.assign(income=secret)
    for private in ({"income": (0, 150)}, {"income": {"bounds": (0, 150), "fill": 3}}):
        with pytest.raises(SchemaError) as refused:
            PrivateRegressor(label_bounds=(0, 400), private_columns=private).fit(table, LABEL)
        error: BaseException | None = refused.value
        while error is not None:
            assert secret not in str(error)
            error = error.__cause__ or error.__context__


def test_a_table_may_have_private_columns_only() -> None:
    model = PrivateRegressor(4.0, label_bounds=(0, 400), private_columns={"income": (0, 150)}, random_state=0)
    assert model.fit(TABLE[["income"]], LABEL).coef_names_.tolist() == ["income"]
    assert model.predict(TABLE).shape == (N,)


def test_private_dates_are_declared_by_dates_or_text() -> None:
    table = TABLE[["rooms"]].assign(born=pd.Timestamp("1970-01-01") + pd.to_timedelta(np.arange(N) * 20, unit="D"))
    fits = [
        PrivateRegressor(
            4.0, label_bounds=(0, 400), private_columns={"born": bounds}, head="linear", random_state=0
        ).fit(table, LABEL)
        for bounds in (
            ("1960-01-01", "2010-01-01"),
            (pd.Timestamp("1960-01-01"), pd.Timestamp("2010-01-01")),
            (np.datetime64("1960-01-01"), np.datetime64("2010-01-01")),
            {"bounds": ("1960-01-01", "2010-01-01"), "fill": "1980-01-01"},
        )
    ]
    for model in fits:
        assert model.coef_names_.tolist()[-1] == "born in days"
        np.testing.assert_array_equal(model.coef_, fits[0].coef_)
    with pytest.raises(SchemaError, match="the first of its dates must be before the second"):
        PrivateRegressor(label_bounds=(0, 400), private_columns={"born": ("2010-01-01", "1960-01-01")}).fit(
            table, LABEL
        )


def test_the_guarantee_says_that_missing_labels_are_taken_to_be_public() -> None:
    y = LABEL.where(np.arange(N) % 3 > 0)
    model = PrivateRegressor(label_bounds=(0, 400), missing_labels="public").fit(TABLE[["rooms"]], y)
    assert "which records have no label (they were left out)" in str(model.guarantee_)
    with pytest.raises(SchemaError, match="every label is missing"):
        PrivateRegressor(label_bounds=(0, 400), missing_labels="public").fit(TABLE[["rooms"]], y * np.nan)


def test_a_plan_is_for_the_records_that_have_a_label_if_that_is_public(tmp_path: Path) -> None:
    table = TABLE[["rooms", "city"]].assign(price=LABEL.where(np.arange(N) % 3 > 0), who=np.arange(N) // 2)
    table.to_csv(tmp_path / "t.csv", index=False)
    schema = Schema.of(
        label="price", label_bounds=(0, 400), public=["rooms", "city"], missing_labels="public", unit="who"
    )
    public, encoding = load_public(tmp_path / "t.csv", schema)
    units = load_units(tmp_path / "t.csv", schema)
    records, same = load_records(tmp_path / "t.csv", schema)
    assert encoding == same and units is not None and records.units is not None
    np.testing.assert_array_equal(public.values, records.public.values)
    np.testing.assert_array_equal(units.codes, records.units.codes)


def test_text_that_is_nearly_all_numbers_or_dates_is_pointed_out() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "a": [*(f"{value:.4f}" for value in rng.normal(size=N - 1)), "oops"],
            "b": pd.Series(pd.date_range("2020-01-01", periods=N)).dt.strftime("%d/%m/%Y"),
            "c": [f"name {place}" for place in range(N)],
        }
    )
    model = PrivateRegressor(label_bounds=(0, 400)).fit(table, LABEL)
    remarks = list(model.encoding_.list_remarks())
    assert "'a' is used as text, but nearly all of its values look like a number" in remarks[0]
    assert "'b' is used as text, but nearly all of its values look like a date" in remarks[1]
    assert "'c' has a different value in nearly every record" in remarks[2]
