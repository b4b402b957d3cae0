"""Squared norms of the rows of a stored table, which are computed once and kept in files."""

import os
import shutil
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import BLOCK_SIZE, list_blocks, run_pass
from conddp.data.stored_column import ROWS_AT_ONCE, slice_rows
from conddp.errors import SchemaError
from conddp.features.conditioned_rows import ConditionedRows, NormTiles, count_threads

__all__ = ["StoredNorms", "use_scratch"]

Vector = NDArray[np.float64]

_SCRATCH: ContextVar[Path | None] = ContextVar("scratch", default=None)


@contextmanager
def use_scratch(folder: Path | None) -> Iterator[None]:
    """Keep temporary files of fits within a ``with`` block in a folder; in that of the operating system if None.

    The folder is made if it does not exist.

    Privacy
        The files hold numbers that are computed from public columns only.

    Raises
    ------
    SchemaError
        If the folder cannot be made, or nothing can be written to it.
    """
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise SchemaError(f"cannot write to the folder for temporary files, {folder}: {error.strerror}.") from None
    token = _SCRATCH.set(folder)
    try:
        yield
    finally:
        _SCRATCH.reset(token)


@dataclass(frozen=True, eq=False)
class StoredNorms:
    """Squared norms of rows within groups of directions, in a temporary folder. Slicing reads them.

    Privacy
        Computed from public columns only: no cost.

    Parameters
    ----------
    folder : str
        The folder. All processes of a fit must see it.
    partitions : tuple of slice
        Partitions of the table.
    num_groups : int
        Number of groups.
    """

    folder: str
    partitions: tuple[slice, ...]
    num_groups: int
    _owner: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, rows: ConditionedRows, starts: Sequence[int]) -> "StoredNorms":
        """Compute the norms of rows of a stored table by one pass over it. The folder is deleted with the object."""
        column: Any = rows.columns
        scratch = _SCRATCH.get()
        folder = tempfile.mkdtemp(prefix="conddp-", dir=None if scratch is None else scratch)
        owner = _Owner()
        weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
        run_pass(_WriteNorms(NormTiles.of(rows, starts), folder), rows.shifted, block_size=ROWS_AT_ONCE)
        return cls(folder, column.partitions, len(starts), owner)

    def __len__(self) -> int:
        return int(self.partitions[-1].stop)

    def __getitem__(self, span: slice) -> Vector:
        """Read the norms of consecutive records."""
        start, stop, _ = span.indices(len(self))
        parts = [np.empty((0, self.num_groups))]
        while start < stop:
            within = self.partitions[bisect_right([each.start for each in self.partitions], start) - 1]
            first = within.start + (start - within.start) // ROWS_AT_ONCE * ROWS_AT_ONCE
            end = min(stop, first + ROWS_AT_ONCE, within.stop)
            parts.append(self._read(first, start, end))
            start = end
        return parts[1] if len(parts) == 2 else np.concatenate(parts)

    def _read(self, first: int, start: int, stop: int) -> Vector:
        """Read records from the file that begins with a certain record."""
        number, skipped = (stop - start) * self.num_groups, (start - first) * self.num_groups
        try:
            values = np.fromfile(_name_file(self.folder, first), count=number, offset=8 * skipped)
        except OSError:
            values = np.empty(0)
        if len(values) != number:
            raise SchemaError(
                f"a temporary file in '{self.folder}' is missing. Processes on other machines need a folder that all "
                "of them share: pass it as scratch."
            )
        return values.reshape(stop - start, self.num_groups)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_owner": None}


class _Owner:
    """Object with whose life the folder ends."""


@dataclass(frozen=True, eq=False)
class _WriteNorms:
    """Computes the norms of a block and writes them to a file of its own, so that a repetition does no harm."""

    tiles: NormTiles
    folder: str

    def __call__(self, span: slice, columns: Any) -> int:
        spans = list_blocks(columns.shape[0], block_size=BLOCK_SIZE)
        with ThreadPoolExecutor(1 if isinstance(columns, np.ndarray) else count_threads()) as pool:
            norms = np.concatenate(
                list(pool.map(lambda each: self.tiles.measure(slice_rows(columns, each.start, each.stop)), spans))
            )
        handle, name = tempfile.mkstemp(dir=self.folder)
        with os.fdopen(handle, "wb") as file:
            norms.tofile(file)
        Path(name).replace(_name_file(self.folder, span.start))
        return len(norms)


def _name_file(folder: str, start: int) -> str:
    return os.path.join(folder, f"{start}.norms")
