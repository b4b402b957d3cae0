"""Commands that run experiments: ``demo`` and ``reproduce``."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from conddp.cli.options import AsJson, Workers, on_interrupt, show_work, usage_errors
from conddp.cli.terminal import print_json, print_plain

__all__ = ["ExperimentName", "demo", "reproduce"]

KEPT = "Finished measurements are kept. Run the same command again to continue."


class ExperimentName(StrEnum):
    """Experiments that can be reproduced."""

    SPECTRA = "spectra"
    SYNTHETIC = "synthetic"
    LINEAR_REAL = "linear-real"
    MLP_REAL = "mlp-real"
    CRITEO = "criteo"
    ALL = "all"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and report.html.")] = Path("demo_output"),
    seeds: Annotated[int, typer.Option(min=1, help="Noise seeds per cell of the table.")] = 5,
    data: Annotated[list[str] | None, typer.Option(help="A data set to use instead of the two. Repeatable.")] = None,
) -> None:
    """Fit private models to two data sets that need no download, and write report.html."""
    from conddp.research.demo import run_demo

    with usage_errors(), on_interrupt("The demo is not complete."):
        run_demo(out, num_seeds=seeds, names=data or [])


def reproduce(
    experiment: Annotated[ExperimentName, typer.Argument(help="The experiment.")],
    out: Annotated[Path, typer.Option(help="Folder for the tables, figures and page.")] = Path("reproduction"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer trials, budgets, seeds and epochs.")] = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder of the converted Criteo log; without it, rows are simulated."),
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1000, help="Criteo: only so many rows of the log or the simulation.")
    ] = None,
    workers: Workers = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore stored results and measure everything again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's tables and figures and show them beside the printed numbers.

    Results are stored as they are measured, so an interrupted run can be continued. Where the paper tuned on test
    labels, so does this command: use it on public data only.

    criteo measures on simulated rows unless --data names the converted log, and shows printed numbers beside the real
    ones only. With all 1.7 million rows it takes about an hour of two cores; try it with --quick or --rows first.
    """
    from conddp.research.experiments.criteo.run import reproduce_criteo
    from conddp.research.experiments.reproduce import NAMES, reproduce_experiment, reproduce_spectra, write_page
    from conddp.research.experiments.tables import list_sets, make_rich_table

    rows_by_name: dict[str, Sequence[Any]] = {}
    for name in NAMES if experiment is ExperimentName.ALL else (experiment.value,):
        if name == "spectra":
            table = reproduce_spectra(out)
            if not as_json:
                print_plain(table)
            continue
        with show_work(name, interrupted=KEPT) as advance:
            options: Any = {
                "quick": quick,
                "num_workers": workers,
                "fresh": fresh,
                "callback": lambda done, total, left: advance(done, total, left),
            }
            if name == "criteo":
                rows_by_name[name] = reproduce_criteo(out, folder=data, num_rows=rows, **options)
            else:
                rows_by_name[name] = reproduce_experiment(name, out, **options)
        if as_json:
            continue
        if name == "criteo":
            print_plain((out / "criteo.md").read_text(encoding="utf-8"))
            continue
        for each in list_sets(rows_by_name[name]):
            print_plain(make_rich_table(rows_by_name[name], each))
    _, page = write_page(out)
    if as_json:
        from dataclasses import asdict

        print_json({name: [asdict(row) for row in found] for name, found in rows_by_name.items()})
    else:
        print_plain(f"Tables and figures are in {out}. Open {page}")
