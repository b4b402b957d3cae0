"""Commands for privacy ledgers: ``ledger init`` and ``ledger show``."""

from pathlib import Path
from typing import Annotated

import typer

from conddp.cli.options import AsJson, usage_errors
from conddp.cli.terminal import add_row, make_table, print_json, print_plain

__all__ = ["init_ledger", "show_ledger"]


def init_ledger(
    path: Annotated[Path, typer.Argument(help="The file to write.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="Total epsilon that may be spent on these data.", show_default=False)],
    delta: Annotated[float, typer.Option(help="Total delta that may be spent on these data.", show_default=False)],
    unit: Annotated[
        str | None, typer.Option(help="Public column that marks the rows of one person; by default one record.")
    ] = None,
) -> None:
    """Create a ledger with one budget for all fits on a data set."""
    from conddp.privacy.budget import PrivacyBudget
    from conddp.privacy.ledger import PrivacyLedger

    with usage_errors():
        ledger = PrivacyLedger(PrivacyBudget(epsilon, delta), path=path, unit=unit)
    print_plain(f"{path}: {ledger.budget}")


def show_ledger(
    path: Annotated[Path, typer.Argument(help="A ledger file, or the folder of a saved model.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show what was spent, on which fits and why, and what remains."""
    from dataclasses import asdict

    from conddp.models.saving import load_model
    from conddp.privacy.ledger import PrivacyLedger

    model = load_model(path) if path.is_dir() else None
    ledger = PrivacyLedger.load(path) if model is None else model.ledger
    remark = "" if model is None else model.guarantee.remark
    if as_json:
        print_json(
            {
                "neighbouring": ledger.neighbouring.value,
                "budget": asdict(ledger.budget),
                "unit": ledger.unit,
                "spent": asdict(ledger.spent),
                "plain_sum": asdict(ledger.plain_sum),
                "remaining": asdict(ledger.remaining),
                **({"remark": remark} if remark else {}),
                "chain": {"whole": True, "entries_before": ledger.num_unchained},  # a broken one is not loaded
                "entries": [entry.to_json() for entry in ledger.entries],
            }
        )
        return
    table = make_table("when", "what", "epsilon", "delta", "why", right=("epsilon", "delta"))
    for entry in ledger.entries:
        add_row(
            table,
            entry.time[:16].replace("T", " "),
            entry.title,
            f"{entry.cost.epsilon:g}",
            f"{entry.cost.delta:g}",
            entry.reason,
        )
    print_plain(table)
    whom = "one record" if ledger.unit is None else f"all rows with the same '{ledger.unit}'"
    unchanged = "unchanged"
    if ledger.num_unchained == len(ledger.entries) > 0:
        unchanged = "entries have no digest, so that changes cannot be seen"
    elif ledger.num_unchained:
        unchanged += f", from entry {ledger.num_unchained + 1} on; older ones have no digest"
    facts, sides = make_table("", ""), any(entry.side for entry in ledger.entries)
    for name, value in (
        ("budget", f"{ledger.budget}, relation {ledger.neighbouring}, for {whom}"),
        ("spent", f"{ledger.spent}"),
        ("plain sum", f"{ledger.plain_sum}"),
        *((("sides", "of a public split are disjoint: of their costs the largest counts"),) if sides else ()),
        ("remaining", f"one more full-batch fit with {ledger.remaining}; spent and remaining do not add up"),
        ("file", unchanged),
        *((("remark", remark),) if remark else ()),
    ):
        add_row(facts, name, value)
    print_plain(facts)
