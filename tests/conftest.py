"""Settings and fixtures for all tests."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from conddp import _fused
from conddp.data.records import Records
from conddp.research.datasets import DatasetNotFound, load_dataset

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


@pytest.fixture(autouse=True, scope="session")
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A run of the tests starts with an empty calibration cache and no witnesses of ledgers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONDDP_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("CONDDP_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """One BLAS thread per worker process: tests run in parallel."""
    with threadpool_limits(1):
        yield


@pytest.fixture(autouse=True)
def no_earlier_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test does not know of fits without a ledger in other tests."""
    monkeypatch.setattr("conddp.algorithms.unrecorded._FITS", [])


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261115)


def load_or_skip(name: str) -> Records:
    """A real data set, or a skip that says why."""
    try:
        return load_dataset(name)
    except DatasetNotFound as missing:
        pytest.skip(str(missing))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A CSV file with two public columns, one private one, a text column and a label."""
    rng = np.random.default_rng(0)
    rows = ["rooms,age,income,town,price"]
    for _ in range(200):
        rooms, age, income = rng.uniform(1, 9), rng.uniform(0, 90), rng.uniform(0, 100)
        rows.append(f"{rooms:.3f},{age:.1f},{income:.2f},X,{40 * rooms + income:.4f}")
    path = tmp_path / "homes.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.toml"
    path.write_text(
        '[label]\nname = "price"\nbounds = [0, 500]\n[public]\ncolumns = ["rooms", "age"]\n'
        "[private.income]\nbounds = [0, 100]\n"
    )
    return path


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels are in use."""
    pytest.importorskip("numba")
    for name in ("_numba", "_is_missing", "_are_used"):  # as before, after the test
        monkeypatch.setattr(f"conddp._fused.{name}", getattr(_fused, name))
    monkeypatch.setenv("CONDDP_FAST", "1")
    assert _fused.load_kernels()


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read few records at a time, so that small tables have many partitions, pieces and blocks."""
    monkeypatch.setattr("conddp.data.stored_table.ROWS_PER_PARTITION", 700)
    monkeypatch.setattr("conddp.data.stored_column.ROWS_AT_ONCE", 128)
    monkeypatch.setattr("conddp.features.stored_features.ROWS_AT_ONCE", 128)
    monkeypatch.setattr("conddp.features.stored_features.BLOCK_SIZE", 128)
    monkeypatch.setattr("conddp.features.stored_norms.ROWS_AT_ONCE", 256)
