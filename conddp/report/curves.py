"""The section about the curves of an additive model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.schema import Schema
from conddp.models.curves import QUANTILE, Curve, Curves, Surface
from conddp.report.document import Block, HeatMap, Panel, Panels, Section, Table, Text, show

__all__ = ["describe_curves"]

MOST_CURVES, MOST_PAIRS = 12, 4
MOST_LISTED = 40  # columns in the table of importances
SKEWED = 0.1  # place of the median between the ends of an axis, below which the axis is logarithmic
LEAST_IMPORTANT = 0.02  # importance of a pair that is drawn, relative to the most important column


def describe_curves(curves: Curves, schema: Schema) -> Section:
    """Curves of the most important columns, surfaces of pairs, and a table of importances."""
    label, shown = schema.label.name, curves.columns[:MOST_CURVES]
    private = ", and the linear terms of private columns listed above" if schema.private else ""
    least = LEAST_IMPORTANT * max((each.importance for each in curves), default=0.0)
    columns = {each.name: each.column for each in curves}
    pairs = [  # of a number and its gaps, most pairs of values do not occur
        each for each in curves.pairs if each.importance > least and columns[each.names[0]] != columns[each.names[1]]
    ][:MOST_PAIRS]
    listed: list[Curve | Surface] = sorted((*curves, *curves.pairs), key=lambda each: -each.importance)
    rows = tuple((_name(each), show(each.importance)) for each in listed[:MOST_LISTED])
    blocks: list[Block] = [
        Text(
            f"A prediction is {show(curves.constant)}, plus the effects of public columns and of pairs of them"
            f"{private}. Effects are in the units of '{label}' and have mean zero over the training records. Bands and "
            "lines are 95 % credible intervals: they follow from the known noise of the releases, the number of "
            "records and what the fit assumes about smoothness. They do not cover the bias from clamping residuals. "
            "All figures have the same scale, except those that say by how much theirs is enlarged."
        )
    ]
    if shown:
        panels = tuple(_draw(each) for each in shown)
        which = (
            "Effects of columns"
            if len(shown) == len(curves)
            else f"Effects of the {len(shown)} columns that matter most"
        )
        blocks.append(Panels(which, f"effect on '{label}'", panels))
    if pairs:
        largest = max(float(np.abs(each.effect).max()) for each in pairs)
        blocks.append(
            Text(
                "What pairs of columns add beyond the sum of their effects. Blue is positive, orange negative, and the "
                f"darkest colour stands for {show(largest)}."
            )
        )
        blocks.append(Panels("Effects of pairs", f"effect on '{label}'", tuple(_draw_pair(each) for each in pairs)))
    if rows:
        more = f" (the first {MOST_LISTED} of {len(listed)})" if len(listed) > MOST_LISTED else ""
        caption = f"Standard deviation of each effect over the training records{more}"
        blocks.append(Table(caption, ("column or pair", "importance"), rows))
    return Section("Curves", tuple(blocks) if shown else ())


def _name(each: Curve | Surface) -> str:
    return each.name if isinstance(each, Curve) else " × ".join(each.names)


def _draw(curve: Curve) -> Panel:
    kept = (
        slice(None)
        if curve.is_category
        else ~np.isnat(curve.values)
        if _is_date(curve.values)
        else ~np.isnan(curve.values)
    )
    values, effect, band = curve.values[kept], curve.effect[kept], QUANTILE * curve.std[kept]
    x = np.arange(len(values)) if curve.is_category else _to_days(values) if _is_date(values) else values
    y, low, high = (tuple(each.tolist()) for each in (effect, effect - band, effect + band))
    names = tuple(map(_write, values)) if curve.is_category else ()
    is_log = not curve.is_category and not _is_date(values) and _is_skewed(values)
    return Panel(curve.name, tuple(map(float, x)), y, low, high, names, curve.unit, _is_date(values), is_log)


def _is_skewed(values: NDArray[Any]) -> bool:
    """Whether positive values, which are about quantiles, are hardly told apart on a linear axis."""
    low, middle, high = values[0], values[len(values) // 2], values[-1]
    return bool(low > 0 and high > 100 * low and middle - low < SKEWED * (high - low))


def _draw_pair(surface: Surface) -> HeatMap:
    rows, columns = (tuple(map(_write, each)) for each in surface.values)
    values = tuple(tuple(row) for row in surface.effect.tolist())
    return HeatMap(_name(surface), *surface.names, rows, columns, values)


def _is_date(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "M"


def _to_days(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype("datetime64[s]").astype(np.float64) / 86_400.0


def _write(value: object) -> str:
    """A value as text."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[D]"))
    return value if isinstance(value, str) else show(float(value))  # type: ignore[arg-type]
