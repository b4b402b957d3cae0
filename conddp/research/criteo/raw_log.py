"""Simulated clicks in the published tab-separated format."""

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range, positive_integer
from conddp.errors import refuse_existing
from conddp.research.criteo.columns import CATEGORIES, MISSING, NUMBERS, ROW_GROUP
from conddp.research.criteo.mixing import as_uniform, mix
from conddp.research.criteo.profile import NUM_CLICKS, NUM_SALES
from conddp.research.criteo.simulation import Sales, draw_sales

__all__ = ["write_raw_log"]

SALE_SALT, TIME_SALT, VALUE_SALT = 600, 601, 610
OTHERS = 1 << 40  # pieces from here on have the columns of clicks without a sale
PIECE = 1 << 14  # lines
FIRST_CLICK, SECONDS = 1_596_439_471, 90 * 24 * 3600


def write_raw_log(
    path: Path | str,
    num_rows: int,
    *,
    seed: int = 0,
    overwrite: bool = False,
    callback: Callable[[int, int], object] | None = None,
) -> int:
    """Write simulated clicks in the published format of 23 columns, 89 % of them without a sale.

    Those with a sale are the first rows of :func:`~conddp.research.criteo.simulation.simulate_criteo` with the same
    seed, with values that are not clipped, so a conversion of the file can be compared with them.

    Privacy
        Nothing is read: the clicks are made up from published figures.

    Parameters
    ----------
    path : path
        The file; compressed if it ends in ``.gz``.
    num_rows : int
        Lines.
    seed : int
        Of the clicks.
    overwrite : bool
        Whether to replace an existing file.
    callback : callable, optional
        Called with the lines so far and in all.

    Returns
    -------
    int
        Clicks with a sale.
    """
    positive_integer(num_rows=num_rows)
    in_range(0, 2**31 - 1, seed=seed)
    path = Path(path)
    refuse_existing(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    opened = gzip.open(partial, "wb", compresslevel=6) if path.suffix == ".gz" else partial.open("wb")
    try:
        with cast("IO[bytes]", opened) as file:
            num_sales = 0
            sales, others = (_read_rows(first, seed, at_most=num_rows) for first in (0, OTHERS))
            for start in range(0, num_rows, PIECE):
                numbers = np.arange(start, min(start + PIECE, num_rows))
                has_sale = as_uniform(mix(numbers, SALE_SALT + 1000 * seed)) < NUM_SALES / NUM_CLICKS
                times = FIRST_CLICK + (as_uniform(mix(numbers, TIME_SALT + 1000 * seed)) * SECONDS).astype(np.int64)
                rows = (next(sales if sold else others) for sold in has_sale)
                lines = (_join(row, sold, time) for row, sold, time in zip(rows, has_sale, times.tolist(), strict=True))
                file.write("".join(lines).encode("ascii"))
                num_sales += int(has_sale.sum())
                if callback is not None:
                    callback(start + len(numbers), num_rows)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return num_sales


def _join(row: tuple[str, ...], sold: bool, time: int) -> str:
    amount, delay, clicks, price, *values = row
    first = ("1", amount, delay, str(time), clicks, price) if sold else ("0", "-1", "-1", str(time), clicks, "0")
    return "\t".join((*first, *values)) + "\n"


def _read_rows(first_piece: int, seed: int, *, at_most: int) -> Iterator[tuple[str, ...]]:
    """Cells of one row after another: amount, three numbers, 17 values."""
    piece = first_piece
    while True:
        drawn = draw_sales(piece, seed=seed, num_rows=min(ROW_GROUP, at_most))
        for start in range(0, ROW_GROUP, PIECE):
            yield from _show(drawn, slice(start, start + PIECE))
        piece += 1


def _show(sales: Sales, span: slice) -> Iterator[tuple[str, ...]]:
    numbers = [_show_numbers(each[span]) for each in (sales.value, *(sales.numbers[name] for name in NUMBERS))]
    values = [_show_levels(sales.levels[name][span], name) for name in CATEGORIES]
    return zip(*numbers, *values, strict=True)


def _show_numbers(numbers: NDArray[np.float64]) -> list[str]:
    return [MISSING if number == -1 else f"{number:.15g}" for number in numbers.tolist()]


def _show_levels(levels: NDArray[np.int64], name: str) -> list[str]:
    """32 digits for each level, and several such words for a title."""
    different, places = np.unique(levels, return_inverse=True)
    salt = VALUE_SALT + 20 * CATEGORIES.index(name)
    words = 3 + different % 5 if name == "product_title" else np.ones_like(different)
    shown = [
        [
            f"{high:016X}{low:016X}"
            for high, low in zip(mix(different, s).tolist(), mix(different, s + 1).tolist(), strict=True)
        ]
        for s in range(salt, salt + 2 * int(words.max()), 2)
    ]
    texts = [" ".join(cells[:count]) for cells, count in zip(zip(*shown, strict=True), words.tolist(), strict=True)]
    values = [MISSING if level < 0 else text for level, text in zip(different.tolist(), texts, strict=True)]
    return [values[place] for place in places.tolist()]
