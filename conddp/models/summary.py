"""Summary of a linear model: its coefficients with standard errors and intervals, as text, HTML and rows."""

import math
from dataclasses import dataclass
from html import escape

from conddp.models.result import FitResult
from conddp.models.uncertainty import Target

__all__ = ["CoefficientRow", "Summary"]

USUAL_WIDTH = 80  # of a terminal, which a table should fit
OF = {
    "population": "the coefficients of least squares on the population that the records are a sample of",
    "data": "the coefficients of least squares on these records, with labels clamped to their bounds",
}
NOT_COUNTED = (
    "The bias from clipping gradients is not known and not counted: with labels that are often clipped, errors are "
    "larger than stated."
)
NO_SAMPLING = (
    "The fit did not release the size of its residuals, so the sampling error is not known and intervals are about "
    "these records only."
)
FROM_BOUNDS = (
    "Intervals with a mark (*) depend on directions that were hardly measured. They are as wide as the declared bounds "
    "allow: a larger epsilon, more records or fewer columns narrow them."
)


@dataclass(frozen=True)
class CoefficientRow:
    """A coefficient with its errors, in the label's units per unit of the column.

    Parameters
    ----------
    name : str
        What the coefficient belongs to.
    coefficient : float
        Coefficient of the model, which is shrunk.
    estimate : float
        Estimate before shrinkage, the centre of the interval.
    std : float
        Standard error of the estimate, of all parts that the target counts.
    p_value : float
        One minus the level of the largest interval that does not contain zero.
    low, high : float
        Ends of the interval.
    noise, bias, sampling : float
        Parts of the standard error: noise for privacy, bias from clamping, and sampling error, NaN if not known.
    bound : float
        What directions that were not measured may add, according to the declared bounds.
    """

    name: str
    coefficient: float
    estimate: float
    std: float
    p_value: float
    low: float
    high: float
    noise: float
    bias: float
    sampling: float
    bound: float


@dataclass(frozen=True)
class Summary:
    """Summary of a linear model. Print it, or show it in a notebook.

    ``pandas.DataFrame(summary.rows)`` is a table of its numbers.

    Privacy
        Computed from released parameters, public columns and known noise: no cost.

    Parameters
    ----------
    label : str
        Name of the label.
    level : float
        Level of the intervals.
    of : {"population", "data"}
        What the intervals are about.
    rows : tuple of CoefficientRow
        Coefficients, in the order of the columns; the last is the intercept, if there is one.
    facts : tuple of (str, str)
        Facts about the fit.
    remarks : tuple of str
        What the intervals do not cover.
    """

    label: str
    level: float
    of: Target
    rows: tuple[CoefficientRow, ...]
    facts: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]

    @classmethod
    def of_result(cls, result: FitResult, *, level: float = 0.95, of: str | None = None) -> "Summary":
        """Summarise a result.

        Parameters
        ----------
        result : FitResult
            Of a fit, or a saved model.
        level : float
            Level of the intervals.
        of : {"population", "data"}, optional
            What the intervals are about. If None, the population if the sampling error is known, and otherwise the
            data.

        Raises
        ------
        AttributeError
            If the uncertainty of the coefficients is not known; the message says why.
        """
        known, guarantee = result.get_uncertainty(), result.guarantee
        target = known.check_target(known.targets[0] if of is None else of)
        names, estimates = result.estimate_coefficients()
        intervals = estimates.compute_intervals(level, target)
        shown = [value for _, value in result.list_coefficients()]
        if len(shown) < len(names):
            shown.append(result.model.compute_linear_coefficients()[2])
        rows = tuple(
            CoefficientRow(name, *map(float, values))
            for name, *values in zip(
                names,
                shown,
                estimates.estimate,
                estimates.compute_std(target),
                estimates.compute_p_values(target),
                intervals[:, 0],
                intervals[:, 1],
                estimates.noise_std,
                estimates.bias_std,
                estimates.sampling_std,
                estimates.bound,
                strict=True,
            )
        )
        facts = [
            ("records", f"{guarantee.num_records:,}"),
            ("guarantee", f"{guarantee.budget}, {guarantee.neighbouring.value}"),
        ]
        if result.diagnostics.residual_deviations:
            facts.append(("residual standard deviation", f"{result.diagnostics.residual_deviations[-1]:.4g}"))
        remarks = [
            *([] if known.counts_clamping else [NOT_COUNTED]),
            *([] if known.knows_sampling else [NO_SAMPLING]),
            *([FROM_BOUNDS] if any(map(_is_loose, rows)) else []),
        ]
        return cls(guarantee.label, level, target, rows, tuple(facts), tuple(remarks))

    @property
    def heads(self) -> tuple[str, ...]:
        """Heads of the columns of :meth:`list_cells`, after the name."""
        low, high = (1 - self.level) / 2, (1 + self.level) / 2
        ends = (f"[{low:.4g}", f"{high:.4g}]")
        return ("coef", "estimate", "std err", "P>|z|", *ends, "noise", "bias", "sampling")

    def list_cells(self) -> list[tuple[str, ...]]:
        """Rows as text: the name and a number for each head."""
        return [
            (
                f"{row.name} *" if _is_loose(row) else row.name,
                *(f"{each:.4g}" for each in (row.coefficient, row.estimate)),
                f"{row.std:.3g}",
                f"{row.p_value:.3f}",
                *(f"{each:.4g}" for each in (row.low, row.high)),
                *("" if math.isnan(each) else f"{each:.2g}" for each in (row.noise, row.bias, row.sampling)),
            )
            for row in self.rows
        ]

    @property
    def explanation(self) -> str:
        """Sentences about the columns."""
        return (
            f"Intervals of {100 * self.level:g} % for {OF[self.of]}. They are centred on the estimate before "
            "shrinkage; coef is what the model predicts with. noise, bias and sampling are parts of the standard "
            f"error: noise for privacy, bias from clamping residuals, sampling error of the records"
            f"{'' if self.of == 'population' else ' (not counted here)'}."
        )

    def __getitem__(self, name: str) -> CoefficientRow:
        """Return the row of a coefficient by its name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"there is no coefficient {name!r}.")

    def __str__(self) -> str:
        table = [("", *self.heads), *self.list_cells()]
        widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
        gap = "  " if sum(widths) + 2 * len(widths) <= USUAL_WIDTH + 2 else " "
        lines = [
            gap.join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        ]
        rule = "-" * len(lines[0])
        facts = [f"{name}: {value}" for name, value in self.facts]
        rest = [self.explanation, *self.remarks]
        return "\n".join(
            [f"Linear model of '{self.label}'", *facts, rule, lines[0], rule, *lines[1:], rule]
            + [line for text in rest for line in _wrap(text, max(60, len(rule)))]
        )

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        heads = "".join(f"<th>{escape(each)}</th>" for each in ("", *self.heads))
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>{''.join(f'<td>{each}</td>' for each in cells)}</tr>"
            for name, *cells in self.list_cells()
        )
        facts = "; ".join(f"{name}: {value}" for name, value in self.facts)
        rest = "".join(f"<p>{escape(each)}</p>" for each in (self.explanation, *self.remarks))
        return (
            f"<table><caption>Linear model of {escape(repr(self.label))}. {escape(facts)}</caption>"
            f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{rest}"
        )


def _is_loose(row: CoefficientRow) -> bool:
    """Whether declared bounds decide on the width of the interval."""
    return row.bound > row.noise


def _wrap(text: str, width: int) -> list[str]:
    from textwrap import wrap

    return wrap(text, width)
