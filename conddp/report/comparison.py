"""The report of a comparison on simulated labels."""

from collections.abc import Iterable

from conddp.planning.comparison import Comparison
from conddp.report.document import (
    Block,
    Chart,
    Document,
    Reference,
    Section,
    Series,
    Table,
    Text,
)

__all__ = ["NO_LABEL", "describe_expectations", "report_comparison"]

LEAST_EXCESS = 1.0005  # an error over that of least squares, above which all must be to be drawn in percent above it
NO_LABEL = "No label and no private column was read for this page."


def report_comparison(comparison: Comparison) -> Document:
    """Report of a comparison on simulated labels."""
    best, error = comparison.rank(comparison.epsilons[len(comparison.epsilons) // 2])[0]
    middle = comparison.epsilons[len(comparison.epsilons) // 2]
    return Document(
        "Algorithms compared on simulated labels",
        f"{comparison.num_records:,} records, {comparison.num_public} public and {comparison.num_private} private "
        f"columns. At epsilon {middle:g} the lowest mean error is that of '{best}', {error:.3g} times that of least "
        "squares without privacy. No label was read, so this costs no privacy.",
        (describe_expectations(comparison),),
        NO_LABEL,
    )


def describe_expectations(comparison: Comparison, epsilon: float | None = None) -> Section:
    """Errors on simulated labels; ``epsilon`` is the budget that was asked for, if there is one."""
    chart = _draw(comparison)
    rows = tuple(
        (_name_algorithm(name), *(_show_range(comparison, name, place) for place in range(len(comparison.epsilons))))
        for name in comparison.errors
    )
    heads = ("algorithm", *(f"epsilon {each:g}" for each in comparison.epsilons))
    text = (
        f"Labels were simulated from the public columns {comparison.num_simulations} times: linear and nonlinear, with "
        "weak and strong signals, light-tailed and heavy-tailed. Every algorithm was fitted to them at every budget "
        f"(delta {comparison.delta:g}, {comparison.head} head, relation {comparison.neighbouring.value}) with its "
        "default settings. An error is the expected squared error on new labels over that of linear least squares "
        "without privacy on the same labels. Curves are of geometric means; the band around the default spans its "
        "lowest and highest errors, down to the edge where it reaches least squares. Real labels may be easier or "
        "harder to predict; they were not read."
    )
    if epsilon is not None:
        text += f" The budget of this plan is epsilon {epsilon:g}."
    if comparison.num_simulated < comparison.num_records:
        text += (
            f" To save time, a random sample of {comparison.num_simulated:,} of the {comparison.num_records:,} records "
            "was used; errors are lower with all records."
        )
    if comparison.unit:
        text += (
            f" Every fit protects all records with one of the {comparison.num_units:,} values of '{comparison.unit}' "
            "together."
        )
    if comparison.num_private:
        text += f" The {comparison.num_private} private columns were simulated too, within their declared ranges."
    blocks: list[Block] = [Text(text), chart, Table("Mean error (lowest–highest)", heads, rows)]
    if comparison.skipped:
        skipped = tuple((_name_algorithm(name), reason) for name, reason in comparison.skipped.items())
        blocks.append(Table("Not tried", ("algorithm", "why"), skipped, num_text=2))
    return Section("Expected error", tuple(blocks))


def _draw(comparison: Comparison) -> Chart:
    """Errors against epsilon: in percent above least squares if no error is below it, since most are close to it."""
    constant = comparison.mean_constant
    means = {name: comparison.mean(name) for name in comparison.errors}
    if len(means) > 1:
        means.pop("mean", None)  # it is in the table; in the chart it would hide behind the non-private mean
    lowest = min(constant, *(value for each in means.values() for value in each))
    is_excess = lowest > LEAST_EXCESS

    def scale(values: Iterable[float]) -> tuple[float, ...]:
        if not is_excess:
            return tuple(values)
        return tuple(100 * (max(value, (1 + lowest) / 2) - 1) for value in values)  # bands may reach below

    series = []
    for name, mean in means.items():
        low, high = comparison.spread(name) if name == "auto" else ((), ())
        series.append(Series(_name_algorithm(name), scale(mean), scale(low), scale(high)))
    highest = 1.5 * constant
    if is_excess:
        return Chart(
            "Expected error against epsilon: how much above that of linear least squares without privacy",
            "epsilon",
            "above least squares, in %",
            comparison.epsilons,
            tuple(series),
            (Reference("the mean alone, not private", 100 * (constant - 1)),),
            log_x=True,
            log_y=True,
            highest=100 * (highest - 1),
        )
    seen = [min(value, highest) for each in series for value in each.y]
    return Chart(
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


def _show_range(comparison: Comparison, name: str, place: int) -> str:
    low, high = comparison.spread(name)
    return f"{comparison.mean(name)[place]:.3f} ({low[place]:.2f}–{high[place]:.2f})"


def _name_algorithm(name: str) -> str:
    return {"auto": "default", "mean": "private mean"}.get(name, name)
