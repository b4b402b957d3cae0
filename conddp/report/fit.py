"""The report of a trained model."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from conddp.heads.head import Linearity
from conddp.models.diagnostics import Diagnostics
from conddp.models.evidence import check_evidence
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.planning.plan import Plan
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.transcript import (
    GaussianRelease,
    PureRelease,
    Release,
    SelectedRelease,
    Transcript,
    WeightedSumRelease,
)
from conddp.report.coefficients import describe_coefficients
from conddp.report.columns import describe_columns, describe_design
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

__all__ = ["report_fit"]

LARGEST_EXPONENT = 700.0  # of what floating point can hold
NOTHING_PRIVATE = (
    "This page holds no private value: everything on it is public, declared, or released under the guarantee."
)
DISJOINT = (
    "Training and held-out records are disjoint sides of a public split. A record is on one of them only, so that of "
    "both costs the larger one counts, not the sum."
)
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
        Of a fit, or a saved model.
    plan : Plan, optional
        Made from the same public columns; adds the expected errors.
    more : tuple of Section
        Further sections, after the guarantee.
    footnote : str
        At the bottom of the page of a private model.

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
        _describe_guarantee(guarantee),
        *more,
        describe_columns(saved.schema, saved.encoding),
        _describe_releases(saved),
        _describe_ledger(ledger),
        *([describe_expectations(plan.comparison, plan.epsilon)] if plan else []),
        *([] if saved.evaluation is None else [describe_evaluation(saved.evaluation)]),
        _describe_model(saved),
        *([] if saved.diagnostics.effects is None else [describe_curves(saved.make_curves(), saved.schema)]),
        _describe_course(saved.diagnostics),
        *([] if saved.design is None else [describe_design(saved.design)]),
        Section("Settings and versions", (_list_facts(saved.settings), _list_facts(saved.versions))),
    ]
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
    )


def _describe_guarantee(guarantee: Guarantee) -> Section:
    if math.isinf(guarantee.epsilon):
        return Section("What is guaranteed", (Text(str(guarantee)),))
    epsilon, delta = guarantee.epsilon, guarantee.delta
    whose = "label and private columns" if guarantee.private_columns else "label"
    factor = math.exp(min(epsilon, LARGEST_EXPONENT))
    amount = round_up(factor) if epsilon <= LARGEST_EXPONENT else f"e^{epsilon:g}"
    certain = round_up(100 * min(1.0, (factor + delta) / (1 + factor)))
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
        "What is guaranteed",
        (
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


def _describe_releases(saved: FitResult) -> Section:
    transcript, guarantee = saved.transcript, saved.guarantee
    if math.isinf(guarantee.epsilon):
        return Section("What was released", ())
    if saved.old_format and not len(transcript):
        missing = f"Format {saved.old_format} of saved models kept no list of releases. The guarantee describes them."
        return Section("What was released", (Text(missing),))
    rows = tuple(
        (what, mechanism, _show_range(sensitivities), _show_range(noise), f"{times:,}")
        for (what, mechanism), sensitivities, noise, times in _group(transcript)
    )
    return Section(
        "What was released",
        (
            Text(
                "Everything computed from private values, with the noise that was added. The released numbers "
                "themselves are not shown. The sensitivity is the distance by which "
                f"{'all records of a unit together' if guarantee.unit else 'one record'} can move what is "
                "released, for labels scaled to a range of width one."
            ),
            Table("Releases", ("what", "mechanism", "sensitivity", "noise", "times"), rows),
            Text(
                "Noise is its standard deviation for Gaussian releases and its scale otherwise. The cost of the fit is "
                f"computed from these releases: together they cost at most {guarantee.budget}."
            ),
        ),
    )


def _group(transcript: Transcript) -> Iterator[tuple[tuple[str, str], list[float], list[float], int]]:
    """Releases of the same kind in a row: what and how, their sensitivities and noise, and how many there are."""
    for key, members in groupby(transcript, key=lambda release: (release.what, _name_mechanism(release))):
        releases = list(members)
        sizes = [_measure(release) for release in releases]
        yield key, [size for size, _ in sizes], [noise for _, noise in sizes], sum(each.count for each in releases)


def _name_mechanism(release: Release) -> str:
    if isinstance(release, GaussianRelease):
        sampled = release.sampling_probability < 1.0
        return (
            f"Gaussian, each record or unit sampled with {release.sampling_probability:.3g}" if sampled else "Gaussian"
        )
    if isinstance(release, WeightedSumRelease):
        return f"Gaussian noise on {release.num_noisy} of {release.bag_size} labels of every bag"
    if isinstance(release, SelectedRelease):
        return f"best of {release.expected_runs:g} runs on average, each a Gaussian mechanism"
    return release.mechanism if isinstance(release, PureRelease) else "none: not protected"


def _measure(release: Release) -> tuple[float, float]:
    """Sensitivity and noise of a release."""
    if isinstance(release, GaussianRelease):
        return release.sensitivity, release.noise_std
    if isinstance(release, WeightedSumRelease):
        return release.label_range, release.noise_std
    if isinstance(release, SelectedRelease):
        return release.mu, 1.0
    return (release.sensitivity, release.noise_scale) if isinstance(release, PureRelease) else (math.inf, 0.0)


def _show_range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"


def _describe_ledger(ledger: PrivacyLedger) -> Section:
    rows = tuple(
        (
            entry.time[:16].replace("T", " "),
            entry.title,
            entry.reason,
            f"{entry.cost.epsilon:g}",
            f"{entry.cost.delta:g}",
        )
        for entry in ledger.entries
    )
    return Section(
        "What was spent",
        (
            Text("The ledger when this model was saved. Later fits charged to it are not listed."),
            *((Text(DISJOINT),) if any(entry.side for entry in ledger.entries) else ()),
            Table("The ledger", ("when (UTC)", "what", "why", "epsilon", "delta"), rows, num_text=3),
            Facts(
                (
                    ("budget", str(ledger.budget)),
                    ("spent", str(ledger.spent)),
                    ("plain sum of the costs", str(ledger.plain_sum)),
                    ("remaining at that time, for one more full-batch fit", str(ledger.remaining)),
                    ("relation", ledger.neighbouring.value),
                )
            ),
        ),
    )


def _describe_model(saved: FitResult) -> Section:
    model = saved.model
    if model.head.linear_in is not Linearity.COLUMNS:
        count = f"{model.layout.size:,} parameters"
        text = f"{_name_model(model)} with {count}. Its weights are in the model's folder."
        return Section("The model", (Text(text), *_describe_private(saved)))
    return Section("The model", describe_coefficients(saved))


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
