"""Features of an encoding back in the values of the column that they were made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.column import Kind
from conddp.features.column_encodings import (
    WEEKDAYS,
    YEAR,
    CategoryEncoding,
    ColumnEncoding,
    DateEncoding,
    NumberEncoding,
)
from conddp.features.encoding import Encoding

__all__ = ["DecodedValues", "decode_features"]

OTHERS = "other levels"  # that have no feature
RARE = "rare levels"  # that share features
NO_DATE = "no date"


@dataclass(frozen=True, eq=False)
class DecodedValues:
    """Values of a quantity that features were made from.

    Parameters
    ----------
    name : str
        Name of the quantity: the column, or a part of it, such as the weekday of a date.
    column : str
        Name of the column.
    values : array of shape (m,)
        Numbers, dates, truth values, or levels as text.
    unit : str
        Unit of numbers that are not in the units of the column; empty otherwise.
    """

    name: str
    column: str
    values: NDArray[Any]
    unit: str = ""


def decode_features(
    encoding: Encoding, features: Sequence[int], values: NDArray[np.float64], *, is_category: bool
) -> DecodedValues:
    """Return the values of a column for which features have given values.

    Parameters
    ----------
    encoding : Encoding
        Encoding of the public columns.
    features : sequence of int
        Places of features that depend on one quantity.
    values : array
        Values of one feature, shape (m,); or for indicators the place in ``features`` of the one that is 1, or -1;
        or values of several features, shape (m, features).
    is_category : bool
        Whether the features are indicators.
    """
    start = 0
    for column in encoding.list_ordered():
        stop = start + len(column.features)
        if start <= features[0] and features[-1] < stop:
            return _decode(column, [place - start for place in features], values, is_category)
        start = stop
    names = [encoding.features[place] for place in features]  # a group that was declared without an encoding
    return _name_rows(f"{names[0]} to {names[-1]}", names[0], names, values, is_category)


def _name_rows(
    name: str, column: str, features: Sequence[str], values: NDArray[np.float64], is_category: bool
) -> DecodedValues:
    """Levels by the names of their features, or numbers of rows."""
    if is_category:
        return DecodedValues(name, column, _pick(features, values, OTHERS))
    return DecodedValues(name, column, np.arange(1.0, 1.0 + len(values)), "number of the value")


def _decode(column: ColumnEncoding, places: list[int], values: NDArray[np.float64], is_category: bool) -> DecodedValues:
    names = [column.features[place] for place in places]
    if names == [f"{column.column} is missing"]:
        return DecodedValues(names[0], column.column, values > 0.5)
    if isinstance(column, CategoryEncoding) and is_category:
        return DecodedValues(column.column, column.column, _pick(_list_levels(column, places), values, OTHERS))
    if isinstance(column, NumberEncoding) and places == [0]:
        return DecodedValues(column.column, column.column, _restore_number(column, values))
    if isinstance(column, DateEncoding):
        return _decode_date(column, places, values, is_category)
    if len(places) == 1 and not is_category:
        return DecodedValues(names[0], column.column, values)
    return _name_rows(column.column, column.column, names, values, is_category)


def _list_levels(column: CategoryEncoding, places: list[int]) -> list[str]:
    """Levels, and names of the features that rare levels share; short, so that charts do not cut off the number."""
    rare = [RARE] if column.num_bins == 1 else [f"rare, group {place + 1}" for place in range(column.num_bins)]
    names = [*column.levels, *rare, *(["missing"] if column.has_gaps else [])]
    return [names[place] for place in places]


def _pick(names: Sequence[str], levels: NDArray[np.float64], otherwise: str) -> NDArray[Any]:
    return np.array([otherwise if level < 0 else names[int(level)] for level in levels], dtype=object)


def _restore_number(column: NumberEncoding, values: NDArray[np.float64]) -> NDArray[Any]:
    if column.scale:
        return np.asarray((column.median or 0.0) + column.scale * np.sinh(values))
    if column.kind is Kind.BOOLEAN and np.isin(values, (0.0, 1.0)).all():
        return values > 0.5
    return values


def _decode_date(
    column: DateEncoding, places: list[int], values: NDArray[np.float64], is_category: bool
) -> DecodedValues:
    """Dates of the trend, weekdays, days of the year or hours of the day."""
    name = column.features[places[0]].partition(",")[0]
    if places == [0]:
        days = column.origin + YEAR * values
        whole = (days * 86_400.0).round().astype("datetime64[s]")
        dates = whole if column.day else whole.astype("datetime64[D]")
        return DecodedValues(column.column, column.column, dates)
    if is_category:
        weekdays = [WEEKDAYS[WEEKDAYS.index(column.features[place].rpartition(" ")[2])] for place in places]
        return DecodedValues(f"{column.column}: weekday", column.column, _pick(weekdays, values, NO_DATE))
    if values.ndim < 2 or len(places) % 2:
        return _name_rows(name, column.column, [], values, False)
    sine, cosine = values[:, 0], values[:, len(places) // 2]
    phase = np.arctan2(sine, cosine) / (2 * np.pi) % 1.0
    phase = np.where((sine == 0) & (cosine == 0), np.nan, phase)  # gaps
    if name.endswith("time of day"):
        return DecodedValues(name, column.column, 24.0 * phase, "hour")
    return DecodedValues(name, column.column, YEAR * phase, "day of the year")
