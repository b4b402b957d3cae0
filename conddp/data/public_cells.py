"""Cells of a public column of any type, in one of four normal forms.

Numbers and flags become floating-point numbers, dates become days since 1970, and anything else becomes text that
takes one of several levels. Errors name the column and quote no cell.
"""

import re
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conddp.categories import Categories
from conddp.data.column import SECONDS, Kind, count_days
from conddp.data.numpy_cells import to_numpy, view_arrow
from conddp.data.parts import as_column
from conddp.errors import SchemaError

__all__ = ["PublicColumn", "find_resemblance", "read_public_column"]

# A number in text; commas separate thousands only, since a decimal comma would be taken for one.
NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?", re.ASCII)  # in any order of day, month and year
RESEMBLANCE = 0.9
GAPS = {"", ".", "?", "-", "na", "n/a", "null", "none"}  # gaps in text that was declared as numbers or flags
LARGEST_WHOLE = 2.0**53  # larger numbers are not distinct in floating point


@dataclass(frozen=True, eq=False)
class PublicColumn:
    """A public column in its normal form.

    Parameters
    ----------
    kind : Kind
        Kind of the values.
    values : array of shape (n,)
        Numbers, flags as 0 and 1, dates as days since 1970, with NaN for a gap. For a category, the places of the
        values among the levels, with -1 for a gap.
    levels : tuple of str
        Distinct values of a category, as text; empty for other kinds.
    zone : str
        Time zone of a date, on whose clock its days are counted; empty if it has none.
    is_declared : bool
        Whether the kind was declared rather than found.
    """

    kind: Kind
    values: NDArray[Any]
    levels: tuple[str, ...] = ()
    zone: str = ""
    is_declared: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "PublicColumn":
        """Select records by slice or by positions."""
        return PublicColumn(self.kind, self.values[index], self.levels, self.zone, self.is_declared)

    def count_levels(self) -> NDArray[np.intp]:
        """Number of records of each level."""
        return np.bincount(self.values[self.values >= 0], minlength=len(self.levels))


def read_public_column(series: nw.Series[Any], *, name: str, kind: Kind | None = None) -> PublicColumn:
    """Bring a column of a table to its normal form.

    Privacy
        Reads a public column: no cost.

    Parameters
    ----------
    series : Series
        The column.
    name : str
        Its name, for errors.
    kind : Kind, optional
        Declared kind. If None, the type of the column decides.
    """
    if series.dtype == nw.Unknown:
        series = _reopen(series)
    found, declared = _infer_kind(series, name), kind is not None
    kind = kind or found
    if kind is Kind.CATEGORY:
        return replace(_read_category(series, name), is_declared=declared)
    if kind is Kind.DATE:
        return _read_dates(series, found, name)
    if found is Kind.DATE:
        raise SchemaError(f"column '{name}' holds dates where a {kind.value} is expected.")
    if found is Kind.CATEGORY:
        return PublicColumn(kind, _parse_numbers(series, kind, name))
    return PublicColumn(kind, _read_numbers(series, name))


def find_resemblance(column: PublicColumn) -> str:
    """Return "number" or "date" if nearly all levels of a category look like one; empty text otherwise.

    A column that was declared as a category is one, whatever it looks like.
    """
    if column.is_declared:
        return ""
    for kind, pattern in (("number", NUMBER), ("date", DATE)):
        if sum(bool(pattern.fullmatch(level.strip())) for level in column.levels) >= RESEMBLANCE * len(column.levels):
            return kind
    return ""


def _reopen(series: nw.Series[Any]) -> nw.Series[Any]:
    """A column whose type is not recognised, as an Arrow column: time stamps in a zone, or a column of gaps."""
    import pyarrow

    try:
        cells = series.to_arrow()
    except Exception:  # of a type that Arrow does not have
        return series
    if pyarrow.types.is_null(cells.type):
        cells = cells.cast(pyarrow.float64())
    return nw.from_native(
        pyarrow.chunked_array([cells] if isinstance(cells, pyarrow.Array) else cells), series_only=True
    )


