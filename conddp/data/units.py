"""Units: which records belong to the same person, from a public column such as a customer number."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conddp._validate import positive_integer
from conddp.errors import SchemaError

__all__ = ["Units"]


@dataclass(frozen=True, eq=False)
class Units:
    """The unit of every record. Records of the same unit belong to one person, household or customer.

    With units, neighbouring data sets differ in the label and private columns of *all* records of one unit. Public
    columns, the unit column and the number of records stay the same.

    Privacy
        The unit column is public, and so is the number of records of every unit.

    Parameters
    ----------
    codes : array of shape (n,)
        Number of the unit of each record, from 0, in the order in which the units first occur.
    name : str
        Name of the unit column.
    max_rows : int, optional
        Declared maximum of records per unit. Private algorithms use the first ``max_rows`` records of a unit, in the
        order of the table, and drop the others. If None, all records are used.

    Examples
    --------
    >>> units = Units.of(["ann", "bob", "ann", "eve"], name="customer")
    >>> units
    Units(3 values of 'customer', up to 2 records each)
    >>> units.codes.tolist(), units.sizes.tolist()
    ([0, 1, 0, 2], [2, 1, 1])
    """

    codes: NDArray[np.intp]
    name: str = "unit"
    max_rows: int | None = None

    def __post_init__(self) -> None:
        if self.max_rows is not None:
            try:
                positive_integer(max_rows=self.max_rows)
            except ValueError as error:
                raise SchemaError(f"unit '{self.name}': {error}") from None
        object.__setattr__(self, "codes", _number(np.asarray(self.codes)))

    @classmethod
    def of(cls, values: Any, *, name: str = "unit", max_rows: int | None = None) -> "Units":
        """Create units from a column of any type; equal values belong to the same unit. Gaps are refused."""
        return cls(_read_codes(values, name), name, max_rows)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> "Units":
        """Select records by slice or by positions."""
        return Units(self.codes[index], self.name, self.max_rows)

    def __repr__(self) -> str:
        records = "1 record" if self.largest == 1 else f"up to {self.largest:,} records"
        return f"Units({self.num_units:,} values of '{self.name}', {records} each)"

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """Number of records of each unit, shape (m,)."""
        return np.bincount(self.codes)

    def add_up(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum of the values of the records of each unit, shape (m,)."""
        return np.asarray(np.bincount(self.codes, values), dtype=np.float64)

    @property
    def digest(self) -> str:
        """Digest of the numbers of records of all units, in any order."""
        return hashlib.sha256(np.sort(self.sizes).astype("<i8").tobytes()).hexdigest()[:32]

    @property
    def num_units(self) -> int:
        """Number of units m."""
        return len(self.sizes)

    @property
    def largest(self) -> int:
        """Number of records of the largest unit."""
        return int(self.sizes.max())

    @property
    def order(self) -> NDArray[np.intp]:
        """Positions of the records, ordered by the size of their unit and then by unit; otherwise as in the table."""
        return np.lexsort((self.codes, self.sizes[self.codes]))

    @property
    def within(self) -> NDArray[np.intp]:
        """Place of each record among the records of its unit, from 0, in the order of the table."""
        order = np.argsort(self.codes, kind="stable")
        starts = np.cumsum(self.sizes) - self.sizes
        places = np.empty(len(self), dtype=np.intp)
        places[order] = np.arange(len(self)) - np.repeat(starts, self.sizes)
        return places

    def arrange(self) -> NDArray[np.intp]:
        """Positions of the records to use, with the records of each unit side by side and small units first.

        Drops records beyond ``max_rows``. If every unit has one record, the order of the table is kept.
        """
        if self.max_rows is None:
            return self.order
        kept = np.flatnonzero(self.within < self.max_rows)
        return np.asarray(kept[self[kept].order])

    def list_groups(self) -> Iterator[tuple[int, slice, slice]]:
        """For arranged units: a size, the span of the units of that size, and the span of their records."""
        if (np.diff(self.codes) < 0).any() or (np.diff(self.sizes) < 0).any():
            raise ValueError("the records are not arranged by unit. Select them by Units.arrange() first.")
        sizes, firsts = np.unique(self.sizes, return_index=True)
        first_row = 0
        for size, first, last in zip(sizes.tolist(), firsts, [*firsts[1:], self.num_units], strict=True):
            num_rows = size * int(last - first)
            yield size, slice(int(first), int(last)), slice(first_row, first_row + num_rows)
            first_row += num_rows

    def list_records(self, chosen: NDArray[np.intp]) -> NDArray[np.intp]:
        """For arranged units: positions of all records of the chosen units."""
        sizes = self.sizes[chosen]
        starts = (np.cumsum(self.sizes) - self.sizes)[chosen]
        before = np.cumsum(sizes) - sizes
        return np.asarray(np.repeat(starts - before, sizes) + np.arange(sizes.sum()))


def _number(codes: NDArray[Any]) -> NDArray[np.intp]:
    """Codes renumbered from 0 in the order in which they first occur."""
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise SchemaError(
            f"codes of units must be a vector of whole numbers, got {codes.ndim} dimensions of {codes.dtype}."
        )
    if not len(codes):
        raise SchemaError("the unit column has no records.")
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(-1)]


def _read_codes(values: Any, name: str) -> NDArray[np.intp]:
    """Number the distinct values of a column, or raise a :class:`SchemaError` that names the column and no value."""
    series = nw.from_native(values, series_only=True, pass_through=True)
    gaps = bool(series.is_null().any()) if isinstance(series, nw.Series) else False
    array: NDArray[Any] | None = None
    try:
        array = np.asarray(series.to_numpy() if isinstance(series, nw.Series) else series)
    except Exception:  # of the library that holds the table, which may quote the cell
        pass
    if array is None:
        raise SchemaError(f"unit column '{name}' holds values that cannot be read. Use text or whole numbers.")
    if np.ma.isMaskedArray(values) and np.ma.getmaskarray(values).any():
        gaps = True
    if array.ndim != 1:
        raise SchemaError(f"unit column '{name}' must be one column, got an array with {array.ndim} dimensions.")
    codes = None
    if not gaps:
        codes, gaps = _factorize(array)
    if gaps:
        raise SchemaError(
            f"unit column '{name}' has gaps. Fill them in: give a record that belongs to no other its own value."
        )
    if codes is None:
        raise SchemaError(f"unit column '{name}' holds values that cannot be compared. Use text or whole numbers.")
    return codes


def _factorize(array: NDArray[Any]) -> tuple[NDArray[np.intp] | None, bool]:
    """Codes, or None if values cannot be compared, and whether there are gaps."""
    if array.dtype.kind in "iub":
        return np.unique(array, return_inverse=True)[1].reshape(-1), False
    if array.dtype.kind == "f" and np.isnan(array).any() or array.dtype.kind in "mM" and np.isnat(array).any():
        return None, True
    if array.dtype.kind in "fmM":
        return np.unique(array, return_inverse=True)[1].reshape(-1), False
    numbers: dict[Any, int] = {}
    codes = np.empty(len(array), dtype=np.intp)
    try:
        for place, value in enumerate(array.tolist()):
            if _is_gap(value):
                return None, True
            codes[place] = numbers.setdefault(value, len(numbers))
    except TypeError:
        return None, False
    return codes, False


def _is_gap(value: Any) -> bool:
    """Whether a value is missing; text of spaces only counts as missing too, because CSV files cannot tell."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)
