"""The schema of a training table, from the arguments of an estimator."""

from collections.abc import Mapping
from typing import Any

from conddp.bounds import Bounds
from conddp.data.column import Column
from conddp.data.schema import Schema
from conddp.data.units import Units
from conddp.errors import SchemaError
from conddp.estimators.inputs import Input

__all__ = ["declare_schema", "take_units"]


def take_units(given: Input, column: Any, passed: Any) -> tuple[Input, Units | None]:
    """Take the unit column out of the features, or read the units that were passed to ``fit``.

    Parameters
    ----------
    given : Input
        The features.
    column : str or int, optional
        Name or position of the unit column.
    passed : array, optional
        The units.
    """
    if column is None:
        if passed is None:
            return given, None
        name = getattr(passed, "name", None)
        return given, Units.of(passed, name=name if isinstance(name, str) and name else "unit")
    if passed is not None:
        raise SchemaError(f"unit={column!r} names a column, and fit was given units too. Give one of the two.")
    found = given.find(column)
    if found is None:
        raise SchemaError(f"unit={column!r} is not a column of X. X has: {list(given.names)}.")
    units = given.read_units(found)
    return given.without(found), units


def declare_schema(
    given: Input,
    label: str,
    *,
    bounds: Bounds,
    private_columns: Any,
    missing_labels: str,
    units: Units | None,
) -> Schema:
    """Make the schema of a training table.

    Parameters
    ----------
    given : Input
        The features.
    label : str
        Name of the label.
    bounds : Bounds
        Its declared range.
    private_columns : mapping, optional
        Private features and what is declared of them, by name or position. All others are public.
    missing_labels : str
        What is declared of missing labels.
    units : Units, optional
        Units of the records.
    """
    if not isinstance(private_columns or {}, Mapping):
        raise SchemaError(
            "private_columns must give each private column its range, {name: (low, high)}, "
            f"got {type(private_columns).__name__}."
        )
    private: dict[str, Column] = {}
    for key, declared in (private_columns or {}).items():
        name = given.find(key)
        if name is None:
            raise SchemaError(
                f"private column {key!r} is not among the features, of which there are {len(given.names)}."
            )
        if name in private:
            raise SchemaError("private_columns names a column twice, by name and by position.")
        private[name] = Column.private(name, declared)
    return Schema.of(
        label=label,
        label_bounds=bounds,
        public=[name for name in given.names if name not in private],
        private=private,
        missing_labels=missing_labels,
        unit=None if units is None else units.name,
    )
