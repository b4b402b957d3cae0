"""Columns of a stored table that are read when they are sliced."""

import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from conddp.data.passes import BLOCK_SIZE
from conddp.data.stored_table import StoredTable

__all__ = ["StoredColumn", "StoredFrame", "slice_rows"]

ROWS_AT_ONCE = 8 * BLOCK_SIZE


class _Reading(threading.local):
    """Where a thread is in a table, and what it read last. Not pickled with the column."""

    number: int = -1  # of the partition
    place: int = 0  # of the next piece
    pieces: Iterator[Any] | None = None
    start: int = 0  # position of the first record that was read last
    stop: int = 0
    block: Any = None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _Reading, ()


@dataclass(frozen=True, eq=False)
class StoredColumn(ABC):
    """One or more columns of a stored table. Slicing reads records, the next ones fastest.

    Parameters
    ----------
    table : StoredTable
        The table.
    names : tuple of str
        Names of the columns.
    rows_at_once : int
        Number of records that are read together.
    """

    table: StoredTable
    names: tuple[str, ...]
    rows_at_once: int = field(default_factory=lambda: ROWS_AT_ONCE)
    _reading: _Reading = field(default_factory=_Reading, repr=False)

    @abstractmethod
    def convert(self, piece: Any) -> Any:
        """Convert an Arrow table to what a slice returns."""

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def partitions(self) -> tuple[slice, ...]:
        """Spans of the partitions of the table."""
        return self.table.partitions

    def __getitem__(self, span: slice) -> Any:
        """Read consecutive records."""
        start, stop, step = span.indices(len(self))
        if step != 1:
            raise ValueError("records of a stored table are read in order, without gaps.")
        blocks: list[Any] = []
        while start < stop or not blocks:
            reading = self._move_to(min(start, len(self) - 1))
            end = min(stop, reading.stop)
            blocks.append(slice_rows(reading.block, start - reading.start, max(end, start) - reading.start))
            start = max(end, start + 1)
        return blocks[0] if len(blocks) == 1 else _join_rows(blocks)

    def _move_to(self, position: int) -> _Reading:
        """Read the piece that holds a record."""
        reading = self._reading
        if reading.block is not None and reading.start <= position < reading.stop:
            return reading
        number = bisect_right([each.start for each in self.partitions], position) - 1
        first = self.partitions[number].start
        place = (position - first) // self.rows_at_once
        if reading.pieces is None or number != reading.number or place < reading.place:
            reading.block = None
            reading.pieces = self.table.stream(number, self.names, num_rows=self.rows_at_once)
            reading.number, reading.place = number, 0
        for piece in reading.pieces:
            reading.place += 1
            if reading.place > place:
                reading.start = first + place * self.rows_at_once
                reading.stop = reading.start + len(piece)
                reading.block = None  # before the next one takes memory
                reading.block = self.convert(piece)
                return reading
        raise AssertionError("a partition has fewer records than it was opened with.")


@dataclass(frozen=True, eq=False)
class StoredFrame(StoredColumn):
    """Columns as Arrow tables."""

    def convert(self, piece: Any) -> Any:
        """Return the table unchanged."""
        return piece


def slice_rows(block: Any, start: int, stop: int) -> Any:
    """Take consecutive rows of an array, a CSR matrix or an Arrow table, without copying cells."""
    if not isinstance(block, csr_array):
        return block[start:stop] if isinstance(block, np.ndarray) else block.slice(start, stop - start)
    first, last = block.indptr[start], block.indptr[stop]
    parts = (block.data[first:last], block.indices[first:last], block.indptr[start : stop + 1] - first)
    return csr_array(parts, shape=(stop - start, block.shape[1]))


def _join_rows(blocks: list[Any]) -> Any:
    if isinstance(blocks[0], csr_array):
        return vstack(blocks, format="csr")
    if isinstance(blocks[0], np.ndarray):
        return np.concatenate(blocks)
    import pyarrow

    return pyarrow.concat_tables(blocks)
