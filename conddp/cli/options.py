"""Options that several commands share, and the functions that read and check them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conddp.cli.wording import name_options
from conddp.errors import CondDPError

if TYPE_CHECKING:
    from conddp.data.schema import Schema

if TYPE_CHECKING:
    pass

__all__ = [
    "AsJson",
    "DataFile",
    "Delta",
    "Draws",
    "Force",
    "HeadName",
    "LabelBounds",
    "LabelName",
    "PrivateColumns",
    "SchemaFile",
    "UnitName",
    "Workers",
    "check_out",
    "on_interrupt",
    "read_schema",
    "usage_errors",
]

DataFile = Annotated[Path, typer.Argument(help="A table: .parquet, .csv or .csv.gz.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="Schema file (TOML); see `conddp schema init`.")]
LabelName = Annotated[str | None, typer.Option("--label", help="The column to predict, if there is no schema file.")]
LabelBounds = Annotated[
    str | None, typer.Option("--label-bounds", help="Range of the label, LOW,HIGH, from domain knowledge.")
]
PrivateColumns = Annotated[
    list[str] | None, typer.Option("--private", help="A private feature and its range, NAME=LOW,HIGH. Repeatable.")
]
UnitName = Annotated[
    str | None,
    typer.Option("--unit", help="A public column, such as a customer number: all records of one value are protected."),
]
Delta = Annotated[
    float, typer.Option("--delta", help="The additive term delta. Choose it well below 1 / number of records.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
HeadName = Annotated[str, typer.Option("--head", help="Model: linear, wide, mlp or fm.")]
Draws = Annotated[int, typer.Option("--draws", min=1, help="Number of simulated label sets of each kind.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Worker processes; by default one per core.")]


def check_out(out: Path | None, force: bool) -> None:
    """Check before minutes of work that the file can be written and its suffix is known."""
    if out is None:
        return
    if out.suffix not in (".json", ".html", ".md"):
        raise typer.BadParameter(f"--out must end in .json, .html or .md, got '{out}'.")
    if out.exists() and not force:
        raise typer.BadParameter(f"'{out}' exists already. Name another file with --out, or overwrite it with --force.")
    if out.is_dir():
        raise typer.BadParameter(f"'{out}' is a folder.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a"):  # fails now rather than after the work
            pass
    except OSError as error:
        raise typer.BadParameter(f"'{out}' cannot be written: {error.strerror}.") from None
    if not out.stat().st_size:
        out.unlink()


def read_schema(
    data: Path,
    path: Path | None,
    label: str | None,
    label_bounds: str | None,
    private: list[str],
    unit: str | None = None,
) -> "Schema":
    """The schema from its file, or from the other options if there is no file."""
    from conddp.data.readers import read_column_types
    from conddp.data.schema import Schema

    if path is not None:
        if label is not None or label_bounds is not None or private or unit is not None:
            raise typer.BadParameter("give either --schema, or --label, --label-bounds, --private and --unit.")
        return Schema.load(path)
    if label is None or label_bounds is None:
        raise typer.BadParameter("give --schema FILE, or --label NAME and --label-bounds LOW,HIGH.")
    protected = {}
    for entry in private:
        name, _, bounds = entry.rpartition("=")
        if not name:
            raise typer.BadParameter(f"--private must be NAME=LOW,HIGH, got {entry!r}.")
        if name in protected:
            raise typer.BadParameter(f"--private names '{name}' twice.")
        protected[name] = _read_bounds(bounds, option=f"--private {name}")
    columns = read_column_types(data, leave_out=[label, *protected, *([] if unit is None else [unit])])
    count = sum(not holds_numbers for holds_numbers in columns.values())
    if count:
        raise typer.BadParameter(
            f"{count} of {len(columns)} columns that would be public {'does' if count == 1 else 'do'} not hold "
            "numbers. Encode them, or name the columns to use in a schema file: `conddp schema init` lists them. A "
            "column that says whose each record is goes to --unit."
        )
    return Schema.of(
        label=label,
        label_bounds=_read_bounds(label_bounds, option="--label-bounds"),
        public=list(columns),
        private=protected,
        unit=unit,
    )


def _read_bounds(text: str, *, option: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{option} must be two numbers LOW,HIGH, got {text!r}.") from None
    return low, high


@contextmanager
def on_interrupt(message: str) -> Iterator[None]:
    """On Ctrl-C print the message and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"Interrupted. {message}", file=sys.stderr)
        raise typer.Exit(130) from None


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report a ValueError, such as an unknown name, as a usage error."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, CondDPError):
            raise
        raise typer.BadParameter(name_options(str(error))) from error
