"""Cost of a transcript, computed from the actual releases rather than from what an algorithm declares."""

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from conddp.errors import PrivacyError
from conddp.privacy.accounting import (
    COARSEST_INTERVAL,
    FINEST_INTERVAL,
    TIGHTNESS,
    GaussianEvent,
    compute_gaussian_delta,
    compute_sampled_delta,
)
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.selection import RunDistribution, compute_selection_delta
from conddp.privacy.transcript import (
    GaussianRelease,
    PureRelease,
    Release,
    SelectedRelease,
    Transcript,
    UnprotectedRelease,
    WeightedSumRelease,
)
from conddp.privacy.weighted_sums import compute_bag_delta

__all__ = ["check_cost", "compute_delta", "compute_response_epsilon", "describe_transcript"]

_ROUNDING = 1e-9


def check_cost(transcript: Transcript, cost: PrivacyBudget, neighbouring: Neighbouring) -> None:
    """Raise unless the releases in a transcript cost at most the recorded cost.

    Privacy
        Reads no data. Called before a fit returns anything, so that an algorithm that releases more than it has paid
        for fails instead of leaking.

    Raises
    ------
    PrivacyError
        If the transcript is empty or costs more than ``cost``.
    """
    if not len(transcript):
        raise PrivacyError("private records were read, but nothing was released through the curator.")
    if math.isinf(cost.epsilon):
        return
    if not cost.delta and any(not isinstance(each, PureRelease) for each in transcript):
        raise PrivacyError(f"only pure releases have delta = 0, but the recorded cost is {cost}.")
    delta = compute_delta(transcript, cost.epsilon, neighbouring, at_most=cost.delta)
    if not delta <= cost.delta * (1 + _ROUNDING):
        raise PrivacyError(
            f"the releases of this fit have delta={delta:.3g} at epsilon={cost.epsilon:g}, more than the recorded "
            f"{cost}. No model is returned. This is a bug in the algorithm."
        )


def compute_delta(transcript: Transcript, epsilon: float, neighbouring: Neighbouring, *, at_most: float = 0.0) -> float:
    """Compute the delta of all releases together at ``epsilon``.

    The result is exact for full batches and an upper bound for Poisson samples. The epsilon of pure releases is
    subtracted first (basic composition); Gaussian releases compose exactly.

    Parameters
    ----------
    transcript : Transcript
        Releases of a fit.
    epsilon : float
        Epsilon at which to compute delta.
    neighbouring : Neighbouring
        Neighbouring relation under which the sensitivities in the transcript are stated.
    at_most : float
        Bounds for Poisson samples are refined until they fall below this value or stop improving.

    Examples
    --------
    >>> release = GaussianRelease("a sum", sensitivity=1.0, noise_std=4.2247)
    >>> round(compute_delta(Transcript((release,)), 1.0, Neighbouring.REPLACE) * 1e6, 2)
    1.0
    """
    gaussian = [each for each in transcript if isinstance(each, GaussianRelease)]
    bags = [each for each in transcript if isinstance(each, WeightedSumRelease)]
    selected = [each for each in transcript if isinstance(each, SelectedRelease)]
    pure = sum(each.epsilon for each in transcript if isinstance(each, PureRelease))
    if any(isinstance(each, UnprotectedRelease) for each in transcript) or pure > epsilon * (1 + _ROUNDING):
        return 1.0
    left = max(0.0, epsilon - pure)
    delta = _compute_gaussian_part(gaussian, left, neighbouring, at_most)
    alone = [*bags, *selected]
    if alone and (gaussian or len(alone) > 1 or alone[0].count > 1):
        raise PrivacyError(f"{alone[0].what} cannot be accounted together with other releases.")
    for choice in selected:
        distribution: RunDistribution = "geometric" if choice.distribution == "geometric" else "logarithmic"
        delta += compute_selection_delta(choice.mu, left, expected_runs=choice.expected_runs, distribution=distribution)
    for each in bags:
        if neighbouring is not Neighbouring.REPLACE:
            raise PrivacyError(f"weighted sums of labels are accounted under replacement only, got '{neighbouring}'.")
        delta += compute_bag_delta(
            left,
            bag_size=each.bag_size,
            noisy_fraction=each.num_noisy / each.bag_size,
            label_range=each.label_range / each.noise_std,
            used_fraction=each.used_fraction,
        )
    return delta


