"""Sections of a plan about what to expect of coefficients and of an evaluation."""

from conddp.planning.plan import Plan
from conddp.report.document import Section, Table, Text

__all__ = ["describe_expected_coefficients", "describe_expected_evaluation"]

HEADS = ("deviation of the label", "RMSE", "R²", "records for half of it", "or epsilon")
COEFFICIENT_HEADS = ("deviation of the label", "median", "widest", "of column", "records for half", "or epsilon")


def describe_expected_coefficients(plan: Plan) -> Section:
    """Widths of the intervals of coefficients, and what would halve them."""
    title = "How certain coefficients would be"
    if plan.why_no_coefficients:
        return Section(title, (Text(plan.why_no_coefficients),))
    assumed = plan.coefficients[len(plan.coefficients) // 2].deviation
    widest = (
        f"Columns with the widest intervals, if the standard deviation of the label is 1/{1 / assumed:g} of its range"
    )
    return Section(
        title,
        (
            Text(plan.coefficient_remark),
            Table(
                "Half-widths of 95 % intervals, and what would halve the median",
                COEFFICIENT_HEADS,
                plan.list_coefficients(),
            ),
            Table(widest, ("column", "per unit of the column", "per standard deviation"), plan.list_widest()),
        ),
    )


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
