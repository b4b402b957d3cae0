"""The section of a plan about what to expect of an evaluation."""

from conddp.planning.plan import Plan
from conddp.report.document import Section, Table, Text

__all__ = ["describe_expected_evaluation"]

HEADS = (
    "standard deviation of the label",
    "RMSE, give or take",
    "R², give or take",
    "half the width of R² takes records",
    "or epsilon",
)


def describe_expected_evaluation(plan: Plan) -> Section:
    """Widths of the intervals of an evaluation, if a part of the records is held out."""
    title = "What an evaluation would tell"
    if plan.why_no_evaluation:
        return Section(title, (Text(plan.why_no_evaluation),))
    return Section(title, (Text(plan.evaluation_remark), Table("95 % intervals", HEADS, plan.list_evaluation())))
