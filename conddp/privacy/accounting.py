r"""Privacy accounting: the (epsilon, delta) of a run of noisy steps, and the noise for a target (epsilon, delta).

Conventions used throughout the library:

* ``noise_multiplier`` is the standard deviation of the noise divided by the clip norm of one record;
* full-batch steps compose to one Gaussian release, accounted exactly (Balle and Wang 2018, arXiv
  1805.06530v2, Theorem 8); Poisson-sampled steps are accounted with privacy loss distributions
  (dp-accounting), which give upper bounds at every discretisation;
* Renyi accounting is not used: under replacement it is stated for a different convention, and it is looser.

Under ``REPLACE`` the Poisson accountant compares the mixtures :math:`q N(-c) + (1-q) N(0)` and
:math:`q N(c) + (1-q) N(0)`. No two contributions of norm at most c are easier to tell apart at any epsilon, in any
dimension: an event of probability :math:`\Phi(z)` under N(a) has at least :math:`\Phi(z - c/s)` under N(0) and
:math:`\Phi(z - 2c/s)` under N(b), and half-lines attain both bounds at once for this pair. ``docs/guarantees.md`` has
the whole proof. The supplement of dp-accounting cites Proposition 13 of arXiv 2405.20769 for the same result.
"""

import functools
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from scipy.special import log_ndtr

from conddp._validate import in_range, positive, positive_integer
from conddp.cache import ContentCache, cache_folder
from conddp.errors import NotCalibrated, PrivacyWarning
from conddp.privacy.neighbouring import Neighbouring

__all__ = [
    "GaussianEvent",
    "calibrate_gaussian_mu",
    "calibrate_noise_multiplier",
    "check_delta",
    "compose_runs",
    "compute_epsilon",
    "compute_gaussian_delta",
    "compute_gaussian_epsilon",
    "compute_sampled_delta",
    "refuse_large_delta",
    "warn_about_delta",
]

COARSEST_INTERVAL = 1e-3  # of the privacy loss grid; the discretisation error is absolute and on the safe side
FINEST_INTERVAL = 1e-7
TIGHTNESS = 1e-3  # refine until the relative change of epsilon is below this
LARGEST_DELTA = 0.1  # of a fit
SMALLEST_EPSILON = 1e-6  # smallest epsilon for which noise is calibrated
CALIBRATIONS = "calibrations-v2.jsonl"  # in the cache folder
LOOSEST = 0.99  # a calibration that spends less than this fraction of epsilon is not believed to be ours
FARTHEST = 4.0  # factor between a calibration and its limit for many steps; beyond, an evaluation could take hours
SMALLEST_MULTIPLIER, MOST_RUNS = 0.02, 256  # limits of what a transcript may ask the accountant to compose
_SAFETY = 1e-7  # relative margin for errors of root finding and of the normal distribution function


@dataclass(frozen=True)
class GaussianEvent:
    """A run of ``num_steps`` Gaussian releases of clipped sums, with everything that accounting needs.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the clip norm.
    num_steps : int
        Number of releases.
    sampling_probability : float
        Probability that a record takes part in a step (Poisson sampling); 1 is the full batch.
    neighbouring : Neighbouring
        Neighbouring relation under which the run is accounted.
    """

    noise_multiplier: float
    num_steps: int
    sampling_probability: float = 1.0
    neighbouring: Neighbouring = Neighbouring.REPLACE

    def __post_init__(self) -> None:
        positive(noise_multiplier=self.noise_multiplier, sampling_probability=self.sampling_probability)
        in_range(0.0, 1.0, sampling_probability=self.sampling_probability)
        positive_integer(num_steps=self.num_steps)

    @property
    def is_full_batch(self) -> bool:
        """Whether every record takes part in every step, which makes the accounting exact."""
        return self.sampling_probability == 1.0

    def __str__(self) -> str:
        """Return a sentence for the guarantee."""
        noise = f"noise multiplier {self.noise_multiplier:.4g}"
        if self.is_full_batch:
            what = "1 Gaussian release" if self.num_steps == 1 else f"{self.num_steps} full-batch Gaussian releases"
            return f"{what} with {noise} {'was' if self.num_steps == 1 else 'were'} accounted exactly."
        return (
            f"{self.num_steps} Poisson-sampled Gaussian releases (sampling probability "
            f"{self.sampling_probability:.4g}, {noise}) were accounted by privacy loss distributions, "
            "which give an upper bound."
        )

    @property
    def mu(self) -> float:
        """Sensitivity divided by standard deviation of the single Gaussian mechanism equivalent to a full-batch run."""
        if not self.is_full_batch:
            raise ValueError("A Poisson-sampled run is not a single Gaussian mechanism; use compute_epsilon.")
        return self.neighbouring.sensitivity(1.0) * math.sqrt(self.num_steps) / self.noise_multiplier


