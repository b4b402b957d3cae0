"""The command line: ``conddp``. Every command calls one library function and prints what it returns.

Exit codes: 0, 1 for an error that conddp explains, 2 for a command that is not understood, 130 if interrupted.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from conddp.errors import CondDPError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Regression under differential privacy when part of each record is public.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Public data sets by name: list, fetch, show.", no_args_is_help=True)
app.add_typer(data_app, name="data")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class ExperimentName(StrEnum):
    """What can be reproduced."""

    SPECTRA = "spectra"
    SYNTHETIC = "synthetic"
    LINEAR_REAL = "linear-real"
    MLP_REAL = "mlp-real"
    ALL = "all"


@data_app.command("list")
def list_data(as_json: AsJson = False) -> None:
    """List the data sets that are known, and which are on this machine."""
    from conddp.datasets import DATASETS, DatasetNotFound, locate_dataset

    entries: list[dict[str, Any]] = []
    for name, source in DATASETS.items():
        try:
            path, is_sample = locate_dataset(name)
            state, file = ("a sample" if is_sample else "here"), str(path)
        except DatasetNotFound:
            state, file = ("fetch" if source.file else "by hand"), ""
        entries.append(
            {
                "name": name,
                "records": source.num_records,
                "state": state,
                "file": file,
                "licence": source.licence,
                "title": source.title,
            }
        )
    if as_json:
        _print_json(entries)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in ("name", "records", "state", "licence", "what it is"):
        table.add_column(head, justify="right" if head == "records" else "left", no_wrap=head == "name")
    for each in entries:
        table.add_row(each["name"], f"{each['records']:,}", each["state"], each["licence"], each["title"].split(";")[0])
    _print(table)
    _print("\nstate: here, a sample of it, to be had with `conddp data fetch NAME`, or to be downloaded by hand")


@data_app.command("fetch")
def fetch_data(
    name: Annotated[str, typer.Argument(help="The data set; see `conddp data list`.")],
    url: Annotated[str | None, typer.Option(help="Another place that has the same archive.")] = None,
) -> None:
    """Download a data set from its public source into the user's cache, and check it."""
    from conddp.fetching import fetch_dataset

    with _known_names(), _progress(f"fetching {name}") as advance:
        path = fetch_dataset(name, url=url, report=lambda done, total: advance(done, total or None))
    _print(f"{name}: {path}")


@data_app.command("show")
def show_data(
    name: Annotated[str, typer.Argument(help="The data set; see `conddp data list`.")], as_json: AsJson = False
) -> None:
    """Show where a data set comes from, its licence, and its columns if it is at hand."""
    from conddp.datasets import DatasetNotFound, get_source, load_dataset, locate_dataset

    with _known_names():
        source = get_source(name)
    facts: dict[str, Any] = {
        "name": name,
        "title": source.title,
        "licence": source.licence,
        "source": source.url,
        "label": source.label,
        "declared bounds": [source.bounds.low, source.bounds.high],
        "records": source.num_records,
    }
    if source.note:
        facts["note"] = source.note
    try:
        path, is_sample = locate_dataset(name)
        dataset = load_dataset(name)
        facts["file"] = str(path)
        facts["records here"] = dataset.num_records
        facts["features"] = list(dataset.public.names)
        if is_sample:
            facts["note"] = (
                f"a sample of {dataset.num_records} of {source.num_records} records; results are on the sample"
            )
    except DatasetNotFound as missing:
        facts["how to get it"] = str(missing)
    if as_json:
        _print_json(facts)
        return
    for key, value in facts.items():
        shown = (
            ", ".join(map(str, value)) if isinstance(value, list) else f"{value:,}" if key[:7] == "records" else value
        )
        _print(f"[bold]{key}[/bold]: {shown}", highlight=False)


@app.command()
def reproduce(
    experiment: Annotated[ExperimentName, typer.Argument(help="What to measure again.")],
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and the page.")] = Path("reproduction"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer trials, budgets, seeds and epochs.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; all cores if not given.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure anew what has been measured before.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure the paper's tables and figures again, beside its printed numbers.

    Results are kept as they come: an interrupted run goes on where it was. Everything is tuned on test labels where the
    paper did so: for public data only.
    """
    from conddp.experiments.reproduce import NAMES, reproduce_experiment, reproduce_spectra, write_page
    from conddp.experiments.tables import list_sets, make_rich_table

    rows_by_name = {}
    for name in NAMES if experiment is ExperimentName.ALL else (experiment.value,):
        if name == "spectra":
            table = reproduce_spectra(out)
            if not as_json:
                _print(table, highlight=False, soft_wrap=True)
            continue
        with _progress(name) as advance:
            rows = reproduce_experiment(
                name,
                out,
                quick=quick,
                num_workers=workers,
                fresh=fresh,
                report=lambda done, total, left: advance(done, total, left),
            )
        rows_by_name[name] = rows
        if not as_json:
            for data in list_sets(rows):
                _print(make_rich_table(rows, data))
    _, page = write_page(out)
    if as_json:
        from dataclasses import asdict

        _print_json({name: [asdict(row) for row in rows] for name, rows in rows_by_name.items()})
    else:
        _print(f"Tables, figures and the page are in {out}: open {page}")


@contextmanager
def _known_names() -> Iterator[None]:
    """A name that does not exist is a mistake in the command, not in the program."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, CondDPError):
            raise
        raise typer.BadParameter(str(error)) from error


@contextmanager
def _progress(title: str) -> Iterator[Any]:
    """A bar on a terminal; a line every half a minute elsewhere. Gives a function of (done, total, seconds left)."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %{task.fields[left]}"),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=None, left="")

            def advance(done: int, total: int | None, left: float = float("nan")) -> None:
                bar.update(task, completed=done, total=total, left=_show_left(left))

            yield advance
        return
    last = time.monotonic()

    def log(done: int, total: int | None, left: float = float("nan")) -> None:
        nonlocal last
        if time.monotonic() - last > 30:
            last = time.monotonic()
            console.print(f"{title}: {done} of {total or '?'}{_show_left(left)}", highlight=False)

    yield log


def _show_left(seconds: float) -> str:
    if not seconds >= 0:
        return ""
    return f", {seconds / 60:.0f} min left" if seconds > 90 else f", {seconds:.0f} s left"


def _print(what: Any, **options: Any) -> None:
    from rich.console import Console

    Console().print(what, **options)


def _print_json(what: Any) -> None:
    def tidy(value: Any) -> Any:
        if isinstance(value, float) and value != value:
            return None
        if isinstance(value, dict):
            return {key: tidy(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [tidy(each) for each in value]
        return "inf" if value == float("inf") else value

    print(json.dumps(tidy(what), indent=2, allow_nan=False))


def main() -> None:
    """Run the command line."""
    try:
        app()
    except CondDPError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("Interrupted. Results that were finished are kept.", file=sys.stderr)
        sys.exit(130)
