"""The section of a plan about what to expect of an evaluation."""

from conddp.planning.plan import Plan
from conddp.report.document import Section, Table, Text

__all__ = ["describe_expected_evaluation"]

HEADS = ("deviation of the label", "RMSE", "R²", "records for half of it", "or epsilon")


def describe_expected_evaluation(plan: Plan) -> Section:
    """Widths of the intervals of an evaluation, if a part of the records is held out."""
    title = "What an evaluation would tell"
    if plan.why_no_evaluation:
        return Section(title, (Text(plan.why_no_evaluation),))
    return Section(
        title,
        (
            Text(plan.evaluation_remark),
            Table(
                "Half-widths of 95 % intervals of RMSE and R², and what would halve that of R²",
                HEADS,
                plan.list_evaluation(),
            ),
        ),
    )
