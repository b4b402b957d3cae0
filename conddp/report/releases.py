"""Sections about what a fit released and what was spent."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from conddp.models.result import FitResult
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.transcript import (
    GaussianRelease,
    PureRelease,
    Release,
    SelectedRelease,
    Transcript,
    WeightedSumRelease,
)
from conddp.report.document import Facts, Section, Table, Text

__all__ = ["describe_ledger", "describe_releases"]

DISJOINT = (
    "Training and held-out records are disjoint sides of a public split. A record is on one of them only, so that of "
    "both costs the larger one counts, not the sum."
)


def describe_releases(saved: FitResult) -> Section:
    """What was computed from private values, and with how much noise."""
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


def describe_ledger(ledger: PrivacyLedger) -> Section:
    """What was spent, in total and by entry."""
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
            Text(
                f"In total {ledger.spent} of a budget of {ledger.budget}, when this model was saved. Later fits "
                "charged to the ledger are not listed."
            ),
            *((Text(DISJOINT),) if any(entry.side for entry in ledger.entries) else ()),
            Table("The ledger", ("when (UTC)", "what", "why", "epsilon", "delta"), rows, num_text=3),
            Facts(
                (
                    ("spent in total", str(ledger.spent)),
                    ("budget", str(ledger.budget)),
                    ("plain sum of the costs", str(ledger.plain_sum)),
                    ("remaining at that time, for one more full-batch fit", str(ledger.remaining)),
                    ("relation", ledger.neighbouring.value),
                )
            ),
        ),
    )
