"""Cells of private columns as numbers, by what is declared of the column and nothing else.

Nothing is read off a private column: its levels and its range are declared, and a gap has a declared value.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conddp.categories import Categories
from conddp.data.column import Column, Kind, count_days
from conddp.data.parts import Matrix, PrivateFeatures, as_column, as_numbers
from conddp.errors import SchemaError

__all__ = ["read_cells", "read_private"]

NONE_DECLARED = -1.0  # place of a value that is none of the declared categories


def read_private(
    cells: Mapping[str, nw.Series[Any] | NDArray[Any]], columns: Sequence[Column]
) -> PrivateFeatures | None:
    """Read private columns by their declarations; None if there are none.

    Privacy
        As in :func:`read_cells`.

    Parameters
    ----------
    cells : mapping
        Series or arrays by column name.
    columns : sequence of Column
        Declarations of the private columns.
    """
    if not columns:
        return None
    values = np.column_stack([read_cells(cells[column.name], column) for column in columns])
    return PrivateFeatures(values, tuple(column.domain for column in columns), tuple(column.name for column in columns))


def read_cells(cells: nw.Series[Any] | NDArray[Any], column: Column) -> Matrix:
    """Read cells of a private column as numbers.

    Numbers are returned as they are, to be clamped later, booleans as 0 or 1, dates as days since 1970, and categories
    as their place among the declared ones, or -1 if they are not declared. Text that is not declared as it stands is
    compared as the number or boolean that it may be: 1.0 is the category 1, and True is true. A gap gets the declared
    ``fill``. In a category, empty text is a gap too, unless it is declared.

    Privacy
        Each cell is read on its own. An error depends on types and on gaps, and names the column but no cell.

    Parameters
    ----------
    cells : Series or array of shape (n,)
        The column.
    column : Column
        What is declared of it.

    Raises
    ------
    SchemaError
        If cells are not of the declared kind, or if there are gaps and no ``fill`` is declared.

    Examples
    --------
    >>> region = Column.private("region", {"categories": ["north", "south"], "fill": "south"})
    >>> read_cells(np.array(["north", "moon", None], dtype=object), region).tolist()
    [0.0, -1.0, 1.0]
    """
    domain = column.domain
    if isinstance(domain, Categories):
        values = _read_categories(cells, domain)
    else:
        values = _read_dates(cells, column) if column.kind is Kind.DATE else _read_numbers(cells, column)
    missing = np.isnan(values)
    if not missing.any():
        return values
    fill = domain.find(column.fill) if isinstance(domain, Categories) else column.fill
    if column.fill is None or fill is None:
        raise SchemaError(
            f"column '{column.name}' has gaps, and no value is declared that stands for them. Declare fill, from "
            "domain knowledge."
        )
    return np.where(missing, values.dtype.type(fill), values)


def _read_numbers(cells: nw.Series[Any] | NDArray[Any], column: Column) -> Matrix:
    what = f"column '{column.name}'"
    if isinstance(cells, nw.Series) and cells.dtype == nw.Unknown and cells.is_null().all():
        return np.full(len(cells), np.nan)  # a column of gaps has no type
    if isinstance(cells, nw.Series):
        return as_column(cells, what=what, finite=False, gaps=True)
    return as_numbers(cells, what=what, finite=False, gaps=True)


def _read_categories(cells: nw.Series[Any] | NDArray[Any], categories: Categories) -> Matrix:
    def find(cell: Any) -> float:
        place = categories.find(cell)
        if place is None and isinstance(cell, str):
            bare = cell.strip().lower()
            place = categories.find(bare if bare in ("true", "false") else float(bare))
        return NONE_DECLARED if place is None else float(place)

    empty = "" not in categories.names
    return _convert(cells, find, is_gap=lambda cell: _is_missing(cell) or (empty and cell == ""), other=NONE_DECLARED)


def _read_dates(cells: nw.Series[Any] | NDArray[Any], column: Column) -> Matrix:
    if isinstance(cells, nw.Series) and isinstance(cells.dtype, nw.Datetime) and cells.dtype.time_zone is not None:
        cells = cells.dt.replace_time_zone(None)  # as on the clock, like declared dates
    array: NDArray[Any] | None = None
    try:
        array = cells.to_numpy() if isinstance(cells, nw.Series) else np.asarray(cells)
    except Exception:  # a cell that cannot be converted, which the original message quotes
        pass
    if array is not None and array.dtype.kind == "M":
        days = (array - np.datetime64(0, "s")) / np.timedelta64(1, "D")
        return np.asarray(days, dtype=np.float64)  # NaT is NaN
    values = _convert(cells, _read_date, is_gap=lambda cell: _is_missing(cell) or cell == "", other=math.inf)
    if np.isinf(values).any():
        raise SchemaError(
            f"the bounds of column '{column.name}' are dates, but it holds something else. Expected dates, times, or "
            "text such as 2026-01-31."
        )
    return values


def _read_date(cell: Any) -> float:
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[us]").item()
    if isinstance(cell, str):
        cell = datetime.fromisoformat(cell.strip())
    return count_days(cell) if isinstance(cell, date) else math.inf


def _convert(
    cells: nw.Series[Any] | NDArray[Any],
    convert: Callable[[Any], float],
    *,
    is_gap: Callable[[Any], bool],
    other: float,
) -> NDArray[np.float64]:
    """Convert cells of any type one at a time, equal ones once: NaN for gaps, ``other`` for what cannot be converted.

    Cells may be objects of any kind, with errors of their own, which must not be shown.
    """
    known: dict[Any, float] = {}
    values = np.empty(len(cells))
    for place, cell in enumerate(_list(cells)):
        try:
            value = known.get((type(cell), cell))
        except Exception:  # it has no hash
            value = None
        if value is None:
            try:
                value = math.nan if is_gap(cell) else convert(cell)
                if not math.isnan(value):
                    known[type(cell), cell] = value
            except Exception:
                value = other if value is None else value
        values[place] = value
    return values


def _list(cells: nw.Series[Any] | NDArray[Any]) -> list[Any]:
    """Cells as Python objects. One that cannot be decoded, such as text in another encoding, becomes a plain object."""
    try:
        return list(cells.to_list() if isinstance(cells, nw.Series) else cells.tolist())
    except Exception:  # which may quote the cell
        pass
    return [_open(scalar) for scalar in (cells.to_arrow() if isinstance(cells, nw.Series) else cells)]


def _open(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except Exception:
        return object()


def _is_missing(cell: Any) -> bool:
    return bool(
        cell is None
        or cell is np.ma.masked
        or type(cell).__name__ in ("NAType", "NaTType")  # missing, in pandas
        or (isinstance(cell, (float, np.floating)) and math.isnan(cell))
        or (isinstance(cell, np.datetime64) and np.isnat(cell))
    )
