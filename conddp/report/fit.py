"""The report of a trained model."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from conddp.heads.head import Linearity
from conddp.models.diagnostics import Diagnostics
from conddp.models.evidence import check_evidence
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.planning.plan import Plan
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.neighbouring import Neighbouring
from conddp.report.brief import (
    LARGEST_EXPONENT,
    compute_chance,
    describe_brief,
    describe_error,
    list_exposed,
    show_chance,
)
from conddp.report.coefficients import describe_coefficients
from conddp.report.columns import describe_design, describe_public, list_protected
from conddp.report.comparison import describe_expectations
from conddp.report.curves import describe_curves
from conddp.report.document import (
    Block,
    Chart,
    Document,
    Facts,
    Formula,
    Section,
    Series,
    Table,
    Text,
    round_up,
    show,
)
from conddp.report.evaluation import describe_evaluation
from conddp.report.releases import describe_ledger, describe_releases

__all__ = ["report_fit"]

NOTHING_PRIVATE = (
    "This page holds no private value: everything on it is public, declared, or released under the guarantee."
)
WEAK = 10.0  # an epsilon above this is called weak


def report_fit(
    saved: FitResult,
    plan: Plan | None = None,
    more: tuple[Section, ...] = (),
    *,
    footnote: str = NOTHING_PRIVATE,
    owner: str | None = None,
    purpose: str | None = None,
    source: str | None = None,
) -> Document:
    """Report of a trained model.

    Sections come in the order in which a privacy officer asks: what is protected and how strongly, what was released
    and spent, what remains public, how good the model is, what it says, and how it was made.

    Privacy
        Everything in it is public, declared, or released under the model's guarantee: no cost.

    Parameters
    ----------
    saved : FitResult
        Of a fit, or a saved model.
    plan : Plan, optional
        Made from the same public columns; adds the expected errors.
    more : tuple of Section
        Further sections on how good the model is.
    footnote : str
        At the bottom of the page of a private model.
    owner, purpose, source : str, optional
        Who is responsible for the model, what it is for, and where the data come from. They are shown near the top.

    Raises
    ------
    PrivacyError
        If the guarantee does not follow from the transcript and the ledger.
    """
    check_evidence(saved)
    guarantee, ledger = saved.guarantee, saved.ledger
    private = not math.isinf(guarantee.epsilon)
    promise = _show_budget(guarantee) if private else "not private"
    recorded = f", as recorded in format {saved.old_format}" if saved.old_format else ""
    sections = [
        describe_brief(saved, plan),
        _describe_guarantee(saved),
        describe_releases(saved),
        describe_ledger(ledger),
        describe_public(saved.schema, list_exposed(saved), saved.encoding),
        _describe_quality(saved),
        *([describe_expectations(plan.comparison, plan.epsilon)] if plan else []),
        *more,
        _describe_model(saved),
        *([] if saved.diagnostics.effects is None else [describe_curves(saved.make_curves(), saved.schema)]),
        _describe_course(saved.diagnostics),
        *([] if saved.design is None else [replace(describe_design(saved.design), style="folded")]),
        Section("Settings and versions", (_list_facts(saved.settings), _list_facts(saved.versions)), "folded"),
    ]
    fields = {"owner": owner, "purpose": purpose, "data source": source}
    lead = (
        f"{_name_model(saved.model)} of '{guarantee.label}' from {guarantee.num_records:,} records and "
        f"{len(guarantee.public_columns) + len(guarantee.private_columns)} columns: {promise}{recorded}."
    )
    return Document(
        f"Private model of '{guarantee.label}'" if private else f"Model of '{guarantee.label}', not private",
        lead,
        tuple(section for section in sections if section.blocks),
        footnote
        if private
        else "This model is not private: its coefficients and predictions depend on private values without noise.",
        tuple((name, value) for name, value in fields.items() if value),
    )


def _describe_guarantee(saved: FitResult) -> Section:
    guarantee, title = saved.guarantee, "What is protected, and how strongly"
    if math.isinf(guarantee.epsilon):
        return Section(title, (Text(str(guarantee)),))
    epsilon, delta = guarantee.epsilon, guarantee.delta
    whose = "label and private columns" if guarantee.private_columns else "label"
    factor = math.exp(min(epsilon, LARGEST_EXPONENT))
    amount = round_up(factor) if epsilon <= LARGEST_EXPONENT else f"e^{epsilon:g}"
    certain = show_chance(compute_chance(guarantee.budget, Neighbouring.REPLACE))
    record, its, values = f"any one of the {guarantee.num_records:,} records", "its", "a record has"
    if guarantee.unit:
        record = f"all records with any one of the {guarantee.num_units:,} values of '{guarantee.unit}'"
        its, values = "their", "these records have"
    plain = (
        f"Take {record}, and let {its} {whose} be anything else within the "
        f"declared ranges{' and categories' if guarantee.category_columns else ''}. The chance of ending up with this "
        f"model, or with any group of models, would have changed by a factor of at most {amount}"
        + (f", up to an extra chance of {delta:g}." if delta else ".")
        + f" Someone who knows everything except which of two equally likely values {values}, and then sees "
        f"the model, will be right with a chance of at most {certain} %."
    )
    if guarantee.neighbouring is not Neighbouring.REPLACE:
        plain = (
            f"Take {record}, and let {its} {whose} contribute nothing. The "
            f"chance of any group of models would have changed by a factor of at most {amount}, up to an extra "
            f"chance of {delta:g}. This is the weaker relation, ZERO_OUT."
        )
    if epsilon > WEAK:
        plain += " A factor this large protects hardly anyone: choose a smaller epsilon."
    if delta * guarantee.num_records >= 1:
        plain += (
            f" Delta is not below one over the number of records: it would allow a fraction {delta:g} of the records "
            "to be published unchanged. Choose a much smaller one."
        )
    one = f"the {whose} of all records with one value of '{guarantee.unit}'"
    differ = f"differ in {one}" if guarantee.unit else f"differ in one record's {whose}"
    if guarantee.neighbouring is not Neighbouring.REPLACE:
        differ = (
            f"are the same except for one record, whose {whose} contributes to one of them and nothing to the other"
        )
        if guarantee.unit:
            differ = f"are the same except that {one} contribute to one of them and nothing to the other"
    power = math.log10(delta) if delta else 0.0
    tiny = f"10^{power:.0f}" if abs(power - round(power)) < 1e-9 else f"{delta:g}"
    extra = f" + {tiny}" if delta else ""
    return Section(
        title,
        (
            list_protected(saved.schema),
            *((Text(guarantee.remark),) if guarantee.remark else ()),
            Text(plain),
            Formula(f"P[M(D) ∈ S] ≤ e^{epsilon:g} · P[M(D′) ∈ S]{extra}"),
            Text(f"for the training M, every set S of models, and all data sets D and D′ that {differ}. In full:"),
            Text(str(guarantee)),
            Facts(
                (
                    ("epsilon", f"{epsilon:g}"),
                    ("delta", f"{delta:g}"),
                    ("neighbouring relation", guarantee.neighbouring.value),
                    ("records", f"{guarantee.num_records:,}"),
                    *(
                        (
                            ("unit", guarantee.unit),
                            ("units", f"{guarantee.num_units:,}"),
                            ("largest number of records of a unit", f"{guarantee.records_per_unit:,}"),
                        )
                        if guarantee.unit
                        else ()
                    ),
                    ("noise", "from a fixed seed" if guarantee.seeded else "from a cryptographic generator"),
                )
            ),
        ),
    )


def _describe_quality(saved: FitResult) -> Section:
    if saved.evaluation is not None:
        return describe_evaluation(saved.evaluation)
    return Section("How well it predicts", (Text(" ".join(describe_error(saved))),))


def _describe_model(saved: FitResult) -> Section:
    model = saved.model
    if model.head.linear_in is not Linearity.COLUMNS:
        count = f"{model.layout.size:,} parameters"
        text = f"{_name_model(model)} with {count}. Its weights are in the model's folder."
        return Section("What the model says", (Text(text), *_describe_private(saved)))
    return Section("What the model says", describe_coefficients(saved))


def _describe_private(saved: FitResult) -> tuple[Block, ...]:
    """Coefficients of private columns of a model that is linear in them, but not in the public columns."""
    schema = saved.schema
    if not schema.private or saved.model.head.linear_in is not Linearity.LEARNED:
        return ()
    rows = tuple((name, show(value)) for name, value in saved.list_private_coefficients())
    text = (
        "Predictions are linear in private columns. A number adds its coefficient times its distance from the midpoint "
        "of its declared range. The standard deviations of these coefficients are not known."
    )
    if schema.category_columns:
        text += " Effects of the levels of a category are in the label's units and sum to zero."
    caption = "Coefficients of private columns, in the label's units per unit of the column"
    return Text(text), Table(caption, ("column", "coefficient"), rows)


def _describe_course(diagnostics: Diagnostics) -> Section:
    if not diagnostics.steps:
        return Section("How training went", ())
    series = [Series("distance of predictions from the final model's", diagnostics.distances)]
    if diagnostics.residual_deviations:
        series.append(Series("estimated standard deviation of the residuals", diagnostics.residual_deviations))
    return Section(
        "How training went",
        (
            Text(
                "Computed from released numbers only. A loss on the data was not computed: it would have cost privacy."
            ),
            Chart(
                "The course of training, from released numbers",
                "release",
                "in the label's units",
                tuple(float(step) for step in diagnostics.steps),
                tuple(series),
            ),
        ),
    )


def _show_budget(guarantee: Guarantee) -> str:
    amount = f"({guarantee.epsilon:g}, {guarantee.delta:g})" if guarantee.delta else f"{guarantee.epsilon:g}"
    weaker = "" if guarantee.neighbouring is Neighbouring.REPLACE else " under the weaker relation ZERO_OUT"
    return f"{amount}-differentially private{weaker}"


def _name_model(model: FittedModel) -> str:
    noun = model.head.name_model()
    return noun[0].upper() + noun[1:]


def _list_facts(values: Mapping[str, Any]) -> Facts:
    return Facts(tuple(_flatten(values)))


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}: ")
        else:
            yield f"{prefix}{name}".replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value)
