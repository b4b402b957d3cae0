"""What a report says: of a fit, of a plan, of a comparison."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from conddp.data.schema import Role, Schema
from conddp.heads.head import Linearity
from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.planning.comparison import Comparison
from conddp.planning.plan import Plan
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.report.document import (
    Block,
    Chart,
    Document,
    Dots,
    Facts,
    Formula,
    Reference,
    Section,
    Series,
    Table,
    Text,
    join,
    round_up,
    show,
)
from conddp.theory.design import Design

__all__ = ["report_comparison", "report_fit", "report_plan"]

MOST_COEFFICIENTS = 30  # in the figure; the table has all
LARGEST_EXPONENT = 700.0  # of what floating point can hold
NOTHING_PRIVATE = (
    "This page holds no private value: everything on it is public, declared, or released under the guarantee."
)
NO_LABEL = "No label and no private column was read for this page."
WEAK = 10.0  # an epsilon above this is called weak


def report_fit(
    saved: FitResult, plan: Plan | None = None, more: tuple[Section, ...] = (), *, footnote: str = NOTHING_PRIVATE
) -> Document:
    """Report of a trained model.

    Privacy
        Everything in it is public, declared, or released under the model's guarantee: no cost.

    Parameters
    ----------
    saved : FitResult
        The model.
    plan : Plan, optional
        Made from the same public columns; adds the errors to be expected.
    more : tuple of Section
        Further sections, after the guarantee.
    footnote : str
        What stands below a private model.
    """
    guarantee, ledger = saved.guarantee, saved.ledger
    private = not math.isinf(guarantee.epsilon)
    promise = _show_budget(guarantee) if private else "not private"
    sections = [
        _describe_guarantee(guarantee),
        *more,
        _describe_columns(saved.schema),
        _describe_ledger(ledger),
        *([_describe_expectations(plan.comparison, plan.epsilon)] if plan else []),
        _describe_model(saved.model, saved.schema, saved.diagnostics, saved.design),
        _describe_course(saved.diagnostics),
        *([] if saved.design is None else [_describe_design(saved.design)]),
        Section("Settings and versions", (_list_facts(saved.settings), _list_facts(saved.versions))),
    ]
    lead = (
        f"A {_name_head(saved.model)} model of '{guarantee.label}' from {guarantee.num_records:,} records and "
        f"{len(guarantee.public_columns) + len(guarantee.private_columns)} columns: {promise}."
    )
    return Document(
        f"Private model of '{guarantee.label}'" if private else f"Model of '{guarantee.label}', not private",
        lead,
        tuple(section for section in sections if section.blocks),
        footnote
        if private
        else "This model is not private: its coefficients and predictions depend on private values without noise.",
    )


def report_plan(plan: Plan) -> Document:
    """Report of a plan. No label has been read for it."""
    bounds, design = plan.schema.label.bounds, plan.design
    assert bounds is not None  # Column has made sure
    rows = tuple(tuple(show(value) for value in line) for line in plan.expect_noise())
    theory = Section(
        "Noise of one release, from theory",
        (
            Text(
                "Least squares needs one sum of the labels. Released once with Gaussian noise, without clamping or "
                f"shrinkage, the noise alone moves predictions of '{plan.schema.label.name}' by this much (root mean "
                f"square, in the label's units; its declared range is {bounds.width:g} wide). Conditioning divides the "
                f"noise by {math.sqrt(design.plain_cost / design.conditioned_cost):.3g} against the columns as they "
                f"are, and by {math.sqrt(design.scaled_cost / design.conditioned_cost):.3g} against scaled columns. "
                "The default algorithm does better than one release, by narrowing its windows step by step."
            ),
            Table(
                "Noise of predictions from one release",
                ("epsilon", "columns as they are", "columns scaled", "columns conditioned"),
                rows,
            ),
        ),
    )
    return Document(
        f"Plan for a private model of '{plan.schema.label.name}'",
        f"Made from {len(plan.design.columns)} public columns of {plan.design.num_records:,} records. No label and no "
        "private column was read, so it costs no privacy.",
        (
            Section("Recommendation", (Text(plan.recommendation),)),
            _describe_expectations(plan.comparison, plan.epsilon),
            theory,
            _describe_design(plan.design),
            _describe_columns(plan.schema),
        ),
        NO_LABEL,
    )


def report_comparison(comparison: Comparison) -> Document:
    """Report of a comparison on simulated labels."""
    best, error = comparison.rank(comparison.epsilons[len(comparison.epsilons) // 2])[0]
    middle = comparison.epsilons[len(comparison.epsilons) // 2]
    return Document(
        "Algorithms compared on simulated labels",
        f"{comparison.num_records:,} records, {comparison.num_public} public and {comparison.num_private} private "
        f"columns. At epsilon {middle:g} the lowest mean error is that of '{best}', {error:.3g} times that of least "
        "squares without privacy. No label was read, so it costs no privacy.",
        (_describe_expectations(comparison),),
        NO_LABEL,
    )


def _describe_guarantee(guarantee: Guarantee) -> Section:
    if math.isinf(guarantee.epsilon):
        return Section("What is guaranteed", (Text(str(guarantee)),))
    epsilon, delta = guarantee.epsilon, guarantee.delta
    whose = "label and private columns" if guarantee.private_columns else "label"
    factor = math.exp(min(epsilon, LARGEST_EXPONENT))
    amount = round_up(factor) if epsilon <= LARGEST_EXPONENT else f"e^{epsilon:g}"
    certain = round_up(100 * min(1.0, (factor + delta) / (1 + factor)))
    plain = (
        f"Take any one of the {guarantee.num_records:,} records, and let its {whose} be anything else within the "
        f"declared ranges. The chance of ending up with this model, or with any group of models, would have changed by "
        f"a factor of at most {amount}"
        + (f", up to an extra chance of {delta:g}." if delta else ".")
        + f" Someone who knows everything but which of two values a record has, and holds both for equally likely, "
        f"will after seeing the model be right with a chance of at most {certain} %."
    )
    if guarantee.neighbouring is not Neighbouring.REPLACE:
        plain = (
            f"Take any one of the {guarantee.num_records:,} records, and let its {whose} contribute nothing. The "
            f"chance of any group of models would have changed by a factor of at most {amount}, up to an extra "
            f"chance of {delta:g}. This is the weaker relation, ZERO_OUT."
        )
    if epsilon > WEAK:
        plain += " A factor as large as this protects hardly anyone: choose a smaller epsilon."
    if delta * guarantee.num_records >= 1:
        plain += (
            f" Delta is not below one over the number of records: it would allow a share of {delta:g} of the records "
            "to be published as they are. Choose a much smaller one."
        )
    differ = f"differ in one record's {whose}"
    if guarantee.neighbouring is not Neighbouring.REPLACE:
        differ = (
            f"are the same but for one record whose {whose} adds to one and is a null that adds nothing in the other"
        )
    power = math.log10(delta) if delta else 0.0
    tiny = f"10^{power:.0f}" if abs(power - round(power)) < 1e-9 else f"{delta:g}"
    extra = f" + {tiny}" if delta else ""
    return Section(
        "What is guaranteed",
        (
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
                    ("noise", "from a fixed seed" if guarantee.seeded else "from a cryptographic generator"),
                )
            ),
        ),
    )


def _describe_columns(schema: Schema) -> Section:
    roles = {Role.LABEL: "the label, private", Role.PRIVATE: "private", Role.PUBLIC: "public"}
    protected = tuple(
        (column.name, roles[column.role], f"{column.bounds.low:g} to {column.bounds.high:g}")
        for column in schema.columns
        if column.bounds is not None
    )
    return Section(
        "What is public and what is not",
        (
            Table("Protected columns", ("column", "role", "declared range"), protected, num_text=3),
            Text(
                f"Treated as known to everyone, for every record: {join(schema.public, most=40)}. "
                "So are the number of records and the declared ranges."
                if schema.public
                else "No column is public; the number of records and the declared ranges are."
            ),
        ),
    )


def _describe_ledger(ledger: PrivacyLedger) -> Section:
    rows = tuple(
        (
            entry.time[:16].replace("T", " "),
            entry.what,
            entry.reason,
            f"{entry.cost.epsilon:g}",
            f"{entry.cost.delta:g}",
        )
        for entry in ledger.entries
    )
    return Section(
        "What was spent",
        (
            Text("As it was when this model was saved; later fits on the same ledger are not in it."),
            Table("The ledger", ("when (UTC)", "what", "why", "epsilon", "delta"), rows, num_text=3),
            Facts(
                (
                    ("budget", str(ledger.budget)),
                    ("spent", str(ledger.spent)),
                    ("left at that time", str(ledger.remaining)),
                    ("relation", ledger.neighbouring.value),
                )
            ),
        ),
    )


def _describe_model(model: FittedModel, schema: Schema, diagnostics: Diagnostics, design: Design | None) -> Section:
    if model.head.linear_in is not Linearity.COLUMNS:
        count = f"{model.layout.size:,} parameters"
        return Section("The model", (Text(f"{model.head!r} with {count}. Its weights are in the model's folder."),))
    public, private, intercept = model.compute_linear_coefficients()
    names = (*schema.public, *schema.private, "intercept")
    values = (*public.tolist(), *private.tolist(), intercept)
    deviations = diagnostics.coefficient_deviations
    heads = ("column", "coefficient", *(["standard deviation"] if deviations else []))
    rows = tuple(
        (name, show(value), *([show(deviations[place])] if deviations else []))
        for place, (name, value) in enumerate(zip(names, values, strict=True))
    )
    blocks: list[Block] = [Table("Coefficients, in the label's units per unit of the column", heads, rows)]
    if not deviations:
        return Section("The model", tuple(blocks))
    blocks.append(
        Text(
            "The standard deviation is what the releases leave unknown of a coefficient because of the noise, which is "
            "known exactly, and for CondNewton also because of sampling and shrinkage. It does not cover the bias from "
            "clamping, which skewed labels can have."
        )
    )
    if design is None:
        return Section("The model", tuple(blocks))
    units = (*design.deviations, *(bounds.width / math.sqrt(12) for bounds in model.private_bounds))
    effects = [(names[place], values[place] * unit, deviations[place] * unit) for place, unit in enumerate(units)]
    largest = sorted(effects, key=lambda effect: -abs(effect[1]))[:MOST_COEFFICIENTS]
    if largest:
        blocks.append(
            Dots(
                "What one standard deviation of a column does to predictions, give or take two standard deviations",
                f"change of '{schema.label.name}'",
                *zip(*largest, strict=True),
            )
        )
    return Section("The model", tuple(blocks))


def _describe_course(diagnostics: Diagnostics) -> Section:
    if not diagnostics.steps:
        return Section("How training went", ())
    series = [Series("distance of predictions from the final model's", diagnostics.distances)]
    if diagnostics.residual_deviations:
        series.append(Series("standard deviation that residuals are believed to have", diagnostics.residual_deviations))
    return Section(
        "How training went",
        (
            Text("From released numbers only: no loss on the data was computed, which would have cost privacy."),
            Chart(
                "The course of training, from released numbers",
                "release",
                "in the label's units",
                tuple(float(step) for step in diagnostics.steps),
                tuple(series),
            ),
        ),
    )


def _describe_design(design: Design) -> Section:
    blocks: list[Block] = [
        Facts(
            (
                ("records", f"{design.num_records:,}"),
                ("public columns", f"{len(design.columns)}"),
                ("directions with information", f"{design.rank} of {design.num_parameters} (with the constant)"),
                ("records per direction", f"{design.num_records / design.rank:,.0f}"),
                ("effective rank", f"{design.effective_rank:.3g}"),
                ("condition number", f"{design.condition_number:.3g}"),
                ("condition number, columns scaled", f"{design.scaled_condition_number:.3g}"),
                ("largest leverage", f"{design.largest_leverage:.3g}"),
                ("mean leverage", f"{design.mean_leverage:.3g}"),
                (
                    "improvement factor, best and worst labels",
                    f"{design.improvement.exact_best:.3g} and {design.improvement.exact_worst:.3g}",
                ),
            )
        )
    ]
    blocks += [Text(remark) for remark in (design.improvement.describe(), *design.list_remarks())]
    values = design.scaled_singular_values
    if len(values) > 1:
        blocks.append(
            Chart(
                "Spectrum of the public columns, centred and scaled",
                "direction",
                "singular value over the root of n",
                tuple(float(place) for place in range(1, len(values) + 1)),
                (Series("singular value", values),),
                log_y=values[0] > 4 * values[-1],
            )
        )
    return Section("The public columns", tuple(blocks))


def _describe_expectations(comparison: Comparison, epsilon: float | None = None) -> Section:
    constant = comparison.mean_constant
    series = []
    for name in comparison.errors:
        if name == "mean" and len(comparison.errors) > 1:
            continue  # in the table; in the chart it would hide behind its non-private twin
        low, high = comparison.spread(name)
        band = name == "auto"
        series.append(
            Series(
                _name_algorithm(name),
                tuple(comparison.mean(name)),
                tuple(low) if band else (),
                tuple(high) if band else (),
            )
        )
    highest = 1.5 * constant
    seen = [min(value, highest) for each in series for value in each.y]
    chart = Chart(
        "Expected error against epsilon, over that of linear least squares without privacy",
        "epsilon",
        "error over least squares",
        comparison.epsilons,
        tuple(series),
        (Reference("least squares, not private", 1.0), Reference("the mean alone, not private", constant)),
        log_x=True,
        log_y=max([*seen, constant]) > 4 * min(seen),
        highest=highest,
    )
    rows = tuple(
        (_name_algorithm(name), *(_show_range(comparison, name, place) for place in range(len(comparison.epsilons))))
        for name in comparison.errors
    )
    heads = ("algorithm", *(f"epsilon {each:g}" for each in comparison.epsilons))
    text = (
        f"Labels were made up from the public columns, {comparison.num_simulations} times: linear and not, with weak "
        "and strong signals, with light and heavy tails. Every algorithm was fitted to them at every budget (delta "
        f"{comparison.delta:g}, {comparison.head} head, relation {comparison.neighbouring.value}) with its default "
        "settings. An error is the expected squared error on new labels over that of linear least squares without "
        "privacy on the same labels; curves are geometric means, and the band around the default goes from its lowest "
        "to its highest. The real labels may be kinder or harsher; they were not read."
    )
    if epsilon is not None:
        text += f" The budget of this plan is epsilon {epsilon:g}."
    if comparison.num_simulated < comparison.num_records:
        text += (
            f" To save time this was done for a random {comparison.num_simulated:,} of the {comparison.num_records:,} "
            "records; with all of them errors are lower."
        )
    if comparison.num_private:
        text += f" The {comparison.num_private} private columns were made up too, within their declared ranges."
    blocks: list[Block] = [Text(text), chart, Table("Mean error (lowest–highest)", heads, rows)]
    if comparison.skipped:
        skipped = tuple((_name_algorithm(name), reason) for name, reason in comparison.skipped.items())
        blocks.append(Table("Not tried", ("algorithm", "why"), skipped, num_text=2))
    return Section("Error to be expected", tuple(blocks))


def _show_range(comparison: Comparison, name: str, place: int) -> str:
    low, high = comparison.spread(name)
    return f"{comparison.mean(name)[place]:.3f} ({low[place]:.2f}–{high[place]:.2f})"


def _show_budget(guarantee: Guarantee) -> str:
    amount = f"({guarantee.epsilon:g}, {guarantee.delta:g})" if guarantee.delta else f"{guarantee.epsilon:g}"
    weaker = "" if guarantee.neighbouring is Neighbouring.REPLACE else " under the weaker relation ZERO_OUT"
    return f"{amount}-differentially private{weaker}"


def _name_head(model: FittedModel) -> str:
    return "linear" if model.head.linear_in is Linearity.COLUMNS else type(model.head).__name__


def _name_algorithm(name: str) -> str:
    return {"auto": "default", "mean": "private mean"}.get(name, name)


def _list_facts(values: Mapping[str, Any]) -> Facts:
    return Facts(tuple(_flatten(values)))


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}: ")
        else:
            yield f"{prefix}{name}".replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value)
