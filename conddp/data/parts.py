"""Public features, private features and labels, kept apart by type.

A function that must not cost any budget takes :class:`PublicFeatures`, so it cannot receive a label by mistake.
"""

from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conddp.bounds import Bounds
from conddp.errors import PrivateDataLeak, SchemaError

__all__ = [
    "Labels",
    "PrivateFeatures",
    "PublicFeatures",
    "as_matrix",
    "as_numbers",
    "require_public",
]

Matrix = NDArray[np.floating[Any]]


def as_numbers(values: object, *, what: str) -> Matrix:
    """Convert values to a finite float array, or raise a :class:`SchemaError` that names ``what`` but no value."""
    array = np.asarray(values)
    if np.iscomplexobj(array):
        raise SchemaError(f"Complex data not supported: {what} must hold real numbers.")
    if array.dtype.kind not in "fiub":
        converted, holds_objects = None, False
        try:
            converted = array.astype(np.float64)
        except TypeError:
            holds_objects = True
        except Exception:
            pass  # cells may be objects of any kind, with errors of their own
        # Raised outside the except block, because the original message may quote the cell.
        if holds_objects:
            raise TypeError(f"{what} holds objects where numbers are expected: argument must be a string or a number.")
        if converted is None:
            raise SchemaError(f"{what} holds text where a number is expected. Encode it as numbers, or leave it out.")
        array = converted
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise SchemaError(
            f"{what} contains NaN or infinity. Impute or drop such records by a rule that does not depend on "
            "private values."
        )
    return array


def as_matrix(table: nw.DataFrame[Any]) -> Matrix:
    """Convert a table to a matrix of finite numbers, or raise a :class:`SchemaError` that names the column."""
    if len(table) == 0 or not table.columns:
        raise SchemaError(
            f"expected a table with at least one row and one column, got {len(table)} x {len(table.columns)}."
        )
    columns = []
    for name, series in zip(table.columns, table.iter_columns(), strict=True):
        kind = series.dtype
        if not (kind.is_numeric() or kind in (nw.Boolean, nw.Object)):
            raise SchemaError(
                f"column '{name}' holds {type(kind).__name__} where a number is expected. Encode it as numbers."
            )
        columns.append(as_numbers(series.to_numpy(), what=f"column '{name}'"))
    return np.column_stack(columns)


@dataclass(frozen=True)
class PublicFeatures:
    """Public columns as an array of shape (n, d). Reading them costs nothing.

    Examples
    --------
    >>> PublicFeatures([[1, 2], [3, 4]])
    PublicFeatures(2 records, columns x0, x1)
    """

    values: Matrix
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _set_matrix(self, "public")

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "PublicFeatures":
        """Select records by slice or by positions."""
        return PublicFeatures(self.values[index], self.names)

    def __repr__(self) -> str:
        return _describe(self)


@dataclass(frozen=True)
class PrivateFeatures:
    """Private columns as an array of shape (n, d), with declared bounds. The repr never shows a value."""

    values: Matrix = field(repr=False)
    bounds: tuple[Bounds, ...]
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "PrivateFeatures":
        """Select records by slice or by positions."""
        return PrivateFeatures(self.values[index], self.bounds, self.names)

    def __post_init__(self) -> None:
        _set_matrix(self, "private")
        if len(self.bounds) != self.values.shape[1]:
            raise SchemaError(
                f"expected one pair of bounds for each of {self.values.shape[1]} private columns, "
                f"got {len(self.bounds)}."
            )

    def __repr__(self) -> str:
        return _describe(self)


@dataclass(frozen=True)
class Labels:
    """The label column with declared bounds. The repr never shows a value."""

    values: Matrix = field(repr=False)
    bounds: Bounds
    name: str = "label"

    def __post_init__(self) -> None:
        values = as_numbers(self.values, what=f"label '{self.name}'")
        if values.ndim != 1:
            raise SchemaError(f"label '{self.name}' must be one column, got an array with {values.ndim} dimensions.")
        object.__setattr__(self, "values", values)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "Labels":
        """Select records by slice or by positions."""
        return Labels(self.values[index], self.bounds, self.name)

    def __repr__(self) -> str:
        return f"Labels({len(self)} records, '{self.name}' in [{self.bounds.low}, {self.bounds.high}])"


def require_public(value: object, *, function: str) -> PublicFeatures:
    """Return the value if it is PublicFeatures; otherwise raise :class:`PrivateDataLeak`."""
    if not isinstance(value, PublicFeatures):
        hint = "Pass its attribute 'public'." if hasattr(value, "public") else "Wrap public columns in PublicFeatures."
        raise PrivateDataLeak(f"{function} expects PublicFeatures, got {type(value).__name__}. {hint}")
    return value


def _set_matrix(part: PublicFeatures | PrivateFeatures, role: str) -> None:
    """Validate and store the values and names of a feature block."""
    array = np.asarray(part.values)
    if array.ndim != 2:
        raise SchemaError(f"{role} features must have shape (n, d), got an array with {array.ndim} dimensions.")
    if len(array) == 0:
        raise SchemaError(f"{role} features have no records.")
    letter = "x" if role == "public" else "q"  # so that default names of public and private columns differ
    names = tuple(part.names) or tuple(f"{letter}{j}" for j in range(array.shape[1]))
    if len(names) != array.shape[1]:
        raise SchemaError(f"expected one name for each of {array.shape[1]} {role} columns, got {len(names)}.")
    if len(set(names)) < len(names):
        raise SchemaError(f"{role} columns must have different names, got {list(names)}.")
    object.__setattr__(part, "names", names)
    try:
        object.__setattr__(part, "values", as_numbers(array, what=f"{role} features"))
    except SchemaError:
        for name, column in zip(names, array.T, strict=True):
            as_numbers(column, what=f"{role} column '{name}'")
        raise


def _describe(part: PublicFeatures | PrivateFeatures) -> str:
    names = ", ".join(part.names[:8]) + (", ..." if len(part.names) > 8 else "")
    return f"{type(part).__name__}({len(part)} records, columns {names})"
