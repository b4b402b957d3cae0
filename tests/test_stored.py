"""Tables in Parquet files that are read block by block."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array

from conddp import (
    DPSGD,
    MLP,
    CondDP,
    CondNewton,
    Linear,
    OneShot,
    PrivacyBudget,
    PrivacyLedger,
    PrivateMean,
    PrivateRegressor,
    Records,
    RROnBins,
    SchemaError,
    SwitchCondDP,
)
from conddp.algorithms import Algorithm, Auto
from conddp.algorithms.identity import list_public
from conddp.bounds import Bounds
from conddp.data import use_executor
from conddp.data.passes import count_additions, run_pass
from conddp.data.schema import Schema
from conddp.data.stored_column import StoredFrame
from conddp.data.stored_labels import StoredLabels, open_labels
from conddp.data.stored_table import StoredTable, list_files
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.grouped_rows import GroupedRows, whiten
from conddp.features.reading import read_records
from conddp.features.spectrum import Spectrum
from conddp.features.standardization import Standardization
from conddp.features.stored_features import StoredFeatures
from conddp.features.stored_reading import SAMPLED, _draw, open_records
from conddp.features.stored_rows import StoredRows
from conddp.features.whitening import WhitenedRows
from conddp.files import fit_file, load_public, predict_file
from conddp.heads import Embeddings, Head, Wide
from conddp.losses import Squared
from conddp.newton.release import ResidualQuery, release_residuals
from conddp.privacy import Curator, Neighbouring, RandomSource
from conddp.privacy.release import BoundedSum, bound_rounding
from conddp.theory.design import Design
from conddp.theory.linear_regression import compute_improvement
from conddp.training.sampling import PoissonSampler
from conddp.training.stored_batches import StoredBatches, StoredInputs

NAMES = ["size", "rooms", "street", "sold", "lift"]
SCHEMA = Schema.of(label="price", label_bounds=(0, 10), public=NAMES)


def make_frame(rng: np.random.Generator, n: int = 3000, *, num_streets: int = 12) -> pd.DataFrame:
    size = rng.normal(80, 20, size=n)
    size[rng.random(n) < 0.1] = np.nan
    street = rng.integers(0, num_streets, size=n)
    return pd.DataFrame(
        {
            "size": size,
            "rooms": rng.integers(1, 6, size=n),
            "street": [f"street {each}" for each in street],
            "sold": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 500, size=n), unit="D"),
            "lift": rng.random(n) < 0.5,
            "price": np.clip(5 + np.nan_to_num(size - 80) / 20 + (street % 3) + rng.normal(size=n), 0, 10),
        }
    )


def write(folder: Path, frame: Any, *, files: int = 3, row_group_size: int = 400) -> list[Path]:
    """Write a table to several files with small row groups."""
    folder.mkdir(exist_ok=True)
    paths = []
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), files)):
        paths.append(folder / f"part-{number}.parquet")
        table = pa.Table.from_pandas(frame.iloc[rows], preserve_index=False)
        pq.write_table(table, paths[-1], row_group_size=row_group_size)
    return paths


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read few records at a time, so that small tables have many partitions, pieces and blocks."""
    monkeypatch.setattr("conddp.data.stored_table.ROWS_PER_PARTITION", 700)
    monkeypatch.setattr("conddp.data.stored_column.ROWS_AT_ONCE", 128)
    monkeypatch.setattr("conddp.features.stored_features.ROWS_AT_ONCE", 128)
    monkeypatch.setattr("conddp.features.stored_features.BLOCK_SIZE", 128)
    monkeypatch.setattr("conddp.features.stored_norms.ROWS_AT_ONCE", 256)


def store_sparsely(monkeypatch: pytest.MonkeyPatch, sparsely: bool) -> None:
    monkeypatch.setattr("conddp.features.stored_reading.SPARSE_FROM", 0 if sparsely else 1000)
    monkeypatch.setattr("conddp.features.stored_reading.DENSEST", 1.0)


def test_partitions_are_row_groups_joined_up_to_a_size(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None
) -> None:
    paths = write(tmp_path, make_frame(rng, 2500), files=2)
    table = StoredTable.of(paths, ["size", "price"])
    assert len(table) == 2500
    assert [part.row_groups for part in table.parts] == [(0,), (1,), (2, 3), (0,), (1,), (2, 3)]
    assert [part.num_records for part in table.parts] == [400, 400, 450] * 2
    assert table.partitions[-1] == slice(2050, 2500)


