from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conddp.bounds import Bounds
from conddp.data.schema import Column, Role, Schema
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
