r"""What several fits on the same records cost together.

* Full-batch Gaussian releases, of one fit or of many, are one Gaussian mechanism with
  :math:`\mu^2 = \sum_j \mu_j^2`. This is exact (Dong, Roth and Su, arXiv 1905.02383, Corollary 3.3), and it stays true
  if each fit is chosen after looking at the results of those before it (Smith and Thakurta, arXiv 2210.17520).
* A mechanism with pure :math:`\epsilon_j` is dominated by binary randomised response, whose privacy loss is
  :math:`+\epsilon_j` with probability :math:`e^{\epsilon_j} / (1 + e^{\epsilon_j})` and :math:`-\epsilon_j` otherwise
  (Kairouz, Oh and Viswanath, arXiv 1311.0776). With S the sum of such losses, the joint delta is the mean over S of
  the Gaussian delta at :math:`\epsilon - S`.
* Poisson-sampled runs enter as privacy loss distributions (dp-accounting), which bound delta from above.
* Of all other mechanisms only (epsilon, delta) is known. They add by basic composition.

If mechanisms of different kinds are mixed, the total holds for costs that were fixed in advance; their order and kind
must not be chosen by looking at earlier results. Sums of (epsilon, delta) need no such condition.
"""

import copy
import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_expit, log_ndtr

from conddp.errors import PrivacyError
from conddp.privacy.accounting import (
    COARSEST_INTERVAL,
    FINEST_INTERVAL,
    SMALLEST_EPSILON,
    TIGHTNESS,
    GaussianEvent,
    calibrate_gaussian_mu,
    compose_runs,
    compute_gaussian_epsilon,
)
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.composition import compute_delta
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.transcript import GaussianRelease, PureRelease, Transcript

__all__ = ["JointCost", "check_statement"]

Curve = Callable[[NDArray[np.float64]], NDArray[np.float64]]

MOST_ATOMS = 20_000  # values of the sum of pure losses; beyond that epsilons are added instead
LARGEST_GRID = 2e7  # points of a privacy loss distribution
_ROUNDING = 1e-9
_SAFETY = 1e-7  # relative margin for errors of root finding


