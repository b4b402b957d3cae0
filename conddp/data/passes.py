"""Passes over records: map a function over blocks of records and add up its results in order.

Gram matrices, sums of clamped residuals and errors are all computed by passes. The inputs only need a length and
slicing, so columns may be in memory or read from files on demand. Columns in files are divided into partitions. An
executor maps the function over the blocks or partitions, in this process or elsewhere.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, TypeVar

from conddp.data.threads import run_in_threads, run_on_one_thread

__all__ = [
    "BLOCK_SIZE",
    "Executor",
    "Sliceable",
    "add_sums",
    "count_additions",
    "count_rows_in_cache",
    "get_executor",
    "get_partitions",
    "is_for_threads",
    "list_blocks",
    "run_in_order",
    "run_pass",
    "use_executor",
]

BLOCK_SIZE = 8192  # records
CACHE_SIZE = 1 << 19  # bytes; what a core can read again without going to memory
FEWEST_ROWS = 64  # treated at once, however many columns there are
CELLS_FOR_BLAS_THREADS = 1 << 13  # fewer are never divided by BLAS
CELLS_FOR_THREADS = 1 << 20  # of a pass in memory; fewer are read in less time than it takes to start threads

SumsT = TypeVar("SumsT")


class Sliceable(Protocol):
    """One or more columns that support ``len`` and slicing.

    Columns that are read from files also have ``partitions``: consecutive spans, each of which is best read as a whole,
    and they can be pickled without their cells.
    """

    def __len__(self) -> int:
        """Number of records."""

    def __getitem__(self, span: slice, /) -> Any:
        """Return a block of records."""


class Executor(Protocol):
    """Applies a function to spans of records, locally or remotely, and yields the results in the order of the spans.

    An executor whose attribute ``is_remote`` is true gets functions that can be pickled, and runs passes over columns
    in files only. Others run in this process.
    """

    def __call__(self, function: Callable[[slice], SumsT], spans: Iterable[slice], /) -> Iterator[SumsT]:
        """Yield the results of the function, in order."""


def run_in_order(function: Callable[[slice], SumsT], spans: Iterable[slice]) -> Iterator[SumsT]:
    """Execute a pass sequentially in this process."""
    return map(function, spans)


_EXECUTOR: ContextVar[Executor] = ContextVar("executor", default=run_in_order)


@contextmanager
def use_executor(executor: Executor) -> Iterator[None]:
    """Run all passes within a ``with`` block on another executor. Results do not depend on the executor.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np
    >>> with ThreadPoolExecutor(2) as pool, use_executor(pool.map):
    ...     run_pass(lambda span, column: column.sum(), np.arange(10.0), block_size=4)
    np.float64(45.0)
    """
    token = _EXECUTOR.set(executor)
    try:
        yield
    finally:
        _EXECUTOR.reset(token)


def get_executor() -> Executor:
    """Return the executor that :func:`use_executor` has set; :func:`run_in_order` if none is."""
    return _EXECUTOR.get()


def list_blocks(num_records: int, *, block_size: int = BLOCK_SIZE) -> Iterator[slice]:
    """Divide all records into consecutive spans.

    Examples
    --------
    >>> list(list_blocks(5, block_size=2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + block_size, num_records)) for start in range(0, num_records, block_size))


def count_rows_in_cache(num_columns: int) -> int:
    """Return about how many rows of float64 numbers fit into the processor cache; a power of two up to a block.

    Examples
    --------
    >>> count_rows_in_cache(8), count_rows_in_cache(100), count_rows_in_cache(10**6)
    (8192, 512, 64)
    """
    fitting = CACHE_SIZE / (8 * max(1, num_columns))
    return min(BLOCK_SIZE, max(FEWEST_ROWS, 1 << max(0, round(math.log2(fitting)))))


def is_for_threads(num_cells: int) -> bool:
    """Whether a pass over so many cells in memory runs on threads, if there are several."""
    return num_cells >= CELLS_FOR_THREADS


def run_pass(
    function: Callable[..., SumsT],
    *columns: Sliceable,
    block_size: int = BLOCK_SIZE,
    num_cells: int = 0,
) -> SumsT:
    """Apply a function to all blocks and add up the results.

    A pass over many cells in memory runs on threads of this process, unless another executor is in use.

    Privacy
        Costs nothing by itself. Sums of private columns are private until a curator releases them.

    Parameters
    ----------
    function : callable
        Called with the span of a block and that block of every column. It returns a value that supports ``+``, such as
        an array or a number, or a tuple of such values, which is added entry by entry.
    *columns : sliceable
        One or more columns, all of the same length.
    block_size : int
        Number of records per block. It may affect the last digits of the result; nothing else about the division of
        work does.
    num_cells : int
        Approximate number of cells of the columns. It decides whether threads are worth their while, and nothing else.

    Examples
    --------
    >>> import numpy as np
    >>> run_pass(lambda span, column: (column.sum(), len(column)), np.arange(10.0), block_size=4)
    (np.float64(45.0), 10)
    """
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise ValueError(f"columns of a pass must have the same length, got {sorted(lengths)}.")
    task, executor = _Pass(function, columns, block_size), get_executor()
    spans: Iterable[slice] | None = get_partitions(*columns)
    if spans is None:
        spans = list_blocks(lengths.pop(), block_size=block_size)
        if executor is run_in_order or getattr(executor, "is_remote", False):
            executor = run_in_order if num_cells < CELLS_FOR_BLAS_THREADS else run_on_one_thread
            executor = run_in_threads if is_for_threads(num_cells) else executor
    total: SumsT = reduce(add_sums, executor(task, spans))
    return total


def get_partitions(*columns: object) -> tuple[slice, ...] | None:
    """Return the partitions of columns that are read from files; None if all columns are in memory."""
    found = (getattr(column, "partitions", None) for column in columns)
    return next((partitions for partitions in found if partitions is not None), None)


def count_additions(
    num_records: int, partitions: tuple[slice, ...] | None = None, *, block_size: int = BLOCK_SIZE
) -> int:
    """Return the number of additions that a term of a pass goes through at most, for bounds on rounding errors.

    Examples
    --------
    >>> count_additions(20_000), count_additions(20_000, (slice(0, 9_000), slice(9_000, 20_000)))
    (8195, 8196)
    """
    within = num_records if partitions is None else max(int(span.stop - span.start) for span in partitions)
    return min(num_records, block_size) + -(-within // block_size) + len(partitions or ())


@dataclass(frozen=True)
class _Pass:
    """What is done with one block, or with one partition block by block. The repr shows no cell."""

    function: Callable[..., Any]
    columns: tuple[Sliceable, ...]
    block_size: int

    def __call__(self, span: slice) -> Any:
        parts = list_blocks(span.stop - span.start, block_size=self.block_size)
        return reduce(add_sums, (self._apply(slice(span.start + part.start, span.start + part.stop)) for part in parts))

    def _apply(self, span: slice) -> Any:
        return self.function(span, *(column[span] for column in self.columns))

    def __repr__(self) -> str:
        return "<pass over records>"


def add_sums(total: Any, part: Any) -> Any:
    """Add what a pass has computed for two blocks: sums, or tuples of sums entry by entry."""
    return tuple(map(add_sums, total, part)) if isinstance(total, tuple) else total + part
