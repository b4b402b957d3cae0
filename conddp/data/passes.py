"""Passes over records: map a function over blocks of records and add up its results in order.

Gram matrices, sums of clamped residuals and errors are all computed by passes. The inputs only need a length and
slicing, so columns may be in memory or read from a file on demand. An executor maps the function over the blocks.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import Any, Protocol, TypeVar

__all__ = ["BLOCK_SIZE", "Executor", "Sliceable", "list_blocks", "run_in_order", "run_pass", "use_executor"]

BLOCK_SIZE = 8192  # records; a block with tens of columns fits into the processor cache

SumsT = TypeVar("SumsT")


class Sliceable(Protocol):
    """One or more columns that support ``len`` and slicing."""

    def __len__(self) -> int:
        """Number of records."""

    def __getitem__(self, span: slice, /) -> Any:
        """Return a block of records."""


class Executor(Protocol):
    """Applies a function to spans of records, locally or remotely, and yields the results in the order of the spans."""

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


def list_blocks(num_records: int, *, block_size: int = BLOCK_SIZE) -> Iterator[slice]:
    """Divide all records into consecutive spans.

    Examples
    --------
    >>> list(list_blocks(5, block_size=2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + block_size, num_records)) for start in range(0, num_records, block_size))


def run_pass(
    function: Callable[..., SumsT],
    *columns: Sliceable,
    block_size: int = BLOCK_SIZE,
) -> SumsT:
    """Apply a function to all blocks and add up the results.

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

    Examples
    --------
    >>> import numpy as np
    >>> run_pass(lambda span, column: (column.sum(), len(column)), np.arange(10.0), block_size=4)
    (np.float64(45.0), 10)
    """
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise ValueError(f"columns of a pass must have the same length, got {sorted(lengths)}.")
    spans = list_blocks(lengths.pop(), block_size=block_size)
    executor = _EXECUTOR.get()
    return reduce(_add, executor(lambda span: function(span, *(column[span] for column in columns)), spans))


def _add(total: Any, part: Any) -> Any:
    return tuple(map(_add, total, part)) if isinstance(total, tuple) else total + part
