r"""Lower bounds on epsilon from the guesses of one fit with many canaries.

Each of m canaries carries one of two labels, by an independent fair coin. After one fit, r coins are guessed and the
others passed over; v guesses are right. Under privacy few guesses can be expected to be right, however they are made:

* Steinke, Nasr and Jagielski (arXiv 2305.08846v1, Theorem 5.2) bound the tail of v for (epsilon, delta)-privacy;
* Mahloujifar, Melis and Chaudhuri (arXiv 2410.22235v1) bound it for any trade-off function, which is tighter.

The second bound rests on a counting argument. Let :math:`p_i` be the probability of i right guesses, and let
:math:`\bar f(x)` be the largest probability that an event can have under a neighbour if it has probability x. Turning
the coin of a random canary that was guessed right leaves one right guess less, so for every i

.. math:: \sum_{j > i} \tfrac{j}{m} p_j \le \bar f\Big(\sum_{j \ge i} \tfrac{r - j}{m} p_j\Big).

The tail probabilities that these inequalities allow are found from the top downwards.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.special import bdtr, bdtrc

from conddp._validate import in_range, positive_integer
from conddp.auditing.bounds import convert_mu

__all__ = ["Guesses", "bound_one_run", "bound_one_run_gaussian", "bound_one_run_tradeoff"]

LARGEST_EPSILON, LARGEST_MU = 40.0, 20.0  # beyond what any number of canaries can show
PRECISION = 1e-4
NORMAL = NormalDist()
Inverse = Callable[[float], float]


@dataclass(frozen=True)
class Guesses:
    """Outcome of one fit with canaries.

    Parameters
    ----------
    num_canaries : int
        Number of canaries m.
    num_guesses : int
        Number of guesses r, fixed in advance.
    num_correct : int
        Number of right guesses v.
    """

    num_canaries: int
    num_guesses: int
    num_correct: int

    def __post_init__(self) -> None:
        positive_integer(num_canaries=self.num_canaries, num_guesses=self.num_guesses)
        in_range(1, self.num_canaries, num_guesses=self.num_guesses)
        in_range(0, self.num_guesses, num_correct=self.num_correct)

    @property
    def perfect(self) -> "Guesses":
        """The same number of guesses, all of them right: no bound can exceed that of these."""
        return Guesses(self.num_canaries, self.num_guesses, self.num_guesses)


def bound_one_run(guesses: Guesses, delta: float, *, confidence: float) -> float:
    r"""Bound epsilon at ``delta`` from below (arXiv 2305.08846).

    With :math:`q = e^\epsilon / (1 + e^\epsilon)` the p-value of epsilon is at most
    :math:`P[B \ge v] + 2 m \delta \max_i P[v - i \le B < v] / i`, where B is binomial with r trials of probability q.

    Examples
    --------
    >>> round(bound_one_run(Guesses(100, 100, 100), 1e-6, confidence=0.95), 2)
    3.49
    """
    m, r, v = guesses.num_canaries, guesses.num_guesses, guesses.num_correct

    def p_value(epsilon: float) -> float:
        q = 1 / (1 + math.exp(-epsilon))
        beta = float(bdtrc(v - 1, r, q)) if v else 1.0
        if not delta or not v:
            return min(1.0, beta)
        below = bdtr(np.arange(v), r, q)  # P[B <= k] for k < v
        width = np.arange(1, v + 1)
        within = below[-1] - np.append(below[-2::-1], 0.0)  # P[v - i <= B < v]
        return min(1.0, beta + 2 * m * delta * float((within / width).max()))

    return _find_largest(lambda epsilon: p_value(epsilon) < 1 - confidence, LARGEST_EPSILON)


def bound_one_run_gaussian(guesses: Guesses, delta: float, *, confidence: float) -> float:
    """Bound epsilon at ``delta`` from below for a mechanism that is as private as a Gaussian one (arXiv 2410.22235).

    Privacy
        As for :func:`~conddp.auditing.bounds.bound_mu`, a bound for full-batch Gaussian releases only.
    """

    def refuted(mu: float) -> bool:
        return _is_refuted(guesses, lambda y: NORMAL.cdf(NORMAL.inv_cdf(y) - mu), 1 - confidence)

    return convert_mu(_find_largest(refuted, LARGEST_MU), delta)


def bound_one_run_tradeoff(guesses: Guesses, delta: float, *, confidence: float) -> float:
    """Bound epsilon at ``delta`` from below for any mechanism, by the trade-off function of (epsilon, delta)."""

    def refuted(epsilon: float) -> bool:
        factor = math.exp(epsilon)
        return _is_refuted(
            guesses, lambda y: max(0.0, (y - delta) / factor, 1 - delta - factor * (1 - y)), 1 - confidence
        )

    return _find_largest(refuted, LARGEST_EPSILON)


def _is_refuted(guesses: Guesses, inverse: Inverse, tail: float) -> bool:
    """Whether so many right guesses have a probability below ``tail``; ``inverse`` is the inverse of f-bar.

    Suppose that P[V >= v] is ``tail``. The smallest probabilities of fewer right guesses that the inequalities allow
    are computed one by one. If they add up to more than one, the tail must be smaller.
    """
    m, r, v = guesses.num_canaries, guesses.num_guesses, guesses.num_correct
    total = tail
    right, wrong = tail * v / m, tail * (r - v) / m  # sums of j p_j / m and (r - j) p_j / m over j >= i
    for i in range(v - 1, -1, -1):
        needed = inverse(right) if 0 < right < 1 else right
        if needed > wrong:
            probability = (needed - wrong) * m / (r - i)
            total += probability
            right += i * probability / m
            wrong = needed
            if total > 1:
                return True
    return False


def _find_largest(refuted: Callable[[float], bool], highest: float) -> float:
    """The supremum of the refuted values, from below; zero if none is. Smaller values are refuted more easily."""
    if not refuted(PRECISION):
        return 0.0
    low, high = PRECISION, highest
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
