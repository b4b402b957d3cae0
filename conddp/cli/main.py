"""The command line: ``conddp``. Every command calls one library function and prints what it returns.

Exit codes: 0, 1 for an error that conddp explains, 2 for a command that is not understood, 130 if interrupted.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from conddp.cli.terminal import (
    add_row,
    describe_errors,
    make_comparison_table,
    make_design_table,
    make_table,
    print_json,
    print_plain,
    show_progress,
)
from conddp.errors import CondDPError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Regression under differential privacy when part of each record is public.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
schema_app = typer.Typer(help="Which columns are public, private or the label.", no_args_is_help=True)
app.add_typer(schema_app, name="schema")
ledger_app = typer.Typer(help="What has been spent.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
data_app = typer.Typer(help="Public data sets by name: list, fetch, show.", no_args_is_help=True)
app.add_typer(data_app, name="data")

DataFile = Annotated[Path, typer.Argument(help="A table: .parquet, .csv or .csv.gz.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="TOML file; see `conddp schema init`.")]
LabelName = Annotated[str | None, typer.Option("--label", help="Instead of a schema: the column to predict.")]
LabelBounds = Annotated[str | None, typer.Option("--label-bounds", help="Its range LOW,HIGH, from domain knowledge.")]
PrivateColumns = Annotated[
    list[str] | None, typer.Option("--private", help="A private feature NAME=LOW,HIGH; may be given again.")
]
HeadName = Annotated[str, typer.Option("--head", help="linear, wide, mlp or fm.")]
Draws = Annotated[int, typer.Option("--draws", min=1, help="Sets of simulated labels of each kind.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes; all cores if not given.")]


KEPT = "What was measured is kept: the same command goes on from there."
COUNTED = "If training had begun, the cost is in the ledger and counts. No model was written."
NOTHING_LOST = "Nothing was written, and nothing was spent."


class ExperimentName(StrEnum):
    """What can be reproduced."""

    SPECTRA = "spectra"
    SYNTHETIC = "synthetic"
    LINEAR_REAL = "linear-real"
    MLP_REAL = "mlp-real"
    ALL = "all"


@schema_app.command("init")
def init_schema(
    data: DataFile,
    label: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("schema.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
) -> None:
    """Write a commented draft of a schema, from the names and types of columns alone."""
    from conddp.data.readers import read_column_types
    from conddp.data.schema import Schema
    from conddp.errors import SchemaError

    draft = Schema.draft(read_column_types(data), label=label)
    if out.exists() and not force:
        raise SchemaError(f"'{out}' exists already. Name another file with --out, or overwrite it with --force.")
    out.write_text(draft, encoding="utf-8")
    print_plain(f"{out}: fill in the bounds, and move what must be protected from public to private.")


@app.command()
def plan(
    data: DataFile,
    epsilon: Annotated[float, typer.Option(help="Privacy loss of the fit to come.")] = 1.0,
    delta: Annotated[
        float, typer.Option(help="What that bound may miss; well below one over the number of records.")
    ] = 1e-6,
    schema: SchemaFile = None,
    label: LabelName = None,
    label_bounds: LabelBounds = None,
    private: PrivateColumns = None,
    head: HeadName = "linear",
    draws: Draws = 1,
    workers: Workers = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .json to keep the plan, .html or .md for a report.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at public columns only, and say what a private model can be expected to do. Free."""
    from conddp.files import plan_file
    from conddp.report import report_plan

    _check_out(out, force)
    with _known_names(), _if_interrupted(NOTHING_LOST), show_progress("planning") as advance:
        made = plan_file(
            data,
            _read_schema(data, schema, label, label_bounds, private or []),
            epsilon=epsilon,
            delta=delta,
            head=head,
            num_draws=draws,
            num_workers=workers,
            report=advance,
        )
    _write(made, report_plan(made), out)
    if as_json:
        print_json({**made.to_json(), "algorithm": made.algorithm, "recommendation": made.recommendation})
        return
    print_plain(make_design_table(made.design))
    print_plain(f"\n{made.design.improvement.describe()}")
    for remark in made.design.list_remarks():
        print_plain(f"! {remark}")
    print_plain(f"\n{describe_errors(made.comparison)}")
    print_plain(make_comparison_table(made.comparison))
    print_plain(f"\n{made.recommendation}")
    if out:
        print_plain(f"\n{out}")


