from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conddp.bounds import Bounds
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.readers import read_column_types
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.errors import PrivateDataLeak, SchemaError
from conddp.features.reading import read_records
from conddp.files import load_public, load_records

SCHEMA = Schema.of(label="spend", label_bounds=(0, 100), public=["rooms", "new"], private={"age": (0, 120)})
TABLE = {
    "age": [30, 41, 55],
    "rooms": [1.5, 2.0, 4.0],
    "new": [True, False, True],
    "spend": [10, 20, 99],
    "id": list("abc"),
}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_tables_are_split_by_role(make: Any) -> None:
    dataset = read_records(make(TABLE), SCHEMA)[0]
    assert dataset.public.names == ("rooms", "new")
    assert dataset.public.values.tolist() == [[1.5, 1.0], [2.0, 0.0], [4.0, 1.0]]
    assert dataset.private is not None
    assert dataset.private.values.tolist() == [[30], [41], [55]]
    assert dataset.label.values.tolist() == [10, 20, 99]
    assert dataset.num_records == 3


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.csv.gz"])
def test_files_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table(TABLE), path)
    else:
        pd.DataFrame(TABLE).to_csv(path, index=False)
    dataset = load_records(path, SCHEMA)[0]
    assert dataset.label.values.tolist() == [10, 20, 99]
    with pytest.raises(SchemaError, match="column 'nowhere' is declared but not among"):
        load_records(path, Schema.of(label="nowhere", label_bounds=(0, 1)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"nothing.csv' does not exist"):
        load_records(tmp_path / "nothing.csv", SCHEMA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": None}, "column 'age' is not among the"),
        ({"rooms": [1.0, float("inf"), 2.0]}, "column 'rooms' contains infinity"),
        ({"spend": [1.0, float("nan"), 2.0]}, "label 'spend' contains NaN. If everyone"),
        ({"age": ["thirty", "forty", "fifty"]}, "column 'age' holds text where a number is expected"),
    ],
)
def test_bad_tables_are_refused_without_quoting_a_cell(change: dict[str, Any], message: str) -> None:
    table = {name: values for name, values in {**TABLE, **change}.items() if values is not None}
    with pytest.raises(SchemaError, match=message) as caught:
        read_records(pd.DataFrame(table), SCHEMA)[0]
    assert "thirty" not in str(caught.value)


def test_tables_without_rows_are_refused() -> None:
    with pytest.raises(SchemaError, match="no rows"):
        read_records(pd.DataFrame(TABLE).iloc[:0], SCHEMA)[0]


def test_what_is_not_a_table_is_refused() -> None:
    with pytest.raises(SchemaError, match="expected a pandas, polars or Arrow table, got list"):
        read_records([1, 2], SCHEMA)[0]


def test_labels_cannot_pass_as_public_features() -> None:
    label = Labels(np.zeros(2), Bounds(0, 1))
    with pytest.raises(PrivateDataLeak, match="expects PublicFeatures, got Labels"):
        Records(label, None, label)  # type: ignore[arg-type]  # wrong on purpose


def test_parts_of_different_length_are_refused() -> None:
    with pytest.raises(SchemaError, match="same number of records"):
        Records(PublicFeatures(np.zeros((3, 1))), None, Labels(np.zeros(2), Bounds(0, 1)))


def test_text_of_private_parts_shows_no_value() -> None:
    private = PrivateFeatures(np.full((2, 1), 73512.0), (Bounds(0, 1e6),), ("income",))
    label = Labels(np.full(2, 73512.0), Bounds(0, 1e6), "spend")
    text = repr(private) + repr(label) + repr(Records(PublicFeatures(np.ones((2, 1))), private, label))
    assert "73512" not in text
    assert "income" in text


def test_text_in_object_arrays_is_refused_by_column() -> None:
    with pytest.raises(SchemaError, match="public column 'b' holds text"):
        PublicFeatures(np.array([[1, "x"], [2, "y"]], dtype=object), ("a", "b"))


def test_splits_equal_those_of_scikit_learn(rng: np.random.Generator) -> None:
    from sklearn.model_selection import train_test_split

    X, y = rng.normal(size=(50, 2)), rng.random(50)
    train, test = Records(PublicFeatures(X), None, Labels(y, Bounds(0, 1))).split(random_state=7)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=7)
    assert np.array_equal(train.public.values, X_train)
    assert np.array_equal(test.label.values, y_test)
    assert len(train.label.values) == len(y_train) and len(test.public.values) == len(X_test)


@pytest.mark.parametrize(
    "cell",
    """1.5 -3 1.5e-05 1.5E+05 -inf nan −3.5 0x1F 1.5d10 (3.50) #54321 ~54321 <0.5 5.1* 5² 72kg 54321USD 54321&17
    54321:17:secret 2024-01-05T10:00:00Z 5-Jan-2024 (555)123-4567 {"income" 1;2;3 $61,770 54%""".split()
    + ["Smith     54321   17", "54321 USD", "secret\nb"],
)
def test_a_first_line_that_may_be_data_is_refused_and_not_shown(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "t.csv"
    quoted = cell.replace('"', '""')
    path.write_text(f'"{quoted}",b\n1,2\n')
    with pytest.raises(SchemaError) as caught:
        read_column_types(path)
    assert cell.split("\n")[0] not in str(caught.value).replace(str(path), "")


@pytest.mark.parametrize("name", ["x1", "1stFlrSF", "3SsnPorch", "Sales 2021", "price_2020", "V12", "a.b", "été", "Q1"])
def test_names_with_digits_are_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{name},b\n1,2\n", encoding="utf-8")
    assert read_column_types(path) == {name: "whole number", "b": "whole number"}
    schema = Schema.of(label=name.upper() + "x", label_bounds=(0, 1), public=["b"])
    with pytest.raises(SchemaError, match="not among the 2 columns of"):
        load_public(path, schema)
