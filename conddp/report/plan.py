"""The report of a plan."""

import math

from conddp.planning.plan import Plan
from conddp.report.columns import describe_columns, describe_design
from conddp.report.comparison import NO_LABEL, describe_expectations
from conddp.report.document import (
    Document,
    Section,
    Table,
    Text,
    show,
)
from conddp.report.expectations import describe_expected_coefficients, describe_expected_evaluation

__all__ = ["report_plan"]


def report_plan(plan: Plan) -> Document:
    """Report of a plan, for which no label was read."""
    bounds, design = plan.schema.label.bounds, plan.design
    assert bounds is not None  # Column has made sure
    rows = () if not plan.comparison.delta else tuple(tuple(map(show, line)) for line in plan.expect_noise())
    theory = Section(
        "Noise of one release, from theory",
        (
            Text(
                "Least squares needs one sum of the labels. Released once with Gaussian noise, without clamping or "
                f"shrinkage, the noise alone moves predictions of '{plan.schema.label.name}' by this much (root mean "
                f"square, in the label's units; its declared range is {bounds.width:g} wide). Conditioning divides the "
                f"noise by {math.sqrt(design.plain_cost / design.conditioned_cost):.3g} against the columns as they "
                f"are, and by {math.sqrt(design.scaled_cost / design.conditioned_cost):.3g} against scaled columns. "
                "The default algorithm does better: it takes several steps and narrows the range that residuals "
                "are clamped to."
            ),
            Table(
                "Noise of predictions from one release",
                ("epsilon", "columns as they are", "columns scaled", "columns conditioned"),
                rows,
            ),
        ),
    )
    reason = ""
    if plan.schema.unit is not None:  # the noise of one release depends on the units, which a design does not know
        reason = f"single records, and the plan is for all records with one value of '{plan.schema.unit}'"
    elif not plan.comparison.delta:
        reason = "Gaussian noise, which cannot give delta = 0"
    if reason:
        theory = Section(theory.title, (Text(f"Left out: the formula is for {reason}."),))
    return Document(
        f"Plan for a private model of '{plan.schema.label.name}'",
        f"Made from {len(plan.design.columns)} public columns of {plan.design.num_records:,} records. No label and no "
        "private column was read, so this costs no privacy.",
        (
            Section("Recommendation", (Text(plan.recommendation),)),
            describe_expectations(plan.comparison, plan.epsilon),
            describe_expected_coefficients(plan),
            describe_expected_evaluation(plan),
            theory,
            describe_design(plan.design),
            describe_columns(plan.schema),
        ),
        NO_LABEL,
    )
