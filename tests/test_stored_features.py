"""Features and rows of tables in Parquet files, compared with those of the same tables in memory."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from conddp import (
    SchemaError,
)
from conddp.algorithms.identity import list_public
from conddp.data.schema import Schema
from conddp.features.grouped_rows import GroupedRows, whiten
from conddp.features.reading import read_records
from conddp.features.standardization import Standardization
from conddp.features.stored_features import StoredFeatures
from conddp.features.stored_reading import SAMPLED, _draw, open_records
from conddp.features.stored_rows import StoredRows
from conddp.features.whitening import WhitenedRows
from conddp.theory.design import Design
from conddp.theory.linear_regression import compute_improvement
from tests.stored_tables import HOME_COLUMNS, HOMES, make_homes, store_sparsely, write_parts


def test_noise_depends_on_the_order_of_public_cells(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": rng.normal(size=400), "price": rng.uniform(0, 10, size=400)})
    swapped = frame.assign(x=frame["x"].to_numpy()[[0, 2, 1, *range(3, 400)]])
    schema = Schema.of(label="price", label_bounds=(0, 10), public=["x"])
    one, other, same = (
        open_records(write_parts(tmp_path / name, each, files=2), schema)[0]
        for name, each in (("a", frame), ("b", swapped), ("c", frame))
    )
    assert one.fingerprint == other.fingerprint and list(list_public(one)) != list(list_public(other))
    assert list(list_public(one)) == list(list_public(same))


@pytest.mark.parametrize("sparsely", [False, True])
def test_features_and_encoding_are_those_of_the_table_in_memory(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch, sparsely: bool
) -> None:
    frame = make_homes(rng)
    store_sparsely(monkeypatch, sparsely)
    whole, encoding = read_records(frame, HOMES)
    stored, found = open_records(write_parts(tmp_path, frame), HOMES)
    assert found == encoding
    public = stored.public
    assert isinstance(public, StoredFeatures) and public.shape == whole.public.shape
    assert public.sparsely == sparsely
    assert np.array_equal(public.values, whole.public.values)
    assert isinstance(public.read(slice(0, 10)), csr_array) == public.sparsely
    assert np.array_equal(public[17:530].values, whole.public.values[17:530])
    assert np.array_equal(public[np.array([5, 2900])].values, whole.public.values[[5, 2900]])
    assert np.array_equal(stored.label.values, whole.label.values)
    assert stored.fingerprint == whole.fingerprint
    if public.groups is not None:
        assert whole.public.groups is not None and np.array_equal(public.groups, whole.public.groups)


def test_records_with_missing_labels_are_dropped_if_everyone_may_know_them(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None
) -> None:
    frame = make_homes(rng)
    frame.loc[rng.random(len(frame)) < 0.3, "price"] = np.nan
    frame.loc[:499, "price"] = np.nan  # a whole partition
    paths = write_parts(tmp_path, frame)
    with pytest.raises(SchemaError, match="label 'price' contains NaN"):
        open_records(paths, HOMES)
    schema = Schema.of(label="price", label_bounds=(0, 10), public=HOME_COLUMNS, missing_labels="public")
    whole, encoding = read_records(frame, schema)
    stored, found = open_records(paths, schema)
    assert found == encoding and np.array_equal(stored.public.values, whole.public.values)
    assert np.array_equal(stored.label.values, whole.label.values) and stored.fingerprint == whole.fingerprint
    assert np.array_equal(stored.label[1000:1100].values, whole.label.values[1000:1100])
    with pytest.raises(SchemaError, match="missing in every record"):
        open_records(write_parts(tmp_path / "none", frame.assign(price=np.nan)), schema)


def test_private_columns_and_units_are_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    paths = write_parts(tmp_path, make_homes(rng, 100))
    with pytest.raises(SchemaError, match="private columns"):
        open_records(paths, Schema.of(label="price", label_bounds=(0, 10), public=["size"], private={"rooms": (1, 6)}))
    with pytest.raises(SchemaError, match="units"):
        open_records(paths, Schema.of(label="price", label_bounds=(0, 10), public=["size"], unit="street"))


def test_sampled_positions_do_not_depend_on_the_division() -> None:
    whole = _draw(0, 10_000)
    assert np.array_equal(np.concatenate([_draw(0, 37), _draw(37, 9_963)]), whole)
    assert 0 <= whole.min() and whole.max() < 1 and abs(whole.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(whole[:-1], whole[1:])[0, 1]) < 0.05


def test_of_a_large_table_a_sample_decides_on_the_encoding(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SAMPLED == 2**18
    frame = make_homes(rng)
    monkeypatch.setattr("conddp.features.stored_reading.SAMPLED", 500)
    stored, encoding = open_records(write_parts(tmp_path, frame), HOMES)
    taken = frame.iloc[np.flatnonzero(_draw(0, 3000) < 500 / 3000)]
    assert 420 < len(taken) < 580
    assert encoding == read_records(taken, HOMES)[1]
    assert stored.num_records == 3000 and stored.fingerprint == read_records(frame, HOMES)[0].fingerprint


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("sparsely", [False, True])
def test_moments_and_rows_are_those_of_the_table_in_memory(
    rng: np.random.Generator,
    tmp_path: Path,
    small_pieces: None,
    monkeypatch: pytest.MonkeyPatch,
    sparsely: bool,
    constant: bool,
) -> None:
    frame = make_homes(rng)
    store_sparsely(monkeypatch, sparsely)
    whole = read_records(frame, HOMES)[0].public
    stored = open_records(write_parts(tmp_path, frame), HOMES)[0].public
    one, other = (Standardization.of(each, constant=constant, function="test") for each in (whole, stored))
    assert other.gram == pytest.approx(one.gram, abs=1e-6)
    assert other.center == pytest.approx(one.center, rel=1e-10) and other.num_records == one.num_records
    rows, expected = whiten(stored, constant=constant), WhitenedRows.of(whole, constant=constant)
    assert isinstance(rows, StoredRows) and rows.variances == pytest.approx(expected.variances, rel=1e-6)
    assert rows.compute_squared_norms() == pytest.approx(expected.compute_squared_norms(), rel=1e-6)
    assert rows.compute_mean() ** 2 == pytest.approx(expected.compute_mean() ** 2, abs=1e-8)
    grouped = GroupedRows.of(stored, constant=constant)
    assert grouped.squared_norms[:].sum(axis=1) == pytest.approx(expected.compute_squared_norms(), rel=1e-6)
    folder = Path(grouped.squared_norms.folder)
    assert folder.exists()
    del grouped
    assert not folder.exists()


@pytest.mark.parametrize("sparsely", [False, True])
def test_the_design_is_that_of_the_table_in_memory(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch, sparsely: bool
) -> None:
    frame = make_homes(rng)
    store_sparsely(monkeypatch, sparsely)
    whole = read_records(frame, HOMES)[0].public
    one, other = Design.of(whole), Design.of(open_records(write_parts(tmp_path, frame), HOMES)[0].public)
    assert (other.columns, other.num_records, other.rank) == (one.columns, one.num_records, one.rank)
    for name in ("singular_values", "scaled_singular_values", "deviations", "largest_leverage", "plain_cost"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-6), name
    assert (other.scaled_cost, other.conditioned_cost) == pytest.approx((one.scaled_cost, one.conditioned_cost))
    assert other.high_leverage == pytest.approx(one.high_leverage, rel=0.011) and other.heavy_tailed == one.heavy_tailed
    exact = compute_improvement(whole, constant=True)
    assert other.improvement.exact_best == pytest.approx(exact.exact_best, rel=1e-5)
    assert other.improvement.exact_worst == pytest.approx(exact.exact_worst, rel=1e-5)
