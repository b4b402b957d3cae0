"""A fit reads the user's array in place: no copy, no change, and nothing of it is kept."""

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conddp import PrivateRegressor
from conddp.data.public_table import PublicTable
from conddp.data.ranges import CELLS, ColumnRanges, bound_deviations, has_infinity, has_nan, is_finite
from conddp.errors import SchemaError
from conddp.estimators.inputs import open_input
from conddp.features.column_encodings import is_heavy_tailed
from conddp.features.encoding import Encoding
from conddp.heads import Linear

MADE: dict[str, Callable[[Any], Any]] = {
    "C": lambda X: X,
    "Fortran": np.asfortranarray,
    "every other column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": lambda X: X[::-1],
    "pandas": lambda X: pd.DataFrame(X, columns=[f"c{place}" for place in range(X.shape[1])]),
}


def make_rows(n: int = 500, d: int = 4) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(0).normal(size=(n, d))


def fit(X: Any, y: Any) -> PrivateRegressor:
    return PrivateRegressor(10.0, label_bounds=(-3, 3), head="linear", random_state=0).fit(X, y)


@pytest.mark.parametrize("name", list(MADE))
def test_public_features_are_the_cells_that_the_user_passed(name: str) -> None:
    X = MADE[name](make_rows())
    given = open_input(X)
    public, _, _ = given.encode(given.names, squash=True, head=Linear())
    cells = X.to_numpy() if isinstance(X, pd.DataFrame) else X
    assert np.shares_memory(public.values, cells) and np.array_equal(public.values, cells)


def test_columns_side_by_side_are_selected_without_a_copy() -> None:
    X = make_rows()
    given = open_input(X)
    assert np.shares_memory(given.select(given.names[1:3])._read_table().matrix, X)  # type: ignore[attr-defined]
    assert np.array_equal(given.select(["x3", "x1"])._read_table().matrix, X[:, [3, 1]])  # type: ignore[attr-defined]


@pytest.mark.parametrize("order", ["C", "F"])
def test_reading_an_array_takes_little_memory_beside_it(order: Any) -> None:
    X = np.asarray(make_rows(200_000, 20), order=order)
    tracemalloc.start()
    try:
        given = open_input(X)
        given.encode(given.names, squash=True, head=Linear())
        assert tracemalloc.get_traced_memory()[1] < 0.2 * X.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", list(MADE))
def test_a_fit_neither_changes_nor_keeps_its_input(name: str) -> None:
    X, y = MADE[name](make_rows()), make_rows()[:, 0].copy()
    seen, new = (np.array(X), y.copy()), make_rows(20)
    given = new if not isinstance(X, pd.DataFrame) else pd.DataFrame(new, columns=X.columns)
    if isinstance(X, np.ndarray):
        X.flags.writeable = y.flags.writeable = False  # a fit that writes to them would fail
    model = fit(X, y)
    assert np.array_equal(np.array(X), seen[0]) and np.array_equal(y, seen[1])
    before = model.predict(given), model.coef_.copy(), str(model.guarantee_)
    if isinstance(X, np.ndarray):
        y.flags.writeable = True
        X = X if X.base is None else X.base
        X.flags.writeable = True
        X[:] = np.nan
    else:
        X.loc[:] = np.nan
    y[:] = np.nan
    assert np.array_equal(model.predict(given), before[0]) and np.array_equal(model.coef_, before[1])
    assert str(model.guarantee_) == before[2]


@pytest.mark.parametrize("name", [name for name in MADE if name != "reversed"])
def test_the_order_of_cells_in_memory_makes_no_difference_to_a_fit(name: str) -> None:
    X = make_rows(20_000, 3)
    model = fit(MADE[name](X), X[:, 0])
    assert model.coef_.tolist() == fit(X, X[:, 0]).coef_.tolist()


def test_nothing_keeps_the_training_array_alive() -> None:
    X = make_rows()
    y = X[:, 0].copy()
    model, alive = fit(X, y), (weakref.ref(X), weakref.ref(y))
    del X, y
    gc.collect()
    assert [each() for each in alive] == [None, None] and np.isfinite(model.coef_).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (CELLS + 7, 1), (CELLS // 3, 5), (70, CELLS // 64), (5, 2000)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_ranges_and_deviations_are_those_of_numpy(shape: tuple[int, int], order: Any, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    X = np.asarray(rng.normal(rng.normal(scale=1e3, size=shape[1]), size=shape), dtype=dtype, order=order)
    ranges, exact = ColumnRanges.of(X), X.astype(np.float64)
    assert np.array_equal(ranges.low, X.min(axis=0)) and np.array_equal(ranges.high, X.max(axis=0))
    assert np.allclose(ranges.center, exact.mean(axis=0), rtol=1e-12) and not ranges.has_gaps
    assert np.allclose(bound_deviations(X), exact.std(axis=0), rtol=1e-9, atol=1e-9)
    assert (bound_deviations(X, every=3) <= exact.std(axis=0) * (1 + 1e-9) + 1e-9).all()
    assert is_finite(X) and not has_nan(X) and not has_infinity(X)
    X[-1, -1] = np.nan
    assert ColumnRanges.of(X).has_gaps and np.isnan(ColumnRanges.of(X).low[-1])
    assert not is_finite(X) and has_nan(X) and not has_infinity(X)
    X[-1, -1] = -np.inf
    assert not is_finite(X) and not has_nan(X) and has_infinity(X)


def test_sorted_columns_with_far_values_have_the_right_deviation() -> None:
    X = np.sort(np.concatenate([np.full(CELLS, 1e9), np.random.default_rng(2).normal(size=9 * CELLS)]))[::-1, None]
    assert np.allclose(bound_deviations(X), X.std(axis=0), rtol=1e-9)


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_heavy_tailed_if_one_of_its_columns_is(order: Any) -> None:
    n, rng = 4 * CELLS, np.random.default_rng(3)
    light = {"normal": rng.normal(size=n), "flag": (np.arange(n) == 5) * 1.0, "constant": np.full(n, 0.1)}
    light["date"] = 1.7e9 + rng.normal(scale=1e-3, size=n)
    light["exponential"] = rng.exponential(size=n)  # far enough out for the bound from some of the records
    for distance in (19.9, 20.2):  # standard deviations from the mean
        edge = rng.normal(size=n)
        edge[7] = 0.0
        edge[7] = edge.mean() + distance * edge.std() / np.sqrt(1 - distance**2 / n)
        light[f"edge {distance}"] = edge
    for name, column in light.items():
        X = np.asarray(np.column_stack([light["normal"], column]), order=order)
        squashed = not Encoding.of(PublicTable.of_array(X, ["a", "b"])).is_plain
        assert squashed == is_heavy_tailed(column) == (name == "edge 20.2"), name


def test_infinity_is_refused_in_a_column_with_gaps_too() -> None:
    X = make_rows()
    X[3, 2], X[5, 2] = np.nan, np.inf
    with pytest.raises(SchemaError, match="column 'x2' contains infinity"):
        fit(X, X[:, 0])