def _infer_kind(series: nw.Series[Any], name: str) -> Kind:
    """Kind of a column, from its type; for a column of Python objects, from their types."""
    dtype = series.dtype
    if dtype == nw.Boolean:
        return Kind.BOOLEAN
    if dtype.is_numeric() or dtype in (nw.Duration, nw.Time):
        return Kind.NUMBER
    if dtype in (nw.Date, nw.Datetime):
        return Kind.DATE
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return Kind.CATEGORY
    if dtype == nw.Object:
        return _infer_object_kind(series, name)
    raise SchemaError(
        f"column '{name}' holds {dtype} values, which are neither numbers, text, flags nor dates. Convert the column, "
        "or drop it."
    )


def _infer_object_kind(series: nw.Series[Any], name: str) -> Kind:
    types = {type(cell) for cell in series.drop_nulls().to_list()}
    types = {each for each in types if each.__name__ not in ("NAType", "NaTType")}
    if all(issubclass(each, (bool, np.bool_)) for each in types):
        return Kind.BOOLEAN
    if all(issubclass(each, (Real, Decimal)) for each in types):
        return Kind.NUMBER
    if all(issubclass(each, date) for each in types):
        return Kind.DATE
    if all(issubclass(each, (str, Real, Decimal)) for each in types):
        return Kind.CATEGORY
    raise SchemaError(
        f"column '{name}' holds objects that are neither numbers, text, flags nor dates. Convert the column, or drop "
        "it."
    )


def _read_numbers(series: nw.Series[Any], name: str) -> NDArray[np.float64]:
    """Numbers, flags, durations in hours and times of the day in hours, with NaN for gaps."""
    if series.dtype == nw.Duration:
        seconds = series.dt.total_microseconds().cast(nw.Float64) / 1e6
        return _to_floats(seconds / 3600)
    if series.dtype == nw.Time:
        hours = [
            None if cell is None else cell.hour + cell.minute / 60 + (cell.second + cell.microsecond / 1e6) / 3600
            for cell in series.to_list()
        ]
        return np.array(hours, dtype=np.float64)
    numbers = as_column(series, what=f"column '{name}'", finite=False, gaps=True).astype(np.float64, copy=False)
    if np.isinf(numbers).any():
        raise SchemaError(
            f"column '{name}' contains infinity. Replace it by the largest number that makes sense, or by a gap."
        )
    return numbers


