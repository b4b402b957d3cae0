r"""Lower bounds on epsilon from counts of right and wrong guesses between two neighbouring data sets.

A test between neighbours has a false positive rate :math:`\alpha` and a false negative rate :math:`\beta`. An
(epsilon, delta)-private mechanism forces :math:`1 - \beta \le e^\epsilon \alpha + \delta`, and the same with the roles
exchanged. A :math:`\mu`-Gaussian mechanism forces :math:`\Phi^{-1}(1 - \beta) - \Phi^{-1}(\alpha) \le \mu`. Confidence
limits of the two rates therefore turn into lower bounds on epsilon and :math:`\mu`.

The bounds hold for a test that was fixed before its guesses were counted. :func:`split_and_bound` chooses the threshold
of a score on one half of the fits and counts on the other half.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from conddp._validate import in_range, positive_integer
from conddp.privacy.accounting import compute_gaussian_epsilon

__all__ = [
    "GuessCounts",
    "bound_epsilon",
    "bound_mu",
    "bound_mu_by_accuracy",
    "bound_rate",
    "check_confidence",
    "convert_mu",
    "split_and_bound",
]

Scores = NDArray[np.float64]
Method = Literal["rates", "accuracy"]
MOST_THRESHOLDS = 100  # candidates for the threshold, at quantiles of the scores


@dataclass(frozen=True)
class GuessCounts:
    """Outcome of a fixed test between two neighbouring data sets.

    Parameters
    ----------
    num_negatives, num_positives : int
        Number of fits to the first and to the second data set.
    false_positives, false_negatives : int
        How many of each the test attributed to the other one.
    """

    num_negatives: int
    num_positives: int
    false_positives: int
    false_negatives: int

    def __post_init__(self) -> None:
        positive_integer(num_negatives=self.num_negatives, num_positives=self.num_positives)
        in_range(0, self.num_negatives, false_positives=self.false_positives)
        in_range(0, self.num_positives, false_negatives=self.false_negatives)

    @classmethod
    def of(cls, negatives: Scores, positives: Scores, threshold: float) -> "GuessCounts":
        """Count the guesses of the test that attributes scores above the threshold to the second data set."""
        return cls(
            len(negatives), len(positives), int((negatives > threshold).sum()), int((positives <= threshold).sum())
        )

    @property
    def num_correct(self) -> int:
        """Number of right guesses."""
        return self.num_negatives + self.num_positives - self.false_positives - self.false_negatives


def bound_rate(successes: int, trials: int, confidence: float) -> float:
    """Bound the probability of success from above (Clopper and Pearson 1934, one-sided).

    Examples
    --------
    >>> round(bound_rate(0, 100, 0.95), 4)  # the rule of three
    0.0295
    """
    check_confidence(confidence)
    if successes >= trials:
        return 1.0
    return float(betaincinv(successes + 1, trials - successes, confidence))


def bound_epsilon(counts: GuessCounts, delta: float, *, confidence: float) -> float:
    """Bound epsilon at ``delta`` from below by the error rates of a test.

    Each of the two rates gets half of the allowed error probability. The bound is zero if the test is no better than
    guessing.

    Examples
    --------
    >>> round(bound_epsilon(GuessCounts(1000, 1000, 100, 100), 0.0, confidence=0.95), 2)
    1.99
    """
    false_positive, false_negative = _bound_rates(counts, confidence)
    found = 0.0
    for power, error in ((1 - false_negative, false_positive), (1 - false_positive, false_negative)):
        if power > delta:
            found = max(found, math.log((power - delta) / error))
    return found


def bound_mu(counts: GuessCounts, *, confidence: float) -> float:
    """Bound the parameter of a Gaussian mechanism from below by the error rates of a test.

    Privacy
        A lower bound for mechanisms that are exactly as private as some Gaussian mechanism, such as full-batch Gaussian
        releases. For other mechanisms use :func:`bound_epsilon`.
    """
    false_positive, false_negative = _bound_rates(counts, confidence)
    if false_positive >= 1 or false_negative >= 1:
        return 0.0
    return max(0.0, float(-ndtri(false_negative) - ndtri(false_positive)))


def bound_mu_by_accuracy(counts: GuessCounts, *, confidence: float) -> float:
    r"""Bound the parameter of a Gaussian mechanism from below by the number of right guesses.

    The two rates of right guesses add up to at most :math:`2 \Phi(\mu / 2)`. The total number of right guesses then
    exceeds its mean no more easily than a binomial number with :math:`\Phi(\mu / 2)` per guess (Hoeffding 1956). One
    confidence limit for both rates is tighter than two if mu is small. Both data sets must have as many fits.
    """
    if counts.num_negatives != counts.num_positives:
        raise ValueError("the number of right guesses bounds mu only if both data sets have as many fits.")
    trials = counts.num_negatives + counts.num_positives
    rate = 1 - bound_rate(trials - counts.num_correct, trials, confidence)
    if trials * rate + 1 > counts.num_correct:  # Hoeffding's comparison needs a count that exceeds the mean by one
        rate = min(rate, (counts.num_correct - 1) / trials)
    return max(0.0, 2 * float(ndtri(rate))) if 0 < rate < 1 else 0.0


def convert_mu(mu: float, delta: float) -> float:
    """Return the exact epsilon at ``delta`` of a Gaussian mechanism with this parameter; zero if there is none."""
    return compute_gaussian_epsilon(mu, delta) if mu > 0 else 0.0


def split_and_bound(
    negatives: Scores, positives: Scores, delta: float, *, confidence: float, gaussian: bool
) -> tuple[float, GuessCounts]:
    """Bound epsilon from below by scores of two neighbouring data sets, with the threshold chosen on half of them.

    The threshold, and for Gaussian mechanisms the kind of confidence limit, that give the largest bound on the first
    half of the scores are applied to the second half. The choice is thus independent of the counts, and the bound
    holds with the stated confidence.

    Parameters
    ----------
    negatives, positives : arrays
        Scores of independent fits to the first and to the second data set.
    delta : float
        Delta at which epsilon is bounded.
    confidence : float
        Probability with which the bound holds.
    gaussian : bool
        Whether the mechanism is Gaussian, which allows a larger bound. Requires a positive delta.

    Returns
    -------
    tuple
        The bound, and the counts on the second half.
    """
    middle = min(len(negatives), len(positives)) // 2
    if middle < 1:
        raise ValueError(
            f"a bound needs at least two fits of each data set, got {len(negatives)} and {len(positives)}."
        )
    size = min(len(negatives), len(positives))
    seen = np.unique(np.concatenate([negatives[:middle], positives[:middle]]))
    if len(seen) > MOST_THRESHOLDS:
        seen = np.quantile(seen, np.linspace(0, 1, MOST_THRESHOLDS))
    thresholds = (seen[1:] + seen[:-1]) / 2 if len(seen) > 1 else seen
    methods: tuple[Method, ...] = ("rates", "accuracy") if gaussian else ("rates",)
    choices = [(float(threshold), method) for threshold in thresholds for method in methods]

    def bound(choice: tuple[float, Method], part: slice) -> tuple[float, GuessCounts]:
        threshold, method = choice
        counts = GuessCounts.of(negatives[part], positives[part], threshold)
        if not gaussian:
            return bound_epsilon(counts, delta, confidence=confidence), counts
        found = (bound_mu if method == "rates" else bound_mu_by_accuracy)(counts, confidence=confidence)
        return found, counts

    def rate(choice: tuple[float, Method]) -> tuple[float, int]:
        found, counts = bound(choice, slice(0, middle))
        return found, counts.num_correct  # if every bound is zero, the most accurate test is chosen

    found, counts = bound(max(choices, key=rate), slice(middle, size))
    return (convert_mu(found, delta) if gaussian else found), counts


def _bound_rates(counts: GuessCounts, confidence: float) -> tuple[float, float]:
    """Upper limits of both error rates, which hold together with the stated confidence."""
    check_confidence(confidence)
    each = 1 - (1 - confidence) / 2
    return (
        bound_rate(counts.false_positives, counts.num_negatives, each),
        bound_rate(counts.false_negatives, counts.num_positives, each),
    )


def check_confidence(confidence: float) -> None:
    """Raise ValueError unless the confidence lies strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got confidence={confidence!r}.")
