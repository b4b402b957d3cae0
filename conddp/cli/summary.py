"""The command ``summary``."""

from pathlib import Path
from typing import Annotated

import typer

from conddp.cli.options import AsJson, Force, usage_errors
from conddp.cli.terminal import print_json, print_plain

__all__ = ["summary"]


def summary(
    model: Annotated[Path, typer.Argument(help="Folder of a saved linear model.", show_default=False)],
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    of: Annotated[
        str | None,
        typer.Option(
            help="What the intervals are about: population, or data, for least squares on these records alone. By "
            "default the population, if the sampling error is known."
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to this .html file, with a figure.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show the coefficients of a linear model with standard errors and intervals. Costs no privacy."""
    from dataclasses import asdict

    from conddp.errors import SchemaError
    from conddp.models.several import load_models
    from conddp.models.summary import Summary
    from conddp.report import report_summaries, write_report

    results, _ = load_models(model)
    with usage_errors():
        try:
            summaries = [Summary.of_result(each, level=level, of=of) for each in results]
        except AttributeError as error:
            raise SchemaError(f"there is no summary: {error}") from None
    if html is not None:
        write_report(report_summaries(results, level=level, of=of), html, overwrite=force)
    if as_json:
        print_json([asdict(each) for each in summaries])
    else:
        print_plain("\n\n".join(map(str, summaries)))
    if html is not None and not as_json:
        print_plain(f"\n{html}")
