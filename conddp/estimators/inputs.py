"""Features as users pass them: a table with named columns, an array, or a sparse matrix."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conddp.data.column import Column
from conddp.data.parts import PrivateFeatures, PublicFeatures, as_numbers
from conddp.data.private_cells import read_private
from conddp.data.public_table import PublicTable, open_frame, require_columns
from conddp.data.units import Units
from conddp.errors import SchemaError
from conddp.features.encoding import Encoding
from conddp.heads.head import Head, Linearity
from conddp.privacy.fingerprint import Fingerprint

__all__ = ["Input", "open_input"]


@dataclass(frozen=True)
class Input(ABC):
    """Features of some records, whose columns have names or positions.

    Parameters
    ----------
    names : tuple of str
        Names of all columns. Columns of arrays, and those whose label is not text, are named x0, x1, ...
    labels : tuple
        What users call the columns: their labels, or positions.
    places : tuple of int
        Positions of the columns in what the user has passed.
    """

    names: tuple[str, ...]
    labels: tuple[Any, ...]
    places: tuple[int, ...]

    @abstractmethod
    def __len__(self) -> int:
        """Number of records."""

    @abstractmethod
    def select(self, names: Sequence[str]) -> Self:
        """Select columns by name, in this order."""

    @abstractmethod
    def rename(self, names: Sequence[str]) -> Self:
        """Give the columns other names."""

    @abstractmethod
    def take(self, index: NDArray[np.intp]) -> Self:
        """Select the records at these positions."""

    @abstractmethod
    def read_units(self, name: str) -> Units:
        """Read a column as units."""

    @abstractmethod
    def encode(
        self, names: Sequence[str], *, squash: bool, head: Head
    ) -> tuple[PublicFeatures, Encoding, Fingerprint | None]:
        """Read public columns, choose their encoding, and return the features with it."""

    @abstractmethod
    def transform(self, encoding: Encoding) -> PublicFeatures:
        """Read public columns and encode them as in training."""

    @abstractmethod
    def read_fingerprint(self, encoding: Encoding) -> Fingerprint | None:
        """Compute the fingerprint of the public columns of an encoding; None if that of the features counts."""

    @abstractmethod
    def read_private(self, columns: Sequence[Column]) -> PrivateFeatures | None:
        """Read private columns by their declarations; None if there are none."""

    @property
    def is_table(self) -> bool:
        """Whether this is a table rather than an array or a matrix."""
        return False

    @property
    def has_names(self) -> bool:
        """Whether users call the columns by names."""
        return all(isinstance(label, str) for label in self.labels)

    def find(self, key: Any) -> str | None:
        """Find the name of a column by what a user calls it: its name, label or, if that is no label, its position."""
        if isinstance(key, (bool, np.bool_)):
            return None
        if isinstance(key, str):
            return key if key in self.names else None
        if key in self.labels:
            return self.names[self.labels.index(key)]
        is_place = self.has_names and isinstance(key, (int, np.integer)) and key in self.places
        return self.names[self.places.index(key)] if is_place else None

    def without(self, name: str) -> Self:
        """Select all other columns."""
        return self.select([each for each in self.names if each != name])

    def _locate(self, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[Any, ...], tuple[int, ...]]:
        """Names, labels and places of selected columns."""
        found = [self.names.index(name) for name in names]
        return tuple(names), tuple(self.labels[each] for each in found), tuple(self.places[each] for each in found)


def open_input(X: Any) -> Input:
    """Open features that a user has passed: a pandas, polars or Arrow table, a NumPy array or a SciPy sparse matrix.

    Raises
    ------
    SchemaError
        If the names of columns are ambiguous.
    """
    if hasattr(X, "toarray"):
        return _SparseInput.of(X)
    if nw.dependencies.is_into_dataframe(X) or isinstance(X, nw.DataFrame) or hasattr(X, "collect"):
        return _FrameInput.of(X)
    return _ArrayInput.of(X)


@dataclass(frozen=True)
class _FrameInput(Input):
    frame: nw.DataFrame[Any]

    @classmethod
    def of(cls, X: Any) -> Self:
        if not nw.dependencies.is_into_dataframe(X):
            X = open_frame(X).to_native()  # refuses lazy tables, whose names would have to be computed
        labels = list(getattr(X, "column_names", None) or X.columns)  # "columns" of an Arrow table holds cells
        if any(isinstance(label, tuple) for label in labels):
            raise SchemaError("the names of the columns have several levels. Give each column one name.")
        if len(set(map(str, labels))) < len(labels):
            raise SchemaError("the table has columns of the same name. Give each column its own name.")
        if len({isinstance(label, str) for label in labels}) > 1:
            raise SchemaError("some names of columns are text and others are not. Feature names must be of one kind.")
        frame, names = open_frame(X), tuple(label if isinstance(label, str) else f"x{label}" for label in labels)
        renamed = {label: name for label, name in zip(labels, names, strict=True) if label != name}
        return cls(names, tuple(labels), tuple(range(len(names))), frame.rename(renamed) if renamed else frame)

    def __len__(self) -> int:
        return len(self.frame)

    def select(self, names: Sequence[str]) -> Self:
        require_columns(self.frame, names)
        return type(self)(*self._locate(names), self.frame.select(list(names)))

    def rename(self, names: Sequence[str]) -> Self:
        frame = self.frame.rename(dict(zip(self.names, names, strict=True)))
        return type(self)(tuple(names), tuple(names), self.places, frame)

    def take(self, index: NDArray[np.intp]) -> Self:
        return type(self)(self.names, self.labels, self.places, self.frame[index.tolist()])

    @property
    def is_table(self) -> bool:
        return True

    def read_units(self, name: str) -> Units:
        return Units.of(self.frame[name].to_native(), name=name)

    def encode(
        self, names: Sequence[str], *, squash: bool, head: Head
    ) -> tuple[PublicFeatures, Encoding, Fingerprint | None]:
        table = PublicTable.of(self.frame, names)
        encoding = _choose_encoding(table, squash, head)
        return encoding.transform(table), encoding, table.fingerprint

    def transform(self, encoding: Encoding) -> PublicFeatures:
        return encoding.transform(PublicTable.of(self.frame, encoding.names, kinds=encoding.kinds))

    def read_fingerprint(self, encoding: Encoding) -> Fingerprint | None:
        return PublicTable.of(self.frame, encoding.names, kinds=encoding.kinds).fingerprint

    def read_private(self, columns: Sequence[Column]) -> PrivateFeatures | None:
        return read_private({column.name: self.frame[column.name] for column in columns}, columns)


@dataclass(frozen=True)
class _ArrayInput(Input):
    array: NDArray[Any]

    @classmethod
    def of(cls, X: Any) -> Self:
        array = X if hasattr(X, "ndim") and hasattr(X, "shape") else as_numbers(X, what="X", finite=False, gaps=True)
        if array.ndim != 2:
            raise ValueError(f"Expected 2D array, got {array.ndim}D array instead. Reshape your data.")
        places = range(array.shape[1])
        return cls(tuple(f"x{place}" for place in places), tuple(places), tuple(places), array)

    def __len__(self) -> int:
        return len(self.array)

    def select(self, names: Sequence[str]) -> Self:
        if tuple(names) == self.names:
            return self
        places = [self.names.index(name) for name in names]
        side_by_side = places == list(range(places[0], places[0] + len(places))) if places else False
        taken: Any = slice(places[0], places[0] + len(places)) if side_by_side else places  # a view, if possible
        return type(self)(*self._locate(names), self.array[:, taken])

    def rename(self, names: Sequence[str]) -> Self:
        return type(self)(tuple(names), self.labels, self.places, self.array)

    def take(self, index: NDArray[np.intp]) -> Self:
        return type(self)(self.names, self.labels, self.places, self.array[index])

    def read_units(self, name: str) -> Units:
        return Units.of(self.array[:, self.names.index(name)], name=name)

    def encode(
        self, names: Sequence[str], *, squash: bool, head: Head
    ) -> tuple[PublicFeatures, Encoding, Fingerprint | None]:
        table = self.select(names)._read_table()
        encoding = _choose_encoding(table, squash, head)
        return encoding.transform(table), encoding, table.fingerprint

    def transform(self, encoding: Encoding) -> PublicFeatures:
        return encoding.transform(self.select(encoding.names)._read_table())

    def read_fingerprint(self, encoding: Encoding) -> Fingerprint | None:
        return self.select(encoding.names)._read_table().fingerprint

    def read_private(self, columns: Sequence[Column]) -> PrivateFeatures | None:
        return read_private({column.name: self.array[:, self.names.index(column.name)] for column in columns}, columns)

    def _read_table(self) -> PublicTable:
        return PublicTable.of_array(as_numbers(self.array, what="X", finite=False, gaps=True), self.names)


@dataclass(frozen=True)
class _SparseInput(Input):
    """A sparse matrix comes from an encoder, whose work is left alone."""

    matrix: Any

    @classmethod
    def of(cls, X: Any) -> Self:
        places = range(X.shape[1])
        return cls(tuple(f"x{place}" for place in places), tuple(places), tuple(places), X)

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def select(self, names: Sequence[str]) -> Self:
        if tuple(names) == self.names:
            return self
        taken = self.matrix.tocsc()[:, [self.names.index(name) for name in names]]
        return type(self)(*self._locate(names), taken)

    def rename(self, names: Sequence[str]) -> Self:
        return type(self)(tuple(names), self.labels, self.places, self.matrix)

    def take(self, index: NDArray[np.intp]) -> Self:
        return type(self)(self.names, self.labels, self.places, self.matrix.tocsr()[index])

    def read_units(self, name: str) -> Units:
        raise TypeError("a sparse matrix cannot hold a unit column. Pass the units to fit.")

    def encode(
        self, names: Sequence[str], *, squash: bool, head: Head
    ) -> tuple[PublicFeatures, Encoding, Fingerprint | None]:
        encoding = Encoding.plain(names)
        return self.transform(encoding), encoding, None

    def transform(self, encoding: Encoding) -> PublicFeatures:
        return PublicFeatures(self.select(encoding.names).matrix, encoding.names)

    def read_fingerprint(self, encoding: Encoding) -> Fingerprint | None:
        return None

    def read_private(self, columns: Sequence[Column]) -> PrivateFeatures | None:
        taken = self.select([column.name for column in columns]).matrix.toarray() if columns else np.empty((0, 0))
        return read_private({column.name: taken[:, place] for place, column in enumerate(columns)}, columns)


def _choose_encoding(table: PublicTable, squash: bool, head: Head) -> Encoding:
    linear = head.linear_in is Linearity.COLUMNS
    return Encoding.of(table, squash=squash, splines=linear, num_bins=head.bins, num_codes=head.num_codes)
