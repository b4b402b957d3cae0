"""Plans: how well a private model will do, estimated before any label is read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from conddp._validate import positive
from conddp.data.parts import PublicFeatures
from conddp.data.schema import Schema
from conddp.data.units import Units
from conddp.errors import NotCalibrated, SchemaError
from conddp.evaluation.expectations import Expectation, expect_evaluation
from conddp.features.encoding import Encoding
from conddp.heads import HEADS, Linearity
from conddp.planning.budgets import DELTA, EPSILONS
from conddp.planning.coefficients import ExpectedCoefficients, expect_coefficients
from conddp.planning.comparison import (
    Comparison,
    choose_algorithms,
    compare_algorithms,
    take_sample,
)
from conddp.planning.runner import ProgressCallback
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.stored import decode, require
from conddp.theory.design import Design

__all__ = ["Plan", "make_plan"]

CANDIDATES = ("auto", "cond-dp", "dpsgd", "rr-on-bins", "mean")
CLOSE = 1.02  # an algorithm that is better than the default by this factor is recommended instead
GOOD = 1.05  # times the error of least squares without privacy
HELD_OUT = 0.25  # of the records, in what is expected of an evaluation
MOST_LISTED, NUM_WIDEST = 8, 5  # columns in a table of widths: all of them, or the widest
MOST_DESCRIBED = 300  # columns up to which widths are computed
MOST_SIMULATED = 10_000  # records that widths are computed from
DEVIATIONS = (1 / 4, 1 / 8, 1 / 16)  # of the label, as parts of its declared range


@dataclass(frozen=True)
class _Parts:
    """A plan as it is stored; the comparison decodes itself."""

    schema: str
    epsilon: float
    design: Design
    comparison: Any
    encoding: Any = None
    coefficients: tuple[ExpectedCoefficients, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What to expect of a fit, from public columns and declared bounds.

    Parameters
    ----------
    schema : Schema
        The columns.
    epsilon : float
        The requested budget, one of those of ``comparison``.
    design : Design
        Facts about the public columns.
    comparison : Comparison
        Expected errors, from simulated labels.
    encoding : Encoding, optional
        Encoding of the public columns. If None, the columns are the features.
    coefficients : tuple of ExpectedCoefficients
        Widths to expect of the intervals of coefficients, for assumed spreads of the label. Empty if nothing is known.
    """

    schema: Schema
    epsilon: float
    design: Design
    comparison: Comparison
    encoding: Encoding | None = None
    coefficients: tuple[ExpectedCoefficients, ...] = ()

    def expect_noise(self) -> list[tuple[float, float, float, float]]:
        """Root mean square noise of predictions from one release, in the label's units, by theory.

        One tuple per epsilon, with the noise for raw, scaled and conditioned columns.
        """
        assert self.schema.label.bounds is not None  # Column has made sure
        width, design, neighbouring = self.schema.label.bounds.width, self.design, self.comparison.neighbouring
        lines = []
        for epsilon in self.comparison.epsilons:
            budget = PrivacyBudget(epsilon, self.comparison.delta)
            costs = (design.plain_cost, design.scaled_cost, design.conditioned_cost)
            plain, scaled, conditioned = (design.expect_noise(cost, width, budget, neighbouring) for cost in costs)
            lines.append((epsilon, plain, scaled, conditioned))
        return lines

    def expect_evaluation(self) -> list[Expectation]:
        """Widths of the intervals of an evaluation on held-out records, for assumed spreads of the label.

        Empty if :attr:`why_no_evaluation` says why.
        """
        if self.why_no_evaluation:
            return []
        budget, n = PrivacyBudget(self.epsilon, self.comparison.delta), round(HELD_OUT * self.design.num_records)
        neighbouring = self.comparison.neighbouring
        return [expect_evaluation(n, budget, deviation=each, neighbouring=neighbouring) for each in DEVIATIONS]

    @property
    def why_no_evaluation(self) -> str:
        """Why nothing can be said about evaluations; empty if something can."""
        if self.schema.private:
            return (
                "Left out: the formulas are for public predictions, and those of models with private columns are not."
            )
        if not self.comparison.delta:
            return "An evaluation adds Gaussian noise, which cannot give delta = 0."
        if self.schema.unit is not None:
            return f"Left out: the formulas are for single records, and '{self.schema.unit}' marks units."
        return ""

    @property
    def evaluation_remark(self) -> str:
        """What the expected widths of an evaluation are about."""
        held_out = round(HELD_OUT * self.design.num_records)
        return (
            f"If {HELD_OUT:.0%} of the records ({held_out:,}) are held out and evaluated at epsilon {self.epsilon:g}, "
            "the total cost stays the same, since no record is on both sides. Expected half-widths of 95 % intervals "
            "for the population, if R² is 0.5 and errors are normal, by the standard deviation of the label as a part "
            "of its declared range. It is private: narrower bounds that still hold all labels help the most."
        )

    def list_evaluation(self) -> tuple[tuple[str, ...], ...]:
        """Rows of a table of the expected widths: spread, RMSE, R², and what would halve the width of R²."""
        return tuple(
            (
                f"1/{1 / each.deviation:g}",
                f"±{100 * each.rmse_width:.2g}\u00a0%",
                f"±{each.r2_width:.2g}" if each.r2_width < 1 else "unknown",
                f"{each.more_records:,.0f}",
                "none does" if each.more_epsilon is None else f"{each.more_epsilon:.2g}",
            )
            for each in self.expect_evaluation()
        )

    @property
    def why_no_coefficients(self) -> str:
        """Why nothing can be said about coefficients; empty if something can."""
        if self.coefficients:
            return ""
        if HEADS[self.comparison.head].linear_in is not Linearity.COLUMNS:
            return f"Left out: only linear models have coefficients, and the plan is for head '{self.comparison.head}'."
        if not self.comparison.delta:
            return "Left out: intervals of coefficients are those of Gaussian noise, which cannot give delta = 0."
        return "Not known: there are too many columns or none, or CondNewton cannot be used, or the plan is an old one."

    @property
    def coefficient_remark(self) -> str:
        """What the expected widths of coefficients are about."""
        return (
            f"Expected half-widths of 95 % intervals of coefficients at epsilon {self.epsilon:g}, for the population, "
            f"in the units of '{self.schema.label.name}' per standard deviation of a column. The standard deviation of "
            "the label is private: it is assumed to be the given part of its declared range. Labels were simulated, "
            "linear in the columns with R² 0.5 and normal errors, and fitted by CondNewton, the default."
        )

    def list_coefficients(self) -> tuple[tuple[str, ...], ...]:
        """Rows of a table: spread, median and widest interval with its column, and what would halve the median."""
        width, names = self._get_width(), self._list_names()
        return tuple(
            (
                f"1/{1 / each.deviation:g}",
                f"±{width * each.median:.3g}",
                f"±{width * each.scaled_half_widths[each.order[0]]:.3g}",
                names[each.order[0]],
                "unknown" if each.more_records is None else f"{each.more_records:,.0f}",
                "unknown"
                if each.more_records is None
                else "none does"
                if each.more_epsilon is None
                else f"{each.more_epsilon:.2g}",
            )
            for each in self.coefficients
            if each.order
        )

    def list_widest(self) -> tuple[tuple[str, ...], ...]:
        """Rows of a table of the columns with the widest intervals, for the middle spread of the label."""
        if not self.coefficients:
            return ()
        middle, width, names = self.coefficients[len(self.coefficients) // 2], self._get_width(), self._list_names()
        shown = middle.order if len(middle.order) <= MOST_LISTED else middle.order[:NUM_WIDEST]
        return tuple(
            (
                names[place],
                f"±{width * middle.half_widths[place]:.3g}",
                f"±{width * middle.scaled_half_widths[place]:.3g}",
            )
            for place in shown
        )

    def _get_width(self) -> float:
        assert self.schema.label.bounds is not None  # Column has made sure
        return self.schema.label.bounds.width

    def _list_names(self) -> tuple[str, ...]:
        return (*self.design.columns, *self.schema.private_terms)

    @property
    def algorithm(self) -> str:
        """The algorithm to use: the default, unless another one is clearly better."""
        ranked = self.comparison.rank(self.epsilon)
        errors = dict(ranked)
        best, error = ranked[0]
        if "auto" in errors and (errors["auto"] < CLOSE * error or self.comparison.is_tie("auto", best, self.epsilon)):
            return "auto"
        return best

    @property
    def recommendation(self) -> str:
        """What to do and why, in a few sentences."""
        return " ".join(self._advise())

    def _advise(self) -> Iterator[str]:
        errors = dict(self.comparison.rank(self.epsilon))
        name, error, constant = self.algorithm, errors[self.algorithm], self.comparison.mean_constant
        head = self.comparison.head
        article = "an" if head[0] in "aeiou" else "a"
        called = "the default algorithm" if name == "auto" else f"algorithm '{name}'"
        yield (
            f"Use {called} with {article} {head} head. At epsilon {self.epsilon:g} its error on simulated labels is "
            f"{error:.3f} times that of linear least squares without privacy; predicting the mean gives "
            f"{constant:.3f} times."
        )
        others = {other: value for other, value in errors.items() if other not in (name, "mean")}
        equals = [
            other for other in others if others[other] < error or self.comparison.is_tie(name, other, self.epsilon)
        ]
        if equals:
            *before, last = (f"'{other}', at {others[other]:.3f} times" for other in equals)
            listed = f"{', '.join(before)}, and {last}" if before else last
            yield f"A tie: {listed}, {'do' if before else 'does'} as well on these simulated labels."
        elif others:
            runner_up = min(others, key=lambda other: others[other])
            yield f"'{runner_up}' comes next, at {others[runner_up]:.3f} times."
        if error > 0.97 * constant:
            yield (
                "That is no better than the mean: at this budget there are too few records for a model. More records, "
                "fewer columns or a larger epsilon would help."
            )
        means = dict(zip(self.comparison.epsilons, self.comparison.mean(name), strict=True))
        enough = [epsilon for epsilon, mean in means.items() if mean <= GOOD]
        if enough and enough[0] < self.epsilon:
            yield f"Epsilon {enough[0]:g} would already be within {GOOD - 1:.0%} of least squares."
        elif enough and enough[0] > self.epsilon:
            yield f"It gets within {GOOD - 1:.0%} of least squares from epsilon {enough[0]:g} on."
        elif not enough:
            yield f"It gets within {GOOD - 1:.0%} of least squares at none of these budgets."

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Plan":
        """The plan that was stored.

        Raises
        ------
        SchemaError
            If it is not what :meth:`to_json` gives.
        """
        parts = decode(_Parts, stored, "plan")
        encoding = None if parts.encoding is None else Encoding.from_json(parts.encoding)
        schema, comparison = Schema.from_toml(parts.schema), Comparison.from_json(parts.comparison)
        plan = cls(schema, parts.epsilon, parts.design, comparison, encoding, parts.coefficients)
        design = plan.design
        require(plan.epsilon in comparison.epsilons, "'plan.epsilon' is not among the budgets of the comparison")
        require(
            design.columns == (schema.public if encoding is None else encoding.features)
            and (encoding is None or encoding.names == schema.public)
            and (comparison.num_records, comparison.num_public) == (design.num_records, len(design.columns)),
            "schema, design and comparison of the plan are not of the same data",
        )
        design.check()
        require(
            all(
                len(each.half_widths) == len(each.scaled_half_widths) == len(plan._list_names())
                and each.deviation > 0
                and min((*each.half_widths, *each.scaled_half_widths), default=0.0) >= 0
                and all(value is None or value > 0 for value in (each.more_records, each.more_epsilon))
                for each in plan.coefficients
            ),
            "the expected widths of coefficients are not of these columns",
        )
        require(comparison.unit == (plan.schema.unit or ""), "schema and comparison of the plan name different units")
        return plan

    def to_json(self) -> dict[str, Any]:
        """The plan as it is stored."""
        return {
            "schema": self.schema.to_toml(),
            "epsilon": self.epsilon,
            "design": self.design.to_json(),
            "comparison": self.comparison.to_json(),
            "encoding": None if self.encoding is None else self.encoding.to_json(),
            "coefficients": [asdict(each) for each in self.coefficients],
        }


def make_plan(
    public_features: PublicFeatures,
    schema: Schema,
    *,
    epsilon: float = 1.0,
    delta: float = DELTA,
    algorithms: Sequence[str] | None = None,
    head: str = "linear",
    neighbouring: Neighbouring = Neighbouring.REPLACE,
    num_draws: int = 1,
    num_workers: int | None = 1,
    callback: ProgressCallback | None = None,
    units: Units | None = None,
    encoding: Encoding | None = None,
    simulate_from: PublicFeatures | None = None,
) -> Plan:
    """Summarize the public columns and try algorithms on simulated labels.

    Privacy
        Sees public columns, names and declared bounds only: no cost.

    Parameters
    ----------
    public_features : PublicFeatures
        The public columns of ``schema``, encoded.
    schema : Schema
        Roles and declared bounds of all columns.
    epsilon, delta : float
        Budget of the planned fit. Other epsilons are tried too.
    algorithms : sequence of str, optional
        By name. If None, the default and the usual rivals, without those that are slow with this head; with
        ``["all"]``, the slow ones too.
    head, neighbouring, num_draws, num_workers, callback, simulate_from
        As in :func:`~conddp.planning.comparison.compare_algorithms`.
    units : Units, optional
        Units of the records. Required if the schema has a unit column, because a plan for single records would promise
        too much.
    encoding : Encoding, optional
        Encoding that gave the features. If None, the columns are the features.
    """
    positive(epsilon=epsilon)
    if (None if units is None else units.name) != schema.unit:
        raise SchemaError(
            f"the schema has unit={schema.unit!r}, but the plan was given "
            f"{'no units' if units is None else repr(units)}. Pass the column as units=Units.of(...)."
        )
    algorithms, left_out = choose_algorithms(algorithms, CANDIDATES, head)
    comparison = compare_algorithms(
        public_features,
        private=dict(zip(schema.private, schema.private_domains, strict=True)),
        algorithms=algorithms,
        head=head,
        epsilons=(*EPSILONS, epsilon),
        delta=delta,
        neighbouring=neighbouring,
        num_draws=num_draws,
        num_workers=num_workers,
        callback=callback,
        units=units,
        simulate_from=simulate_from,
    )
    comparison = replace(comparison, skipped={**comparison.skipped, **left_out})
    made = Plan(schema, float(epsilon), Design.of(public_features), comparison, encoding)
    return replace(made, coefficients=_expect_coefficients(made, public_features, units))


def _expect_coefficients(
    plan: Plan, public_features: PublicFeatures, units: Units | None
) -> tuple[ExpectedCoefficients, ...]:
    head, delta = HEADS[plan.comparison.head], plan.comparison.delta
    if head.linear_in is not Linearity.COLUMNS or not delta or not 0 < len(plan._list_names()) <= MOST_DESCRIBED:
        return ()
    sample, sampled_units = take_sample(public_features, units, MOST_SIMULATED)
    try:
        return expect_coefficients(
            sample,
            len(public_features),
            PrivacyBudget(plan.epsilon, delta),
            deviations=plan.design.deviations,
            private=dict(zip(plan.schema.private, plan.schema.private_domains, strict=True)),
            neighbouring=plan.comparison.neighbouring,
            units=sampled_units,
        )
    except NotCalibrated:  # CondNewton cannot be used, which the comparison says
        return ()
