"""The command that tries to refute what algorithms claim: ``audit``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
)
from conddp.cli.options import (
    AsJson,
    Delta,
    Force,
    HeadName,
    check_out,
    show_work,
)
from conddp.cli.terminal import add_row, make_table, print_json, print_plain

if TYPE_CHECKING:
    from rich.table import Table

    from conddp.auditing.result import Audit

__all__ = ["audit"]


def audit(
    algorithms: Annotated[
        list[str] | None, typer.Argument(help="Algorithms to audit; by default all.", show_default=False)
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Budget of every fit.")] = 1.0,
    delta: Delta = 1e-6,
    kind: Annotated[str, typer.Option(help="Kind of the audit: white-box, black-box or one-run.")] = "white-box",
    fits: Annotated[
        int | None, typer.Option(min=1, help="Number of fits; by default 22 for white-box and 4000 for black-box.")
    ] = None,
    canaries: Annotated[
        int | None, typer.Option(min=1, help="Number of canaries in a one-run audit; 500 by default.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Probability with which the bounds hold.")] = 0.999,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the audit.")] = 0,
    head: HeadName = "linear",
    data: Annotated[
        Path | None, typer.Option("--data", help="A table whose public columns to audit on; a built-in one by default.")
    ] = None,
    schema: SchemaFile = None,
    label: LabelName = None,
    label_bounds: LabelBounds = None,
    public: PublicColumns = None,
    private: PrivateColumns = None,
    category: CategoryColumns = None,
    drop: DroppedColumns = None,
    out: Annotated[Path | None, typer.Option(help="Report to write: .html, .md or .json.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Bound the epsilon of algorithms from below and compare it with what they claim. Reads no label.

    Labels and private columns are simulated. The exit code is 1 if a claim is contradicted. An audit that passes proves
    nothing beyond its lower bound.
    """
    from conddp.algorithms import ALGORITHMS
    from conddp.auditing.audit import audit_algorithms
    from conddp.files import load_audit_table
    from conddp.privacy.budget import PrivacyBudget
    from conddp.report import report_audits, write_report

    check_out(out, force)
    columns = ColumnOptions(label, label_bounds, public, private, category, drop)
    if data is None and (schema is not None or columns.given):
        raise typer.BadParameter("--schema, --label and --public, for example, describe a table: give --data FILE.")
    with show_work("auditing", interrupted="Nothing was written and nothing was spent.") as advance:
        table = {}
        if data is not None:
            table = load_audit_table(data, columns.read_schema(data, schema))
        audits, skipped = audit_algorithms(
            algorithms or list(ALGORITHMS),
            PrivacyBudget(epsilon, delta),
            kind=kind,
            head=head,
            num_fits=fits,
            num_canaries=canaries,
            confidence=confidence,
            seed=seed,
            callback=advance,
            **table,
        )
    if out:
        write_report(report_audits(audits, skipped), out, overwrite=True)
    if as_json:
        print_json({"audits": [each.to_json() for each in audits], "skipped": skipped})
    else:
        print_plain(_make_table(audits))
        for each in audits:
            for finding in each.findings:
                print_plain(f"! {each.algorithm}: {finding}")
        for name, reason in skipped.items():
            print_plain(f"not audited: {name}: {reason}")
        print_plain(
            f"\n{kind} lower bounds on epsilon at the delta of the claim, relation replace, confidence {confidence:g}. "
            "A claim that holds is not proved."
        )
        if out:
            print_plain(f"\n{out}")
    if any(not each.passed for each in audits):
        raise typer.Exit(1)


def _make_table(audits: "list[Audit]") -> "Table":
    numbers = ["claim", "delta", "bound", "fits", "seconds"]
    if any(each.ceiling < float("inf") for each in audits):
        numbers.insert(3, "ceiling")
    table = make_table("name", *numbers, "verdict", right=tuple(numbers))
    for each in audits:
        cells = {
            "claim": f"{each.claim.epsilon:g}",
            "delta": f"{each.claim.delta:g}",
            "bound": f"{each.lower_bound:.3f}",
            "ceiling": f"{each.ceiling:.2f}",
            "fits": f"{each.num_fits:,}",
            "seconds": f"{each.seconds:.1f}",
        }
        add_row(table, each.algorithm, *(cells[name] for name in numbers), each.verdict)
    return table
