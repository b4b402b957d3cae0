"""Passes over records: a function of a block is mapped over all blocks and its results are added up in order.

Gram matrices, sums of clamped residuals and errors are all passes. What a pass is given needs a length and slices, so
that columns may lie in memory or be read from a file when their slice is asked for; who maps it is an executor.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any, Protocol, TypeVar

__all__ = ["BLOCK_SIZE", "Executor", "Sliceable", "list_blocks", "run_in_order", "run_pass"]

BLOCK_SIZE = 8192  # records: a block of some tens of columns stays in the processor's cache

SumsT = TypeVar("SumsT")


class Sliceable(Protocol):
    """A column, or several side by side."""

    def __len__(self) -> int:
        """Number of records."""

    def __getitem__(self, span: slice, /) -> Any:
        """A block."""


class Executor(Protocol):
    """Applies a function to spans of records, here or elsewhere, and yields the results in the order of the spans."""

    def __call__(self, function: Callable[[slice], SumsT], spans: Iterable[slice], /) -> Iterator[SumsT]:
        """Results of the function, in order."""


def run_in_order(function: Callable[[slice], SumsT], spans: Iterable[slice]) -> Iterator[SumsT]:
    """The executor that does one block after the other in this process."""
    return map(function, spans)


def list_blocks(num_records: int, *, block_size: int = BLOCK_SIZE) -> Iterator[slice]:
    """Spans of consecutive records that cover all of them.

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
    executor: Executor = run_in_order,
) -> SumsT:
    """Add up a function of all blocks.

    Privacy
        Costs nothing by itself. Sums of private columns are private until a curator releases them.

    Parameters
    ----------
    function : callable
        Given the span of a block and that block of every column; returns something that can be added: an array, a
        number or an object with ``+``; a tuple is added entry by entry.
    *columns : sliceable
        At least one, all of the same length.
    block_size : int
        Records in a block. Results may depend on it in their last digits, and on nothing else of how work is divided.
    executor : callable
        Who maps the function.

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
    return reduce(_add, executor(lambda span: function(span, *(column[span] for column in columns)), spans))


def _add(total: Any, part: Any) -> Any:
    return tuple(map(_add, total, part)) if isinstance(total, tuple) else total + part
