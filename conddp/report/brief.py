"""The box at the top of the report of a fit: what is protected, for whom, how strongly, and what it costs."""

import math

from conddp.models.result import FitResult
from conddp.planning.plan import Plan
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.neighbouring import Neighbouring
from conddp.report.document import Block, Odds, Section, Text, join, round_up, show

__all__ = ["LARGEST_EXPONENT", "compute_chance", "describe_brief", "describe_error", "list_exposed", "show_chance"]

LARGEST_EXPONENT = 700.0  # of what floating point can hold
NOT_PRIVATE = "Nothing. The model is not differentially private: private values can be read from it."
SEEDED = (
    "The noise came from a fixed seed, for research only: for anyone who knows or guesses the seed, nothing is "
    "protected."
)
UNKNOWN_ERROR = (
    "Not known: the model was not evaluated on held-out records, and the fit did not release the size of its "
    "residuals. The command conddp evaluate measures the error privately."
)


def describe_brief(saved: FitResult, plan: Plan | None = None) -> Section:
    """Answer the first questions about a fit, each in a sentence or two, with a picture of the strength."""
    guarantee = saved.guarantee
    blocks: list[Block] = []
    if math.isinf(guarantee.epsilon):
        blocks.append(Text(NOT_PRIVATE, "What is protected"))
    else:
        total = _find_total(saved)
        chance = compute_chance(total, guarantee.neighbouring)
        blocks += [
            Text(_name_protected(guarantee), "What is protected"),
            Text(_describe_unit(guarantee), "For whom"),
            Text(_describe_strength(saved, total, chance), "How strongly"),
            *([Text(SEEDED, "Warning")] if guarantee.seeded else []),
            _draw(chance, _name_claim(guarantee)),
        ]
    blocks += [
        Text(" ".join(describe_error(saved, plan)), "Expected error"),
        Text(f"{list_exposed(saved)}. They are treated as known to everyone.", "What remains public, so exposed"),
    ]
    return Section("In brief", tuple(blocks), "boxed")


def compute_chance(budget: PrivacyBudget, neighbouring: Neighbouring) -> float:
    r"""Bound the chance to guess right which of two equally likely values a record has, after seeing the releases.

    With neighbouring data sets that differ in the value, it is at most
    :math:`(e^\varepsilon + \delta) / (1 + e^\varepsilon)`. Under ZERO_OUT, one value is two steps from another: via no
    value at all. Epsilon then counts twice, and delta :math:`1 + e^\varepsilon` times.

    Privacy
        Reads a budget: no cost.

    Examples
    --------
    >>> round(compute_chance(PrivacyBudget(1.0, 1e-6), Neighbouring.REPLACE), 4)
    0.7311
    """
    epsilon, delta = budget.epsilon, budget.delta
    if neighbouring is not Neighbouring.REPLACE:
        delta *= 1 + math.exp(min(epsilon, LARGEST_EXPONENT))
        epsilon *= 2
    if epsilon > LARGEST_EXPONENT:
        return 1.0
    factor = math.exp(epsilon)
    return min(1.0, (factor + delta) / (1 + factor))


def show_chance(chance: float) -> str:
    """A chance in percent, rounded up, with the digits that tell it from certainty if six are enough."""
    shown = (round_up(100 * chance, digits) for digits in (3, 4, 5, 6))
    return next((each for each in shown if float(each) < 100), "100")


def _find_total(saved: FitResult) -> PrivacyBudget:
    """Cost of everything in the ledger of a fit, of which the fit is a part."""
    guarantee, ledger = saved.guarantee, saved.ledger
    spent = ledger.spent
    is_more = ledger.neighbouring is guarantee.neighbouring and spent.epsilon > guarantee.epsilon * (1 + 1e-9)
    return spent if is_more else guarantee.budget


def _name_protected(guarantee: Guarantee) -> str:
    bounds = guarantee.label_bounds
    text = f"The label '{guarantee.label}' (declared range {bounds.low:g} to {bounds.high:g})"
    if not guarantee.private_columns:
        return f"{text}. No other column is."
    noun = "column" if len(guarantee.private_columns) == 1 else "columns"
    names = join([f"'{name}'" for name in guarantee.private_columns], most=40)
    return f"{text} and the private {noun} {names}. No other column is."