@app.command()
def compare(
    data: DataFile,
    schema: SchemaFile = None,
    label: LabelName = None,
    label_bounds: LabelBounds = None,
    private: PrivateColumns = None,
    algorithm: Annotated[
        list[str] | None, typer.Option(help="An algorithm to try; may be given again. All usable ones if not given.")
    ] = None,
    epsilon: Annotated[list[float] | None, typer.Option(help="A budget; may be given again.")] = None,
    delta: Annotated[float, typer.Option(help="Of every fit.")] = 1e-6,
    head: HeadName = "linear",
    draws: Draws = 1,
    workers: Workers = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .json to keep the numbers, .html or .md for a report.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare algorithms on labels simulated from public columns. Free: the real labels are not read."""
    from conddp.files import compare_file
    from conddp.planning.comparison import CANDIDATES, EPSILONS
    from conddp.report import report_comparison

    _check_out(out, force)
    with _known_names(), _if_interrupted(NOTHING_LOST), show_progress("comparing") as advance:
        made = compare_file(
            data,
            _read_schema(data, schema, label, label_bounds, private or []),
            algorithms=algorithm or CANDIDATES,
            epsilons=epsilon or EPSILONS,
            delta=delta,
            head=head,
            num_draws=draws,
            num_workers=workers,
            report=advance,
        )
    _write(made, report_comparison(made), out)
    if as_json:
        print_json(made.to_json())
        return
    print_plain(describe_errors(made))
    print_plain(make_comparison_table(made))
    for name, reason in made.skipped.items():
        print_plain(f"not tried: {name}: {reason}")
    if out:
        print_plain(f"\n{out}")


@app.command()
def report(
    source: Annotated[
        Path,
        typer.Argument(help="Folder of a saved model, or the .json file of a plan or comparison.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="File to write: .html, .md or .json.")] = Path("report.html"),
    plan: Annotated[
        Path | None, typer.Option(help="The .json file of a plan, to show with a model what was to be expected.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
) -> None:
    """Write a page about a model, a plan or a comparison. Free: it shows what is public or released."""
    from conddp.files import report_file

    report_file(source, out, plan=plan, overwrite=force)
    print_plain(f"{out}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and report.html.")] = Path("demo_output"),
    seeds: Annotated[int, typer.Option(min=1, help="Noise seeds per cell of the tables.")] = 5,
    data: Annotated[
        list[str] | None, typer.Option(help="A data set by name instead of the two; may be given again.")
    ] = None,
) -> None:
    """Fit private models to two data sets that need no download, and write report.html."""
    from conddp.research.demo import run_demo

    with _known_names(), _if_interrupted("The demo is not complete."):
        run_demo(out, num_seeds=seeds, names=data or [])


@app.command()
def fit(
    data: DataFile,
    out: Annotated[Path, typer.Option(help="Folder for the model; it must not exist.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="Privacy loss of this fit.")] = 1.0,
    delta: Annotated[
        float, typer.Option(help="What that bound may miss; well below one over the number of records.")
    ] = 1e-6,
    schema: SchemaFile = None,
    label: LabelName = None,
    label_bounds: LabelBounds = None,
    private: PrivateColumns = None,
    algorithm: Annotated[str, typer.Option(help="auto, cond-newton, cond-dp, rr-on-bins, ...")] = "auto",
    head: HeadName = "linear",
    ledger: Annotated[Path | None, typer.Option(help="Ledger file that pays; see `conddp ledger`.")] = None,
    seed: Annotated[int | None, typer.Option(help="For research: whoever knows it can remove the noise.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a private model and save it with its guarantee."""
    from conddp.files import fit_file

    with _known_names(), _if_interrupted(COUNTED):
        saved = fit_file(
            data,
            _read_schema(data, schema, label, label_bounds, private or []),
            out,
            epsilon=epsilon,
            delta=delta,
            algorithm=algorithm,
            head=head,
            ledger=ledger,
            seed=seed,
        )
    if as_json:
        print_json({"model": str(out), "guarantee": str(saved.guarantee), "settings": dict(saved.settings)})
    else:
        print_plain(f"{saved.guarantee}\n\nModel: {out}")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a saved model.", show_default=False)],
    data: DataFile,
    out: Annotated[Path, typer.Option(help="File to write: .parquet or .csv.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
) -> None:
    """Predict for new records. Costs nothing: the model is already released."""
    from conddp.files import predict_file

    count = predict_file(model, data, out, overwrite=force)
    print_plain(f"{out}: {count:,} predictions")


@ledger_app.command("show")
def show_ledger(
    path: Annotated[Path, typer.Argument(help="A ledger file, or the folder of a saved model.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show what has been spent, on what and why, and what is left."""
    from dataclasses import asdict

    from conddp.privacy.ledger import PrivacyLedger

    ledger = PrivacyLedger.load(path / "ledger.jsonl" if path.is_dir() else path)
    if as_json:
        print_json(
            {
                "neighbouring": ledger.neighbouring.value,
                "budget": asdict(ledger.budget),
                "spent": asdict(ledger.spent),
                "remaining": asdict(ledger.remaining),
                "entries": [asdict(entry) for entry in ledger.entries],
            }
        )
        return
    table = make_table("when", "what", "epsilon", "delta", "why", right=("epsilon", "delta"))
    for entry in ledger.entries:
        add_row(
            table,
            entry.time[:16].replace("T", " "),
            entry.what,
            f"{entry.cost.epsilon:g}",
            f"{entry.cost.delta:g}",
            entry.reason,
        )
    print_plain(table)
    print_plain(
        f"\nspent {ledger.spent}; {ledger.remaining} remains of {ledger.budget}, relation {ledger.neighbouring}"
    )


@ledger_app.command("init")
def init_ledger(
    path: Annotated[Path, typer.Argument(help="The file to write.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="The most that may ever be spent on these data.", show_default=False)],
    delta: Annotated[float, typer.Option(help="Likewise.", show_default=False)],
) -> None:
    """Open a ledger with a budget for all fits on one data set together."""
    from conddp.privacy.budget import PrivacyBudget
    from conddp.privacy.ledger import PrivacyLedger

    with _known_names():
        ledger = PrivacyLedger(PrivacyBudget(epsilon, delta), path=path)
    print_plain(f"{path}: {ledger.remaining}")


@data_app.command("list")
def list_data(as_json: AsJson = False) -> None:
    """List the data sets that are known, and which are on this machine."""
    from conddp.research.datasets import list_datasets

    entries = list_datasets()
    if as_json:
        print_json(entries)
        return
    table = make_table("name", "records", "state", "licence", "what it is", right=("records",))
    for each in entries:
        add_row(
            table, each["name"], f"{each['records']:,}", each["state"], each["licence"], each["title"].split(";")[0]
        )
    print_plain(table)
    print_plain(
        "\nstate: here, a sample of it, to be had with `conddp data fetch NAME`, to be downloaded by hand, or made"
    )


@data_app.command("fetch")
def fetch_data(
    name: Annotated[str, typer.Argument(help="The data set; see `conddp data list`.")],
    url: Annotated[str | None, typer.Option(help="Another place that has the same archive.")] = None,
) -> None:
    """Download a data set from its public source into the user's cache, and check it."""
    from conddp.research.fetching import fetch_dataset

    with _known_names(), show_progress(f"fetching {name}") as advance:
        path = fetch_dataset(name, url=url, report=lambda done, total: advance(done, total or None))
    print_plain(f"{name}: {path}")


@data_app.command("show")
def show_data(
    name: Annotated[str, typer.Argument(help="The data set; see `conddp data list`.")], as_json: AsJson = False
) -> None:
    """Show where a data set comes from, its licence, and its columns if it is at hand."""
    from conddp.research.datasets import describe_dataset

    with _known_names():
        facts = describe_dataset(name)
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        shown = (
            ", ".join(map(str, value)) if isinstance(value, list) else f"{value:,}" if key[:7] == "records" else value
        )
        print_plain(f"{key}: {shown}")


@app.command()
def reproduce(
    experiment: Annotated[ExperimentName, typer.Argument(help="What to measure again.")],
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and the page.")] = Path("reproduction"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer trials, budgets, seeds and epochs.")] = False,
    workers: Workers = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure anew what has been measured before.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure the paper's tables and figures again, beside its printed numbers.

    Results are kept as they come: an interrupted run goes on where it was. Everything is tuned on test labels where the
    paper did so: for public data only.
    """
    from conddp.research.experiments.reproduce import NAMES, reproduce_experiment, reproduce_spectra, write_page
    from conddp.research.experiments.tables import list_sets, make_rich_table

    rows_by_name = {}
    for name in NAMES if experiment is ExperimentName.ALL else (experiment.value,):
        if name == "spectra":
            table = reproduce_spectra(out)
            if not as_json:
                print_plain(table)
            continue
        with show_progress(name) as advance, _if_interrupted(KEPT):
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
                print_plain(make_rich_table(rows, data))
    _, page = write_page(out)
    if as_json:
        from dataclasses import asdict

        print_json({name: [asdict(row) for row in rows] for name, rows in rows_by_name.items()})
    else:
        print_plain(f"Tables, figures and the page are in {out}: open {page}")


def _check_out(out: Path | None, force: bool) -> None:
    """Before minutes of work: a file that can be written, of a kind that is known."""
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
        with out.open("a"):  # fails now if it must
            pass
    except OSError as error:
        raise typer.BadParameter(f"'{out}' cannot be written: {error.strerror}.") from None
    if not out.stat().st_size:
        out.unlink()


def _write(record: Any, document: Any, out: Path | None) -> None:
    from conddp.files import save_record
    from conddp.report import write_report

    if out is None:
        return
    if out.suffix == ".json":
        save_record(record, out, overwrite=True)
    else:
        write_report(document, out, overwrite=True)


def _read_schema(data: Path, path: Path | None, label: str | None, label_bounds: str | None, private: list[str]) -> Any:
    """The schema from its file, or from the options if there is none."""
    from conddp.data.readers import read_column_types
    from conddp.data.schema import Schema

    if path is not None:
        if label is not None or label_bounds is not None or private:
            raise typer.BadParameter("give either --schema, or --label, --label-bounds and --private.")
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
    columns = read_column_types(data, leave_out=[label, *protected])
    text = [name for name, holds_numbers in columns.items() if not holds_numbers]
    if text:
        raise typer.BadParameter(
            f"columns {text} do not hold numbers. Encode them, or name the columns to use in a schema file "
            "(conddp schema init)."
        )
    return Schema.of(
        label=label,
        label_bounds=_read_bounds(label_bounds, option="--label-bounds"),
        public=list(columns),
        private=protected,
    )


def _read_bounds(text: str, *, option: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{option} must be two numbers LOW,HIGH, got {text!r}.") from None
    return low, high


@contextmanager
def _if_interrupted(message: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print(f"Interrupted. {message}", file=sys.stderr)
        raise typer.Exit(130) from None


@contextmanager
def _known_names() -> Iterator[None]:
    """A name that does not exist is a mistake in the command, not in the program."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, CondDPError):
            raise
        raise typer.BadParameter(str(error)) from error


def main() -> None:
    """Run the command line."""
    try:
        app()
    except CondDPError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(f"{error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)
