"""Commands that measure: ``demo`` and ``reproduce``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from conddp.cli.options import AsJson, Workers, on_interrupt, usage_errors
from conddp.cli.terminal import print_json, print_plain, show_progress

__all__ = ["ExperimentName", "demo", "reproduce"]

KEPT = "What was measured is kept: the same command goes on from there."


class ExperimentName(StrEnum):
    """What can be reproduced."""

    SPECTRA = "spectra"
    SYNTHETIC = "synthetic"
    LINEAR_REAL = "linear-real"
    MLP_REAL = "mlp-real"
    ALL = "all"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and report.html.")] = Path("demo_output"),
    seeds: Annotated[int, typer.Option(min=1, help="Noise seeds per cell of the tables.")] = 5,
    data: Annotated[
        list[str] | None, typer.Option(help="A data set by name instead of the two; may be given again.")
    ] = None,
) -> None:
    """Fit private models to two data sets that need no download, and write report.html."""
    from conddp.research.demo import run_demo

    with usage_errors(), on_interrupt("The demo is not complete."):
        run_demo(out, num_seeds=seeds, names=data or [])


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
        with show_progress(name) as advance, on_interrupt(KEPT):
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