def compute_gaussian_delta(mu: float, epsilon: float) -> float:
    r"""Compute the exact delta of a Gaussian mechanism whose sensitivity is ``mu`` standard deviations.

    .. math:: \delta = \Phi(\mu/2 - \epsilon/\mu) - e^\epsilon \Phi(-\mu/2 - \epsilon/\mu)

    Examples
    --------
    >>> round(compute_gaussian_delta(1 / 4.2247, 1.0) * 1e6, 3)
    1.0
    """
    return math.exp(_log_gaussian_delta(mu, epsilon))


def compute_gaussian_epsilon(mu: float, delta: float) -> float:
    """Compute the smallest epsilon of a Gaussian mechanism at ``delta``, exact up to 1e-9 on the safe side."""
    check_delta(delta)
    if compute_gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while compute_gaussian_delta(mu, high) > delta:
        high *= 2
    root = _bisect(lambda epsilon: delta - compute_gaussian_delta(mu, epsilon), 0.0, high)
    return root * (1 + _SAFETY)


def calibrate_gaussian_mu(epsilon: float, delta: float) -> float:
    """Find the largest ratio of sensitivity to standard deviation that gives (epsilon, delta); this is 1 / sigma_1.

    Raises
    ------
    NotCalibrated
        If epsilon is so small that rounding errors dominate the difference in probabilities it allows.
    """
    positive(epsilon=epsilon)
    check_delta(delta)
    if epsilon < SMALLEST_EPSILON:
        raise NotCalibrated(
            f"epsilon={epsilon:g} is below {SMALLEST_EPSILON:g}, where rounding errors dominate. Raise epsilon."
        )
    return _find_gaussian_mu(float(epsilon), float(delta))


@functools.lru_cache(maxsize=256)  # a fit asks several times, and the same fit is often repeated
def _find_gaussian_mu(epsilon: float, delta: float) -> float:
    def excess(log_mu: float) -> float:
        return _log_gaussian_delta(math.exp(log_mu), epsilon) - math.log(delta)

    return math.exp(_bisect(excess, math.log(1e-12), math.log(1e6))) * (1 - _SAFETY)


def compute_epsilon(event: GaussianEvent, delta: float) -> float:
    """Compute the epsilon that a run spends at ``delta``, under the neighbouring relation of the event.

    Privacy
        Reads no data. The result is exact for full batches. For Poisson sampling it is an upper bound, refined
        until it changes by less than 0.1 %.

    Examples
    --------
    >>> round(compute_epsilon(GaussianEvent(noise_multiplier=10.0, num_steps=16), 1e-6), 3)
    3.797
    """
    check_delta(delta)
    if event.is_full_batch:
        return compute_gaussian_epsilon(event.mu, delta)
    interval = COARSEST_INTERVAL
    epsilon = _compute_epsilon_by_pld(event, delta, interval)
    while interval > FINEST_INTERVAL:
        interval /= 10
        finer = _compute_epsilon_by_pld(event, delta, interval)
        moved = abs(epsilon - finer)
        epsilon = min(epsilon, finer)
        if moved <= TIGHTNESS * epsilon:
            break
    return epsilon


def calibrate_noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    num_steps: int,
    sampling_probability: float = 1.0,
    neighbouring: Neighbouring = Neighbouring.REPLACE,
) -> float:
    """Find the smallest noise multiplier (standard deviation divided by clip norm) that gives (epsilon, delta).

    Privacy
        Reads no data. The result never gives less privacy than requested. It is within 0.1 % of the smallest
        noise multiplier that the accountant can certify. Results are kept in a file; one that is found there is used
        only after the accountant has confirmed it.

    Examples
    --------
    >>> round(calibrate_noise_multiplier(1.0, 1e-6, num_steps=128), 2)
    95.59
    """
    positive(epsilon=epsilon)
    check_delta(delta)
    in_range(0.0, 1.0, sampling_probability=sampling_probability)
    positive(sampling_probability=sampling_probability)
    positive_integer(num_steps=num_steps)
    mu = calibrate_gaussian_mu(epsilon, delta)
    if sampling_probability == 1.0:
        return neighbouring.sensitivity(1.0) * math.sqrt(num_steps) / mu

    cache = ContentCache(cache_folder() / CALIBRATIONS)
    key = {
        "epsilon": epsilon,
        "delta": delta,
        "num_steps": num_steps,
        "sampling_probability": sampling_probability,
        "neighbouring": neighbouring.value,
        "accountant": f"dp-accounting {version('dp-accounting')}",
    }

    def event(noise_multiplier: float) -> GaussianEvent:
        return GaussianEvent(noise_multiplier, num_steps, sampling_probability, neighbouring)

    guess = _central_limit_noise_multiplier(mu, num_steps, sampling_probability, neighbouring)
    cached = cache.get(key)
    if isinstance(cached, float) and guess / FARTHEST <= cached <= guess * FARTHEST:
        if _is_calibrated(event(cached), float(epsilon), float(delta)):
            return cached
    found = _calibrate_by_pld(event, epsilon, delta, guess=guess)
    cache.put(key, found)
    return found


