r"""The privacy of one pair of neighbours, from the distances between what was asked about them.

Gaussian releases on the full batch whose private contents are :math:`d_t` apart tell the pair apart as well as one
Gaussian release with :math:`\mu^2 = \sum_t (d_t / \sigma_t)^2`, and no better. Pure releases have an exact likelihood
ratio. Poisson-sampled releases are composed as mixtures with the measured distance.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.special import bdtr, bdtrc

from conddp.auditing.bounds import convert_mu
from conddp.auditing.watching import CoupledFits, Question
from conddp.privacy.weighted_sums import compute_bag_delta

__all__ = ["check_sampling", "compute_pair_epsilon", "find_excesses", "measure_move"]

ROUNDING = 1e-9
FALSE_ALARM = 1e-6
COARSEST_INTERVAL = 1e-3  # of the privacy loss grid


def measure_move(question: Question, other: Question) -> float:
    """Measure how far the private content of a question moved, over what its sensitivity allows.

    The result is infinite if more than one record's own value moved in a local release.
    """
    difference = np.abs(np.asarray(question.private, dtype=np.float64) - other.private)
    if question.method == "release_gaussian":
        return float(np.linalg.norm(difference)) / question.sensitivity
    if question.method == "release_integers":
        return float(difference.sum()) / question.sensitivity
    if np.count_nonzero(difference) > 1:
        return math.inf
    if question.method == "release_response":
        return float(np.count_nonzero(difference))
    allowed: Any = question.public.get("sensitivity", question.public.get("label_range", math.inf))
    return float(difference.max()) / float(allowed)


def find_excesses(fits: Sequence[CoupledFits]) -> Iterator[str]:
    """Name releases whose private content moved further than their sensitivity allows."""
    worst: dict[str, float] = {}
    for coupled in fits:
        for question, other in zip(coupled.questions, coupled.others, strict=True):
            if question.method != "release_unprotected":
                worst[question.what] = max(worst.get(question.what, 0.0), measure_move(question, other))
    for what, move in worst.items():
        if not move <= 1 + ROUNDING:
            yield f"one record moves {what} by {move:.3g} times the declared sensitivity"


def check_sampling(fits: Sequence[CoupledFits]) -> Iterator[str]:
    """Say so if records that were replaced are in more Poisson samples than declared.

    A step whose sample lacks the record shows no distance. The number of steps that show one is at most binomial. A
    false alarm has a probability of one in a million.
    """
    steps = [each for coupled in fits for each in _list_sampled_steps(coupled)]
    if steps:
        seen = sum(move > 0 for _, move in steps)
        expected = max(question.sampling_probability for question, _ in steps)
        if seen and bdtrc(seen - 1, len(steps), expected) < FALSE_ALARM:
            yield "records are in more samples than the declared sampling probability allows"


def compute_pair_epsilon(
    paths: Sequence[CoupledFits], delta: float, *, scale: float = 1.0, precise: bool = True
) -> float:
    """Compute the epsilon at ``delta`` that a pair of neighbours shows.

    Distances may depend on earlier releases. The path with the smallest epsilon counts. If the distances are the same
    on every path, as they are for a record that is always clipped on both sides, the result is exact. Releases of
    different kinds are not combined: the largest of their epsilons is returned, which is a lower bound.

    Parameters
    ----------
    paths : sequence of CoupledFits
        Fits of the same pair with different noise.
    delta : float
        Delta at which epsilon is computed; 0 for pure releases.
    scale : float
        Standard deviation of Gaussian noise over its declared one.
    precise : bool
        Whether to compose Poisson-sampled releases on fine grids. Otherwise the result is lower, and soon computed.
    """
    questions = paths[0].questions
    if any(question.method == "release_unprotected" for question in questions):
        return math.inf
    found = [0.0]
    full = [_compute_mu(path, scale) for path in paths]
    if max(full) > 0:
        found.append(convert_mu(min(full), delta) if delta else math.inf)
    found.append(min(_compute_pure_epsilon(path) for path in paths))
    found.append(max(_compute_bag_epsilon(path, delta) for path in paths))
    found.append(_compute_sampled_epsilon(paths, delta, scale, precise=precise))
    return max(found)


def _compute_mu(path: CoupledFits, scale: float) -> float:
    """Distance of all full-batch Gaussian releases together, in standard deviations of their noise."""
    return math.sqrt(
        sum(
            (measure_move(question, other) * question.sensitivity / (scale * question.noise_std)) ** 2
            for question, other in zip(path.questions, path.others, strict=True)
            if question.method == "release_gaussian" and question.sampling_probability == 1.0
        )
    )


def _compute_pure_epsilon(path: CoupledFits) -> float:
    """Logarithm of the largest likelihood ratio of all pure releases."""
    total = 0.0
    for question, other in zip(path.questions, path.others, strict=True):
        public = question.public
        if question.method == "release_response":
            table = np.asarray(public["argument 0"])
            for row, moved in zip(question.private, other.private, strict=True):
                if row != moved:
                    with np.errstate(divide="ignore", invalid="ignore"):
                        total += float(np.nanmax(np.abs(np.log(table[row] / table[moved]))))
        elif question.method in ("release_laplace", "release_integers", "release_staircase"):
            moves = np.abs(np.asarray(question.private, dtype=np.float64) - other.private) / public["sensitivity"]
            if question.method == "release_staircase":  # the density falls by whole steps
                moves = np.ceil(moves * (1 - ROUNDING))
            total += float(moves.sum()) * public["epsilon"]
    return total


def _compute_bag_epsilon(path: CoupledFits, delta: float) -> float:
    """Epsilon of weighted sums of labels, averaged over weights and bags."""
    for question, other in zip(path.questions, path.others, strict=True):
        if question.method != "release_weighted_sums":
            continue
        public = question.public
        move = measure_move(question, other) * public["label_range"] / public["noise_std"]
        bag_size = question.private.shape[1]
        if not move or not delta:
            return math.inf if move else 0.0

        def spend(epsilon: float, move: float = move, bag_size: int = bag_size, public: Any = public) -> float:
            return compute_bag_delta(
                epsilon,
                bag_size=bag_size,
                noisy_fraction=public["num_noisy"] / bag_size,
                label_range=move,
                used_fraction=public["used_fraction"],
            )

        return _solve(spend, delta)
    return 0.0


def _list_sampled_steps(coupled: CoupledFits) -> list[tuple[Question, float]]:
    """Poisson-sampled questions with their moves."""
    return [
        (question, measure_move(question, other))
        for question, other in zip(coupled.questions, coupled.others, strict=True)
        if question.method == "release_gaussian" and question.sampling_probability < 1.0
    ]


def _compute_sampled_epsilon(paths: Sequence[CoupledFits], delta: float, scale: float, *, precise: bool) -> float:
    """Epsilon of Poisson-sampled releases.

    A step whose sample lacks the record shows no distance. The smallest relative distance of all others counts for
    every step, placed symmetrically about zero, where a pair at this distance is hardest to tell apart.
    """
    steps = [each for path in paths for each in _list_sampled_steps(path)]
    moves = [move for _, move in steps if move > 0]
    if not moves or not delta:
        return math.inf if moves else 0.0
    # A record that is clipped alike on both sides shows no distance either: then count only the steps that do.
    expected = max(question.sampling_probability for question, _ in steps)
    seen = len(moves) / len(steps)
    fraction = 1.0 if bdtr(len(moves), len(steps), expected) > 1e-3 else min(1.0, seen / expected)
    events: dict[tuple[float, float], int] = {}
    for question, _ in _list_sampled_steps(paths[0]):
        distance = min(moves) * question.sensitivity / (scale * question.noise_std)
        key = (distance, fraction * question.sampling_probability)
        events[key] = events.get(key, 0) + 1
    return _compose_mixtures(events, delta, refinements=2 if precise else 0)


def _compose_mixtures(events: dict[tuple[float, float], int], delta: float, *, refinements: int) -> float:
    """Lower bound on the epsilon of mixtures at a distance in standard deviations, by (distance, probability)."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as losses

    found, interval = 0.0, COARSEST_INTERVAL
    for _ in range(refinements + 1):  # optimistic estimates are lower bounds at every interval, and rise as it shrinks
        composed: Any = None
        for (distance, probability), count in events.items():
            one = losses.from_gaussian_mechanism(
                2 / distance,
                pessimistic_estimate=False,
                value_discretization_interval=interval,
                sampling_prob=probability,
                use_connect_dots=False,
                neighboring_relation=NeighboringRelation.REPLACE_ONE,
            ).self_compose(count)
            composed = one if composed is None else composed.compose(one)
        finer = float(composed.get_epsilon_for_delta(delta))
        if finer <= found * (1 + 1e-2):
            return max(found, finer)
        found, interval = finer, interval / 10
    return found


def _solve(spend: Callable[[float], float], delta: float) -> float:
    """The epsilon at which a decreasing function reaches delta, from below."""
    low, high = 0.0, 1e-3
    while spend(high) > delta:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if middle > 0 and spend(middle) > delta else (low, middle)
    return low
