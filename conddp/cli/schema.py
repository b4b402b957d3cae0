"""The command that drafts a schema: ``schema init``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conddp.cli.asking import ask_columns
from conddp.cli.columns import (
    CategoryColumns,
    ColumnOptions,
    DroppedColumns,
    LabelBounds,
    PrivateColumns,
    PublicColumns,
    UnitName,
    split_names,
)
from conddp.cli.options import DataFiles, Force
from conddp.cli.terminal import print_plain

if TYPE_CHECKING:
    from conddp.data.draft import SchemaDraft

__all__ = ["init_schema"]


def init_schema(
    data: DataFiles,
    label: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    label_bounds: LabelBounds = None,
    public: PublicColumns = None,
    private: PrivateColumns = None,
    category: CategoryColumns = None,
    drop: DroppedColumns = None,
    unit: UnitName = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("schema.toml"),
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Ask nothing: columns that no option names stay undecided.")
    ] = False,
    force: Force = False,
) -> None:
    """Write a draft of a schema with comments, in which you decide on every column. Asks for it on a terminal.

    Reads only the names and types of columns. No column is public unless you say so.
    """
    from conddp.data.draft import SchemaDraft
    from conddp.data.readers import check_header, read_column_names, read_column_types
    from conddp.data.stored_table import list_files
    from conddp.errors import refuse_existing

    options = ColumnOptions(label, label_bounds, public, private, category, drop, unit)
    bounds = options.bounds
    refuse_existing(out, overwrite=force)
    first = list_files(data)[0]  # all files have the same columns
    types = read_column_types(first)
    check_header(first)
    others = read_column_names(first, leave_out=[each for each in (label, unit, *options.declared) if each is not None])
    dropped = split_names(drop or [], others, option="--drop")
    listed = options.list_public(others, dropped)
    draft = SchemaDraft(
        types,
        label,
        bounds,
        public=tuple(listed),
        kinds=options.list_kinds(listed),
        private=options.declared,
        dropped=tuple(dropped),
        unit=unit,
    )
    if not no_input and not draft.is_complete and is_interactive():
        draft = ask_columns(draft, first)
    if not out.parent.exists():
        out.parent.mkdir(parents=True)
    out.write_text(draft.to_toml(), encoding="utf-8")
    print_plain(f"\n{out}: {_describe(draft)}\nNext: {_name_next(draft, data[0], out)}")


def is_interactive() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _describe(draft: "SchemaDraft") -> str:
    count = len(draft.undecided)
    undecided = f"{count} undecided" if count else "none undecided"
    parts = [f"{len(draft.public)} public", f"{len(draft.private)} private", f"{len(draft.dropped)} dropped", undecided]
    return f"columns: {', '.join(parts)}."


def _name_next(draft: "SchemaDraft", data: Path, out: Path) -> str:
    missing = []
    if draft.label is None:
        missing.append("name the label")
    if draft.label_bounds is None:
        missing.append("declare the range of the label")
    if draft.undecided:
        missing.append("move every undecided column to public, private or dropped")
    run = f"conddp plan {data} --schema {out}"
    if not missing:
        return run
    *before, last = missing
    listed = f"{', '.join(before)} and {last}" if before else last
    return f"{listed} in {out}. Then: {run}"