@dataclass(frozen=True)
class JointCost:
    """Mechanisms on the same records, in the form in which they compose.

    Privacy
        Reads no data. Every result is exact or an upper bound.

    Parameters
    ----------
    neighbouring : Neighbouring
        Neighbouring relation under which all costs are stated.
    total : PrivacyBudget
        Sum of all costs, by basic composition.
    mu_squared : float
        Of all full-batch Gaussian releases.
    pure : tuple of float
        Epsilon of every pure release.
    runs : tuple of GaussianEvent
        Poisson-sampled runs.
    others : PrivacyBudget
        Sum of the costs of which only (epsilon, delta) is known.

    Examples
    --------
    >>> from conddp.privacy.events import expect_event
    >>> fit = PrivacyBudget(1.0, 1e-6)
    >>> four = JointCost.of([(fit, expect_event(fit))] * 4, Neighbouring.REPLACE)
    >>> round(four.epsilon(1e-6), 2)
    2.12
    """

    neighbouring: Neighbouring
    total: PrivacyBudget = PrivacyBudget(0.0, 0.0)
    mu_squared: float = 0.0
    pure: tuple[float, ...] = ()
    runs: tuple[GaussianEvent, ...] = ()
    others: PrivacyBudget = PrivacyBudget(0.0, 0.0)

    @classmethod
    def of(cls, payments: Iterable[tuple[PrivacyBudget, Transcript | None]], neighbouring: Neighbouring) -> "JointCost":
        """Collect costs with their events; an event of None means that only the cost is known."""
        joint = cls(neighbouring)
        for cost, event in payments:
            joint = joint.add(cost, event)
        return joint

    def add(self, cost: PrivacyBudget, event: Transcript | None) -> "JointCost":
        """Return the joint cost with one more fit."""
        joint = replace(self, total=self.total + cost)
        known = event is not None and all(isinstance(each, (GaussianRelease, PureRelease)) for each in event)
        if event is None or not known or math.isinf(cost.epsilon):
            return replace(joint, others=self.others + cost)
        unit = self.neighbouring.sensitivity(1.0)
        return replace(
            joint,
            mu_squared=self.mu_squared + event.mu**2,
            pure=(
                *self.pure,
                *(epsilon for each in event if isinstance(each, PureRelease) for epsilon in _list_epsilons(each)),
            ),
            runs=_merge(
                *self.runs,
                *(
                    GaussianEvent(
                        each.noise_std * unit / each.sensitivity,
                        each.count,
                        each.sampling_probability,
                        self.neighbouring,
                    )
                    for each in event.sampled
                ),
            ),
        )

    def delta(self, epsilon: float, *, at_most: float = 0.0) -> float:
        """Compute the joint delta at ``epsilon``.

        The result is exact without Poisson samples. With them it is an upper bound, refined until it falls below
        ``at_most`` or stops improving.
        """
        best = 1.0
        for interval in self._list_intervals():
            found = self._delta_on_grid(epsilon, interval)
            moved, best = best - found, min(best, found)
            if best <= at_most * (1 + _ROUNDING) or moved <= TIGHTNESS * best:
                break
        return best

    def epsilon(self, delta: float) -> float:
        """Compute the smallest joint epsilon at ``delta``; infinite if there is none.

        Never larger than the sum of all epsilons if the sum of all deltas is at most ``delta``.
        """
        best = self.total.epsilon if self.total.delta <= delta * (1 + _ROUNDING) else math.inf
        if math.isinf(self.others.epsilon) or delta <= self.others.delta * (1 + _ROUNDING):
            return best  # nothing is left for the rest, unless it is pure
        last = math.inf
        for interval in self._list_intervals():
            found = self._epsilon_on_grid(delta, interval)
            moved, last, best = abs(last - found), found, min(best, found)
            if moved <= TIGHTNESS * found:
                break
        return best

    def is_covered_by(self, budget: PrivacyBudget) -> bool:
        """Whether everything together stays within a budget."""
        if budget.covers(self.total):
            return True
        if math.isinf(self.others.epsilon) and not math.isinf(budget.epsilon):
            return False
        return bool(self.delta(budget.epsilon, at_most=budget.delta) <= budget.delta * (1 + _ROUNDING))

    def find_rest(self, budget: PrivacyBudget) -> PrivacyBudget:
        """Find the largest epsilon that one more Gaussian fit at the delta of the budget could have.

        If the delta of the budget is 0, this is one more pure fit. Rounded down to six digits; with Poisson-sampled
        runs a lower bound. A fit with less than a thousandth of the budget's ``mu`` counts as nothing.
        """
        if math.isinf(budget.epsilon) or not (self.total.epsilon or self.total.delta):
            return budget
        if budget.delta == 0:
            return PrivacyBudget(_round_down(budget.minus(self.total).epsilon), 0.0)
        if budget.epsilon < SMALLEST_EPSILON or not self.is_covered_by(budget):
            return PrivacyBudget(0.0, budget.delta)
        low, high = 0.0, calibrate_gaussian_mu(budget.epsilon, budget.delta)
        smallest = 1e-3 * high  # less is left over by the safety margins of root finding
        interval = COARSEST_INTERVAL / 10 if self.runs else 0.0
        while high - low > (2e-4 if self.runs else 1e-9) * high:
            middle = (low + high) / 2
            more = replace(self, mu_squared=self.mu_squared + middle**2)
            fits = more._delta_on_grid(budget.epsilon, interval) <= budget.delta
            low, high = (middle, high) if fits else (low, middle)
            if high < smallest:
                return PrivacyBudget(0.0, budget.delta)
        epsilon = compute_gaussian_epsilon(low, budget.delta) * (1 - 2 * _SAFETY)
        return PrivacyBudget(_round_down(epsilon) if epsilon >= SMALLEST_EPSILON else 0.0, budget.delta)

    def _list_intervals(self) -> Iterable[float]:
        """Grid intervals for the runs, from coarse to fine; 0 if there are no runs and no grid is needed."""
        if not self.runs:
            return (0.0,)
        intervals = [COARSEST_INTERVAL / 10**power for power in range(5)]
        return (each for each in intervals if each >= FINEST_INTERVAL and self._fits_grid(each))

    def _delta_on_grid(self, epsilon: float, interval: float) -> float:
        left = epsilon - self.others.epsilon
        if left < -_ROUNDING * epsilon:
            return 1.0
        losses, probabilities = self._spread_pure()
        deltas = self._make_curve(interval)(max(left, 0.0) - losses)
        return min(1.0, self.others.delta + float(probabilities @ deltas))

    def _epsilon_on_grid(self, delta: float, interval: float) -> float:
        """Invert the joint curve, on the safe side by a relative 1e-7."""
        losses, probabilities = self._spread_pure()
        left = delta - self.others.delta
        if self.runs:
            found = float(self._compose(interval).get_epsilon(left))
            return self.others.epsilon + float(losses[0]) + found * (1 + _SAFETY)
        curve = self._make_curve(interval)

        def exceeds(epsilon: float) -> bool:
            return float(probabilities @ curve(epsilon - losses)) > left

        low, high = 0.0, 1.0
        if not exceeds(0.0):
            return self.others.epsilon
        while exceeds(high):
            low, high = high, 2 * high
            if high > 1e15:
                return math.inf
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if exceeds(middle) else (low, middle)
        return self.others.epsilon + high * (1 + _SAFETY)

    def _spread_pure(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Values and probabilities of the sum of pure losses. Beside runs, their epsilons are simply added."""
        if self.runs:
            return np.array([sum(self.pure)]), np.ones(1)
        return _spread_responses(tuple(sorted(self.pure)))

    def _make_curve(self, interval: float) -> Curve:
        """Delta of the Gaussian releases and runs as a function of epsilon, which may be negative."""
        if not self.runs:
            return functools.partial(_compute_gaussian_deltas, math.sqrt(self.mu_squared))
        accountant = self._compose(interval)
        return lambda epsilons: np.array([accountant.get_delta(float(epsilon)) for epsilon in epsilons])

    def _compose(self, interval: float) -> Any:
        """Accountant that has composed the runs and the Gaussian releases."""
        accountant = _compose_runs(self.runs, interval)
        if not self.mu_squared:
            return accountant
        from dp_accounting import GaussianDpEvent  # slow to import, and full-batch fits never need it

        noise_multiplier = self.neighbouring.sensitivity(1.0) / math.sqrt(self.mu_squared)
        return copy.deepcopy(accountant).compose(GaussianDpEvent(noise_multiplier))

    def _fits_grid(self, interval: float) -> bool:
        """Whether the privacy loss of the runs, roughly estimated, fits into memory."""
        width = 10 * math.sqrt(self.mu_squared) + self.mu_squared
        for run in self.runs:
            mu, q = self.neighbouring.sensitivity(1.0) / run.noise_multiplier, run.sampling_probability
            mean = min(q * mu**2, q**2 * math.expm1(min(mu**2, 50.0)))
            width += mu**2 + 10 * mu + run.num_steps * mean + 10 * math.sqrt(run.num_steps * mean)
        return width < LARGEST_GRID * interval


def _list_epsilons(release: PureRelease) -> tuple[float, ...]:
    """Epsilon of each release; a very large number of releases counts as one with their sum."""
    return (release.epsilon / release.count,) * release.count if release.count < MOST_ATOMS else (release.epsilon,)


def _merge(*runs: GaussianEvent) -> tuple[GaussianEvent, ...]:
    """Join runs of the same noise and sampling, in a fixed order, so that cached results are found again."""
    steps: dict[tuple[float, float], int] = {}
    for run in runs:
        key = (run.noise_multiplier, run.sampling_probability)
        steps[key] = steps.get(key, 0) + run.num_steps
    return tuple(
        GaussianEvent(noise, num_steps, probability, runs[0].neighbouring)
        for (noise, probability), num_steps in sorted(steps.items())
    )


@functools.lru_cache(maxsize=16)  # an evaluation takes up to seconds, and ledgers ask for the same runs again and again
def _compose_runs(runs: tuple[GaussianEvent, ...], interval: float) -> Any:
    return compose_runs(runs, interval)


@functools.lru_cache(maxsize=64)
def _spread_responses(epsilons: tuple[float, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distribution of the sum of the losses of randomised responses: values and probabilities."""
    counts: dict[float, int] = {}
    for epsilon in epsilons:
        counts[epsilon] = counts.get(epsilon, 0) + 1
    losses, probabilities = np.zeros(1), np.ones(1)
    for epsilon, count in sorted(counts.items(), key=lambda each: -each[1]):
        if len(losses) * (count + 1) > MOST_ATOMS:
            losses = losses + epsilon * count  # basic composition for these
            continue
        ups = np.arange(count + 1)
        log_binomial = gammaln(count + 1) - gammaln(ups + 1) - gammaln(count - ups + 1)
        weights = np.exp(log_binomial + ups * log_expit(epsilon) + (count - ups) * log_expit(-epsilon))
        losses = (losses[:, None] + epsilon * (2 * ups - count)).ravel()
        probabilities = (probabilities[:, None] * weights).ravel()
    return losses, probabilities


def _compute_gaussian_deltas(mu: float, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """Exact delta of the Gaussian mechanism at every epsilon, of either sign. With mu = 0 there is none."""
    if mu == 0:
        return np.asarray(np.maximum(0.0, -np.expm1(np.minimum(epsilons, 0.0))))
    log_first = log_ndtr(mu / 2 - epsilons / mu)
    log_second = epsilons + log_ndtr(-mu / 2 - epsilons / mu)
    return np.asarray(np.exp(log_first) * -np.expm1(np.minimum(log_second - log_first, 0.0)))


def _round_down(epsilon: float) -> float:
    """Round down to six digits, so that what is printed is covered too."""
    if epsilon <= 0:
        return 0.0
    scale = 10.0 ** (5 - math.floor(math.log10(epsilon)))
    return math.floor(epsilon * scale * (1 + _ROUNDING)) / scale


def check_statement(cost: PrivacyBudget, event: Transcript | None, neighbouring: Neighbouring) -> None:
    """Raise unless an event costs at most what its ledger entry says; the total relies on both."""
    if event is None or math.isinf(cost.epsilon):
        return
    delta = 1.0
    if event.sampled:  # on a grid of bounded size, whatever the noise
        delta = JointCost(neighbouring).add(PrivacyBudget(0.0, 0.0), event).delta(cost.epsilon, at_most=cost.delta)
    elif len(event):
        delta = compute_delta(event, cost.epsilon, neighbouring)
    if not delta <= cost.delta * (1 + _ROUNDING):
        raise PrivacyError(
            f"the event of an entry must cost at most its stated cost of {cost}, but it is empty or costs more. "
            "Nothing was recorded. State what will be released, and a cost that covers it."
        )
