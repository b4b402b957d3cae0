"""Commands about public data sets: ``data list``, ``data fetch`` and ``data show``."""

from typing import Annotated

import typer

from conddp.cli.options import AsJson, usage_errors
from conddp.cli.terminal import add_row, make_table, print_json, print_plain, show_progress
from conddp.cli.wording import name_options

__all__ = ["fetch_data", "list_data", "show_data"]


def list_data(as_json: AsJson = False) -> None:
    """List the known data sets and show which are on this machine."""
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
        "\nhere: on this machine; a sample: part of it is; fetch: run `conddp data fetch NAME`; by hand: download it "
        "yourself; made: generated when needed"
    )


def fetch_data(
    name: Annotated[str, typer.Argument(help="The data set; see `conddp data list`.")],
    url: Annotated[str | None, typer.Option(help="Another address of the same archive.")] = None,
) -> None:
    """Download a data set from its public source into the cache and check its digest."""
    from conddp.research.fetching import fetch_dataset

    with usage_errors(), show_progress(f"fetching {name}") as advance:
        path = fetch_dataset(name, url=url, callback=lambda done, total: advance(done, total or None))
    print_plain(f"{name}: {path}")


def show_data(
    name: Annotated[str, typer.Argument(help="The data set; see `conddp data list`.")], as_json: AsJson = False
) -> None:
    """Show the source and licence of a data set, and its columns if it is on this machine."""
    from conddp.research.datasets import describe_dataset

    with usage_errors():
        facts = describe_dataset(name)
    facts = {key: name_options(value) if isinstance(value, str) else value for key, value in facts.items()}
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        shown = (
            ", ".join(map(str, value)) if isinstance(value, list) else f"{value:,}" if key[:7] == "records" else value
        )
        print_plain(f"{key}: {shown}")
