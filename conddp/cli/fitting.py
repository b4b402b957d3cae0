"""Commands that train a model and use it: ``fit``, ``predict``, ``report``, and ``schema init`` before them."""

from pathlib import Path
from typing import Annotated

import typer

from conddp.cli.options import (
    AsJson,
    DataFile,
    Delta,
    Force,
    HeadName,
    LabelBounds,
    LabelName,
    PrivateColumns,
    SchemaFile,
    UnitName,
    on_interrupt,
    read_schema,
    usage_errors,
)
from conddp.cli.terminal import print_json, print_plain

__all__ = ["fit", "init_schema", "predict", "report"]

COUNTED = "If training had started, the cost is in the ledger and counts as spent. No model was written."


def init_schema(
    data: DataFile,
    label: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("schema.toml"),
    force: Force = False,
) -> None:
    """Write a draft of a schema with comments. Reads only the names and types of columns."""
    from conddp.data.readers import check_header, read_column_types
    from conddp.data.schema import Schema
    from conddp.errors import SchemaError

    columns = read_column_types(data)
    check_header(data)
    draft = Schema.draft(columns, label=label)
    if out.exists() and not force:
        raise SchemaError(f"'{out}' exists already. Name another file with --out, or overwrite it with --force.")
    out.write_text(draft, encoding="utf-8")
    print_plain(f"{out}: fill in the bounds, and move columns that must be protected from public to private.")


def fit(
    data: DataFile,
    out: Annotated[Path, typer.Option(help="Folder for the model; it must not exist.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="Privacy budget of this fit: a bound on the privacy loss.")] = 1.0,
    delta: Delta = 1e-6,
    schema: SchemaFile = None,
    label: LabelName = None,
    label_bounds: LabelBounds = None,
    private: PrivateColumns = None,
    unit: UnitName = None,
    algorithm: Annotated[str, typer.Option(help="Algorithm: auto, cond-newton, cond-dp, rr-on-bins, ...")] = "auto",
    head: HeadName = "linear",
    ledger: Annotated[
        Path | None, typer.Option(help="Ledger file that this fit is charged to; see `conddp ledger`.")
    ] = None,
    other_rows: Annotated[
        bool,
        typer.Option(
            "--other-rows",
            help="Charge the ledger although the table has other rows than earlier fits: the same people are in it.",
        ),
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="Random seed, for research only: anyone who knows it can remove the noise.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="File that keeps what is released while a long fit runs. If it exists, the killed fit goes on."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a private model and save it with its guarantee."""
    from conddp.files import fit_file

    if checkpoint is not None and checkpoint.exists():
        typer.echo(f"Going on with the fit of {checkpoint}, which is paid for.", err=True)
    with usage_errors(), on_interrupt(COUNTED):
        saved = fit_file(
            data,
            read_schema(data, schema, label, label_bounds, private or [], unit),
            out,
            epsilon=epsilon,
            delta=delta,
            algorithm=algorithm,
            head=head,
            ledger=ledger,
            other_rows=other_rows,
            seed=seed,
            checkpoint=checkpoint,
        )
    if as_json:
        print_json({"model": str(out), "guarantee": str(saved.guarantee), "settings": dict(saved.settings)})
    else:
        print_plain(f"{saved.guarantee}\n\nModel: {out}")


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a saved model.", show_default=False)],
    data: DataFile,
    out: Annotated[Path, typer.Option(help="File to write: .parquet or .csv.", show_default=False)],
    force: Force = False,
) -> None:
    """Predict for new records. Costs no privacy: the model is already released."""
    from conddp.files import predict_file

    count = predict_file(model, data, out, overwrite=force)
    print_plain(f"{out}: {count:,} predictions")


def report(
    source: Annotated[
        Path,
        typer.Argument(help="Folder of a saved model, or the .json file of a plan or comparison.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="File to write: .html, .md or .json.")] = Path("report.html"),
    plan: Annotated[
        Path | None,
        typer.Option(help="The .json file of a plan, to show its expected errors beside a model."),
    ] = None,
    force: Force = False,
) -> None:
    """Write a report on a model, a plan or a comparison. Costs no privacy: everything in it is public or released."""
    from conddp.files import report_file

    report_file(source, out, plan=plan, overwrite=force)
    print_plain(f"{out}")
