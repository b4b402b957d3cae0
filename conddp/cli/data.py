"""Commands about public data sets: ``data list``, ``fetch``, ``show``, ``convert`` and ``simulate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conddp.cli.options import AsJson, Force, show_work, usage_errors
from conddp.cli.terminal import add_row, make_table, print_json, print_plain, show_progress
from conddp.cli.wording import name_options

if TYPE_CHECKING:
    from conddp.research.criteo.folder import Manifest

__all__ = ["convert_data", "fetch_data", "list_data", "show_data", "simulate_data"]

CONVERTED = {"criteo": "criteo_ssc"}  # sets that are converted or simulated, and their names in the list of all sets
CONTINUE = "Run the same command again to continue."

SetName = Annotated[str, typer.Argument(help="The data set: criteo.", show_default=False)]
Bins = Annotated[int, typer.Option("--bins", min=1, help="Bins into which categories are hashed.")]
TestFraction = Annotated[float, typer.Option("--test-fraction", min=0.0, max=1.0, help="Fraction of test rows.")]
SplitSeed = Annotated[int, typer.Option("--split-seed", min=0, help="Seed of the split into training and test rows.")]


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
        "yourself and run `conddp data convert`; made: generated when needed"
    )


def fetch_data(
    name: Annotated[str, typer.Argument(help="The data set; see `conddp data list`.")],
    url: Annotated[str | None, typer.Option(help="Another address of the same archive.")] = None,
) -> None:
    """Download a data set from its public source into the cache and check its digest."""
    from conddp.research.fetching import fetch_dataset

    with usage_errors(), show_progress(f"fetching {name}") as advance:
        path = fetch_dataset(
            CONVERTED.get(name, name), url=url, callback=lambda done, total: advance(done, total or None)
        )
    print_plain(f"{name}: {path}")


def show_data(
    name: Annotated[str, typer.Argument(help="The data set; see `conddp data list`.")], as_json: AsJson = False
) -> None:
    """Show the source and licence of a data set, and its columns if it is on this machine."""
    from conddp.research.datasets import describe_dataset

    with usage_errors():
        facts = describe_dataset(CONVERTED.get(name, name))
    facts = {key: name_options(value) if isinstance(value, str) else value for key, value in facts.items()}
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        shown = (
            ", ".join(map(str, value)) if isinstance(value, list) else f"{value:,}" if key[:7] == "records" else value
        )
        print_plain(f"{key}: {shown}")


def convert_data(
    name: SetName,
    out: Annotated[Path, typer.Option("--out", help="Folder for the parts.", show_default=False)],
    log: Annotated[
        Path | None, typer.Argument(help="The published file, or one compressed with gzip. By default, it is searched.")
    ] = None,
    bins: Bins = 4000,
    test_fraction: TestFraction = 0.2,
    split_seed: SplitSeed = 0,
    max_damaged: Annotated[
        float, typer.Option("--max-damaged", min=0.0, max=1.0, help="Fraction of lines that may be damaged.")
    ] = 1e-3,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Convert a published log to Parquet files. A conversion that was interrupted continues where it stopped."""
    _check_name(name)
    from conddp.research.criteo import convert_criteo
    from conddp.research.datasets import locate_dataset

    with show_work(f"converting {name}", interrupted=CONTINUE) as advance:
        manifest = convert_criteo(
            log or locate_dataset(CONVERTED["criteo"])[0],
            out,
            num_bins=bins,
            test_fraction=test_fraction,
            split_seed=split_seed,
            max_damaged=max_damaged,
            overwrite=force,
            callback=advance,
        )
    _print_folder(out, manifest, as_json)


def simulate_data(
    name: SetName,
    out: Annotated[Path, typer.Option("--out", help="Folder for the parts; a file with --raw.", show_default=False)],
    rows: Annotated[
        int, typer.Option("--rows", min=1, help="Rows with a sale; lines of any kind with --raw.")
    ] = 1_732_721,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the rows.")] = 0,
    bins: Bins = 4000,
    test_fraction: TestFraction = 0.2,
    split_seed: SplitSeed = 0,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the published tab-separated format, before conversion.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write made-up rows with the published columns, gaps and distributions of a data set."""
    _check_name(name)
    from conddp.research.criteo import write_raw_log, write_simulation

    with show_work(f"simulating {name}", interrupted="Nothing was written." if raw else CONTINUE) as advance:
        if raw:
            num_sales = write_raw_log(out, rows, seed=seed, overwrite=force, callback=advance)
        else:
            manifest = write_simulation(
                out,
                rows,
                seed=seed,
                num_bins=bins,
                test_fraction=test_fraction,
                split_seed=split_seed,
                overwrite=force,
                callback=advance,
            )
    if not raw:
        _print_folder(out, manifest, as_json)
    elif as_json:
        print_json({"file": str(out), "lines": rows, "sales": num_sales})
    else:
        print_plain(f"{out}: {rows:,} lines, {num_sales:,} of them with a sale")


def _check_name(name: str) -> None:
    if name not in (*CONVERTED, *CONVERTED.values()):
        raise typer.BadParameter(f"only {', '.join(CONVERTED)} can be converted or simulated, got '{name}'.")


def _print_folder(out: Path, manifest: "Manifest", as_json: bool) -> None:
    """What was written, and how to go on."""
    train, test, parts = sum(manifest.train_rows), sum(manifest.test_rows), len(manifest.train_rows)
    counts = dict(manifest.counts)
    if as_json:
        facts = {"folder": str(out), "parts": parts, "training rows": train, "test rows": test}
        print_json({**facts, "counts": counts, "damaged lines": list(manifest.damaged)})
        return
    print_plain(f"{out}: {train:,} training and {test:,} test rows in {parts} part{'s' * (parts != 1)}")
    for what in ("lines", "sales without a value", "damaged"):
        if counts.get(what):
            print_plain(f"{what}: {counts[what]:,}")
    if manifest.damaged:
        shown = ", ".join(map(str, manifest.damaged[:10]))
        print_plain(f"damaged lines: {shown}{', ...' if counts['damaged'] > 10 else ''}")
    print_plain(f"schema: {out / 'schema.toml'}")
