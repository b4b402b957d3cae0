"""Coefficients of a linear model with their uncertainty: a table and a forest plot."""

import math
from dataclasses import replace

from conddp.categories import Categories
from conddp.data.scaling import private_unit
from conddp.models.result import FitResult
from conddp.models.summary import CoefficientRow, Summary
from conddp.report.document import Block, Document, Dots, Facts, Section, Table, Text, show

__all__ = ["describe_coefficients", "report_summaries"]

MOST_COEFFICIENTS = 30  # in the figure; the table has all
SMALL = 0.2  # reach of a column, relative to the largest, up to which it is drawn on a scale of its own
FEWEST_APART = 3  # columns in a figure of their own
ENDS, PARTS = (0, 1, 2, 5, 6, 4), (0, 3, 7, 8, 9)  # columns of a summary in two tables, which fit a phone
NOT_STORED = (
    "The uncertainty of the coefficients is not known: the model was saved by an earlier version of conddp, which did "
    "not store it, or its algorithm does not give it."
)
OLD_DEVIATIONS = (
    "The standard deviation of a coefficient covers the noise of the releases, and for CondNewton also sampling and "
    "shrinkage. It does not cover the bias that clamping has on skewed labels."
)


def describe_coefficients(
    saved: FitResult, *, level: float = 0.95, of: str | None = None, with_facts: bool = False
) -> tuple[Block, ...]:
    """A table of the coefficients of a linear model, and a forest plot of the largest.

    Parameters
    ----------
    saved : FitResult
        Of a linear model.
    level, of
        As in :meth:`Summary.of_result <conddp.models.summary.Summary.of_result>`.
    with_facts : bool
        Whether to add facts about the fit.
    """
    unit = "in the label's units per unit of the column"
    blocks: list[Block] = []
    if saved.uncertainty is None:
        blocks += _list_without_intervals(saved, f"Coefficients, {unit}")
    else:
        summary = Summary.of_result(saved, level=level, of=of)
        if with_facts:
            blocks.append(Facts(summary.facts))
        blocks += _draw(saved, summary)
        blocks.append(_make_table(f"Coefficients with intervals of {100 * level:g} %, {unit}", summary, ENDS))
        parts = _make_table("Standard errors and their parts, in the same units", summary, PARTS)
        blocks.append(replace(parts, folded=True))
        blocks += [Text(text) for text in (summary.explanation, *summary.remarks)]
    if saved.schema.category_columns:
        zero = " and sum to zero" if saved.model.has_constant else ""
        blocks.append(Text(f"Effects of the levels of a private category are in the label's units{zero}."))
    return tuple(blocks)


def _make_table(caption: str, summary: Summary, places: tuple[int, ...]) -> Table:
    """Some columns of a summary."""
    heads, rows = ("feature", *summary.heads), summary.list_cells()
    return Table(caption, tuple(heads[place] for place in places), tuple(tuple(row[p] for p in places) for row in rows))


def _draw(saved: FitResult, summary: Summary) -> list[Block]:
    """The forest plot, if standard deviations of the columns are known."""
    if saved.design is not None:
        units = [*saved.design.deviations]
    elif saved.model.has_constant:
        number = len(saved.features)
        units = saved.get_uncertainty().compute_deviations(number)[:number].tolist()
    else:
        return []
    for domain in saved.model.private_domains:
        units += [1.0] * len(domain) if isinstance(domain, Categories) else [private_unit(domain)]
    by_name = dict(zip((*saved.features, *saved.schema.private_terms), units, strict=True))
    rows: list[tuple[CoefficientRow, float]] = [
        (row, by_name[row.name])
        for row in summary.rows
        if by_name.get(row.name, 0.0) > 0
        and all(map(math.isfinite, (row.low * by_name[row.name], row.high * by_name[row.name])))
    ]
    largest = sorted(rows, key=lambda pair: -abs(pair[0].estimate * pair[1]))[:MOST_COEFFICIENTS]
    if not largest:
        return []
    title = f"What one standard deviation of a column does to predictions, with intervals of {100 * summary.level:g} %"
    reach = max(_measure_reach(*pair) for pair in largest)
    small = [pair for pair in largest if _measure_reach(*pair) < SMALL * reach]
    if len(small) < FEWEST_APART:
        return [_make_dots(title, summary.label, largest)]
    large = [pair for pair in largest if pair not in small]
    return [
        _make_dots(title, summary.label, large),
        _make_dots("The same for columns that do less, on a larger scale", summary.label, small),
    ]


def _measure_reach(row: CoefficientRow, unit: float) -> float:
    """Distance from zero to the far end of the interval, or to the coefficient of the model."""
    return unit * max(map(abs, (row.low, row.high, row.coefficient)))


def _make_dots(title: str, label: str, rows: list[tuple[CoefficientRow, float]]) -> Dots:
    ends = ("estimate", "low", "high", "coefficient")
    values = (tuple(getattr(row, name) * unit for row, unit in rows) for name in ends)
    return Dots(title, f"change of '{label}'", tuple(row.name for row, _ in rows), *values)


def _list_without_intervals(saved: FitResult, caption: str) -> list[Block]:
    """The coefficients, and deviations that an earlier version stored or another algorithm computed."""
    deviations = saved.diagnostics.coefficient_deviations
    public, private, intercept = saved.model.compute_linear_coefficients()
    names = (*saved.features, *saved.schema.private_terms, "intercept")
    values = (*public.tolist(), *private.tolist(), intercept)
    heads = ("feature", "coefficient", *(["standard deviation"] if deviations else []))
    rows = tuple(
        (name, show(value), *([show(deviations[place])] if deviations else []))
        for place, (name, value) in enumerate(zip(names, values, strict=True))
    )
    return [Table(caption, heads, rows), Text(OLD_DEVIATIONS if deviations else NOT_STORED)]


def report_summaries(results: tuple[FitResult, ...], *, level: float = 0.95, of: str | None = None) -> Document:
    """A page with the summaries of linear models, one for each label.

    Privacy
        Shows released numbers and public columns: no cost.

    Parameters
    ----------
    results : tuple of FitResult
        Of linear models, for different labels of the same records.
    level, of
        As in :meth:`Summary.of_result <conddp.models.summary.Summary.of_result>`.

    Raises
    ------
    AttributeError
        If the uncertainty of a model is not known; the message says why.
    """
    for each in results:
        each.get_uncertainty()
    sections = tuple(
        Section(
            f"Coefficients of '{each.guarantee.label}'",
            describe_coefficients(each, level=level, of=of, with_facts=True),
        )
        for each in results
    )
    labels = ", ".join(f"'{each.guarantee.label}'" for each in results)
    return Document(f"Summary of the linear model of {labels}", str(results[0].guarantee.budget), sections)
