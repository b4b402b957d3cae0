"""The command line: ``conddp``. Every command calls one library function and prints what it returns.

Exit codes: 0 for success, 1 for an error that conddp explains, 2 for a usage error, 130 if interrupted.
"""

import os
import sys
import warnings
from typing import Annotated, Any

import typer

from conddp.cli.auditing import audit
from conddp.cli.data import convert_data, fetch_data, list_data, show_data, simulate_data
from conddp.cli.evaluating import evaluate
from conddp.cli.fitting import fit, predict, report
from conddp.cli.ledger import init_ledger, show_ledger
from conddp.cli.planning import compare, plan
from conddp.cli.research import demo, reproduce
from conddp.cli.schema import init_schema
from conddp.cli.summary import summary
from conddp.cli.wording import name_options
from conddp.errors import CondDPError, PrivacyWarning

__all__ = ["app", "main"]


def print_version(wanted: bool) -> None:
    """Print the version and stop, if asked to."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"conddp {version('conddp')}")
        raise typer.Exit


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (plan, compare, fit, predict, summary, evaluate, report, audit, demo, reproduce):
    app.command()(command)


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Regression under differential privacy when part of each record is public."""


schema_app = typer.Typer(help="Schemas: which columns are public, private or the label.", no_args_is_help=True)
schema_app.command("init")(init_schema)
app.add_typer(schema_app, name="schema")

ledger_app = typer.Typer(help="Privacy ledgers: budgets and what was spent.", no_args_is_help=True)
ledger_app.command("init")(init_ledger)
ledger_app.command("show")(show_ledger)
app.add_typer(ledger_app, name="ledger")

data_app = typer.Typer(help="Public data sets: list, fetch, show, convert, simulate.", no_args_is_help=True)
data_app.command("list")(list_data)
data_app.command("fetch")(fetch_data)
data_app.command("show")(show_data)
data_app.command("convert")(convert_data)
data_app.command("simulate")(simulate_data)
app.add_typer(data_app, name="data")


def main() -> None:
    """Run the command line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", PrivacyWarning)
            warnings.showwarning = _print_warning
            app()
    except CondDPError as error:
        rank = os.environ.get("RANK", "0")  # set by torchrun
        place = "" if rank == "0" else f"rank {rank}: "
        print(f"{place}{type(error).__name__}: {name_options(str(error))}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(f"{error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)


def _print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning like an error, without the place in the code."""
    print(f"{category.__name__}: {name_options(str(message))}", file=sys.stderr)


if __name__ == "__main__":
    main()
