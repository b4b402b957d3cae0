"""A table in several files, and fits to it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from conddp import PrivacyBudget, Schema
from conddp.algorithms import Algorithm
from conddp.data.passes import Executor
from conddp.files import load_records
from conddp.privacy import RandomSource


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
    records, _ = load_records(folder, schema)
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
