"""What an entry of the ledger paid for: the mechanisms that a fit will use, stated before it reads private data.

An event is a :class:`~conddp.privacy.transcript.Transcript` of releases yet to be made. The ledger composes events
exactly (:mod:`conddp.privacy.total`), and a fit may release at most what its event states.
"""

from conddp._validate import positive
from conddp.errors import PrivacyError
from conddp.privacy.accounting import GaussianEvent, calibrate_gaussian_mu
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.transcript import GaussianRelease, PureRelease, Transcript, UnprotectedRelease

__all__ = ["check_event", "expect_event", "make_gaussian_event", "make_pure_event", "make_run_event"]

_ROUNDING = 1e-9


def make_gaussian_event(mu: float) -> Transcript:
    """State full-batch Gaussian releases that together are one Gaussian mechanism.

    Parameters
    ----------
    mu : float
        Sensitivity of all releases together, in standard deviations of the noise. Squares add up.

    Examples
    --------
    >>> make_gaussian_event(0.25).mu
    0.25
    """
    positive(mu=mu)
    return Transcript((GaussianRelease("full-batch Gaussian releases", 1, float(mu), 1.0),))


def make_pure_event(*epsilons: float) -> Transcript:
    """State releases under pure differential privacy, one for each epsilon.

    Examples
    --------
    >>> make_pure_event(0.25, 0.75).pure_epsilon
    1.0
    """
    positive(**{f"epsilon_{number}": epsilon for number, epsilon in enumerate(epsilons)})
    return Transcript(tuple(PureRelease("a pure release", 1, "any", float(each), 1.0) for each in epsilons))


def make_run_event(run: GaussianEvent) -> Transcript:
    """State a run of Gaussian steps, on the full batch or on Poisson samples."""
    clipped = run.neighbouring.sensitivity(1.0)
    step = GaussianRelease(
        "noisy steps", run.num_steps, clipped, float(run.noise_multiplier), float(run.sampling_probability)
    )
    return Transcript((step,))


def expect_event(cost: PrivacyBudget) -> Transcript | None:
    """Return the event of a default fit with this cost: one Gaussian mechanism, or a pure one if delta is 0."""
    if cost.epsilon in (0.0, float("inf")):
        return None
    if cost.delta == 0:
        return make_pure_event(cost.epsilon)
    return make_gaussian_event(calibrate_gaussian_mu(cost.epsilon, cost.delta))


def check_event(transcript: Transcript, event: Transcript | None) -> None:
    """Raise unless the releases of a fit stayed within the event that was recorded for it.

    Privacy
        Reads no data. The ledger adds up events, so a fit that releases more than its event would be under-counted.
        Releases of one kind are not set off against another: Gaussian releases are compared by their joint ``mu``,
        pure ones by the sum of their epsilons, and sampled ones step by step.

    Parameters
    ----------
    transcript : Transcript
        Releases that were made.
    event : Transcript or None
        The recorded event. If None, the ledger believes (epsilon, delta) only, and there is nothing to compare.

    Raises
    ------
    PrivacyError
        If the transcript contains more than the event.
    """
    if event is None or any(isinstance(each, UnprotectedRelease) for each in event):
        return
    within = (
        transcript.mu <= event.mu * (1 + _ROUNDING)
        and _cover_pure(transcript, event)
        and all(isinstance(each, (GaussianRelease, PureRelease)) for each in transcript)
        and _match_samples(transcript, event)
    )
    if not within:
        raise PrivacyError(
            "the releases of this fit are more than the event that its ledger entry states. No model is returned. "
            "This is a bug in the algorithm: state in task.spend(event=...) everything that it will release."
        )


def _match_samples(transcript: Transcript, event: Transcript) -> bool:
    """Whether every sampled step has a step of the event with as little noise and as large a sample, or more."""
    left = [[each, each.count] for each in event.sampled]
    for made in transcript.sampled:
        count = made.count
        for slot in left:
            paid, number = slot
            assert isinstance(paid, GaussianRelease) and isinstance(number, int)
            ratio = paid.sensitivity / paid.noise_std
            if made.sensitivity / made.noise_std <= ratio * (
                1 + _ROUNDING
            ) and made.sampling_probability <= paid.sampling_probability * (1 + _ROUNDING):
                used = min(count, number)
                slot[1], count = number - used, count - used
        if count:
            return False
    return True


def _cover_pure(transcript: Transcript, event: Transcript) -> bool:
    """Whether the pure releases fit into those of the event, each of which may hold several smaller ones."""
    left = _list_pure(event)
    place = 0
    for epsilon in _list_pure(transcript):  # from the largest: those of the event that are too small now stay so
        while place < len(left) and left[place] * (1 + _ROUNDING) < epsilon:
            place += 1
        fits = next((number for number in range(place, len(left)) if left[number] * (1 + _ROUNDING) >= epsilon), None)
        if fits is None:
            fits = next((number for number in range(place) if left[number] * (1 + _ROUNDING) >= epsilon), None)
        if fits is None:
            return False
        left[fits] -= epsilon
    return True


def _list_pure(transcript: Transcript) -> list[float]:
    pure = [each for each in transcript if isinstance(each, PureRelease)]
    return sorted((each.epsilon / each.count for each in pure for _ in range(each.count)), reverse=True)
