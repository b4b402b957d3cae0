"""Odd arrays and tables: used as they should be, or refused with what to do; no warning and no cell in a message."""

import datetime
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from conddp import PrivateRegressor
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PrivateFeatures
from conddp.data.schema import Schema
from conddp.errors import SchemaError
from conddp.features.reading import read_records

N = 40
X = np.random.default_rng(0).normal(size=(N, 2))
SECRET, SECRET_TEXT = 918273.64, "SECRETtext17"
BOUNDS = (0.0, 10.0)


def label(*odd: Any) -> list[Any]:
    """Ordinary labels, with the odd ones first."""
    return [*odd, *np.linspace(1.0, 9.0, N - len(odd)).tolist()]


def fit(X: Any, y: Any, **settings: Any) -> PrivateRegressor:
    return PrivateRegressor(label_bounds=BOUNDS, random_state=0, **settings).fit(X, y)


def dates(unit: str) -> Any:
    return np.arange(N).astype(f"datetime64[{unit}]")


REFUSED_LABELS: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (lambda: np.ma.masked_greater(label(SECRET), 100), r"masked array.*filled\(value\)"),
    "masked but nothing is": (lambda: np.ma.array(label(1.0)), "masked array"),
    "a masked cell": (lambda: label(np.ma.masked, SECRET), "contains NaN"),
    "dates": (lambda: dates("D"), "dates or times.*days since a fixed date"),
    "durations": (lambda: dates("s") - dates("s")[0], "dates or times"),
    "date objects": (lambda: [datetime.date(2020, 1, 1)] * N, "dates or times"),
    "numpy dates in a list of objects": (
        lambda: np.array(label(np.datetime64("2020-01-01"), np.timedelta64(3, "D")), dtype=object),
        "dates or times",
    ),
    "pandas dates": (lambda: pd.Series(pd.date_range("2020", periods=N)), "dates or times"),
    "polars durations": (lambda: pl.Series([datetime.timedelta(3)] * N), "dates or times"),
    "NaN": (lambda: label(float("nan"), SECRET), "contains NaN. If everyone may know"),
    "None": (lambda: label(None, SECRET), "contains NaN"),
    "pandas NA": (lambda: pd.Series(label(None, 3), dtype="Float64"), "contains NaN"),
    "pandas NA among objects": (lambda: pd.Series(label(pd.NA, SECRET), dtype=object), "contains NaN"),
    "pandas NA among booleans": (lambda: pd.Series([True, None] * (N // 2), dtype="boolean"), "contains NaN"),
    "polars null": (lambda: pl.Series(label(None, 3.0)), "contains NaN"),
    "Arrow null": (lambda: pa.chunked_array([label(None, 3.0)]), "contains NaN"),
    "text": (lambda: label(SECRET_TEXT), "holds text"),
    "bytes": (lambda: np.array([SECRET_TEXT.encode()] * N), "holds text"),
    "complex": (lambda: np.array(label(1j)), "Complex data not supported"),
    "categories": (lambda: pd.Series(label(SECRET)).astype("category"), "holds categories"),
    "text categories": (lambda: pl.Series([SECRET_TEXT] * N, dtype=pl.Categorical), "holds categories"),
    "ragged": (lambda: [[1.0, 2.0], *[[1.0]] * (N - 1)], "must be rectangular"),
    "structured": (lambda: np.zeros(N, dtype=[("a", float)]), "holds objects|holds text"),
    "three dimensions": (lambda: np.ones((N, 2, 2)), "dim 3"),
    "a number": (lambda: 5.0, "should be a 1d array"),
    "a generator": (lambda: (value for value in label()), "holds objects"),
    "a sparse matrix": (lambda: scipy.sparse.csr_matrix(np.ones((N, 1))), "holds objects"),
    "an object": (lambda: label(object()), "holds objects"),
    "a mapping": (lambda: label({SECRET_TEXT: 1}), "holds objects"),
    "too few": (lambda: label()[:-1], "inconsistent numbers of samples"),
}


@pytest.mark.parametrize("name", list(REFUSED_LABELS))
def test_an_odd_label_is_refused_with_what_to_do(name: str) -> None:
    make, message = REFUSED_LABELS[name]
    with pytest.raises((SchemaError, ValueError, TypeError), match=message) as refused:
        fit(X, make())
    assert SECRET_TEXT not in str(refused.value) and str(SECRET) not in str(refused.value)
    assert refused.value.__cause__ is None  # the original message may quote a cell
    assert refused.value.__context__ is None or refused.value.__suppress_context__


BEYOND: dict[str, Any] = {
    "infinity": float("inf"),
    "a whole number of 400 digits": 10**400,
    "a decimal number": Decimal("1e400"),
    "a fraction": Fraction(10**400, 3),
    "text": "1e400",
    "a wide float": np.longdouble("1e4000") if np.finfo(np.longdouble).max > 1e308 else np.inf,
    "the largest double": 1.7e308,
}


@pytest.mark.parametrize("name", list(BEYOND))
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("wrap", [list, lambda cells: np.array(cells, dtype=object), lambda cells: pd.Series(cells)])
def test_a_label_beyond_any_range_is_clamped_in_silence(name: str, sign: int, wrap: Any) -> None:
    """As if it lay just outside its bounds: nothing that is said or done depends on how far outside."""
    beyond = BEYOND[name]
    odd = f"-{beyond}" if sign < 0 and isinstance(beyond, str) else beyond if sign > 0 else -beyond
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        strange = wrap(label(odd))
        if isinstance(strange, pd.Series) and strange.dtype != object:
            strange = strange.astype(object)
        model = fit(X, strange)
    plain = fit(X, label(BOUNDS[1] + 1 if sign > 0 else BOUNDS[0] - 1))
    assert model.coef_.tolist() == plain.coef_.tolist()


def test_wide_floats_and_other_numbers_are_used_as_numbers() -> None:
    plain = fit(X, label(3.0)).coef_.tolist()
    others: tuple[Any, ...] = (
        np.array(label(3.0), dtype=np.longdouble),
        [Decimal(repr(value)) for value in label(3.0)],
        [str(value) for value in label(3.0)],
        pl.Series(label(3.0)),
        pa.chunked_array([label(3.0)]),
        pd.Series(label(3.0), dtype="Float64"),
    )
    for other in others:
        assert fit(X, other).coef_.tolist() == plain
    flags = np.arange(N) % 2 == 0
    assert fit(X, flags).coef_.tolist() == fit(X, flags.astype(float)).coef_.tolist()


def test_infinite_private_values_are_clamped_and_public_ones_refused() -> None:
    infinite, large = X.copy(), X.copy()
    infinite[0, 1], large[0, 1] = np.inf, 1e9
    private = {1: (-1, 1)}
    for table in (lambda values: values, lambda values: pd.DataFrame(values, columns=["a", "b"])):
        model, plain = (fit(table(values), label(), private_columns=private) for values in (infinite, large))
        assert model.coef_.tolist() == plain.coef_.tolist()
        assert model.predict(table(infinite)).tolist() == plain.predict(table(large)).tolist()
        with pytest.raises(SchemaError, match="column '(x1|b)' contains infinity"):
            fit(table(infinite), label())
    parts = PrivateFeatures(infinite, (Bounds(-1, 1), Bounds(-1, 1)))
    assert parts.values[0, 1] == 1.0 and parts.values[1:].tolist() == infinite[1:].tolist()
    assert Labels(np.array([1.0, -np.inf]), Bounds(0, 5)).values.tolist() == [1.0, 0.0]


REFUSED_FEATURES: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (lambda: np.ma.masked_greater(X, 1.0), "masked array"),
    "dates": (lambda: np.column_stack([dates("D"), dates("D")]), "dates or times"),
    "objects": (lambda: pd.DataFrame({"a": [{SECRET_TEXT: 1}] * N}), "column 'a' holds objects"),
    "a lazy table": (lambda: pl.DataFrame({"a": X[:, 0]}).lazy(), "Call .collect\\(\\) first"),
    "lists": (lambda: pl.DataFrame({"a": [[1.0]] * N}), "column 'a' holds List"),
    "two columns of a name": (lambda: pd.DataFrame(X, columns=["a", "a"]), "columns of the same name"),
    "names of several kinds": (lambda: pd.DataFrame(X, columns=["a", 1]), "[Ff]eature names"),
    "names in levels": (
        lambda: pd.DataFrame(X, columns=pd.MultiIndex.from_tuples([("a", SECRET_TEXT), ("b", "c")])),
        "several levels",
    ),
    "complex": (lambda: X + 1j, "Complex data not supported"),
    "one dimension": (lambda: X[:, 0], "Expected 2D array"),
    "no dimension": (lambda: 3.0, "Expected 2D array"),
    "three dimensions": (lambda: X[None], "Expected 2D array"),
    "a generator": (lambda: (row for row in X), "Expected 2D array|holds objects"),
    "ragged": (lambda: [[1.0], *[[1.0, 2.0]] * (N - 1)], "must be rectangular"),
    "nested objects": (lambda: np.array([[{SECRET_TEXT: 1}, 2]] * N, dtype=object), "holds objects"),
}


@pytest.mark.parametrize("name", list(REFUSED_FEATURES))
def test_odd_features_are_refused_with_what_to_do(name: str) -> None:
    make, message = REFUSED_FEATURES[name]
    with pytest.raises((SchemaError, ValueError, TypeError), match=message) as refused:
        fit(make(), label())
    assert SECRET_TEXT not in str(refused.value)


def test_tables_of_files_are_refused_likewise() -> None:
    schema = Schema.of(label="y", label_bounds=BOUNDS, public=["a"], private={"b": (0, 1)})
    good: dict[str, Any] = {"a": X[:, 0], "b": X[:, 1], "y": label()}
    read_records(pd.DataFrame(good), schema)[0]
    for column, odd, message in (
        ("y", dates("s"), "label 'y' holds dates or times"),
        ("b", pd.Series([SECRET_TEXT] * N), "column 'b' holds text"),
        ("y", pd.Series(label(None)), "label 'y' contains NaN. If everyone may know"),
        ("a", label(np.inf), "column 'a' contains infinity"),
    ):
        with pytest.raises(SchemaError, match=message) as refused:
            read_records(pd.DataFrame({**good, column: odd}), schema)[0]
        assert SECRET_TEXT not in str(refused.value)
    records = read_records(pd.DataFrame({**good, "y": label(np.inf), "b": label(-np.inf)}), schema)[0]
    assert records.label.values[0] == BOUNDS[1]
    assert records.private is not None and records.private.values[0, 0] == 0.0


def test_equal_columns_of_an_arrow_table_are_not_taken_for_columns_of_the_same_name() -> None:
    table = pa.table({"a": X[:, 0], "b": X[:, 0]})
    model = fit(table, label())
    assert model.predict(table).tolist() == fit(table.to_pandas(), label()).predict(table.to_pandas()).tolist()
    twice = pa.Table.from_arrays([pa.array(X[:, 0])] * 2, names=["a", "a"])
    with pytest.raises(SchemaError, match="columns of the same name"):
        fit(twice, label())


def test_settings_beyond_floating_point_are_refused() -> None:
    odd: tuple[dict[str, Any], ...] = ({"epsilon": 10**400}, {"label_bounds": (0, 10**400)})
    for settings in (*odd, {"private_columns": {0: (0, 10**400)}}):
        with pytest.raises(ValueError, match="beyond the range of floating point"):
            PrivateRegressor(**{"label_bounds": BOUNDS, **settings}).fit(X, label())
