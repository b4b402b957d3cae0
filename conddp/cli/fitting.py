"""Commands that train a model and use it: ``fit``, ``predict`` and ``report``."""

import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from conddp.cli.columns import (
    CategoryColumns,
    ColumnOptions,
    DroppedColumns,
    LabelBounds,
    LabelName,
    PrivateColumns,
    PublicColumns,
    SchemaFile,
    UnitName,
    split_names,
)
from conddp.cli.evaluating import print_evaluation
from conddp.cli.options import (
    AsJson,
    DataFiles,
    Delta,
    Force,
    HeadName,
    on_interrupt,
    usage_errors,
)
from conddp.cli.terminal import print_json, print_plain, print_prose, print_remarks, show_progress
from conddp.errors import PrivacyWarning

__all__ = ["fit", "predict", "report"]

COUNTED = "If training had started, the cost is in the ledger and counts as spent. No model was written."
RESUMABLE = "No model was written. If {} exists, run the same command again to go on at no further cost."


def fit(
    data: DataFiles,
    out: Annotated[Path, typer.Option(help="Folder for the model; it must not exist.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="Privacy budget of this fit: a bound on the privacy loss.")] = 1.0,
    delta: Delta = 1e-6,
    schema: SchemaFile = None,
    label: LabelName = None,
    label_bounds: LabelBounds = None,
    public: PublicColumns = None,
    private: PrivateColumns = None,
    category: CategoryColumns = None,
    drop: DroppedColumns = None,
    unit: UnitName = None,
    algorithm: Annotated[str, typer.Option(help="Algorithm: auto, cond-newton, cond-dp, rr-on-bins, ...")] = "auto",
    head: HeadName = "auto",
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
        int | None,
        typer.Option(min=0, help="Random seed, for research only: anyone who knows it can remove the noise."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="File that keeps what is released while a long fit runs. If it exists, the killed fit goes on."
        ),
    ] = None,
    evaluation_fraction: Annotated[
        float | None,
        typer.Option(
            help="Fraction of the records to hold out and evaluate the model on, with the same budget: no record is on "
            "both sides, so that the total stays the same."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that read a table of several or large .parquet files; one per core."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Address of a Dask cluster that reads such a table, tcp://HOST:PORT, or `local`."),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(help="Folder for temporary files, shared by all machines of the cluster.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a private model and save it with its guarantee."""
    from conddp.data.stored_table import list_files
    from conddp.distributed import use_ranks
    from conddp.files import fit_file
    from conddp.heads import HEADS

    files = list_files(data)
    columns = ColumnOptions(label, label_bounds, public, private, category, drop, unit)
    lost = COUNTED if checkpoint is None else RESUMABLE.format(checkpoint)
    with ExitStack() as stack:
        stack.enter_context(usage_errors())
        stack.enter_context(on_interrupt(lost))
        is_first = stack.enter_context(use_ranks()) == 0
        if not is_first:
            warnings.simplefilter("ignore", PrivacyWarning)  # the first process shows them
        elif checkpoint is not None and checkpoint.exists():
            typer.echo(f"Going on with the fit of {checkpoint}, which is paid for.", err=True)
        advance = stack.enter_context(show_progress("fitting", after=2.0)) if is_first else None
        saved = fit_file(
            files,
            columns.read_schema(files[0], schema),
            out,
            epsilon=epsilon,
            delta=delta,
            algorithm=algorithm,
            head=head,
            ledger=ledger,
            other_rows=other_rows,
            seed=seed,
            checkpoint=checkpoint,
            evaluation_fraction=evaluation_fraction,
            show_step=advance,
            show_work=lambda done, total, doing: advance(done, total, doing=doing) if advance else None,
            num_workers=workers,
            cluster=cluster,
            scratch=scratch,
        )
    if not is_first:
        return
    if as_json:
        print_json(
            {
                "model": str(out),
                "head": HEADS.find_name(saved.model.head),
                "guarantee": str(saved.guarantee),
                "settings": dict(saved.settings),
                **({} if saved.evaluation is None else {"evaluation": saved.evaluation.to_json()}),
            }
        )
    else:
        print_prose(f"{saved.guarantee}")
        print_remarks(saved.encoding)
        if saved.evaluation is not None:
            print_plain("")
            print_evaluation(saved.evaluation)
        print_plain(f"\nModel: {out}, {saved.model.head.name_model()}")


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a saved model.", show_default=False)],
    data: DataFiles,
    out: Annotated[Path, typer.Option(help="File to write: .parquet or .csv.", show_default=False)],
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Columns of the table to copy to the output, A,B,C, such as a key. Repeatable."),
    ] = None,
    force: Force = False,
) -> None:
    """Predict for new records. Costs no privacy: the model is already released."""
    from conddp.data.readers import read_column_names
    from conddp.data.stored_table import list_files
    from conddp.files import predict_file

    files = list_files(data)
    kept = split_names(keep, read_column_names(files[0]), option="--keep", what="") if keep else []
    with show_progress("predicting", after=2.0):
        count = predict_file(model, files, out, keep=kept, overwrite=force)
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
    owner: Annotated[str | None, typer.Option(help="Who is responsible for the model; shown near the top.")] = None,
    purpose: Annotated[str | None, typer.Option(help="What the model is for; shown near the top.")] = None,
    source_of_data: Annotated[
        str | None, typer.Option("--source", help="Where the data come from; shown near the top.")
    ] = None,
    force: Force = False,
) -> None:
    """Write a report on a model, a plan or a comparison. Costs no privacy: everything in it is public or released."""
    from conddp.files import report_file

    about = {"owner": owner, "purpose": purpose, "source": source_of_data}
    report_file(source, out, plan=plan, about=about, overwrite=force)
    print_plain(f"{out}")
