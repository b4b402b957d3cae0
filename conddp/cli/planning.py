"""Commands that tell what to expect before a fit, at no privacy cost: ``plan`` and ``compare``."""

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
    UnitName,
)
from conddp.cli.options import (
    AsJson,
    DataFiles,
    Delta,
    Draws,
    Force,
    PlannedHead,
    Workers,
    check_out,
    show_work,
)
from conddp.cli.terminal import (
    describe_default,
    describe_errors,
    make_coefficient_table,
    make_comparison_table,
    make_design_table,
    make_evaluation_table,
    print_json,
    print_plain,
    print_prose,
    print_remarks,
    print_skipped,
)

if TYPE_CHECKING:
    from conddp.planning.comparison import Comparison
    from conddp.planning.plan import Plan
    from conddp.report.document import Document

__all__ = ["compare", "plan"]

Algorithms = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithm", help="An algorithm to try, or all. Repeatable; by default those that are fast with the head."
    ),
]
NOTHING_LOST = "Nothing was written and nothing was spent."


def plan(
    data: DataFiles,
    epsilon: Annotated[float, typer.Option(help="Privacy budget of the planned fit.")] = 1.0,
    delta: Delta = 1e-6,
    schema: SchemaFile = None,
    label: LabelName = None,
    label_bounds: LabelBounds = None,
    public: PublicColumns = None,
    private: PrivateColumns = None,
    category: CategoryColumns = None,
    drop: DroppedColumns = None,
    unit: UnitName = None,
    algorithm: Algorithms = None,
    head: PlannedHead = "linear",
    draws: Draws = 1,
    workers: Workers = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .json for the plan itself, .html or .md for a report.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Estimate how well a private model will do. Costs no privacy: only public columns are read."""
    from dataclasses import asdict

    from conddp.data.stored_table import list_files
    from conddp.files import plan_file
    from conddp.report import report_plan

    check_out(out, force)
    files, columns = list_files(data), ColumnOptions(label, label_bounds, public, private, category, drop, unit)
    with show_work("planning", interrupted=NOTHING_LOST) as advance:
        made = plan_file(
            files,
            columns.read_schema(files[0], schema),
            epsilon=epsilon,
            delta=delta,
            algorithms=algorithm or None,
            head=head,
            num_draws=draws,
            num_workers=workers,
            callback=advance,
        )
    _write(made, report_plan(made), out)
    if as_json:
        evaluation = [asdict(each) for each in made.expect_evaluation()]
        said = {"algorithm": made.algorithm, "recommendation": made.recommendation, "evaluation": evaluation}
        print_json({**made.to_json(), **said})
        return
    print_plain(make_design_table(made.design))
    print_prose(f"\n{made.design.improvement.describe()}")
    for remark in made.design.list_remarks():
        print_prose(f"! {remark}")
    print_remarks(made.encoding)
    print_prose(f"\n{describe_errors(made.comparison)}")
    print_plain(make_comparison_table(made.comparison))
    print_skipped(made.comparison.skipped)
    print_prose(f"\n{made.recommendation}")
    print_prose(f"\n{made.why_no_coefficients or made.coefficient_remark}")
    if not made.why_no_coefficients:
        print_plain(make_coefficient_table(made))
    print_prose(f"\n{made.why_no_evaluation or made.evaluation_remark}")
    if not made.why_no_evaluation:
        print_plain(make_evaluation_table(made))
    if out:
        print_plain(f"\n{out}")
    print_prose(f"\n{describe_default(head)}")


def compare(
    data: DataFiles,
    schema: SchemaFile = None,
    label: LabelName = None,
    label_bounds: LabelBounds = None,
    public: PublicColumns = None,
    private: PrivateColumns = None,
    category: CategoryColumns = None,
    drop: DroppedColumns = None,
    unit: UnitName = None,
    algorithm: Algorithms = None,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="A budget. Repeatable; by default 0.25, 0.5, 1, 2 and 4.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The additive term delta of every fit.")] = 1e-6,
    head: PlannedHead = "linear",
    draws: Draws = 1,
    workers: Workers = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .json for the comparison itself, .html or .md for a report.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Compare algorithms on labels simulated from public columns. Costs no privacy: no real label is read."""
    from conddp.data.stored_table import list_files
    from conddp.files import compare_file
    from conddp.planning.budgets import EPSILONS
    from conddp.report import report_comparison

    check_out(out, force)
    files, columns = list_files(data), ColumnOptions(label, label_bounds, public, private, category, drop, unit)
    with show_work("comparing", interrupted=NOTHING_LOST) as advance:
        made = compare_file(
            files,
            columns.read_schema(files[0], schema),
            algorithms=algorithm or None,
            epsilons=epsilon or EPSILONS,
            delta=delta,
            head=head,
            num_draws=draws,
            num_workers=workers,
            callback=advance,
        )
    _write(made, report_comparison(made), out)
    if as_json:
        print_json(made.to_json())
        return
    print_prose(describe_errors(made))
    print_plain(make_comparison_table(made))
    print_skipped(made.skipped)
    if out:
        print_plain(f"\n{out}")
    print_prose(f"\n{describe_default(head)}")


def _write(record: "Plan | Comparison", document: "Document", out: Path | None) -> None:
    from conddp.planning.storage import save_record
    from conddp.report import write_report

    if out is None:
        return
    if out.suffix == ".json":
        save_record(record, out, overwrite=True)
    else:
        write_report(document, out, overwrite=True)
