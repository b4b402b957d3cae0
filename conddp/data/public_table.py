"""Public columns of a table, before they are encoded as numbers."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conddp.data.column import Kind
from conddp.data.public_cells import PublicColumn, read_public_column
from conddp.data.ranges import ColumnRanges, has_infinity
from conddp.errors import SchemaError
from conddp.privacy.fingerprint import ColumnHash, Fingerprint, PartialFingerprint, hash_levels, hash_numbers

__all__ = ["PublicTable"]


@dataclass(frozen=True, eq=False)
class PublicTable:
    """Public columns of any kind, in a normal form. Reading them costs nothing.

    Parameters
    ----------
    columns : mapping
        Columns by name, in order.
    num_records : int
        Number of records n.
    matrix : array of shape (n, d), optional
        The same columns as one array, if they came as one and are all numbers. It saves a copy.
    ranges : ColumnRanges, optional
        Ranges of the columns of this array.

    Examples
    --------
    >>> import pandas as pd
    >>> table = PublicTable.of(pd.DataFrame({"rooms": [3, 4, None], "street": ["a", "b", "a"]}))
    >>> {name: column.kind.value for name, column in table.columns.items()}
    {'rooms': 'number', 'street': 'category'}
    """

    columns: Mapping[str, PublicColumn]
    num_records: int
    matrix: NDArray[Any] | None = None
    ranges: ColumnRanges | None = None

    @classmethod
    def of(
        cls, frame: Any, names: Sequence[str] | None = None, *, kinds: Mapping[str, Kind] | None = None
    ) -> "PublicTable":
        """Read public columns of a pandas, polars or Arrow table.

        Parameters
        ----------
        frame : table
            The table.
        names : sequence of str, optional
            The public columns; all columns if None.
        kinds : mapping, optional
            Declared kinds. The types of other columns decide.
        """
        table = open_frame(frame)
        names, kinds = list(table.columns) if names is None else list(names), kinds or {}
        require_columns(table, names)
        matrix = None if kinds else _view_matrix(table, names)
        if matrix is not None:
            return cls.of_array(matrix, names)
        columns = {name: read_public_column(table[name], name=name, kind=kinds.get(name)) for name in names}
        return cls(columns, len(table))

    @classmethod
    def of_array(cls, X: NDArray[Any], names: Sequence[str]) -> "PublicTable":
        """Take the columns of an array as numbers, with NaN for gaps."""
        ranges = ColumnRanges.of(X)
        columns = {name: PublicColumn(Kind.NUMBER, column) for name, column in zip(names, X.T, strict=True)}
        suspects = ~(np.isfinite(ranges.low) & np.isfinite(ranges.high))  # gaps hide infinite numbers
        for name, suspect in zip(names, suspects.tolist(), strict=True):
            if suspect and has_infinity(columns[name].values):
                raise SchemaError(
                    f"column '{name}' contains infinity. Replace it by the largest number that makes sense, or by NaN."
                )
        return cls(columns, len(X), X, ranges)

    def __len__(self) -> int:
        return self.num_records

    def __getitem__(self, index: Any) -> "PublicTable":
        """Select records by slice or by positions."""
        columns = {name: column[index] for name, column in self.columns.items()}
        number = len(range(self.num_records)[index]) if isinstance(index, slice) else len(index)
        if self.matrix is None:
            return PublicTable(columns, number)
        matrix = self.matrix[index]
        return PublicTable(columns, number, matrix, ColumnRanges.of(matrix))

    @property
    def full_matrix(self) -> NDArray[Any] | None:
        """The columns as one array, if they came as one and have no gaps."""
        return None if self.ranges is None or self.ranges.has_gaps else self.matrix

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(self.columns)

    @property
    def fingerprint(self) -> Fingerprint:
        """Fingerprint by which a ledger recognises the table, however its columns are encoded."""
        if self.full_matrix is not None:
            return Fingerprint.of(self.full_matrix)
        return Fingerprint(self.num_records, tuple(sorted(set(self._hash_columns()))))

    def hash_part(self) -> PartialFingerprint:
        """Fingerprint of these records as a part of a larger table."""
        columns = (
            ColumnHash.of_levels(_count(column))
            if column.kind is Kind.CATEGORY
            else ColumnHash.of_numbers(column.values)
            for column in self.columns.values()
        )
        return PartialFingerprint(self.num_records, tuple(columns))

    @property
    def digest(self) -> bytes:
        """Digest of all cells in order, which tells apart what :attr:`fingerprint` does not."""
        digest = hashlib.sha256()
        for column in self.columns.values():
            digest.update(repr((column.kind, column.zone, len(column), column.levels)).encode(errors="surrogatepass"))
            digest.update(np.ascontiguousarray(column.values).data)
        return digest.digest()

    def _hash_columns(self) -> Iterator[str]:
        for column in self.columns.values():
            yield from hash_levels(_count(column)) if column.kind is Kind.CATEGORY else hash_numbers(column.values)


def _count(column: PublicColumn) -> dict[str, int]:
    """Number of records of each level of a category; a gap counts as empty text."""
    counts = dict(zip(column.levels, column.count_levels().tolist(), strict=True))
    return {**counts, "": int((column.values < 0).sum())}


def _view_matrix(table: nw.DataFrame[Any], names: Sequence[str]) -> NDArray[Any] | None:
    """The columns of a pandas table as one array, without a copy; None if they are not stored as one."""
    if not table.implementation.is_pandas() or not names:
        return None
    frame = table.to_native()
    if any(dtype != np.float64 for dtype in frame.dtypes):
        return None
    first = frame.columns.get_loc(names[0])
    X = frame.to_numpy()[:, first : first + len(names)]
    return X if list(frame.columns[first : first + len(names)]) == list(names) else None


def open_frame(frame: Any) -> nw.DataFrame[Any]:
    """Open a pandas, polars or Arrow table, or raise a :class:`SchemaError` that says what it is instead."""
    if nw.dependencies.is_into_dataframe(frame):
        return nw.from_native(frame, eager_only=True)
    if isinstance(frame, nw.LazyFrame) or (hasattr(frame, "collect") and not hasattr(frame, "to_numpy")):
        raise SchemaError(f"got a {type(frame).__name__}, whose rows are not read yet. Call .collect() first.")
    raise SchemaError(f"expected a pandas, polars or Arrow table, got {type(frame).__name__}.")


def require_columns(table: nw.DataFrame[Any], names: Sequence[str]) -> None:
    """Raise unless a table has each of these columns exactly once."""
    present = list(table.columns)
    missing = [name for name in names if name not in present]
    if missing:
        listed = ", ".join(f"'{name}'" for name in missing[:10]) + (", ..." if len(missing) > 10 else "")
        noun, verb = ("column", "is") if len(missing) == 1 else ("columns", "are")
        raise SchemaError(f"{noun} {listed} {verb} not among the {len(present)} columns of the table.")
