"""The command that evaluates a model on held-out records: ``evaluate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conddp.cli.options import AsJson, DataFiles, Force, check_out, on_interrupt, usage_errors
from conddp.cli.terminal import add_row, make_table, print_json, print_plain, print_prose

if TYPE_CHECKING:
    from conddp.models.evaluation import Evaluation

__all__ = ["evaluate", "print_evaluation"]

COUNTED = "If the labels had been read, the cost is in the ledger and counts as spent."


def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder of a saved model.", show_default=False)],
    data: DataFiles,
    epsilon: Annotated[float, typer.Option(help="Privacy budget of the evaluation.", show_default=False)],
    delta: Annotated[
        float | None, typer.Option(help="The additive term delta; by default that of the model.", show_default=False)
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="Ledger file that pays. Needed if something else is released about these records."),
    ] = None,
    other_rows: Annotated[
        bool,
        typer.Option(
            "--other-rows",
            help="Charge the ledger although the table has other rows than earlier fits: the same people are in it.",
        ),
    ] = False,
    bins: Annotated[int, typer.Option(min=1, max=1000, help="Largest number of bins of the calibration curve.")] = 10,
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Random seed, for research only: anyone who knows it can remove the noise."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .json for the evaluation itself, .html or .md for a report.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on held-out records with their labels, under differential privacy."""
    import json

    from conddp.evaluation.files import evaluate_file
    from conddp.report import report_evaluation, write_report

    check_out(out, force)
    with usage_errors(), on_interrupt(COUNTED):
        _, made = evaluate_file(
            model,
            data,
            epsilon=epsilon,
            delta=delta,
            ledger=ledger,
            other_rows=other_rows,
            seed=seed,
            num_bins=bins,
            level=level,
        )
    if out is not None and out.suffix == ".json":
        out.write_text(json.dumps(made.to_json(), indent=2) + "\n", encoding="utf-8")
    elif out is not None:
        write_report(report_evaluation(made), out, overwrite=force)
    if as_json:
        print_json(made.to_json())
        return
    print_evaluation(made)
    print_prose(f"\n{made.guarantee}")
    if out:
        print_plain(f"\n{out}")


def print_evaluation(evaluation: "Evaluation") -> None:
    """Print the figures and the calibration curve as tables."""
    print_prose(f"{evaluation.title}")
    for heads, *rows in (list(evaluation.list_rows()), list(evaluation.list_bin_rows())):
        if not rows:  # private predictions have no calibration curve
            continue
        table = make_table(*heads, right=heads[1:])
        for row in rows:
            add_row(table, *row)
        print_plain(table)
    for note in evaluation.list_notes():
        print_prose(note)