@functools.lru_cache(maxsize=256)  # the same run is often repeated
def _is_calibrated(event: GaussianEvent, epsilon: float, delta: float) -> bool:
    """Whether a run spends at most epsilon, and not much less; one evaluation if the coarsest grid shows it."""
    spent, interval = math.inf, COARSEST_INTERVAL
    while interval >= FINEST_INTERVAL:
        finer = _compute_epsilon_by_pld(event, delta, interval)
        if finer <= epsilon:
            return finer >= LOOSEST * epsilon
        if spent - finer <= TIGHTNESS * finer:  # a finer grid would not lower the bound
            return False
        spent, interval = finer, interval / 10
    return False


def _bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """Root of an increasing function, to machine precision; written here because scipy.optimize is slow to import."""
    while high - low > 1e-13 * max(1.0, abs(low)):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def _log_gaussian_delta(mu: float, epsilon: float) -> float:
    """Logarithm of delta, floored at -1e6 to keep root finding finite."""
    log_first = float(log_ndtr(mu / 2 - epsilon / mu))
    log_second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    share = -math.expm1(min(log_second - log_first, 0.0))  # fraction of the first term that remains
    return max(log_first + math.log(share), -1e6) if share > 0 else -1e6


def check_delta(delta: float) -> None:
    """Raise ValueError unless delta lies strictly between 0 and 1."""
    if not 0.0 < delta < 1.0:
        raise ValueError(
            f"delta must lie strictly between 0 and 1, got delta={delta!r}. Gaussian noise cannot give delta = 0. "
            "Choose delta well below one over the number of records."
        )


def refuse_large_delta(delta: float) -> None:
    """Raise ValueError if delta is so large that it protects nobody in a table of any size."""
    if delta >= LARGEST_DELTA:
        raise ValueError(
            f"delta must be below {LARGEST_DELTA:g}, got delta={delta!r}: releasing every record with this probability "
            "would satisfy the guarantee. Choose delta well below one over the number of records."
        )


def warn_about_delta(delta: float, num_records: int) -> None:
    """Warn if delta exceeds one over the number of records, which is public."""
    if delta * num_records <= 1.0:
        return
    amount = delta * num_records
    expected = "a record" if amount < 1.5 else "a few records" if amount < 10 else f"about {amount:,.0f} records"
    choice = 10.0 ** math.floor(math.log10(0.1 / num_records))
    warnings.warn(
        f"with delta={delta:g} and {num_records:,} records, releasing {expected} outright would satisfy the guarantee. "
        f"Choose delta well below one over the number of records, such as {choice:g}.",
        PrivacyWarning,
        stacklevel=4,  # the call of fit
    )


def _central_limit_noise_multiplier(
    mu: float, num_steps: int, sampling_probability: float, neighbouring: Neighbouring
) -> float:
    r"""Limit of the noise multiplier for many steps; slightly too small, so used only as an initial guess.

    With :math:`s` the multiplier, the limit is :math:`\mu = q\sqrt{T(e^{1/s^2}-1)}` under ZERO_OUT and
    :math:`\mu = q\sqrt{2T(e^{1/s^2}-e^{-1/s^2})}` under REPLACE.
    """
    square = mu**2 / (num_steps * sampling_probability**2)
    if neighbouring is Neighbouring.REPLACE:
        inverse_variance = math.asinh(square / 4)  # 2 (e^v - e^-v) = 4 sinh v
    else:
        inverse_variance = math.log1p(square)
    return 1 / math.sqrt(inverse_variance)


