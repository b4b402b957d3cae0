"""Lines of the published log: which are damaged, and what those with a sale say."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from conddp.research.criteo.columns import (
    CATEGORIES,
    LABEL,
    LARGEST_VALUE,
    NUMBERS,
    RAW_COLUMNS,
    SCHEMA,
)
from conddp.research.criteo.hashing import hash_column

__all__ = ["ConvertedLines", "convert_lines"]

AMOUNT = "SalesAmountInEuro"
HASH_LENGTH = 32  # digits of a hashed value
NEWLINE, TAB, ZERO, ONE = 10, 9, 48, 49

Places = NDArray[np.intp]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class ConvertedLines:
    """What became of some consecutive lines.

    Parameters
    ----------
    num_lines : int
        All of them.
    rows : pyarrow.Table
        Those with a sale and its value.
    row_places : array of int
        Place of each row among the lines, counted from 0.
    num_without_value : int
        Lines with a sale whose value is missing. They are left out.
    damaged : array of int
        Places of damaged lines.
    """

    num_lines: int
    rows: pa.Table
    row_places: Places
    num_without_value: int
    damaged: Places


def convert_lines(block: bytes, num_bins: int) -> ConvertedLines:
    """Convert whole lines, of which only the last may lack its line break.

    A line is damaged if it does not have 23 fields, contains a NUL byte or a carriage return other than at its end, if
    its first field is neither 0 nor 1, or if a number that is used is neither finite and at least 0 nor missing, which
    is -1 or empty. A last line without a line break is also damaged unless its last field has its 32 digits.
    """
    is_cut = not block.endswith(b"\n")
    text = block + b"\n" if is_cut else block
    cells = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero(cells == NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    sound, has_sale = _examine(text, cells, starts, ends)
    if is_cut and sound[-1]:
        sound[-1] = len(text[starts[-1] : ends[-1]].rstrip(b"\r").rpartition(b"\t")[2]) == HASH_LENGTH
    places = np.flatnonzero(sound & has_sale)
    wanted = np.repeat(sound & has_sale, ends + 1 - starts)
    sales = _parse(cells[wanted].tobytes())
    amount = _read_numbers(sales[AMOUNT])
    numbers = {name: _read_numbers(sales[name]) for name in NUMBERS}
    readable = np.all([_is_number_or_missing(each) for each in (amount, *numbers.values())], axis=0)
    sound[places[~readable]] = False
    kept = readable & (amount >= 0)
    sales = sales.filter(pa.array(kept))
    columns = {LABEL: pa.array(np.minimum(amount[kept], LARGEST_VALUE))}
    for name, column in numbers.items():
        columns[name] = pa.array(column[kept], mask=column[kept] < 0)
    for name in CATEGORIES:
        columns[name] = pa.array(hash_column(sales[name].combine_chunks(), name, num_bins))
    return ConvertedLines(
        len(ends),
        pa.table(columns, schema=SCHEMA),
        places[kept],
        int(np.sum(readable & ~kept)),
        np.flatnonzero(~sound),
    )


def _examine(text: bytes, cells: NDArray[np.uint8], starts: Places, ends: Places) -> tuple[Flags, Flags]:
    """Which lines have the right form, and which say that there was a sale."""
    tabs = np.flatnonzero(cells == TAB)
    sound = _count(tabs, starts, ends) == len(RAW_COLUMNS) - 1
    second = cells[np.minimum(starts + 1, ends)]
    sound &= (second == TAB) & ((cells[starts] == ZERO) | (cells[starts] == ONE))
    if b"\0" in text:
        sound &= _count(np.flatnonzero(cells == 0), starts, ends) == 0
    if b"\r" in text:
        returns = np.flatnonzero(cells == ord("\r"))
        sound &= _count(returns[cells[returns + 1] != NEWLINE], starts, ends) == 0
    return sound, cells[starts] == ONE


def _count(places: Places, starts: Places, ends: Places) -> Places:
    """How many of the sorted places lie within each line."""
    return np.searchsorted(places, ends) - np.searchsorted(places, starts)


def _parse(lines: bytes) -> pa.Table:
    """The cells of lines of 23 fields, as bytes."""
    used = (AMOUNT, *NUMBERS, *CATEGORIES)
    if not lines:
        return pa.table({name: pa.array([], pa.binary()) for name in used})
    return pacsv.read_csv(
        pa.BufferReader(lines),
        pacsv.ReadOptions(column_names=RAW_COLUMNS, block_size=len(lines) + 1, use_threads=False),
        pacsv.ParseOptions(delimiter="\t", quote_char=False, double_quote=False, ignore_empty_lines=False),
        pacsv.ConvertOptions(
            column_types=dict.fromkeys(RAW_COLUMNS, pa.binary()), include_columns=list(used), check_utf8=False
        ),
    )


def _read_numbers(cells: pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers of a column: -1 for a missing one, NaN for what is none."""
    filled = pc.if_else(pc.equal(pc.binary_length(cells), 0), b"-1", cells)
    return _cast(filled.combine_chunks() if isinstance(filled, pa.ChunkedArray) else filled)


def _cast(cells: pa.Array) -> NDArray[np.float64]:
    """Numbers of cells; those that are none are found by halving."""
    try:
        return np.asarray(cells.cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        if len(cells) == 1:
            return np.array([np.nan])
        half = len(cells) // 2
        return np.concatenate([_cast(cells[:half]), _cast(cells[half:])])


def _is_number_or_missing(numbers: NDArray[np.float64]) -> Flags:
    return np.asarray(np.isfinite(numbers) & ((numbers >= 0) | (numbers == -1)))
