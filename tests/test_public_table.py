"""Public columns of any type and library come out in the same normal form."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from conddp.data.column import Kind
from conddp.data.public_table import PublicTable
from conddp.data.units import Units
from conddp.errors import SchemaError
from conddp.privacy.fingerprint import Fingerprint

NOON = dt.datetime(2020, 2, 29, 12, 0)
DAY = dt.date(2020, 2, 29)
DAYS = 18321.0  # from 1970-01-01 to 2020-02-29

TEXTS: dict[str, Callable[[], Any]] = {
    "pandas text": lambda: pd.DataFrame({"a": ["x", None, "y"]}),
    "pandas objects": lambda: pd.DataFrame({"a": np.array(["x", None, "y"], dtype=object)}),
    "pandas category": lambda: pd.DataFrame({"a": pd.Categorical(["x", None, "y"], categories=["z", "y", "x"])}),
    "pandas nullable text": lambda: pd.DataFrame({"a": pd.array(["x", None, "y"], dtype="string")}),
    "polars text": lambda: pl.DataFrame({"a": ["x", None, "y"]}),
    "polars category": lambda: pl.DataFrame({"a": pl.Series(["x", None, "y"], dtype=pl.Categorical)}),
    "polars enumeration": lambda: pl.DataFrame({"a": pl.Series(["x", None, "y"], dtype=pl.Enum(["y", "x"]))}),
    "Arrow text": lambda: pa.table({"a": ["x", None, "y"]}),
    "Arrow large text": lambda: pa.table({"a": pa.array(["x", None, "y"], pa.large_string())}),
    "Arrow dictionary": lambda: pa.table({"a": pa.array(["x", None, "y"]).dictionary_encode()}),
}


@pytest.mark.parametrize("name", list(TEXTS))
def test_text_becomes_levels_in_the_order_of_the_text(name: str) -> None:
    column = PublicTable.of(TEXTS[name]()).columns["a"]
    assert (column.kind, column.levels, column.values.tolist()) == (Kind.CATEGORY, ("x", "y"), [0, -1, 1])


NUMBERS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.Series([1.0, None, 3.0]),
    "pandas nullable whole": lambda: pd.Series([1, None, 3], dtype="Int64"),
    "pandas decimals": lambda: pd.Series([Decimal(1), None, Decimal(3)]),
    "pandas Arrow": lambda: pd.Series([1, None, 3], dtype="int64[pyarrow]"),
    "pandas objects": lambda: pd.Series([1, None, 3.0], dtype=object),
}


@pytest.mark.parametrize("name", list(NUMBERS))
def test_numbers_keep_their_gaps(name: str) -> None:
    column = PublicTable.of(pd.DataFrame({"a": NUMBERS[name]()})).columns["a"]
    assert column.kind is Kind.NUMBER
    np.testing.assert_array_equal(column.values, [1.0, np.nan, 3.0])


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": pd.array([True, None, False], dtype="boolean")}),
        pd.DataFrame({"a": np.array([True, None, False], dtype=object)}),
        pl.DataFrame({"a": [True, None, False]}),
        pa.table({"a": [True, None, False]}),
    ],
    ids=["pandas", "objects", "polars", "arrow"],
)
def test_flags_become_zero_and_one(table: Any) -> None:
    column = PublicTable.of(table).columns["a"]
    assert column.kind is Kind.BOOLEAN
    np.testing.assert_array_equal(column.values, [1.0, np.nan, 0.0])


DATES: dict[str, Callable[[], Any]] = {
    "pandas stamps": lambda: pd.DataFrame({"a": pd.Series([NOON, None]).astype("datetime64[s]")}),
    "pandas nanoseconds": lambda: pd.DataFrame({"a": pd.Series([NOON, None]).astype("datetime64[ns]")}),
    "pandas objects": lambda: pd.DataFrame({"a": np.array([NOON, None], dtype=object)}),
    "pandas in a time zone": lambda: pd.DataFrame(
        {"a": pd.Series([NOON, None]).dt.tz_localize("America/New_York")}  # noon there, whatever it is elsewhere
    ),
    "polars milliseconds": lambda: pl.DataFrame({"a": pl.Series([NOON, None], dtype=pl.Datetime("ms"))}),
    "Arrow seconds": lambda: pa.table({"a": pa.array([NOON, None], pa.timestamp("s"))}),
}


@pytest.mark.parametrize("name", list(DATES))
def test_time_stamps_become_days_on_the_local_clock(name: str) -> None:
    column = PublicTable.of(DATES[name]()).columns["a"]
    assert column.kind is Kind.DATE
    np.testing.assert_allclose(column.values, [DAYS + 0.5, np.nan])


def test_dates_and_iso_text_become_days() -> None:
    for table in (
        pl.DataFrame({"a": [DAY, None]}),
        pa.table({"a": [DAY, None]}),
        pd.DataFrame({"a": [DAY, None]}),
    ):
        np.testing.assert_allclose(PublicTable.of(table).columns["a"].values, [DAYS, np.nan])
    text = pd.DataFrame({"a": ["2020-02-29", None, "2020-03-01 06:00"]})
    read = PublicTable.of(text, kinds={"a": Kind.DATE}).columns["a"]
    np.testing.assert_allclose(read.values, [DAYS, np.nan, DAYS + 1.25])
    zoned = pd.DataFrame({"a": ["2020-02-29T12:00:00Z", None]})
    np.testing.assert_allclose(PublicTable.of(zoned, kinds={"a": Kind.DATE}).columns["a"].values, [DAYS + 0.5, np.nan])


def test_durations_and_times_of_the_day_are_hours() -> None:
    table = pl.DataFrame({"a": [dt.timedelta(hours=36), None], "b": [dt.time(6, 30), None]})
    columns = PublicTable.of(table).columns
    np.testing.assert_allclose(columns["a"].values, [36.0, np.nan])
    np.testing.assert_allclose(columns["b"].values, [6.5, np.nan])


def test_the_same_category_has_the_same_level_in_every_type() -> None:
    """A zip code may be text in one table, whole in another, and a floating-point number in a third because of gaps."""
    for cells in (["7", None, "12"], [7, None, 12], pd.array([7, None, 12], dtype="Int64"), [7.0, np.nan, 12.0]):
        for wrap in (pd.Series, lambda each: pd.Series(each).astype("category")):
            column = PublicTable.of(pd.DataFrame({"a": wrap(cells)}), kinds={"a": Kind.CATEGORY}).columns["a"]
            assert (column.levels, column.values.tolist()) == (("12", "7"), [1, -1, 0])
    flags = PublicTable.of(pd.DataFrame({"a": [True, False]}), kinds={"a": Kind.CATEGORY}).columns["a"]
    assert flags.levels == ("false", "true")
    fractions = PublicTable.of(pd.DataFrame({"a": [0.5, 2.0]}), kinds={"a": Kind.CATEGORY}).columns["a"]
    assert len(fractions.levels) == 2


def test_text_that_was_declared_a_number_is_parsed() -> None:
    table = pd.DataFrame({"a": ["1,234.5", " 2 ", None, ".", "NA"], "b": ["yes", "No", "1", "?", None]})
    columns = PublicTable.of(table, kinds={"a": Kind.NUMBER, "b": Kind.BOOLEAN}).columns
    np.testing.assert_array_equal(columns["a"].values, [1234.5, 2.0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(columns["b"].values, [1.0, 0.0, 1.0, np.nan, np.nan])


@pytest.mark.parametrize(
    ("table", "kind", "message"),
    [
        (pd.DataFrame({"a": ["secret", "1"]}), Kind.NUMBER, "column 'a' holds text that is not a number"),
        (pd.DataFrame({"a": ["secret"]}), Kind.DATE, "column 'a' holds text that is not a date"),
        (pd.DataFrame({"a": [1.5]}), Kind.DATE, "column 'a' holds a number where a date is expected"),
        (pd.DataFrame({"a": [NOON]}), Kind.NUMBER, "column 'a' holds dates where a number is expected"),
        (pd.DataFrame({"a": [1.0, np.inf]}), None, "column 'a' contains infinity"),
        (pl.DataFrame({"a": [["secret"]]}), None, "column 'a' holds List"),
        (pa.table({"a": [b"secret"]}), None, "column 'a' holds Binary"),
        (pd.DataFrame({"a": [{"secret": 1}]}), None, "column 'a' holds objects"),
    ],
)
def test_other_cells_are_refused_by_column_and_not_quoted(table: Any, kind: Kind | None, message: str) -> None:
    with pytest.raises(SchemaError, match=message) as refused:
        PublicTable.of(table, kinds={} if kind is None else {"a": kind})
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_lazy_tables_say_what_to_call() -> None:
    with pytest.raises(SchemaError, match=r"LazyFrame, whose rows are not read yet. Call .collect\(\) first"):
        PublicTable.of(pl.DataFrame({"a": [1]}).lazy())


def test_a_fingerprint_recognises_the_columns_of_a_table_in_any_order_type_and_encoding() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"number": rng.normal(size=50), "text": rng.choice(list("abc"), 50)})
    gaps = table.assign(number=table["number"].where(table["number"] > 0))
    original = PublicTable.of(table).fingerprint
    assert original.matches(PublicTable.of(table.sample(frac=1, random_state=0)[["text"]]).fingerprint)
    assert original.matches(PublicTable.of(pl.from_pandas(table)[["text"]]).fingerprint)
    assert original.matches(Fingerprint.of(table[["number"]].to_numpy()))
    assert PublicTable.of(gaps[["number"]]).fingerprint.matches(PublicTable.of(gaps[::-1]).fingerprint)
    changed = table.assign(
        text=[
            "c",
            *table["text"][1:-1],
            "c",
        ][:50],
        number=rng.normal(size=50),
    )
    assert not original.matches(PublicTable.of(changed).fingerprint)
    assert PublicTable.of(pd.DataFrame({"a": ["x"] * 9})).fingerprint.columns == ()  # a constant tells nothing


def make_bad_text() -> pa.Array:
    """Text of which one cell is in Latin-1; Arrow does not notice."""
    cells = pa.array([b"fine", "SECRET-K\u00f6ln".encode("latin-1"), b"fine"], type=pa.binary())
    return pa.StringArray.from_buffers(3, cells.buffers()[1], cells.buffers()[2])


@pytest.mark.parametrize("kind", [None, Kind.NUMBER, Kind.DATE])
def test_text_that_is_not_unicode_is_refused_and_not_quoted(kind: Kind | None) -> None:
    with pytest.raises(SchemaError, match="column 'a' holds") as refused:
        PublicTable.of(pa.table({"a": make_bad_text()}), kinds={} if kind is None else {"a": kind})
    assert "SECRET" not in str(refused.value) and refused.value.__context__ is None
    with pytest.raises(SchemaError, match="cannot be read") as refused:
        Units.of(pa.chunked_array([make_bad_text()]))
    assert "SECRET" not in str(refused.value) and refused.value.__context__ is None


def test_dates_out_of_range_are_refused() -> None:
    with pytest.raises(SchemaError, match="column 'a' holds dates that are out of range"):
        PublicTable.of(pa.table({"a": pa.array([0, 2**30], pa.int32()).cast(pa.date32())}))


@pytest.mark.parametrize("text", ["1,5", "1_000", "\u0661", "12,34", "1e", "0x1F", "inf", "nan2"])
def test_text_that_may_be_another_number_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="column 'a' holds text that is not a number"):
        PublicTable.of(pd.DataFrame({"a": ["1.5", text]}), kinds={"a": Kind.NUMBER})


def test_empty_text_is_a_gap_in_every_kind() -> None:
    frame = pd.DataFrame({"a": ["x", ""], "b": ["1.5", " "], "c": ["2020-02-29", ""]})
    columns = PublicTable.of(frame, kinds={"b": Kind.NUMBER, "c": Kind.DATE}).columns
    assert (columns["a"].levels, columns["a"].values.tolist()) == (("x",), [0, -1])
    np.testing.assert_array_equal(columns["b"].values, [1.5, np.nan])
    np.testing.assert_array_equal(columns["c"].values, [DAYS, np.nan])
