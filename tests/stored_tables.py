"""Tables in several files, and fits to them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from conddp import PrivacyBudget, Schema
from conddp.algorithms import Algorithm
from conddp.data.passes import Executor
from conddp.files import load_records
from conddp.privacy import RandomSource

HOME_COLUMNS = ["size", "rooms", "street", "sold", "lift"]
HOMES = Schema.of(label="price", label_bounds=(0, 10), public=HOME_COLUMNS)


def make_homes(rng: np.random.Generator, n: int = 3000, *, num_streets: int = 12) -> pd.DataFrame:
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


def write_parts(folder: Path, frame: Any, *, files: int = 3, row_group_size: int = 400) -> list[Path]:
    """Write a table to several files with small row groups."""
    folder.mkdir(exist_ok=True)
    paths = []
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), files)):
        paths.append(folder / f"part-{number}.parquet")
        table = pyarrow.Table.from_pandas(frame.iloc[rows], preserve_index=False)
        pyarrow.parquet.write_table(table, paths[-1], row_group_size=row_group_size)
    return paths


def store_sparsely(monkeypatch: pytest.MonkeyPatch, sparsely: bool) -> None:
    monkeypatch.setattr("conddp.features.stored_reading.SPARSE_FROM", 0 if sparsely else 1000)
    monkeypatch.setattr("conddp.features.stored_reading.DENSEST", 1.0)


def write_table(folder: Path, *, num_files: int = 4, num_rows: int = 1500) -> Schema:
    """Write a table of two public columns and a label to several files, and return its schema."""
    rng = np.random.default_rng(2)
    for number in range(num_files):
        rooms, age = rng.uniform(1, 9, num_rows), rng.uniform(0, 90, num_rows) * 10.0**number
        price = 40 * rooms + rng.normal(0, 20, num_rows)
        pyarrow.parquet.write_table(
            pyarrow.table({"rooms": rooms, "age": age, "price": price}), folder / f"part-{number}.parquet"
        )
    return Schema.of(label="price", label_bounds=(0, 500), public=["rooms", "age"])


def fit_table(folder: Path, schema: Schema, algorithm: Algorithm) -> Any:
    """Open a table in files, fit a model to it and return its parameters."""
    records, _ = load_records(folder, schema, small=True)
    return algorithm.fit(records, PrivacyBudget(1.0, 1e-6), random_source=RandomSource.of(0)).model.parameters


@dataclass
class Counted:
    """Counts the partitions that an executor is given."""

    executor: Executor
    num_spans: int = 0
    is_remote: bool = True

    def __call__(self, function: Any, spans: Any) -> Iterator[Any]:
        spans = list(spans)
        self.num_spans += len(spans)
        return self.executor(function, spans)