def _describe_unit(guarantee: Guarantee) -> str:
    if guarantee.unit:
        rows = "1 row" if guarantee.records_per_unit == 1 else f"up to {guarantee.records_per_unit:,} rows"
        return (
            f"Each person, with all their rows: records with the same value of '{guarantee.unit}' are protected "
            f"together ({guarantee.num_units:,} values, {rows} each)."
        )
    return (
        f"Each record, that is, each of the {guarantee.num_records:,} rows on its own. If a person has several rows, "
        "they are not protected as a whole."
    )


def _name_claim(guarantee: Guarantee) -> str:
    whose = "label or private column" if guarantee.private_columns else "label"
    return f"the {whose}s of one '{guarantee.unit}'" if guarantee.unit else f"one record's {whose}"


def _describe_strength(saved: FitResult, total: PrivacyBudget, chance: float) -> str:
    guarantee, included = saved.guarantee, "; the chance includes delta" if total.delta else ""
    text = (
        f"Someone who knows everything else, and for whom a claim about {_name_claim(guarantee)} is as likely true as "
        f"false (50 %), is right about it with a chance of at most {show_chance(chance)} % after seeing everything "
        f"that had been released when the model was saved ({total}{included})."
    )
    if total != guarantee.budget:
        own = show_chance(compute_chance(guarantee.budget, guarantee.neighbouring))
        text += (
            f" That counts the other releases in the ledger; this model alone has {guarantee.budget}, and a chance of "
            f"at most {own} %."
        )
    if guarantee.neighbouring is not Neighbouring.REPLACE:
        text += (
            " The guarantee is stated under the weaker relation ZERO_OUT, so epsilon counts twice when one value is "
            "compared with another."
        )
    return text


def _draw(chance: float, claim: str) -> Odds:
    after = min(100, math.ceil(100 * chance - 1e-9))
    names = ("right by chance alone", "more, at most, thanks to what was released", "still wrong")
    return Odds(f"Of 100 guesses about {claim}, how many are right", 50, after, names)


def describe_error(saved: FitResult, plan: Plan | None = None) -> list[str]:
    """What is known about the error of predictions, in sentences that say where it comes from."""
    label, evaluation, scales = saved.guarantee.label, saved.evaluation, saved.diagnostics.residual_deviations
    texts: list[str] = []
    is_sharp = False
    if evaluation is not None:
        rmse, percent = evaluation["rmse"], f"{100 * evaluation.level:g} %"
        is_sharp = rmse.estimate is not None and rmse.population.width < rmse.estimate
        error = f"about {show(rmse.estimate)}, " if is_sharp and rmse.estimate is not None else ""
        texts.append(
            f"The root mean squared error is {error}{rmse.population.describe()} with {percent} confidence, in the "
            f"units of '{label}', from a private evaluation on {evaluation.num_records:,} held-out records."
        )
    if scales and not is_sharp:
        share = 100 * scales[-1] / saved.guarantee.label_bounds.width
        texts.append(
            f"The standard deviation of the residuals of training records, which the fit released with noise, is about "
            f"{scales[-1]:.3g} in the units of '{label}', {share:.2g} % of its declared range."
        )
    if not texts:
        texts.append(UNKNOWN_ERROR)
    elif evaluation is None:
        texts.append("No held-out records were evaluated.")
    if plan is not None:
        ratio = dict(plan.comparison.rank(plan.epsilon)).get(plan.algorithm, math.nan)
        texts.append(
            f"On simulated labels, the plan expected {ratio:.3g} times the squared error of least squares without "
            f"privacy, at epsilon {plan.epsilon:g}."
        )
    return texts


def list_exposed(saved: FitResult) -> str:
    """What the guarantee does not cover, because it is treated as public."""
    guarantee, schema = saved.guarantee, saved.schema
    names = [f"'{name}'" for name in guarantee.public_columns]
    noun = "column" if len(names) == 1 else "columns"
    items = [
        f"the values of the public {noun} {join(names)}" if names else "",
        f"the values of '{guarantee.unit}', so which rows belong together" if guarantee.unit else "",
        f"the number of records ({guarantee.num_records:,})",
        "the weights of the records" if guarantee.weighted else "",
        "which records have no label" if guarantee.missing_is_public else "",
        "the schema: names and types of all columns, declared ranges"
        + (" and categories" if schema.category_columns else ""),
    ]
    text = "; ".join(filter(None, items))
    return text[0].upper() + text[1:]
