"""Schema of a table: the role of each column, and declared bounds for the label and private columns."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from conddp._validate import positive_integer
from conddp.bounds import Bounds
from conddp.errors import SchemaError
from conddp.stored import read_bytes

__all__ = ["Column", "Role", "Schema"]


LARGEST_SCHEMA = 1 << 24  # bytes


class Role(Enum):
    """Role of a column: public feature, private feature or label."""

    PUBLIC = "public"
    PRIVATE = "private"
    LABEL = "label"


@dataclass(frozen=True)
class Column:
    """Name and role of a column, and its bounds unless it is public."""

    name: str
    role: Role
    bounds: Bounds | None = None

    def __post_init__(self) -> None:
        if self.role is Role.PUBLIC and self.bounds is not None:
            raise SchemaError(
                f"column '{self.name}' is public and has bounds. Public columns are scaled by their own statistics. "
                "Remove the bounds, or make the column private."
            )
        if self.role is not Role.PUBLIC:
            object.__setattr__(self, "bounds", Bounds.of(self.bounds, column=self.name))


@dataclass(frozen=True)
class Schema:
    """The columns of a table to use, each with its role. Exactly one column is the label.

    Parameters
    ----------
    columns : tuple of Column
        Features and label.
    unit : str, optional
        A public column of any type whose equal values belong to one person. It is not a feature. The guarantee then
        covers all records of a person together; see :class:`~conddp.data.units.Units`.
    max_rows : int, optional
        Maximum number of records of a unit that are used. If None, all are.

    Examples
    --------
    >>> schema = Schema.of(label="price", label_bounds=(0, 400), public=["rooms", "age"],
    ...                    private={"income": (0, 200_000)})
    >>> schema.public, schema.private
    (('rooms', 'age'), ('income',))
    >>> Schema.from_toml(schema.to_toml()) == schema
    True
    """

    columns: tuple[Column, ...]
    unit: str | None = None
    max_rows: int | None = None

    def __post_init__(self) -> None:
        seen: dict[str, Role] = {}
        for column in self.columns:
            if column.name in seen:
                roles = {seen[column.name], column.role}
                if Role.LABEL in roles and len(roles) > 1:
                    raise SchemaError(f"column '{column.name}' is the label and also a feature. Remove one of the two.")
                raise SchemaError(f"column '{column.name}' is listed twice. Give each column one role.")
            seen[column.name] = column.role
        labels = [column.name for column in self.columns if column.role is Role.LABEL]
        if len(labels) != 1:
            raise SchemaError(f"a schema needs exactly one label column, got {labels}.")
        if self.unit is not None and self.unit in seen:
            raise SchemaError(
                f"column '{self.unit}' is the unit and also has role={seen[self.unit].value}. Remove one of the two: "
                "a column that says whom a record is about is public and not a feature."
            )
        if self.max_rows is not None:
            if self.unit is None:
                raise SchemaError("max_rows needs a unit column whose records it limits.")
            try:
                positive_integer(max_rows=self.max_rows)
            except ValueError as error:
                raise SchemaError(f"unit '{self.unit}': {error}") from None

    @classmethod
    def of(
        cls,
        *,
        label: str,
        label_bounds: object,
        public: Iterable[str] = (),
        private: Mapping[str, object] | None = None,
        unit: str | None = None,
        max_rows: int | None = None,
    ) -> "Schema":
        """Create a schema from column names and (low, high) pairs."""
        return cls(
            (
                Column(label, Role.LABEL, Bounds.of(label_bounds, column=label)),
                *(Column(name, Role.PUBLIC) for name in public),
                *(Column(n, Role.PRIVATE, Bounds.of(b, column=n)) for n, b in (private or {}).items()),
            ),
            unit,
            max_rows,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns that are read, the unit column last."""
        return (*(column.name for column in self.columns), *([] if self.unit is None else [self.unit]))

    @property
    def label(self) -> Column:
        """The label column."""
        return next(column for column in self.columns if column.role is Role.LABEL)

    @property
    def label_bounds(self) -> Bounds:
        """Declared bounds of the label."""
        assert self.label.bounds is not None  # checked by Column
        return self.label.bounds

    @property
    def public(self) -> tuple[str, ...]:
        """Names of the public columns, in order."""
        return tuple(column.name for column in self.columns if column.role is Role.PUBLIC)

    @property
    def private(self) -> tuple[str, ...]:
        """Names of the private feature columns, in order."""
        return tuple(column.name for column in self.columns if column.role is Role.PRIVATE)

    @property
    def private_bounds(self) -> tuple[Bounds, ...]:
        """Declared bounds of the private feature columns, in order."""
        return tuple(
            column.bounds for column in self.columns if column.role is Role.PRIVATE and column.bounds is not None
        )

    @classmethod
    def from_toml(cls, text: str) -> "Schema":
        """Parse TOML text with tables ``[label]``, ``[public]``, ``[private.NAME]`` and ``[unit]``."""
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            place = re.search(r"\(at (line \d+, column \d+|end of document)\)", str(error))
            where = f" at {place[1]}" if place else ""  # without the rest, which quotes the file: it may be a table
            raise SchemaError(f"the schema is not valid TOML{where}.") from None
        unknown = sorted(set(content) - {"label", "public", "private", "unit"})
        if unknown:
            raise SchemaError(
                f"the schema has unknown tables {unknown}. Expected [label], [public], [private.NAME], [unit]."
            )
        label = content.get("label")
        if not isinstance(label, dict) or not isinstance(label.get("name"), str):
            raise SchemaError(
                'the schema has no label. Add a table [label] with name = "..." and bounds = [low, high].'
            )
        public = content.get("public", {})
        names = public.get("columns", []) if isinstance(public, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise SchemaError('[public] must contain columns = ["name", ...].')
        private = content.get("private", {})
        if not isinstance(private, dict) or not all(isinstance(entry, dict) for entry in private.values()):
            raise SchemaError("[private.NAME] must be a table with bounds = [low, high].")
        unit = content.get("unit", {})
        right = isinstance(unit, dict) and set(unit) <= {"column", "max_rows"}
        if not right or ("unit" in content and not isinstance(unit.get("column"), str)):
            raise SchemaError('[unit] must contain column = "name", and may contain max_rows = 5.')
        return cls.of(
            label=label["name"],
            label_bounds=label.get("bounds"),
            public=names,
            private={name: entry.get("bounds") for name, entry in private.items()},
            unit=unit.get("column"),
            max_rows=unit.get("max_rows"),
        )

    def to_toml(self) -> str:
        """Return the schema as TOML text that :meth:`from_toml` can read."""
        parts = [
            "[label]",
            f"name = {_quote(self.label.name)}",
            f"bounds = {_pair(self.label_bounds)}",
            "",
            "[public]",
            f"columns = [{', '.join(_quote(name) for name in self.public)}]",
        ]
        for name, bounds in zip(self.private, self.private_bounds, strict=True):
            parts += ["", f"[private.{_quote(name)}]", f"bounds = {_pair(bounds)}"]
        if self.unit is not None:
            parts += ["", "[unit]", f"column = {_quote(self.unit)}"]
        if self.max_rows is not None:
            parts += [f"max_rows = {self.max_rows}"]
        return "\n".join(parts) + "\n"

    @staticmethod
    def draft(columns: Mapping[str, bool], *, label: str | None = None) -> str:
        """Draft a commented TOML schema for the user to edit, from column names and whether each is numeric.

        Privacy
            Reads names and types only. Bounds are left for the user to fill in, because they must not come from the
            data.
        """
        if label is not None and label not in columns:
            raise SchemaError(f"label '{label}' is not among the {len(columns)} columns.")
        numeric = [name for name, holds_numbers in columns.items() if holds_numbers and name != label]
        text = [name for name, holds_numbers in columns.items() if not holds_numbers]
        lines = [
            "# What may be seen of each column. Edit, then: conddp fit.",
            "",
            "[label]  # always private",
            f"name = {_quote(label or 'WHICH COLUMN IS PREDICTED?')}",
            "# The range that the label can have, from what you know of it, never from the data. Values outside are",
            "# clamped.",
            "bounds = []  # [low, high]",
            "",
            "[public]  # anyone may know these of every record; they are used at no privacy cost",
            "columns = [",
            *(f"  {_quote(name)}," for name in numeric),
            "]",
            "",
            "# A feature that must be protected: move its name from above to a table of its own, with its range.",
            "# [private.income]",
            "# bounds = [0, 200000]",
            "",
            "# If a person can have several records: a public column, of any type, that says whose each record is.",
            "# [unit]",
            '# column = "customer_id"',
        ]
        if text:
            lines += [
                "",
                "# Left out, because they do not hold numbers: encode them first.",
                *(f"#   {name!r}" for name in text),
            ]
        return "\n".join(lines) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Load a schema from a TOML file."""
        try:
            text = read_bytes(Path(path), at_most=LARGEST_SCHEMA).decode("utf-8")
        except UnicodeDecodeError:
            raise SchemaError(f"the schema file '{path}' is not a text file in UTF-8.") from None
        except SchemaError as error:
            raise SchemaError(f"the schema file {error}") from None
        return cls.from_toml(text)

    def write(self, path: str | Path) -> None:
        """Write the schema to a TOML file."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")


def _quote(text: str) -> str:
    """Quote text as a TOML basic string. JSON escapes are valid in TOML, which also requires DEL to be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _pair(bounds: Bounds) -> str:
    return f"[{bounds.low!r}, {bounds.high!r}]"
