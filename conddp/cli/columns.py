"""Options that say what is known of the columns of a table, and the schema that they describe."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from conddp.data.schema import Schema

__all__ = [
    "CategoryColumns",
    "ColumnOptions",
    "DroppedColumns",
    "LabelBounds",
    "LabelName",
    "PrivateColumns",
    "PublicColumns",
    "SchemaFile",
    "UnitName",
    "parse_bounds",
    "parse_declaration",
    "split_names",
]

SchemaFile = Annotated[Path | None, typer.Option("--schema", help="Schema file (TOML); see `conddp schema init`.")]
LabelName = Annotated[str | None, typer.Option("--label", help="The column to predict, if there is no schema file.")]
LabelBounds = Annotated[
    str | None, typer.Option("--label-bounds", help="Range of the label, LOW,HIGH, from domain knowledge.")
]
PublicColumns = Annotated[
    list[str] | None,
    typer.Option("--public", help="Public features, A,B,C, or `all` for all that are not named otherwise. Repeatable."),
]
PrivateColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--private", help="A private feature with its range, NAME=LOW,HIGH, or categories, NAME=A|B|C. Repeatable."
    ),
]
CategoryColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--category", help="Public features that are codes rather than amounts, such as zip codes. Repeatable."
    ),
]
DroppedColumns = Annotated[list[str] | None, typer.Option("--drop", help="Columns not to use, A,B,C. Repeatable.")]
UnitName = Annotated[
    str | None,
    typer.Option("--unit", help="A public column, such as a customer number: all records of one value are protected."),
]


@dataclass(frozen=True)
class ColumnOptions:
    """What the options of a command say of the columns, before the file is opened."""

    label: str | None = None
    label_bounds: str | None = None
    public: list[str] | None = None
    private: list[str] | None = None
    categories: list[str] | None = None
    dropped: list[str] | None = None
    unit: str | None = None
    declared: dict[str, object] = field(init=False, repr=False)  # of the private columns

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", _read_private(self.private or []))

    @property
    def given(self) -> bool:
        """Whether any of the options was used."""
        listed = (self.public, self.private, self.categories, self.dropped)
        return any(listed) or (self.label, self.label_bounds, self.unit) != (None, None, None)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Declared range of the label."""
        return None if self.label_bounds is None else parse_bounds(self.label_bounds, option="--label-bounds")

    def read_schema(self, data: Path, path: Path | None) -> "Schema":
        """Return the schema of a file, or the one that the options describe if there is no file.

        Columns that the options do not name are left out only if public ones are named one by one. Nothing becomes
        public by being forgotten.
        """
        from conddp.data.readers import read_column_names
        from conddp.data.schema import Schema

        if path is not None:
            if self.given:
                raise typer.BadParameter("give either --schema, or options such as --label, --public and --private.")
            return Schema.load(path)
        if self.label is None or self.bounds is None:
            raise typer.BadParameter(
                "give --schema FILE, or --label NAME, --label-bounds LOW,HIGH and --public A,B,C. `conddp schema init` "
                "writes a draft of the file."
            )
        named = [self.label, *self.declared, *([] if self.unit is None else [self.unit])]
        others = read_column_names(data, leave_out=named)
        dropped = split_names(self.dropped or [], others, option="--drop")
        public = self.list_public(others, dropped)
        undecided = len(others) - len(dropped)
        if not self.public and undecided:
            counted = "1 column is" if undecided == 1 else f"{undecided} columns are"
            raise typer.BadParameter(
                f"{counted} neither public nor private. If everyone may know the values of all of them, say --public "
                "all; if only of some, name those: --public A,B,C. `conddp schema init` writes a file in which to "
                "decide on each column. A column that says whose each record is goes to --unit."
            )
        return Schema.of(
            label=self.label,
            label_bounds=self.bounds,
            public=public,
            private=self.declared,
            kinds=self.list_kinds(public),
            unit=self.unit,
            dropped=dropped,
        )

    def list_public(self, others: Collection[str], dropped: Collection[str]) -> list[str]:
        """Public columns among those that have no other role; `all` stands for all of them."""
        if self.public == ["all"] and "all" not in others:
            return [name for name in others if name not in dropped]
        return split_names(self.public or [], others, option="--public")

    def list_kinds(self, public: Collection[str]) -> dict[str, str]:
        """Kinds of public columns that were declared."""
        return dict.fromkeys(
            split_names(self.categories or [], public, option="--category", what="public "), "category"
        )


def split_names(entries: Iterable[str], known: Collection[str], *, option: str, what: str = "other ") -> list[str]:
    """Column names of a repeatable option, each entry one name or several with commas between them."""
    advice = "Check the spelling, and that each column has one role." if what else "Check the spelling."
    names: list[str] = []
    for entry in entries:
        names += [entry] if entry in known else [name.strip() for name in entry.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise typer.BadParameter(
                f"{option} names '{name}', which is not among the {len(known)} {what}columns. {advice}"
            )
    if len(set(names)) < len(names):
        raise typer.BadParameter(f"{option} names a column twice.")
    return names


def parse_declaration(text: str, *, option: str) -> object:
    """Range or categories of a private column: ``LOW,HIGH`` (numbers or dates) or ``A|B|C``."""
    if "|" in text:
        categories = [each.strip() for each in text.split("|")]
        if not all(categories) or len(set(categories)) < len(categories):
            raise typer.BadParameter(f"{option} must be different categories A|B|C, got {text!r}.")
        return categories
    days = [_parse_date(part) for part in text.split(",")]
    if len(days) == 2 and all(days):
        return tuple(days)
    try:
        return parse_bounds(text, option=option)
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{option} must be a range LOW,HIGH of numbers or dates, or categories A|B|C, got {text!r}."
        ) from None


def parse_bounds(text: str, *, option: str) -> tuple[float, float]:
    """Two numbers ``LOW,HIGH``."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{option} must be two numbers LOW,HIGH, got {text!r}.") from None
    return low, high


def _parse_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text.strip()) if "-" in text.strip()[1:] else None
    except ValueError:
        return None


def _read_private(entries: Iterable[str]) -> dict[str, object]:
    """Private columns with what was declared of each."""
    declared: dict[str, object] = {}
    for entry in entries:
        # A name may contain "=", and so may categories; a range cannot.
        name, _, value = entry.partition("=") if "|" in entry else entry.rpartition("=")
        if not name:
            raise typer.BadParameter(f"--private must be NAME=LOW,HIGH or NAME=A|B|C, got {entry!r}.")
        if name in declared:
            raise typer.BadParameter(f"--private names '{name}' twice.")
        declared[name] = parse_declaration(value, option=f"--private {name}")
    return declared
