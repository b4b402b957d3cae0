"""The label column of a stored table."""

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conddp.bounds import Bounds
from conddp.data.parts import LABEL_CURE, Labels, Matrix, as_column
from conddp.data.passes import Sliceable, run_pass
from conddp.data.scaling import scale_label
from conddp.data.stored_column import StoredColumn
from conddp.data.stored_table import StoredTable
from conddp.errors import SchemaError

__all__ = ["ScaledLabels", "StoredLabels", "drop_missing_labels", "open_labels"]


class StoredLabels(Labels):
    """The label column of a stored table, with declared bounds. Slicing reads labels; the repr shows none.

    Parameters
    ----------
    column : StoredColumn
        The column as numbers.
    bounds : Bounds
        Declared range.
    """

    column: "_LabelColumn"

    def __init__(self, column: "_LabelColumn", bounds: Bounds) -> None:
        for name, value in (("column", column), ("bounds", bounds), ("name", column.names[0])):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, table: StoredTable, name: str, bounds: Bounds) -> "StoredLabels":
        """Open the label column and check that it holds numbers without gaps, which cannot be clamped.

        Raises
        ------
        SchemaError
            If a label is missing or is no number.
        """
        label = cls(_LabelColumn(table, (name,)), bounds)
        run_pass(count_records, label)
        return label

    @property
    def values(self) -> Matrix:
        """All labels. Read them block by block where that is possible."""
        return self[:].values

    @property
    def partitions(self) -> tuple[slice, ...]:
        """Partitions of the table."""
        return self.column.partitions

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, index: Any) -> Labels:
        """Read consecutive records, or those at given positions."""
        values = self.column[index] if isinstance(index, slice) else self.column[:][index]
        return Labels(values, self.bounds, self.name)


@dataclass(frozen=True, eq=False)
class _LabelColumn(StoredColumn):
    """Labels as numbers."""

    def convert(self, piece: Any) -> NDArray[np.float64]:
        column = nw.from_native(piece, eager_only=True)[self.names[0]]
        values = as_column(column, what=f"label '{self.names[0]}'", finite=False, cure=LABEL_CURE)
        return np.asarray(values, dtype=np.float64)


@dataclass(frozen=True)
class ScaledLabels:
    """Labels that are clamped and scaled when they are read."""

    label: StoredLabels
    center: bool

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, span: slice) -> NDArray[np.float64]:
        """Read and scale consecutive labels."""
        return np.asarray(scale_label(self.label[span], center=self.center))

    @property
    def partitions(self) -> tuple[slice, ...]:
        """Partitions of the table."""
        return self.label.partitions


def open_labels(label: Labels, *, center: bool) -> NDArray[np.float64] | ScaledLabels:
    """Scale labels as :func:`~conddp.data.scaling.scale_label` does; those of a stored table when they are read."""
    return ScaledLabels(label, center) if isinstance(label, StoredLabels) else scale_label(label, center=center)


def drop_missing_labels(table: StoredTable, name: str) -> StoredTable:
    """Leave out records whose label is missing.

    Privacy
        For labels of which everyone may know whether they are missing.
    """
    label = _Presence(table, (name,))
    counts = run_pass(_CountByPartition(tuple(span.start for span in table.partitions)), label)
    if not counts.any():
        raise SchemaError(f"label '{name}' is missing in every record.")
    return table if counts.sum() == len(table) else table.keep_present(name, counts.tolist())


@dataclass(frozen=True, eq=False)
class _Presence(StoredColumn):
    """Whether labels are present."""

    def convert(self, piece: Any) -> NDArray[np.bool_]:
        column = nw.from_native(piece, eager_only=True)[self.names[0]]
        values = as_column(column, what=f"label '{self.names[0]}'", finite=False, gaps=True)
        return np.asarray(~np.isnan(values))


@dataclass(frozen=True)
class _CountByPartition:
    starts: tuple[int, ...]

    def __call__(self, span: slice, present: NDArray[np.bool_]) -> NDArray[np.intp]:
        counts = np.zeros(len(self.starts), dtype=np.intp)
        counts[np.searchsorted(self.starts, span.start, side="right") - 1] = present.sum()
        return counts


def count_records(span: slice, column: Sliceable) -> int:
    """Return the number of records of a block. Used in passes that only check what they read."""
    return len(column)
