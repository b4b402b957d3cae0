from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conddp.bounds import Bounds
from conddp.categories import Categories
from conddp.data.column import Column, Kind, Role
from conddp.data.schema import Schema
from conddp.errors import SchemaError

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(names, min_size=1, max_size=6, unique=True), st.data())
def test_toml_reads_back_what_it_wrote(columns: list[str], data: st.DataObject) -> None:
    def bounds() -> tuple[float, float]:
        low, high = sorted(data.draw(st.lists(numbers, min_size=2, max_size=2, unique=True)))
        return low, high

    label, *features = columns
    cut = data.draw(st.integers(0, len(features)))
    schema = Schema.of(
        label=label,
        label_bounds=bounds(),
        public=features[:cut],
        private={name: bounds() for name in features[cut:]},
    )
    assert Schema.from_toml(schema.to_toml()) == schema


def test_files_read_back(tmp_path: Path) -> None:
    schema = Schema.of(label="y", label_bounds=(0, 1), public=["a"], private={"b": (2, 3)})
    schema.write(tmp_path / "schema.toml")
    assert Schema.load(tmp_path / "schema.toml") == schema
    with pytest.raises(SchemaError, match="cannot be read"):
        Schema.load(tmp_path / "missing.toml")


def test_label_without_bounds_is_refused() -> None:
    with pytest.raises(SchemaError, match="column 'y' is not public and has no bounds"):
        Schema.from_toml('[label]\nname = "y"\n[public]\ncolumns = ["a"]\n')


def test_private_column_without_bounds_is_refused() -> None:
    with pytest.raises(SchemaError, match="column 'income' is not public and has no bounds"):
        Schema.from_toml('[label]\nname = "y"\nbounds = [0, 1]\n[private.income]\n')


def test_label_that_is_also_a_feature_is_refused() -> None:
    with pytest.raises(SchemaError, match="column 'y' is the label and also a feature"):
        Schema.of(label="y", label_bounds=(0, 1), public=["a", "y"])


def test_a_column_with_two_roles_is_refused() -> None:
    with pytest.raises(SchemaError, match="column 'a' is listed twice"):
        Schema.of(label="y", label_bounds=(0, 1), public=["a"], private={"a": (0, 1)})


def test_bounds_on_a_public_column_are_refused() -> None:
    with pytest.raises(SchemaError, match="column 'a' is public and has bounds"):
        Column("a", Role.PUBLIC, Bounds(0, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[label", "not valid TOML"),
        ("[extra]\n", "unknown tables"),
        ("[public]\ncolumns = []\n", "no label"),
        ('[label]\nname = "y"\nbounds = [0, 1]\n[public]\ncolumns = "all"\n', r"\[public\] must contain"),
        ('[label]\nname = "y"\nbounds = [0, 1]\n[private]\nage = [0, 1]\n', r"\[private.NAME\] must be a table"),
        ('[label]\nname = "y"\nbounds = [0, 1, 2]\n', "a pair"),
        ('[label]\nname = "y"\nbounds = ["a", "b"]\n', "two numbers"),
        ('[label]\nname = "y"\nbounds = [1, 1]\n', "low < high"),
        ('[label]\nname = "y"\nbounds = [-inf, 1]\n', "finite"),
        ('[label]\nname = "y"\nbounds = 3\n', "a pair"),
        ('[label]\nname = "y"\nbounds = [1e308, 1.7e308]\n', "Change the units"),
        ('[label]\nname = "y"\nbounds = [1e16, 10000000000000004.0]\n', "Change the units"),
    ],
)
def test_bad_schemas_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.from_toml(text)


REAL = """
[label]
name = "visits"
bounds = [0.0, 30.0]
missing = "public"

[public]
columns = ["zip", "plan"]
kinds = {"zip" = "category"}

[private."birth"]
bounds = [1900-01-01T00:00:00, 2020-12-31T00:00:00]
fill = 1970-01-03T00:00:00

[private."region"]
categories = ["north", "south", "true"]
fill = "north"

[private."smoker"]
bounds = [0.0, 1.0]
kind = "boolean"

[dropped]
columns = ["name"]

[unit]
column = "person"
"""


def test_kinds_categories_fills_and_dates_read_back() -> None:
    schema = Schema.from_toml(REAL)
    assert Schema.from_toml(schema.to_toml()) == schema
    assert schema.to_toml().strip() == REAL.strip()
    assert schema.kinds == {"zip": Kind.CATEGORY}
    assert schema.label.missing_is_public
    birth, region, smoker = schema.private_columns
    assert (birth.kind, birth.fill) == (Kind.DATE, 2.0)
    assert region.domain == Categories(("north", "south", "true"))
    assert smoker.domain == Bounds(0, 1)
    assert schema.dropped == ("name",)


def test_private_columns_are_declared_by_pairs_lists_and_mappings() -> None:
    schema = Schema.of(
        label="y",
        label_bounds=(0, 1),
        private={
            "income": (0, 10),
            "region": ["north", "south"],
            "answer": (True, False),
            "grade": {"categories": [1, 2.0, "3"], "fill": 2},
            "age": {"bounds": (0, 120), "fill": 40},
        },
    )
    domains = dict(zip(schema.private, schema.private_domains, strict=True))
    assert domains["region"] == Categories(("north", "south"))
    assert domains["answer"] == Categories(("true", "false"))
    assert domains["grade"] == Categories(("1", "2", "3"))
    assert schema.private_columns[3].fill == "2"
    assert schema.private_columns[4].fill == 40.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[undecided]\ncolumns = ["a", "b"]\n', "2 columns are undecided: 'a', 'b'"),
        ('[private.a]\nkind = "category"\n', "has no categories"),
        ('[private.a]\ncategories = ["x"]\n', "2 to 1000 different values"),
        ('[private.a]\ncategories = ["x", "x"]\n', "different values"),
        ('[private.a]\ncategories = ["x", "y"]\nfill = "z"\n', "fill of column 'a' must be one of"),
        ("[private.a]\nbounds = [0, 1]\nfill = 2\n", "fill of column 'a' must lie within"),
        ('[private.a]\nbounds = [0, 1]\ncategories = ["x", "y"]\n', "has bounds and categories"),
        ("[private.a]\nbonds = [0, 1]\n", "declared with \\['bonds'\\]"),
        ('[public]\ncolumns = ["a"]\nkinds = {a = "text"}\n', "has kind='text'"),
        ('[public]\ncolumns = ["a"]\nkinds = {b = "date"}\n', "column 'b' has a kind but is not public"),
        ('[public]\ncolumns = ["a"]\n[dropped]\ncolumns = ["a"]\n', "column 'a' is dropped and also used"),
    ],
)
def test_contradictory_declarations_are_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.from_toml('[label]\nname = "y"\nbounds = [0, 1]\n' + text)
