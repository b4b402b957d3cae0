"""Files, folders and Arrow datasets, as users give them to a fit."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from conddp import (
    DPSGD,
    PrivacyBudget,
    PrivacyLedger,
    PrivateRegressor,
    SchemaError,
)
from conddp.data import run_in_order
from conddp.data.schema import Schema
from conddp.features.reading import read_records
from conddp.features.stored_features import StoredFeatures
from conddp.features.stored_reading import open_records
from conddp.files import fit_file, load_public, load_records, predict_file
from conddp.heads import Embeddings
from tests.stored_tables import HOME_COLUMNS, HOMES, Counted, make_homes, write_parts


def test_files_are_fitted_and_predicted_from_the_command_functions(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = make_homes(rng)
    paths = write_parts(tmp_path / "data", frame)
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6), path=tmp_path / "ledger.jsonl")
    saved = fit_file(tmp_path / "data", HOMES, tmp_path / "model", epsilon=1.0, ledger=ledger.path)
    assert saved.guarantee.num_records == 3000 and saved.encoding is not None and saved.design is not None
    assert PrivacyLedger.load(tmp_path / "ledger.jsonl").spent.epsilon == 1.0
    assert predict_file(tmp_path / "model", paths, tmp_path / "out.parquet") == 3000
    predicted = pq.read_table(tmp_path / "out.parquet")["price_predicted"].to_numpy()
    assert np.corrcoef(predicted, frame["price"])[0, 1] > 0.6


@pytest.mark.parametrize("largest", [3000 * 6, 3000 * 6 - 1])
def test_only_tables_of_many_cells_are_read_block_by_block(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr("conddp.features.stored_reading.LARGEST_TABLE", largest)
    frame = make_homes(rng)
    frame["street"] = frame["street"].astype("category")
    whole, expected = read_records(frame, HOMES)
    paths = write_parts(tmp_path / "data", frame)
    paths[1].unlink()  # the levels of each file are those that occur in it
    middle = frame[1000:2000].assign(street=frame["street"][1000:2000].cat.remove_unused_categories())
    pq.write_table(pa.Table.from_pandas(middle, preserve_index=False), paths[1])
    for data in (tmp_path / "data", paths):
        records, encoding = load_records(data, HOMES)
        assert isinstance(records.public, StoredFeatures) == (largest < 3000 * 6)
        assert isinstance(load_records(data, HOMES, small=True)[0].public, StoredFeatures)
        assert encoding == expected and records.fingerprint == whole.fingerprint
        assert np.array_equal(records.public.values, whole.public.values)
        assert np.array_equal(records.label.values, whole.label.values)
    with pytest.raises(SchemaError, match="would count twice"):
        load_records([*paths, paths[0]], HOMES)


def test_a_cluster_that_is_named_is_used_for_small_tables_too(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(run_in_order)
    monkeypatch.setattr("conddp.files.open_executor", lambda *_: nullcontext(counted))
    write_parts(tmp_path / "data", make_homes(rng, 300))
    fit_file(tmp_path / "data", HOMES, tmp_path / "one", algorithm="mean", num_workers=2)
    assert counted.num_spans == 0  # in memory
    fit_file(tmp_path / "data", HOMES, tmp_path / "other", algorithm="mean", cluster="local")
    assert counted.num_spans > 3
    schema = Schema.of(label="price", label_bounds=(0, 10), public=["size"], unit="street")
    with pytest.raises(SchemaError, match="a cluster is for tables that are read block by block"):
        fit_file(tmp_path / "data", schema, tmp_path / "third", cluster="local")


def test_files_with_private_columns_are_read_into_memory(rng: np.random.Generator, tmp_path: Path) -> None:
    paths = write_parts(tmp_path / "data", make_homes(rng))
    schema = Schema.of(label="price", label_bounds=(0, 10), public=["size", "street"], private={"rooms": (1, 5)})
    saved = fit_file(paths, schema, tmp_path / "model", epsilon=1.0)
    assert saved.guarantee.num_records == 3000 and saved.guarantee.private_columns == ("rooms",)


def test_files_may_have_other_widths_orders_and_gaps(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = make_homes(rng, 900)
    paths = write_parts(tmp_path, frame)
    second = frame.iloc[300:600].astype({"rooms": "int8", "size": "float32"})[frame.columns[::-1]]
    pq.write_table(pa.Table.from_pandas(second, preserve_index=False), paths[1])
    third = pa.Table.from_pandas(frame.iloc[600:].drop(columns="street"), preserve_index=False)
    pq.write_table(third.append_column("street", pa.nulls(300)), tmp_path / "LAST.PARQUET")
    paths[2].unlink()
    expected = pd.concat([frame.iloc[:600].astype({"size": float}), frame.iloc[600:].assign(street=None)])
    expected.iloc[300:600, 0] = second["size"].to_numpy().astype(float)
    stored, encoding = open_records([*paths[:2], tmp_path / "LAST.PARQUET"], HOMES)
    whole, same = read_records(expected, HOMES)
    assert encoding == same and np.array_equal(stored.public.values, whole.public.values)
    assert np.array_equal(stored.label.values, whole.label.values)
    saved = fit_file(tmp_path, HOMES, tmp_path / "model", epsilon=1.0)
    assert saved.guarantee.num_records == 900
    assert predict_file(tmp_path / "model", tmp_path, tmp_path / "out.parquet", keep=["rooms"]) == 900


def test_columns_in_the_names_of_folders_are_not_forgotten(rng: np.random.Generator, tmp_path: Path) -> None:
    write_parts(tmp_path / "year=2025", make_homes(rng, 100))
    dataset = pyarrow.dataset.dataset(tmp_path, partitioning="hive")
    with pytest.raises(SchemaError, match="column 'year' of the Arrow dataset is not in its files"):
        PrivateRegressor(label_bounds=(0, 10)).fit(dataset, "price")


def test_a_plan_reads_the_public_columns_of_several_files(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = make_homes(rng, 900)
    paths = write_parts(tmp_path, frame)
    expected, _ = read_records(frame, HOMES)
    for data in (tmp_path, paths):
        public, _ = load_public(data, HOMES)
        assert np.array_equal(public.values, expected.public.values)


@pytest.mark.parametrize("largest", [0, 2**23])
def test_the_estimator_takes_an_arrow_dataset(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr("conddp.features.stored_reading.LARGEST_TABLE", largest)
    frame = make_homes(rng)
    write_parts(tmp_path / "data", frame)
    dataset = pyarrow.dataset.dataset(tmp_path / "data")
    model = PrivateRegressor(epsilon=4.0, label_bounds=(0, 10)).fit(dataset, "price")
    assert list(model.feature_names_in_) == HOME_COLUMNS and model.guarantee_.num_records == 3000
    predicted = model.predict(dataset)
    assert np.allclose(predicted, model.predict(frame)) and np.corrcoef(predicted, frame["price"])[0, 1] > 0.6
    model.save(tmp_path / "model")
    assert np.allclose(PrivateRegressor.load(tmp_path / "model").predict(dataset), predicted)
    for wrong in (frame["price"], "prise"):
        with pytest.raises(SchemaError, match="name of its label column"):
            PrivateRegressor(label_bounds=(0, 10)).fit(dataset, wrong)
    with pytest.raises(SchemaError, match="does not allow unit"):
        PrivateRegressor(label_bounds=(0, 10), unit="street").fit(dataset, "price")
    with pytest.raises(SchemaError, match="filter or a projection"):
        PrivateRegressor(label_bounds=(0, 10)).fit(dataset.filter(pyarrow.dataset.field("rooms") > 2), "price")
    with pytest.raises(SchemaError, match="must consist of local .parquet files"):
        PrivateRegressor(label_bounds=(0, 10)).fit(pyarrow.dataset.dataset(pa.Table.from_pandas(frame)), "price")


def test_an_arrow_dataset_has_bins_for_heads_that_look_categories_up(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = make_homes(rng, 600)
    write_parts(tmp_path, frame)
    head = Embeddings(num_bins=16, width=2, hidden=(4,))
    settings: dict[str, Any] = {"algorithm": DPSGD(num_steps=4), "head": head, "label_bounds": (0, 10)}
    stored = PrivateRegressor(**settings).fit(pyarrow.dataset.dataset(tmp_path), "price")
    whole = PrivateRegressor(**settings).fit(frame[HOME_COLUMNS], frame["price"])
    assert stored.encoding_ == whole.encoding_ and stored.model_.parameters.shape == whole.model_.parameters.shape


def test_the_folder_for_temporary_files_is_checked_before_the_fit(rng: np.random.Generator, tmp_path: Path) -> None:
    write_parts(tmp_path / "data", make_homes(rng, 300))
    fit_file(tmp_path / "data", HOMES, tmp_path / "model", scratch=tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(SchemaError, match="cannot write to the folder for temporary files, .*file: File exists"):
        fit_file(tmp_path / "data", HOMES, tmp_path / "other", scratch=tmp_path / "file")