def _parse_numbers(series: nw.Series[Any], kind: Kind, name: str) -> NDArray[np.float64]:
    """Text that was declared as numbers or flags."""
    column, words = _read_category(series, name), {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
    parsed = np.empty(len(column.levels) + 1)
    parsed[-1] = np.nan
    for place, level in enumerate(column.levels):
        text = level.strip()
        if text.lower() in GAPS:
            parsed[place] = np.nan
        elif kind is Kind.BOOLEAN and text.lower() in words:
            parsed[place] = words[text.lower()]
        elif NUMBER.fullmatch(text):
            parsed[place] = float(text.replace(",", ""))
        else:
            break
    else:
        values: NDArray[np.float64] = parsed[column.values]
        if not np.isinf(values).any():
            return values
    raise SchemaError(f"column '{name}' holds text that is not a {kind.value}. Convert it, or use it as a category.")


def _read_dates(series: nw.Series[Any], found: Kind, name: str) -> PublicColumn:
    """Days since 1970, on the clock of the time zone of the column."""
    zone = ""
    if found is Kind.CATEGORY:
        series = _parse_dates(series, name)
    elif found is not Kind.DATE:
        raise SchemaError(f"column '{name}' holds a {found.value} where a date is expected.")
    if series.dtype == nw.Object:
        days = [count_days(cell) if isinstance(cell, date) and cell == cell else None for cell in series.to_list()]
        return PublicColumn(Kind.DATE, np.array(days, dtype=np.float64))
    microseconds: NDArray[np.float64] | None = None
    try:
        if series.dtype == nw.Date:
            series = series.cast(nw.Datetime("us"))
        elif isinstance(series.dtype, nw.Datetime) and series.dtype.time_zone is not None:
            zone = series.dtype.time_zone
            series = series.dt.replace_time_zone(None)
        microseconds = _to_floats(series.dt.timestamp("us").cast(nw.Float64))
        microseconds[to_numpy(series.is_null()).astype(bool)] = np.nan
    except Exception:  # of the library that holds the table, which may quote the cell
        pass
    if microseconds is None:
        raise SchemaError(f"column '{name}' holds dates that are out of range.")
    return PublicColumn(Kind.DATE, microseconds / (1e6 * SECONDS), zone=zone)


def _parse_dates(series: nw.Series[Any], name: str) -> nw.Series[Any]:
    """Text in ISO 8601 notation as dates and times."""
    import pyarrow.compute

    parsed: nw.Series[Any] | None = None
    try:
        text = _to_arrow(series).cast(pyarrow.string())
        marks = pyarrow.compute.is_in(
            pyarrow.compute.utf8_lower(pyarrow.compute.utf8_trim_whitespace(text)), pyarrow.array(sorted(GAPS))
        )
        text = pyarrow.compute.if_else(marks, pyarrow.scalar(None, pyarrow.string()), text)
        chunks = text.chunks if isinstance(text, pyarrow.ChunkedArray) else [text]
        parsed = nw.from_native(_cast_dates(pyarrow.chunked_array(chunks, type=pyarrow.string())), series_only=True)
    except (pyarrow.ArrowException, ValueError):
        pass
    if parsed is None:
        raise SchemaError(f"column '{name}' holds text that is not a date such as 2026-01-31 or 2026-01-31 14:05.")
    return parsed


def _cast_dates(text: Any) -> Any:
    """Text as time stamps: on the clock of the text, or in UTC if it names a time zone."""
    import pyarrow

    try:
        return text.cast(pyarrow.timestamp("us"))
    except pyarrow.ArrowException:
        return text.cast(pyarrow.timestamp("us", "UTC"))


def _read_category(series: nw.Series[Any], name: str) -> PublicColumn:
    """Levels as text, in the order of the text, and the place of each value among them."""
    import pyarrow

    cells = None
    try:
        cells = _to_arrow(_to_whole(series))
        if not pyarrow.types.is_integer(cells.type):  # of whole numbers, the few distinct ones are converted below
            cells = cells.cast(pyarrow.string())
    except (pyarrow.ArrowException, ValueError, TypeError):  # objects of several types
        listed = [None if _is_gap(cell) else Categories.name(cell) for cell in series.to_list()]
        cells = pyarrow.array(listed, type=pyarrow.string())
    if isinstance(cells, pyarrow.ChunkedArray):
        cells = cells.combine_chunks()
    encoded, levels = cells.dictionary_encode(), None
    codes = view_arrow(encoded.indices)
    assert codes is not None
    codes = np.nan_to_num(codes, nan=-1.0).astype(np.intp)  # a gap is the last of the ranks below
    try:
        named = encoded.dictionary.cast(pyarrow.string()).to_pylist()
        levels = [level for level in named if level.encode() is not None]
    except ValueError:  # which quotes the cell
        pass
    if levels is None:
        raise SchemaError(f"column '{name}' holds text that is not valid Unicode. Convert its encoding.")
    order = sorted((place for place in range(len(levels)) if levels[place]), key=lambda place: levels[place])
    ranks = np.full(len(levels) + 1, -1, dtype=np.intp)  # empty text is a gap
    ranks[order] = np.arange(len(order))
    return PublicColumn(Kind.CATEGORY, ranks[codes], tuple(levels[place] for place in order))


def _to_whole(series: nw.Series[Any]) -> nw.Series[Any]:
    """Whole numbers that are stored as floating-point numbers, for example because of gaps, as whole numbers."""
    if not series.dtype.is_float():
        return series
    numbers = _to_floats(series)
    known = numbers[~np.isnan(numbers)]
    if not ((known == np.round(known)) & (np.abs(known) < LARGEST_WHOLE)).all():
        return series
    import pyarrow

    gaps = np.isnan(numbers)
    whole = pyarrow.array(np.where(gaps, 0.0, numbers).astype(np.int64), mask=gaps)
    return nw.from_native(pyarrow.chunked_array([whole]), series_only=True)


def _to_arrow(series: nw.Series[Any]) -> Any:
    import pyarrow

    cells = series.to_arrow()
    kind = cells.type
    if pyarrow.types.is_dictionary(kind):
        cells = cells.cast(kind.value_type)
        if pyarrow.types.is_floating(kind.value_type):
            chunked = pyarrow.chunked_array([cells]) if isinstance(cells, pyarrow.Array) else cells
            return _to_whole(nw.from_native(chunked, series_only=True)).to_arrow()
    return cells


def _to_floats(series: nw.Series[Any]) -> NDArray[np.float64]:
    return np.array(to_numpy(series), dtype=np.float64)


def _is_gap(cell: Any) -> bool:
    return cell is None or cell != cell or type(cell).__name__ in ("NAType", "NaTType")
