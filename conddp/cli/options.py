"""Options that several commands share, and the functions that read and check them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from conddp.cli.terminal import show_progress
from conddp.cli.wording import name_options
from conddp.errors import CondDPError, refuse_existing

__all__ = [
    "AsJson",
    "DataFile",
    "DataFiles",
    "Delta",
    "Draws",
    "Force",
    "HeadName",
    "PlannedHead",
    "Workers",
    "check_out",
    "on_interrupt",
    "show_work",
    "usage_errors",
]

DataFile = Annotated[Path, typer.Argument(help="A table: .parquet, .csv or .csv.gz.", show_default=False)]
DataFiles = Annotated[
    list[Path],
    typer.Argument(
        help="A table: .parquet, .csv or .csv.gz. Several .parquet files, or a folder of them, may be larger than "
        "memory.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Delta = Annotated[
    float, typer.Option("--delta", help="The additive term delta. Choose it well below 1 / number of records.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
HeadName = Annotated[
    str, typer.Option("--head", help="Model: auto, linear, additive, learned, wide, mlp, fm or embeddings.")
]
PlannedHead = Annotated[
    str,
    typer.Option("--head", help="Model to plan for: linear, additive, learned, wide, mlp, fm or embeddings."),
]
Draws = Annotated[int, typer.Option("--draws", min=1, help="Number of simulated label sets of each kind.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Worker processes; by default one per core.")]


def check_out(out: Path | None, force: bool) -> None:
    """Check before minutes of work that the file can be written and its suffix is known."""
    if out is None:
        return
    if out.suffix not in (".json", ".html", ".md"):
        raise typer.BadParameter(f"--out must end in .json, .html or .md, got '{out}'.")
    refuse_existing(out, overwrite=force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a"):  # fails now rather than after the work
            pass
    except OSError as error:
        raise typer.BadParameter(f"'{out}' cannot be written: {error.strerror}.") from None
    if not out.stat().st_size:
        out.unlink()


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


@contextmanager
def show_work(title: str, *, interrupted: str) -> Iterator[Any]:
    """Show the progress of a command. Report wrong options as usage errors, and on Ctrl-C what has become of the work.

    Yields the function of :func:`~conddp.cli.terminal.show_progress`.
    """
    with usage_errors(), on_interrupt(interrupted), show_progress(title) as advance:
        yield advance
