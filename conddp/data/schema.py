"""Schema of a table: the role of each column, and declared ranges for the label and private columns."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conddp._validate import positive_integer
from conddp.bounds import Bounds
from conddp.categories import Categories
from conddp.data.column import Column, Kind, Role
from conddp.data.toml import list_names, quote, render_bounds, render_private
from conddp.errors import SchemaError
from conddp.stored import read_bytes

__all__ = ["Schema"]

LARGEST_SCHEMA = 1 << 24  # bytes
TABLES = ("label", "public", "private", "dropped", "undecided", "unit")


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
    dropped : tuple of str
        Columns of the table that were considered and are not used.

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
    dropped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen: dict[str, Role] = {}
        for column in self.columns:
            if column.name in seen:
                roles = {seen[column.name], column.role}
                if Role.LABEL in roles and len(roles) > 1:
                    raise SchemaError(f"column '{column.name}' is the label and also a feature. Remove one of the two.")
                raise SchemaError(f"column '{column.name}' is listed twice. Give each column one role.")
            seen[column.name] = column.role
        for name in self.dropped:
            if name in seen or name == self.unit:
                raise SchemaError(f"column '{name}' is dropped and also used. Remove one of the two.")
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
        kinds: Mapping[str, object] | None = None,
        missing_labels: str = "refuse",
        unit: str | None = None,
        max_rows: int | None = None,
        dropped: Iterable[str] = (),
    ) -> "Schema":
        """Create a schema from column names and declarations.

        Parameters
        ----------
        label : str
            The column to predict.
        label_bounds : (low, high)
            Its declared range.
        public : iterable of str
            Public features.
        private : mapping, optional
            Private features, each with (low, high), a list of categories, or a mapping with ``bounds`` or
            ``categories`` and ``fill``, the value that stands for a gap.
        kinds : mapping, optional
            Kinds of public columns whose type does not tell, for example ``{"zip_code": "category"}``.
        missing_labels : {"refuse", "public"}
            "public" declares that everyone may know which labels are missing. Such records are dropped.
        unit, max_rows, dropped
            See the class.
        """
        if missing_labels not in ("refuse", "public"):
            raise SchemaError(f"missing_labels must be 'refuse' or 'public', got {repr(missing_labels)[:80]}.")
        public, kinds = list(public), dict(kinds or {})
        for name in kinds:
            if name not in public:
                raise SchemaError(f"column '{name}' has a kind but is not public. Kinds are for public columns.")
        return cls(
            (
                Column(
                    label,
                    Role.LABEL,
                    Bounds.of(label_bounds, column=label),
                    missing_is_public=missing_labels == "public",
                ),
                *(
                    Column(name, Role.PUBLIC, kind=Kind.of(kinds[name], column=name) if name in kinds else None)
                    for name in public
                ),
                *(Column.private(name, declared) for name, declared in (private or {}).items()),
            ),
            unit,
            max_rows,
            tuple(dropped),
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
    def private_columns(self) -> tuple[Column, ...]:
        """Declarations of the private feature columns, in order."""
        return tuple(column for column in self.columns if column.role is Role.PRIVATE)

    @property
    def private_domains(self) -> tuple[Bounds | Categories, ...]:
        """Declared bounds or categories of the private feature columns, in order."""
        return tuple(column.domain for column in self.private_columns)

    @property
    def category_columns(self) -> tuple[str, ...]:
        """Names of the private feature columns that have declared categories."""
        return tuple(column.name for column in self.private_columns if column.categories is not None)

    @property
    def private_terms(self) -> tuple[str, ...]:
        """Names of the private terms of a linear model: the numbers, and every level of the categories."""
        return tuple(term for column in self.private_columns for term in column.terms)

    @property
    def kinds(self) -> dict[str, Kind]:
        """Declared kinds of public columns."""
        return {column.name: column.kind for column in self.columns if column.role is Role.PUBLIC and column.kind}

    @classmethod
    def from_toml(cls, text: str) -> "Schema":
        """Parse TOML text with tables ``[label]``, ``[public]``, ``[private.NAME]``, ``[dropped]`` and ``[unit]``.

        Raises
        ------
        SchemaError
            If the text is not such a schema, or if columns are left under ``[undecided]``.
        """
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            place = re.search(r"\(at (line \d+, column \d+|end of document)\)", str(error))
            where = f" at {place[1]}" if place else ""  # without the rest, which quotes the file: it may be a table
            raise SchemaError(f"the schema is not valid TOML{where}.") from None
        unknown = sorted(set(content) - set(TABLES))
        if unknown:
            raise SchemaError(
                f"the schema has unknown tables {unknown}. Expected [label], [public], [private.NAME], [dropped] and "
                "[unit]."
            )
        undecided = _read_names(content, "undecided")
        if undecided:
            listed = ", ".join(f"'{name}'" for name in undecided[:10]) + (", ..." if len(undecided) > 10 else "")
            number = "1 column is" if len(undecided) == 1 else f"{len(undecided)} columns are"
            raise SchemaError(
                f"{number} undecided: {listed}. Move each one to [public], [private.NAME] or [dropped]: only you can "
                "say what everyone may know."
            )
        label = _read_table(content, "label", ("name", "bounds", "missing"))
        if not isinstance(label.get("name"), str):
            raise SchemaError(
                'the schema has no label. Add a table [label] with name = "..." and bounds = [low, high].'
            )
        missing = label.get("missing", "refuse")
        if missing not in ("refuse", "public"):
            raise SchemaError(
                'missing in [label] must be "refuse", or "public" if everyone may know which are missing.'
            )
        kinds = _read_table(content, "public", ("columns", "kinds")).get("kinds", {})
        if not isinstance(kinds, dict):
            raise SchemaError('kinds in [public] must be a table such as {zip_code = "category"}.')
        private = content.get("private", {})
        if not isinstance(private, dict) or not all(isinstance(entry, dict) for entry in private.values()):
            raise SchemaError("[private.NAME] must be a table with bounds = [low, high] or categories = [...].")
        unit = content.get("unit", {})
        right = isinstance(unit, dict) and set(unit) <= {"column", "max_rows"}
        if not right or ("unit" in content and not isinstance(unit.get("column"), str)):
            raise SchemaError('[unit] must contain column = "name", and may contain max_rows = 5.')
        return cls.of(
            label=label["name"],
            label_bounds=label.get("bounds"),
            public=_read_names(content, "public", others=("kinds",)),
            private=private,
            kinds=kinds,
            missing_labels=missing,
            unit=unit.get("column"),
            max_rows=unit.get("max_rows"),
            dropped=_read_names(content, "dropped"),
        )

    def to_toml(self) -> str:
        """Return the schema as TOML text that :meth:`from_toml` can read."""
        parts = [
            "[label]",
            f"name = {quote(self.label.name)}",
            f"bounds = {render_bounds(self.label)}",
            *(['missing = "public"'] if self.label.missing_is_public else []),
            "",
            "[public]",
            f"columns = {list_names(self.public)}",
        ]
        if self.kinds:
            kinds = ", ".join(f"{quote(name)} = {quote(kind.value)}" for name, kind in self.kinds.items())
            parts += [f"kinds = {{{kinds}}}"]
        for column in self.private_columns:
            parts += ["", *render_private(column)]
        if self.dropped:
            parts += ["", "[dropped]", f"columns = {list_names(self.dropped)}"]
        if self.unit is not None:
            parts += ["", "[unit]", f"column = {quote(self.unit)}"]
        if self.max_rows is not None:
            parts += [f"max_rows = {self.max_rows}"]
        return "\n".join(parts) + "\n"

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


def _read_table(content: Mapping[str, Any], name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return a table of a schema, with these keys only."""
    table = content.get(name, {})
    if not isinstance(table, dict) or not set(table) <= set(keys):
        raise SchemaError(f"[{name}] must be a table that contains {' and '.join(keys)} only.")
    return table


def _read_names(content: Mapping[str, Any], name: str, *, others: tuple[str, ...] = ()) -> list[str]:
    """Return the list of column names in a table of a schema."""
    names = _read_table(content, name, ("columns", *others)).get("columns", [])
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise SchemaError(f'[{name}] must contain columns = ["name", ...].')
    return names
