"""Tables in Parquet files: what is read, and which files are refused."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from conddp import (
    SchemaError,
)
from conddp.bounds import Bounds
from conddp.data.passes import run_pass
from conddp.data.stored_column import StoredFrame
from conddp.data.stored_labels import StoredLabels
from conddp.data.stored_table import StoredTable, list_files
from conddp.features.stored_reading import open_records
from tests.stored_tables import HOMES, make_homes, write_parts


def test_partitions_are_row_groups_joined_up_to_a_size(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None
) -> None:
    paths = write_parts(tmp_path, make_homes(rng, 2500), files=2)
    table = StoredTable.of(paths, ["size", "price"])
    assert len(table) == 2500
    assert [part.row_groups for part in table.parts] == [(0,), (1,), (2, 3), (0,), (1,), (2, 3)]
    assert [part.num_records for part in table.parts] == [400, 400, 450] * 2
    assert table.partitions[-1] == slice(2050, 2500)


def test_any_span_of_a_table_is_what_the_files_hold(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None
) -> None:
    frame = make_homes(rng, 2500)
    table = StoredTable.of(write_parts(tmp_path, frame), ["rooms", "street"])
    column = StoredFrame(table, ("rooms", "street"), 128)
    for _ in range(40):
        start, stop = sorted(rng.integers(0, 2501, size=2))
        read = column[start:stop].to_pandas()
        pd.testing.assert_frame_equal(
            read, frame[["rooms", "street"]].iloc[start:stop].reset_index(drop=True), check_dtype=False
        )
    assert column[5:5].num_rows == 0 and column[:].num_rows == 2500
    with pytest.raises(ValueError, match="in order"):
        column[::2]


def test_a_table_can_be_sent_to_another_process_without_its_cells(rng: np.random.Generator, tmp_path: Path) -> None:
    table = StoredTable.of(write_parts(tmp_path, make_homes(rng, 3000)), ["price"])
    label = StoredLabels.of(table, "price", Bounds(0, 10))
    assert label[:10].values.shape == (10,)  # one piece is in memory now
    sent = pickle.dumps(label)
    assert len(sent) < 3000
    assert pickle.loads(sent)[2990:].values.tolist() == label[2990:].values.tolist()
    assert repr(label) == "Labels(3000 records, 'price' in [0.0, 10.0])"


def test_files_that_do_not_belong_together_are_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = make_homes(rng, 100)
    paths = write_parts(tmp_path / "a", frame)
    pq.write_table(pa.table({"price": ["x"], "size": [1.0]}), tmp_path / "other.parquet")
    with pytest.raises(SchemaError, match=r"'price' holds text in '.*other.parquet', but before it held numbers"):
        StoredTable.of([*paths, tmp_path / "other.parquet"], ["price"])
    with pytest.raises(SchemaError, match="rooms"):
        StoredTable.of([*paths, tmp_path / "other.parquet"], ["rooms"])
    (tmp_path / "link.parquet").symlink_to(paths[0])
    (tmp_path / "hard.parquet").hardlink_to(paths[0])
    for again in (
        paths[0],
        tmp_path / "a" / ".." / "a" / paths[0].name,
        *tmp_path.glob("*link*"),
        *tmp_path.glob("hard*"),
    ):
        with pytest.raises(SchemaError, match="would count twice"):
            list_files([tmp_path / "a", again])
        with pytest.raises(SchemaError, match="would count twice"):
            StoredTable.of([*paths, again], ["price"])
    (tmp_path / "copy.parquet").write_bytes(paths[0].read_bytes())
    with pytest.raises(SchemaError, match=r"part-0.parquet' and '.*copy.parquet' are the same file or copies"):
        StoredTable.of([*paths, tmp_path / "copy.parquet"], ["price"])
    (tmp_path / "bare").mkdir()
    with pytest.raises(SchemaError, match="no .parquet file"):
        list_files([tmp_path / "bare"])
    with pytest.raises(SchemaError, match="Folders below it are not searched"):
        (tmp_path / "bare" / "year=2025").mkdir()
        list_files([tmp_path / "bare"])
    with pytest.raises(SchemaError, match="holds .parquet and .csv files"):
        (tmp_path / "a" / "more.csv").write_text("price\n1\n")
        list_files([tmp_path / "a"])
    with pytest.raises(SchemaError, match="no rows"):
        empty = tmp_path / "empty.parquet"
        pq.write_table(pa.table({"price": pa.array([], type=pa.float64())}), empty)
        StoredTable.of([empty], ["price"])


def test_a_file_that_changes_during_a_fit_is_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = make_homes(rng, 500)
    paths = write_parts(tmp_path, frame, files=1)
    label = StoredLabels.of(StoredTable.of(paths, ["price"]), "price", Bounds(0, 10))
    write_parts(tmp_path, frame.assign(price=1.25), files=1)
    with pytest.raises(SchemaError, match="has changed since the fit began"):
        pickle.loads(pickle.dumps(label))[:]
    paths[0].unlink()
    with pytest.raises(SchemaError, match="cannot be read any more"):
        pickle.loads(pickle.dumps(label))[:]


def test_a_cell_that_changes_in_place_is_noticed(rng: np.random.Generator, tmp_path: Path) -> None:
    """Norms of rows are kept between passes, so not even a cell far from the end of a file may change."""
    path = tmp_path / "a.parquet"
    numbers = rng.normal(size=50_000)
    pq.write_table(pa.table({"x": numbers}), path, compression="none", use_dictionary=False, write_statistics=False)
    column = StoredFrame(StoredTable.of([path], ["x"]), ("x",))
    place = path.read_bytes().index(numbers[7].tobytes())
    assert place + 2**16 < path.stat().st_size
    with path.open("r+b") as file:
        file.seek(place)
        file.write(np.float64(1e6).tobytes())
    with pytest.raises(SchemaError, match="has changed since the fit began"):
        column[:10]


def test_a_damaged_file_is_reported_without_a_cell(rng: np.random.Generator, tmp_path: Path) -> None:
    [path] = write_parts(tmp_path, make_homes(rng, 3000), files=1)
    content = bytearray(path.read_bytes())
    content[200:4000] = b"\x07" * 3800
    path.write_bytes(bytes(content))
    with pytest.raises(SchemaError, match="is damaged") as caught:
        open_records([path], HOMES)
    assert caught.value.__cause__ is None and "street" not in str(caught.value)


def test_a_pass_over_a_stored_table_counts_every_record_once(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None
) -> None:
    frame = make_homes(rng, 2500)
    table = StoredTable.of(write_parts(tmp_path, frame), ["rooms"])
    seen: list[tuple[int, int]] = []

    def collect(span: slice, piece: Any) -> tuple[int, int]:
        seen.append((span.start, span.stop))
        return len(piece), int(sum(piece["rooms"].to_pylist()))

    assert run_pass(collect, StoredFrame(table, ("rooms",), 128), block_size=100) == (2500, frame["rooms"].sum())
    assert [start for start, _ in seen[1:]] == [stop for _, stop in seen[:-1]] and seen[-1][1] == 2500