def _compute_gaussian_part(
    releases: Sequence[GaussianRelease], epsilon: float, neighbouring: Neighbouring, at_most: float
) -> float:
    if not releases:
        return 0.0
    if all(each.sampling_probability == 1.0 for each in releases):
        return compute_gaussian_delta(math.sqrt(sum(each.mu**2 for each in releases)), epsilon)
    unit = neighbouring.sensitivity(1.0)  # the noise multiplier of an event is relative to the clip norm
    events = tuple(
        GaussianEvent(each.noise_std * unit / each.sensitivity, each.count, each.sampling_probability, neighbouring)
        for each in releases
    )
    return _bound_sampled_delta(events, epsilon, at_most)


@functools.lru_cache(maxsize=64)  # the same run is often repeated, and one evaluation can take seconds
def _bound_sampled_delta(events: tuple[GaussianEvent, ...], epsilon: float, at_most: float) -> float:
    interval = COARSEST_INTERVAL
    delta = compute_sampled_delta(events, epsilon, interval)
    while delta > at_most and interval > FINEST_INTERVAL:
        interval /= 10
        finer = compute_sampled_delta(events, epsilon, interval)
        moved, delta = delta - finer, min(delta, finer)
        if moved <= TIGHTNESS * delta:  # a finer grid would not lower the bound
            break
    return delta


def describe_transcript(transcript: Transcript, neighbouring: Neighbouring) -> str:
    """Describe the releases and their accounting in sentences for the guarantee."""
    gaussian = Transcript(tuple(each for each in transcript if isinstance(each, GaussianRelease)))
    others = [_describe_release(each) for each in transcript if not isinstance(each, GaussianRelease)]
    return " ".join(filter(None, (_describe_gaussian(gaussian, neighbouring), *others)))


def _describe_gaussian(transcript: Transcript, neighbouring: Neighbouring) -> str:
    releases = [each for each in transcript if isinstance(each, GaussianRelease)]
    if not releases:
        return ""
    sampled = [each for each in releases if each.sampling_probability < 1.0]
    if sampled:
        first = sampled[0]
        multiplier = first.noise_std * neighbouring.sensitivity(1.0) / first.sensitivity
        return str(GaussianEvent(multiplier, len(transcript), first.sampling_probability, neighbouring))
    mu = math.sqrt(sum(each.mu**2 for each in releases))
    if len(transcript) == 1:
        return (
            f"One Gaussian release, {releases[0].what}, was accounted exactly; its sensitivity is {mu:.4g} "
            "standard deviations."
        )
    return (
        f"{len(transcript)} full-batch Gaussian releases were accounted exactly; together they form one Gaussian "
        f"mechanism whose sensitivity is {mu:.4g} standard deviations."
    )


def _describe_release(release: Release) -> str:
    if isinstance(release, PureRelease):
        each = f", {release.epsilon / release.count:.4g} for each of {release.count:,} records of a unit"
        return (
            f"{release.what.capitalize()}: {release.mechanism}, pure epsilon {release.epsilon:.4g}"
            f"{each if release.count > 1 else ''}."
        )
    if isinstance(release, WeightedSumRelease):
        return (
            f"{release.what.capitalize()}: bags of {release.bag_size} labels, {release.num_noisy} of them with "
            "Gaussian noise, accounted exactly as an average over the public weights."
        )
    if isinstance(release, SelectedRelease):
        return (
            f"{release.what.capitalize()}, chosen by a private score: a {release.distribution} number of runs with "
            f"mean {release.expected_runs:g}, each a Gaussian mechanism whose sensitivity is {release.mu:.4g} standard "
            "deviations, accounted by Renyi divergences (arXiv 2110.03620). The other runs stay secret."
        )
    return ""


def compute_response_epsilon(probabilities: NDArray[np.float64]) -> float:
    """Compute epsilon of a response table: the log of the largest ratio of two rows' probabilities of an outcome."""
    probabilities = probabilities / probabilities.sum(axis=1, keepdims=True)  # as they are drawn
    largest, smallest = probabilities.max(axis=0), probabilities.min(axis=0)
    possible = largest > 0
    if (smallest[possible] == 0).any():
        return math.inf
    return float(np.log(largest[possible] / smallest[possible]).max())
