"""The encoding of a public table: one feature map from columns of any kind to numbers, saved with the model."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from conddp.data.column import Kind
from conddp.data.numpy_cells import view_arrow
from conddp.data.parts import PublicFeatures
from conddp.data.passes import list_blocks
from conddp.data.public_table import PublicTable
from conddp.data.ranges import ColumnRanges, bound_deviations, is_finite
from conddp.errors import SchemaError
from conddp.features.bin_encoding import BinEncoding
from conddp.features.column_encodings import (
    FAR,
    TINY,
    CategoryEncoding,
    ColumnEncoding,
    DateEncoding,
    NumberEncoding,
    encode_column,
    is_heavy_tailed,
    require_kind,
)
from conddp.features.splines import FEWEST_KNOTS, MOST_KNOTS, choose_knots
from conddp.stored import decode, require

__all__ = ["Encoding"]

DENSEST, SMALLEST = 0.25, 1 << 22  # fraction of non-zero cells, and number of cells, from which features are sparse
MOST_FEATURES = 20_000
ENOUGH = 10_000  # records from which the median of a column is computed if no record has a gap
LARGE = 100_000  # records from which numbers may have piecewise linear features
SOME = 8  # one in so many pieces of a column is read to rule out heavy tails
ROUNDING = 1e-9  # relative error that is allowed for in bounds on columns
CELLS_IN_CACHE = 2**18  # cells of the features that are put together at a time
MANY = 20  # records, none of which has a known level
FORMS: dict[str, type[ColumnEncoding]] = {
    each.form: each for each in (NumberEncoding, CategoryEncoding, DateEncoding, BinEncoding)
}


@dataclass(frozen=True)
class Encoding:
    """Encoding of public columns of any kind as numbers.

    Privacy
        Chosen from public columns only: types, levels, quantiles and gaps of public columns cost nothing.

    Parameters
    ----------
    columns : tuple
        Encoding of each column, in order.

    Examples
    --------
    >>> import pandas as pd
    >>> table = PublicTable.of(pd.DataFrame({"rooms": [3, 4, None], "street": ["a", "b", "a"]}))
    >>> encoding = Encoding.of(table)
    >>> encoding.features
    ('rooms', 'rooms is missing', 'street=a', 'street=b')
    >>> encoding.transform(table).values.tolist()
    [[3.0, 0.0, 1.0, 0.0], [4.0, 0.0, 0.0, 1.0], [3.5, 1.0, 1.0, 0.0]]
    """

    columns: tuple[ColumnEncoding, ...]

    @classmethod
    def of(
        cls,
        table: PublicTable,
        *,
        squash: bool = True,
        splines: bool = True,
        num_bins: int | None = None,
        num_codes: int = 0,
        num_records: int | None = None,
    ) -> "Encoding":
        """Choose the encoding of a public table.

        Parameters
        ----------
        table : PublicTable
            The training records, or a sample of them.
        squash : bool
            Whether to transform heavy-tailed numbers.
        splines : bool
            Whether numbers of a large table get piecewise linear features, for models that are linear in features.
        num_bins : int, optional
            Encode every category as the number of one of so many bins, by a hash of its level. These features come
            first. If None, categories become indicators.
        num_codes : int
            Number of columns, counted from the first, that hold bins already if they are numbers.
        num_records : int, optional
            Number of training records if the table is a sample of them.
        """
        n = len(table) if num_records is None else num_records
        if num_bins is not None:
            coded = set(table.names[:num_codes])
            made: list[ColumnEncoding] = []
            for name, each in table.columns.items():
                hashed = each.kind is Kind.CATEGORY
                if hashed or name in coded:
                    made.append(BinEncoding(name, num_bins, hashed))
                else:
                    made.append(encode_column(name, each, squash=squash, num_records=n))
            return cls(tuple(made))
        X = table.full_matrix
        if X is not None and not (squash and _has_heavy_tails(X, table.ranges)):
            medians = np.median(X[:: 1 + len(table) // ENOUGH], axis=0)  # for gaps in new records
            medians[np.abs(medians) <= TINY] = 0.0
            pairs = zip(table.names, medians.tolist(), strict=True)
            return cls(tuple(NumberEncoding(name, median=median) for name, median in pairs))
        columns = [encode_column(name, each, squash=squash, num_records=n) for name, each in table.columns.items()]
        encoding = cls(tuple(_add_knots(columns, table, n) if splines and n >= LARGE else columns))
        if len(encoding.features) > MOST_FEATURES:
            raise SchemaError(
                f"the public columns give {len(encoding.features):,} features, more than {MOST_FEATURES:,}. Drop "
                "some of them."
            )
        if len(set(encoding.features)) < len(encoding.features):
            raise SchemaError("two public columns give features of the same name. Rename one of the columns.")
        return encoding

    @classmethod
    def plain(cls, names: Iterable[str]) -> "Encoding":
        """Encoding of columns that are numbers without gaps, and are left as they are."""
        return cls(tuple(NumberEncoding(name) for name in names))

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(name for each in self._in_order for name in each.features)

    @cached_property
    def _in_order(self) -> tuple[ColumnEncoding, ...]:
        """Encodings in the order of their features: bins come first."""
        return tuple(sorted(self.columns, key=lambda each: not isinstance(each, BinEncoding)))

    def list_ordered(self) -> tuple[ColumnEncoding, ...]:
        """List the encodings of columns in the order of their features."""
        return self._in_order

    @property
    def num_codes(self) -> int:
        """Number of features that are bins, which come first."""
        return sum(isinstance(each, BinEncoding) for each in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(each.column for each in self.columns)

    @property
    def kinds(self) -> dict[str, Kind]:
        """Kind of each column."""
        return {each.column: each.kind for each in self.columns}

    @property
    def is_plain(self) -> bool:
        """Whether the features are the columns themselves."""
        return all(isinstance(each, NumberEncoding) and each.is_plain for each in self.columns)

    def list_remarks(self) -> Iterator[str]:
        """Yield what was done to columns, as far as it is worth knowing."""
        return (each.remark for each in self.columns if each.remark)

    def transform(self, table: PublicTable, *, as_part: bool | None = None) -> PublicFeatures:
        """Encode a public table that has these columns, in any order, as features.

        Parameters
        ----------
        table : PublicTable
            The records.
        as_part : bool, optional
            For a part of a larger table: whether features are stored as a sparse matrix, as in all other parts. If
            None, this is decided by the size and the non-zero cells of this table.

        Raises
        ------
        SchemaError
            If a column has another kind than in training.
        """
        for each in self.columns:
            require_kind(each, table.columns[each.column])
        if table.full_matrix is not None and self.is_plain and table.names == self.names:
            return PublicFeatures.of_finite(table.full_matrix, self.features)
        if as_part is None:
            self._warn_of_unknown_levels(table)
        parts = [each.transform(table.columns[each.column]) for each in self._in_order]
        joined = _join(parts, len(table), sparsely=as_part)
        groups = self.find_groups()
        if isinstance(joined, np.ndarray) and all(is_finite(each) for each in parts if isinstance(each, np.ndarray)):
            return PublicFeatures.of_finite(joined, self.features, groups, num_codes=self.num_codes)
        return PublicFeatures(joined, self.features, groups, num_codes=self.num_codes)

    def join_numbers(self, piece: Any) -> NDArray[np.float64] | None:
        """Return the features of an Arrow table: its columns, if they are numbers that are left as they are.

        None if this takes more than putting columns side by side, because of their encoding, type or gaps.
        """
        if not self.is_plain or any(each.kind is not Kind.NUMBER for each in self.columns):
            return None
        columns = [view_arrow(piece[name]) for name in self.names]
        known = [column[:, None] for column in columns if column is not None and is_finite(column)]
        if len(known) < len(columns):
            return None
        joined: NDArray[np.float64] = _join(known, len(piece), sparsely=False)
        return joined

    def find_groups(self) -> NDArray[np.intp] | None:
        """Group of each feature; features of a group share a scale. None if every feature has its own."""
        groups, start = [], 0
        for each in self._in_order:
            groups += [start + group for group in each.groups]
            start = groups[-1] + 1 if groups else 0
        return None if len(set(groups)) == len(groups) else np.array(groups, dtype=np.intp)

    def _warn_of_unknown_levels(self, table: PublicTable) -> None:
        for each in self.columns:
            column = table.columns[each.column]
            if isinstance(each, CategoryEncoding) and each.levels and len(column) >= MANY:
                known = int((column.values >= 0).sum())
                if known and each.count_unknown(column) == known:
                    warnings.warn(
                        f"no value of column '{each.column}' occurred in training. Check that it has the same type and "
                        "spelling.",
                        stacklevel=4,
                    )

    def to_json(self) -> list[dict[str, Any]]:
        """Return the encoding in its stored form."""
        stored = []
        for each in self.columns:
            values = asdict(each)
            stored.append({"form": each.form, **{key: _plain(value) for key, value in values.items()}})
        return stored

    @classmethod
    def from_json(cls, stored: Any) -> "Encoding":
        """Read an encoding from its stored form.

        Raises
        ------
        SchemaError
            If it is not what :meth:`to_json` gives.
        """
        require(isinstance(stored, list), "'encoding' must be a list")
        columns = []
        for place, each in enumerate(stored):
            name = f"encoding[{place}]"
            require(isinstance(each, dict) and each.get("form") in FORMS, f"'{name}' must have a known form")
            rest = {key: value for key, value in each.items() if key != "form"}
            column = decode(FORMS[each["form"]], rest, name)
            column.check()
            columns.append(column)
        made = cls(tuple(columns))
        require(len(set(made.features)) == len(made.features), "'encoding' has features of the same name")
        require(len(set(made.names)) == len(made.names), "'encoding' has a column twice")
        return made


def _add_knots(columns: Sequence[ColumnEncoding], table: PublicTable, num_records: int) -> Iterator[ColumnEncoding]:
    """Give numbers knots, as many as there may be without more than twice as many features in all."""
    numbers = [each for each in columns if isinstance(each, NumberEncoding) and each.kind is Kind.NUMBER]
    number = min(MOST_KNOTS, sum(len(each.features) for each in columns) // max(1, len(numbers)))
    for each in columns:
        if isinstance(each, NumberEncoding) and each.kind is Kind.NUMBER and number >= FEWEST_KNOTS:
            values = table.columns[each.column].values
            known = values[~np.isnan(values)]
            if len(known):
                yield replace(each, knots=choose_knots(known, number, num_records=num_records))
                continue
        yield each


def _plain(value: Any) -> Any:
    if isinstance(value, Kind):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _has_heavy_tails(X: NDArray[Any], ranges: ColumnRanges | None) -> bool:
    """Whether any column of an array without gaps has heavy tails.

    Columns are ruled out by bounds that take little time, from some records and then from all. The exact rule decides
    on the others.
    """
    if ranges is None or not X.size:
        return False
    low, high = ranges.low.astype(np.float64), ranges.high.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        farthest = np.maximum(high - ranges.center, ranges.center - low)
        farthest += ROUNDING * np.maximum(np.abs(low), np.abs(high))
        for every in (SOME, 1):
            near = farthest <= (1 - ROUNDING) * FAR * bound_deviations(X, every=every)
            if (near | (low == high)).all():
                return False
    return any(is_heavy_tailed(X[:, place]) for place in np.flatnonzero(~near & (low < high)))


def _join(parts: Sequence[Any], num_records: int, *, sparsely: bool | None) -> Any:
    """Put parts side by side: as a CSR array if that is requested or much smaller, otherwise as a dense array."""
    width = sum(part.shape[1] for part in parts)
    filled = sum(part.size for part in parts)  # of a sparse array, the number of stored cells
    if sparsely is None:
        sparsely = num_records * width >= SMALLEST and filled < DENSEST * num_records * width
    if sparsely:
        return sparse.hstack([sparse.csr_array(part) for part in parts], format="csr")
    joined = np.zeros((num_records, width))
    for span in list_blocks(num_records, block_size=max(1, CELLS_IN_CACHE // max(width, 1))):
        start = 0
        for part in parts:
            if isinstance(part, np.ndarray):
                joined[span, start : start + part.shape[1]] = part[span]
            else:
                ends = part.indptr[span.start : span.stop + 1]
                stored = slice(ends[0], ends[-1])
                places = np.repeat(np.arange(span.start, span.stop) * width + start, np.diff(ends))
                joined.reshape(-1)[places + part.indices[stored]] = part.data[stored]
            start += part.shape[1]
    return joined
