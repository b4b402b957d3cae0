"""Converted or simulated rows in memory: as sparse features for linear models, or as bins for embeddings."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csr_array

from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.research.criteo.columns import CATEGORIES, LABEL, LARGEST_VALUE, NUMBERS
from conddp.research.criteo.folder import PartFolder
from conddp.research.datasets import DatasetDamaged, DatasetNotFound

__all__ = ["BinnedRows", "load_criteo", "load_criteo_bins", "prepare_numbers"]

# Where each number gets to 1: the 30 days in which a sale counts, clicks beyond any week, the largest value.
UNITS = np.log1p([30 * 24 * 3600.0, 25_000.0, LARGEST_VALUE])


@dataclass(frozen=True)
class BinnedRows:
    """Rows with the bins of their categories.

    Parameters
    ----------
    numbers : array of shape (n, 3)
        Time delay, clicks and price, as :func:`prepare_numbers` makes them.
    bins : array of int32, shape (n, 17)
        Bins of the categories.
    label : Labels
        Value of the sale, between 0 and 400.
    num_bins : int
        Bins are numbered from 0 to ``num_bins`` - 1; one bin may belong to several categories.
    """

    numbers: NDArray[np.float64]
    bins: NDArray[np.int32]
    label: Labels
    num_bins: int

    def __len__(self) -> int:
        return len(self.bins)

    def to_records(self) -> Records:
        """Sparse features: three numbers, and how many of the 17 categories fell into each bin."""
        n, num_numbers = self.numbers.shape
        width = num_numbers + self.bins.shape[1]
        positions = np.empty((n, width), dtype=np.int32)
        positions[:, :num_numbers] = np.arange(num_numbers)
        positions[:, num_numbers:] = self.bins + num_numbers
        values = np.ones((n, width))
        values[:, :num_numbers] = self.numbers
        shape = (n, num_numbers + self.num_bins)
        matrix = csr_array((values.ravel(), positions.ravel(), np.arange(n + 1) * width), shape=shape)
        matrix.sum_duplicates()
        names = (*NUMBERS, *(f"bin_{place}" for place in range(self.num_bins)))
        return Records(PublicFeatures(matrix, names), None, self.label)


def prepare_numbers(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms log(1 + x) of the three numbers, in fixed units; 0 if missing.

    Privacy
        The numbers are public, and the units are fixed beforehand.

    Parameters
    ----------
    numbers : array of shape (n, 3)
        Time delay in seconds, clicks, and price in euros; NaN if missing.
    """
    return np.asarray(np.log1p(np.maximum(np.nan_to_num(numbers, nan=0.0), 0.0)) / UNITS)


def load_criteo_bins(folder: Path | str) -> tuple[BinnedRows, BinnedRows]:
    """Training and test rows of a converted or simulated folder, with bins for embeddings.

    Privacy
        Reads public columns and labels. Labels stay in their private type.

    Raises
    ------
    DatasetNotFound
        If the folder holds no finished conversion.
    DatasetDamaged
        If its parts are not what the manifest says.
    """
    found = PartFolder.find(Path(folder))
    if found is None or not found.manifest.finished:
        state = "holds no converted rows" if found is None else "is not finished"
        raise DatasetNotFound(
            f"'{folder}' {state}. Fill it with convert_criteo(log, folder) or write_simulation(folder, num_rows); both "
            "continue where they stopped."
        )
    return _load(found, "train", found.manifest.train_rows), _load(found, "test", found.manifest.test_rows)


def load_criteo(folder: Path | str) -> tuple[Records, Records]:
    """Training and test rows of a converted or simulated folder, with sparse features for linear models.

    There are three numbers and one feature per bin: 4,003 with the paper's 4,000 bins. A row in which two categories
    have the same bin has a 2 there.

    Privacy
        Reads public columns and labels. Labels stay in their private type.

    Raises
    ------
    DatasetNotFound, DatasetDamaged
        As :func:`load_criteo_bins`.
    """
    train, test = load_criteo_bins(folder)
    return train.to_records(), test.to_records()


def _load(folder: PartFolder, kind: str, rows: tuple[int, ...]) -> BinnedRows:
    """All parts of a kind, read one by one into arrays of the full size."""
    numbers = np.empty((sum(rows), len(NUMBERS)))
    bins = np.empty((sum(rows), len(CATEGORIES)), dtype=np.int32)
    value = np.empty(sum(rows))
    start = 0
    for number, size in enumerate(rows):
        path = folder.path / kind / f"part-{number:05d}.parquet"
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise DatasetDamaged(f"{path} cannot be read: {type(error).__name__}. Convert again.") from None
        if len(table) != size:
            raise DatasetDamaged(f"{path} has {len(table)} rows where the manifest says {size}. Convert again.")
        span = slice(start, start + size)
        numbers[span] = prepare_numbers(np.column_stack([table[name].to_numpy() for name in NUMBERS]))
        for place, name in enumerate(CATEGORIES):
            bins[span, place] = table[name].to_numpy()
        value[span] = table[LABEL].to_numpy()
        start += size
    return BinnedRows(numbers, bins, Labels(value, Bounds(0.0, LARGEST_VALUE), LABEL), folder.manifest.num_bins)