def compute_sampled_delta(events: Iterable[GaussianEvent], epsilon: float, interval: float) -> float:
    """Bound the delta of composed runs from above, using privacy loss distributions on a grid.

    All runs must use the same neighbouring relation.

    Privacy
        Reads no data. The result is an upper bound for every grid interval. It is 1 for runs that spend far more than
        ``epsilon``, because their distributions would not fit into memory.
    """
    events = list(events)
    if len(events) > MOST_RUNS or min(event.noise_multiplier for event in events) < SMALLEST_MULTIPLIER:
        return 1.0
    if sum(_bound_mean_loss(event) for event in events) > 4 * epsilon + 100:
        return 1.0
    return float(compose_runs(events, interval).get_delta(epsilon))


def _bound_mean_loss(event: GaussianEvent) -> float:
    """Bound on the mean privacy loss of a run.

    The divergence of two mixtures is at most the weight of the components that differ times their divergence, and at
    most the chi-square divergence of the mixtures, in which the weight is squared.
    """
    q, inverse_variance = event.sampling_probability, event.noise_multiplier**-2.0
    by_components = q * event.neighbouring.sensitivity(1.0) ** 2 * inverse_variance / 2
    if q == 1.0 or inverse_variance > 100:
        return float(event.num_steps * by_components)
    replaced = event.neighbouring is Neighbouring.REPLACE
    spread = 4 * math.sinh(inverse_variance) / (1 - q) if replaced else math.expm1(inverse_variance)
    return float(event.num_steps * min(by_components, q**2 * spread))


def _compute_epsilon_by_pld(event: GaussianEvent, delta: float, interval: float) -> float:
    """Upper bound on epsilon from a privacy loss distribution on a grid of the given interval."""
    return float(compose_runs([event], interval).get_epsilon(delta))


def compose_runs(events: Iterable[GaussianEvent], interval: float) -> Any:
    """Return an accountant of dp-accounting that has composed the runs on a grid of this interval.

    Privacy
        Reads no data. The accountant bounds delta and epsilon from above for every grid interval.
    """
    # Imported here because the import takes most of a second and full-batch runs never need it.
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    relations = {
        Neighbouring.REPLACE: NeighboringRelation.REPLACE_ONE,
        Neighbouring.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
    }
    events = list(events)
    (relation,) = {relations[event.neighbouring] for event in events}
    accountant = PLDAccountant(relation, value_discretization_interval=interval)
    for event in events:
        sampled = PoissonSampledDpEvent(event.sampling_probability, GaussianDpEvent(event.noise_multiplier))
        accountant.compose(sampled, event.num_steps)
    return accountant


def _calibrate_by_pld(event: Callable[[float], GaussianEvent], epsilon: float, delta: float, *, guess: float) -> float:
    """Solve for the noise multiplier on successively finer grids until epsilon at the solution is tight."""
    interval = COARSEST_INTERVAL
    log_guess = math.log(guess)
    while interval >= FINEST_INTERVAL:
        found = _solve_on_grid(event, epsilon, delta, interval, log_guess)
        if found is not None:
            finer = _compute_epsilon_by_pld(event(math.exp(found)), delta, interval / 10)
            if finer >= epsilon * (1 - TIGHTNESS):
                return math.exp(found)
            log_guess = found
        interval /= 10
    if found is not None:
        return math.exp(found)
    raise NotCalibrated(
        f"No noise multiplier was found for epsilon={epsilon}, delta={delta} and this number of steps. "
        "Lower num_steps or raise epsilon."
    )


def _solve_on_grid(
    event: Callable[[float], GaussianEvent], epsilon: float, delta: float, interval: float, log_guess: float
) -> float | None:
    """Log of a noise multiplier that gives at most epsilon, within 1e-4 of the smallest; None if not found."""

    @functools.cache
    def excess(log_noise: float) -> float:
        spent = _compute_epsilon_by_pld(event(math.exp(log_noise)), delta, interval)
        return math.log(min(max(spent, 1e-9), 1e6) / epsilon)

    width = 0.02
    low, high = log_guess, log_guess + width
    while excess(high) > 0:
        width *= 2
        low, high = high, high + width
        if width > 4.0:
            return None
    while excess(low) <= 0:
        width *= 2
        low, high = low - width, low
    from scipy.optimize import brentq  # slow to import, and full-batch runs never need it

    tolerance = 1e-4
    return float(brentq(excess, low, high, xtol=tolerance / 4)) + tolerance / 2