def test_any_span_of_a_table_is_what_the_files_hold(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None
) -> None:
    frame = make_frame(rng, 2500)
    table = StoredTable.of(write(tmp_path, frame), ["rooms", "street"])
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
    table = StoredTable.of(write(tmp_path, make_frame(rng, 3000)), ["price"])
    label = StoredLabels.of(table, "price", Bounds(0, 10))
    assert label[:10].values.shape == (10,)  # one piece is in memory now
    sent = pickle.dumps(label)
    assert len(sent) < 3000
    assert pickle.loads(sent)[2990:].values.tolist() == label[2990:].values.tolist()
    assert repr(label) == "Labels(3000 records, 'price' in [0.0, 10.0])"


def test_files_that_do_not_belong_together_are_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = make_frame(rng, 100)
    paths = write(tmp_path / "a", frame)
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
    frame = make_frame(rng, 500)
    paths = write(tmp_path, frame, files=1)
    label = StoredLabels.of(StoredTable.of(paths, ["price"]), "price", Bounds(0, 10))
    write(tmp_path, frame.assign(price=1.25), files=1)
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


def test_noise_depends_on_the_order_of_public_cells(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": rng.normal(size=400), "price": rng.uniform(0, 10, size=400)})
    swapped = frame.assign(x=frame["x"].to_numpy()[[0, 2, 1, *range(3, 400)]])
    schema = Schema.of(label="price", label_bounds=(0, 10), public=["x"])
    one, other, same = (
        open_records(write(tmp_path / name, each, files=2), schema)[0]
        for name, each in (("a", frame), ("b", swapped), ("c", frame))
    )
    assert one.fingerprint == other.fingerprint and list(list_public(one)) != list(list_public(other))
    assert list(list_public(one)) == list(list_public(same))


def test_a_damaged_file_is_reported_without_a_cell(rng: np.random.Generator, tmp_path: Path) -> None:
    [path] = write(tmp_path, make_frame(rng, 3000), files=1)
    content = bytearray(path.read_bytes())
    content[200:4000] = b"\x07" * 3800
    path.write_bytes(bytes(content))
    with pytest.raises(SchemaError, match="is damaged") as caught:
        open_records([path], SCHEMA)
    assert caught.value.__cause__ is None and "street" not in str(caught.value)


@pytest.mark.parametrize("sparsely", [False, True])
def test_features_and_encoding_are_those_of_the_table_in_memory(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch, sparsely: bool
) -> None:
    frame = make_frame(rng)
    store_sparsely(monkeypatch, sparsely)
    whole, encoding = read_records(frame, SCHEMA)
    stored, found = open_records(write(tmp_path, frame), SCHEMA)
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
    frame = make_frame(rng)
    frame.loc[rng.random(len(frame)) < 0.3, "price"] = np.nan
    frame.loc[:499, "price"] = np.nan  # a whole partition
    paths = write(tmp_path, frame)
    with pytest.raises(SchemaError, match="label 'price' contains NaN"):
        open_records(paths, SCHEMA)
    schema = Schema.of(label="price", label_bounds=(0, 10), public=NAMES, missing_labels="public")
    whole, encoding = read_records(frame, schema)
    stored, found = open_records(paths, schema)
    assert found == encoding and np.array_equal(stored.public.values, whole.public.values)
    assert np.array_equal(stored.label.values, whole.label.values) and stored.fingerprint == whole.fingerprint
    assert np.array_equal(stored.label[1000:1100].values, whole.label.values[1000:1100])
    with pytest.raises(SchemaError, match="missing in every record"):
        open_records(write(tmp_path / "none", frame.assign(price=np.nan)), schema)


def test_private_columns_and_units_are_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    paths = write(tmp_path, make_frame(rng, 100))
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
    frame = make_frame(rng)
    monkeypatch.setattr("conddp.features.stored_reading.SAMPLED", 500)
    stored, encoding = open_records(write(tmp_path, frame), SCHEMA)
    taken = frame.iloc[np.flatnonzero(_draw(0, 3000) < 500 / 3000)]
    assert 420 < len(taken) < 580
    assert encoding == read_records(taken, SCHEMA)[1]
    assert stored.num_records == 3000 and stored.fingerprint == read_records(frame, SCHEMA)[0].fingerprint


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
    frame = make_frame(rng)
    store_sparsely(monkeypatch, sparsely)
    whole = read_records(frame, SCHEMA)[0].public
    stored = open_records(write(tmp_path, frame), SCHEMA)[0].public
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
    frame = make_frame(rng)
    store_sparsely(monkeypatch, sparsely)
    whole = read_records(frame, SCHEMA)[0].public
    one, other = Design.of(whole), Design.of(open_records(write(tmp_path, frame), SCHEMA)[0].public)
    assert (other.columns, other.num_records, other.rank) == (one.columns, one.num_records, one.rank)
    for name in ("singular_values", "scaled_singular_values", "deviations", "largest_leverage", "plain_cost"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-6), name
    assert (other.scaled_cost, other.conditioned_cost) == pytest.approx((one.scaled_cost, one.conditioned_cost))
    assert other.high_leverage == pytest.approx(one.high_leverage, rel=0.011) and other.heavy_tailed == one.heavy_tailed
    exact = compute_improvement(whole, constant=True)
    assert other.improvement.exact_best == pytest.approx(exact.exact_best, rel=1e-5)
    assert other.improvement.exact_worst == pytest.approx(exact.exact_worst, rel=1e-5)


def fit(records: Records, algorithm: Algorithm, *, epsilon: float = 1.0) -> Any:
    source = RandomSource.for_neighbours(3)
    return algorithm.fit(records, PrivacyBudget(epsilon, 1e-6), random_source=source).model.parameters


@pytest.mark.parametrize("algorithm", [CondNewton(), PrivateMean()])
def test_a_fit_is_that_of_the_table_in_memory(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None, algorithm: Algorithm
) -> None:
    frame = make_frame(rng)
    paths = write(tmp_path, frame)
    # Eigenvectors of nearly equal eigenvalues may differ, and the noise along them. Hardly any noise remains here.
    expected = fit(read_records(frame, SCHEMA)[0], algorithm, epsilon=1e6)
    assert fit(open_records(paths, SCHEMA)[0], algorithm, epsilon=1e6) == pytest.approx(expected, abs=1e-3)
    found = fit(open_records(paths, SCHEMA)[0], algorithm)
    algorithm.fit(open_records(paths, SCHEMA)[0], PrivacyBudget(1.0, 1e-6), curator_class=Recording)
    assert Recording.additions == count_additions(3000, StoredTable.of(paths, NAMES).partitions)
    assert np.abs(found - expected).max() > 2e-3
    with ThreadPoolExecutor(3) as pool, use_executor(pool.map):
        assert np.array_equal(fit(open_records(paths, SCHEMA)[0], algorithm), found)


def test_a_fit_with_many_features_uses_norms_in_files(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = make_frame(rng)
    paths = write(tmp_path, frame)
    expected = fit(read_records(frame, SCHEMA)[0], CondNewton(), epsilon=1e6)
    monkeypatch.setattr("conddp.features.grouped_rows.MOST_FORMED", 0)
    for sparsely in (False, True):
        store_sparsely(monkeypatch, sparsely)
        records = open_records(paths, SCHEMA)[0]
        assert fit(records, CondNewton(), epsilon=1e6) == pytest.approx(expected, abs=1e-3)
        assert isinstance(whiten(records.public), GroupedRows)


@pytest.mark.parametrize("head", [Linear(), MLP(hidden=(4,))])
@pytest.mark.parametrize(
    "algorithm",
    [
        DPSGD(num_steps=3),
        DPSGD(num_steps=7, batch_size=150),
        CondDP(num_steps=3),
        SwitchCondDP(num_steps=6, batch_size=200),
    ],
    ids=repr,
)
def test_descent_reads_the_same_batches_as_in_memory(
    rng: np.random.Generator,
    tmp_path: Path,
    small_pieces: None,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: Algorithm,
    head: Head,
) -> None:
    monkeypatch.setattr("conddp.training.stored_batches.CELLS_AHEAD", 3 * 200 * 28)  # a few steps ahead
    frame = make_frame(rng, 1200)
    whole, stored = read_records(frame, SCHEMA)[0], open_records(write(tmp_path, frame), SCHEMA)[0]
    monkeypatch.setattr(StoredFeatures, "load", lambda self: pytest.fail("the table was read into memory"))
    one, other = (
        algorithm.fit(each, PrivacyBudget(1.0, 1e-6), head=head, random_source=RandomSource.for_neighbours(3))
        for each in (whole, stored)
    )
    # Conditioned columns agree up to the rotation of equal directions only, which plain DP-SGD does not have.
    if isinstance(algorithm, DPSGD):
        assert other.model.parameters == pytest.approx(one.model.parameters, rel=1e-6, abs=1e-9)
    assert other.transcript == one.transcript and other.settings["clip_norm"] == pytest.approx(
        one.settings["clip_norm"]
    )


def test_samples_of_a_stored_table_are_gathered_exactly(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = make_frame(rng, 1500)
    stored = open_records(write(tmp_path, frame), SCHEMA)[0]
    public = stored.public
    assert isinstance(public, StoredFeatures)
    spectrum = Spectrum.of(public)
    inputs = StoredInputs.of(public, ConditioningMatrix.identity(spectrum))
    monkeypatch.setattr("conddp.training.stored_batches.CELLS_AHEAD", 4 * 100 * len(inputs.offset))
    label = open_labels(stored.label, center=True)
    batches = StoredBatches(inputs, label, PoissonSampler(1500, 100 / 1500, np.random.default_rng(5)), 10)
    sampler = PoissonSampler(1500, 100 / 1500, np.random.default_rng(5))
    Z, y = inputs[:], label[:]
    for step in range(10):
        if not batches._ahead:
            batches._gather()
            assert len(batches._ahead) == (4 if step < 8 else 2)  # none for steps that do not follow
        drawn = sampler.draw()
        taken, labels = batches._ahead.popleft()
        assert np.array_equal(taken.public, Z[drawn]) and np.array_equal(labels, y[drawn])
    with pytest.raises(SchemaError, match="round by more than is covered"):
        many = tuple(slice(start, start + 10**6) for start in range(0, 10**9, 10**6))
        monkeypatch.setattr(StoredInputs, "partitions", many)
        monkeypatch.setattr(StoredInputs, "__len__", lambda self: 10**9)
        StoredBatches(inputs, label, PoissonSampler(10**9, 0.9, np.random.default_rng(5)), 1)


@pytest.mark.parametrize("sparsely", [False, True])
def test_other_algorithms_and_heads_read_a_table_that_fits_into_memory(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sparsely: bool
) -> None:
    store_sparsely(monkeypatch, sparsely)
    frame = make_frame(rng, 1000)
    paths = write(tmp_path, frame)
    fits: list[tuple[Algorithm, Head | None]] = [(OneShot(), None), (RROnBins(), None), (CondNewton(), Wide())]
    fits += [(Auto(), Wide()), (DPSGD(num_steps=2), Embeddings(num_bins=50, hidden=(4,)))]
    for algorithm, head in fits:
        stored = open_records(paths, SCHEMA, num_bins=None if head is None else head.bins)[0]
        result = algorithm.fit(stored, PrivacyBudget(1.0, 1e-6), head=head, curator_class=Recording)
        assert result.guarantee.num_records == 1000
        assert Recording.additions is None  # sums are not added up in blocks
        with monkeypatch.context() as small:
            small.setattr("conddp.features.stored_features.LARGEST_DENSE", 100)
            with pytest.raises(SchemaError, match="needs all of them in memory"):
                algorithm.fit(stored, PrivacyBudget(1.0, 1e-6), head=head)


class Recording(Curator):
    """Remembers sums, their sensitivities, and how they were said to be added up."""

    sums: list[BoundedSum]
    additions: ClassVar[int | None] = 0

    def __init__(self, *arguments: Any, additions: int | None = None, **settings: Any) -> None:
        super().__init__(*arguments, additions=additions, **settings)
        Recording.additions = additions

    def release_gaussian(self, bounded: BoundedSum, **settings: Any) -> Any:
        self.sums = [*getattr(self, "sums", []), bounded]
        return super().release_gaussian(bounded, **settings)


@pytest.mark.parametrize("most_formed", [0, 256])
def test_no_label_moves_the_sums_of_a_stored_table_by_more_than_the_sensitivity(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch, most_formed: int
) -> None:
    monkeypatch.setattr("conddp.features.grouped_rows.MOST_FORMED", most_formed)
    frame = make_frame(rng, 1500, num_streets=60)
    public = open_records(write(tmp_path, frame), SCHEMA)[0].public
    rows = whiten(public)
    k = rows.num_directions
    weights = rows.pool(rng.dirichlet(np.ones(k)))
    query = ResidualQuery(0.3, weights / weights.sum(), 0.2, 0.5, 0.1)
    theta = 0.1 * rng.normal(size=k)
    label = rng.uniform(-0.5, 0.5, size=1500)

    def release(label: Any) -> BoundedSum:
        curator = Recording(np.random.default_rng(0), num_records=1500)
        release_residuals(
            rows,
            label,
            (-0.5, 0.5),
            theta,
            query,
            mu=1.0,
            neighbouring=Neighbouring.REPLACE,
            curator=curator,
            loss=Squared(),
        )
        return curator.sums[0]

    moves, sensitivities = [], set()
    longest = np.argsort(rows.compute_squared_norms())
    for record in [*longest[-6:], *longest[:2], *rng.integers(0, 1500, size=4)]:
        ends = []
        for end in (-0.5, 0.5):
            changed = label.copy()
            changed[record] = end
            ends.append(release(changed))
        moves.append(float(np.linalg.norm(ends[1].value - ends[0].value)))
        sensitivities |= {float(each.sensitivity) for each in ends}
    assert len(sensitivities) == 1  # it does not depend on labels
    [sensitivity] = sensitivities
    assert 0.3 * sensitivity < max(moves) <= sensitivity


def test_rounding_is_bounded_by_the_additions_of_a_blocked_sum() -> None:
    assert count_additions(8192) == 8193 and count_additions(10**6) == 8192 + 123
    spans = tuple(slice(start, start + 10**6) for start in range(0, 10**9, 10**6))
    assert count_additions(10**9, spans) == 8192 + 123 + 1000
    assert bound_rounding(10**9) > 100 and bound_rounding(10**9, count_additions(10**9, spans)) < 0.003
    assert bound_rounding(100, 200) == bound_rounding(100)
    # A float32 sum shows that the bound has the right form: u = 2^-24 there.
    values = np.random.default_rng(0).random(1 << 20).astype(np.float32)
    blocked = np.float32(0)
    for block in values.reshape(-1, 1024):
        partial = np.float32(0)
        for value in block:
            partial += value
        blocked += partial
    error = abs(float(blocked) - float(values.sum(dtype=np.float64)))
    assert 0 < error < len(values) * (1024 + 1024) * 2.0**-24


def test_a_pass_over_a_stored_table_counts_every_record_once(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None
) -> None:
    frame = make_frame(rng, 2500)
    table = StoredTable.of(write(tmp_path, frame), ["rooms"])
    seen: list[tuple[int, int]] = []

    def collect(span: slice, piece: Any) -> tuple[int, int]:
        seen.append((span.start, span.stop))
        return len(piece), int(sum(piece["rooms"].to_pylist()))

    assert run_pass(collect, StoredFrame(table, ("rooms",), 128), block_size=100) == (2500, frame["rooms"].sum())
    assert [start for start, _ in seen[1:]] == [stop for _, stop in seen[:-1]] and seen[-1][1] == 2500


def test_files_are_fitted_and_predicted_from_the_command_functions(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = make_frame(rng)
    paths = write(tmp_path / "data", frame)
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6), path=tmp_path / "ledger.jsonl")
    saved = fit_file(tmp_path / "data", SCHEMA, tmp_path / "model", epsilon=1.0, ledger=ledger.path)
    assert saved.guarantee.num_records == 3000 and saved.encoding is not None and saved.design is not None
    assert PrivacyLedger.load(tmp_path / "ledger.jsonl").spent.epsilon == 1.0
    assert predict_file(tmp_path / "model", paths, tmp_path / "out.parquet") == 3000
    predicted = pq.read_table(tmp_path / "out.parquet")["price_predicted"].to_numpy()
    assert np.corrcoef(predicted, frame["price"])[0, 1] > 0.6


def test_files_with_private_columns_are_read_into_memory(rng: np.random.Generator, tmp_path: Path) -> None:
    paths = write(tmp_path / "data", make_frame(rng))
    schema = Schema.of(label="price", label_bounds=(0, 10), public=["size", "street"], private={"rooms": (1, 5)})
    saved = fit_file(paths, schema, tmp_path / "model", epsilon=1.0)
    assert saved.guarantee.num_records == 3000 and saved.guarantee.private_columns == ("rooms",)


def test_files_may_have_other_widths_orders_and_gaps(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = make_frame(rng, 900)
    paths = write(tmp_path, frame)
    second = frame.iloc[300:600].astype({"rooms": "int8", "size": "float32"})[frame.columns[::-1]]
    pq.write_table(pa.Table.from_pandas(second, preserve_index=False), paths[1])
    third = pa.Table.from_pandas(frame.iloc[600:].drop(columns="street"), preserve_index=False)
    pq.write_table(third.append_column("street", pa.nulls(300)), tmp_path / "LAST.PARQUET")
    paths[2].unlink()
    expected = pd.concat([frame.iloc[:600].astype({"size": float}), frame.iloc[600:].assign(street=None)])
    expected.iloc[300:600, 0] = second["size"].to_numpy().astype(float)
    stored, encoding = open_records([*paths[:2], tmp_path / "LAST.PARQUET"], SCHEMA)
    whole, same = read_records(expected, SCHEMA)
    assert encoding == same and np.array_equal(stored.public.values, whole.public.values)
    assert np.array_equal(stored.label.values, whole.label.values)
    saved = fit_file(tmp_path, SCHEMA, tmp_path / "model", epsilon=1.0)
    assert saved.guarantee.num_records == 900
    assert predict_file(tmp_path / "model", tmp_path, tmp_path / "out.parquet", keep=["rooms"]) == 900


def test_columns_in_the_names_of_folders_are_not_forgotten(rng: np.random.Generator, tmp_path: Path) -> None:
    write(tmp_path / "year=2025", make_frame(rng, 100))
    dataset = pyarrow.dataset.dataset(tmp_path, partitioning="hive")
    with pytest.raises(SchemaError, match="column 'year' of the Arrow dataset is not in its files"):
        PrivateRegressor(label_bounds=(0, 10)).fit(dataset, "price")


def test_a_plan_reads_the_public_columns_of_several_files(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = make_frame(rng, 900)
    paths = write(tmp_path, frame)
    expected, _ = read_records(frame, SCHEMA)
    for data in (tmp_path, paths):
        public, _ = load_public(data, SCHEMA)
        assert np.array_equal(public.values, expected.public.values)


def test_the_estimator_takes_an_arrow_dataset(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = make_frame(rng)
    write(tmp_path / "data", frame)
    dataset = pyarrow.dataset.dataset(tmp_path / "data")
    model = PrivateRegressor(epsilon=4.0, label_bounds=(0, 10)).fit(dataset, "price")
    assert list(model.feature_names_in_) == NAMES and model.guarantee_.num_records == 3000
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
    frame = make_frame(rng, 600)
    write(tmp_path, frame)
    head = Embeddings(num_bins=16, width=2, hidden=(4,))
    settings: dict[str, Any] = {"algorithm": DPSGD(num_steps=4), "head": head, "label_bounds": (0, 10)}
    stored = PrivateRegressor(**settings).fit(pyarrow.dataset.dataset(tmp_path), "price")
    whole = PrivateRegressor(**settings).fit(frame[NAMES], frame["price"])
    assert stored.encoding_ == whole.encoding_ and stored.model_.parameters.shape == whole.model_.parameters.shape


def test_the_folder_for_temporary_files_is_checked_before_the_fit(rng: np.random.Generator, tmp_path: Path) -> None:
    write(tmp_path / "data", make_frame(rng, 300))
    fit_file(tmp_path / "data", SCHEMA, tmp_path / "model", scratch=tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(SchemaError, match="cannot write to the folder for temporary files, .*file: File exists"):
        fit_file(tmp_path / "data", SCHEMA, tmp_path / "other", scratch=tmp_path / "file")
