"""Checks of the noise that curators really draw: its scale, its distribution, and whether any of it is used twice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, gammaincinv, ndtr, ndtri

from conddp.auditing.watching import Question
from conddp.privacy.release import Curator

__all__ = ["NoiseCheck", "check_noise"]

Vector = NDArray[np.float64]
NUM_DRAWS = 6_000  # noise numbers of a kind that are drawn in an audit
DRAWS_PER_RELEASE = 100  # at least, enough to notice half the noise in a single release
FALSE_ALARM = 1e-9  # probability that one of these checks fails although the noise is right
CLOSE = 2e-3  # two numbers this close, in standard deviations, may be the same noise on a grid


@dataclass(frozen=True)
class NoiseCheck:
    """What the noise of some fits was found to be.

    Parameters
    ----------
    scale : float
        Upper confidence limit of the standard deviation of Gaussian noise over its declared one; 1 if there is none.
    cancels : bool
        Whether two releases had the same noise, so that their difference has none.
    findings : tuple of str
        What is not as declared.
    """

    scale: float
    cancels: bool
    findings: tuple[str, ...]


def check_noise(
    fits: Sequence[Sequence[Question]], curator_class: type[Curator], *, num_records: int, confidence: float, seed: int
) -> NoiseCheck:
    """Compare the noise in watched fits, and further noise for the same questions, with what was declared.

    The questions of the first fit are put to a fresh curator again and again. This shows the scale and distribution of
    the noise. Noise in the fits themselves shows whether any of it is used twice. Each check gives a false alarm
    with a probability below one in a hundred million.

    Parameters
    ----------
    fits : sequence of lists of Question
        Watched fits with different seeds.
    curator_class : type of Curator
        Class of the curators.
    num_records : int
        Number of records.
    confidence : float
        Confidence of the limit of the scale.
    seed : int
        Seed of the fresh curator.
    """
    probe = curator_class(np.random.default_rng((seed, 3)), num_records=num_records)
    rng = np.random.default_rng((seed, 4))
    asked = [question for question in fits[0] if question.method != "release_unprotected"]
    findings: list[str] = []
    pooled: dict[str, list[Vector]] = {}
    size = max(DRAWS_PER_RELEASE, NUM_DRAWS // max(1, len(asked)))
    for question in asked:
        drawn = _draw(question, probe, size, rng)
        pooled.setdefault(question.method, []).append(drawn)
        if question.method == "release_gaussian" and _is_small(drawn):
            findings.append(f"the noise in {question.what} is smaller than declared")
    for method, parts in pooled.items():
        if _is_far(np.concatenate(parts)):
            findings.append(f"the noise of {method} does not have the declared distribution")
    weights = [np.ravel(each.public["argument 0"]) for each in asked if each.method == "release_weighted_sums"]
    if weights and _is_far(ndtr(np.concatenate(weights))):
        findings.append("the public weights of labels are not standard normal")
    scale = 1.0
    if "release_gaussian" in pooled:
        z = _restore_normal(np.concatenate(pooled["release_gaussian"]))
        scale = math.sqrt(float(z @ z) / (2 * gammaincinv(len(z) / 2, 1 - confidence)))
    Z = _collect_normal(fits)
    bare = [step for step in range(Z.shape[1]) if Z[:, step].size and np.abs(Z[:, step]).max() < CLOSE]
    if bare:
        findings.append("a release has no noise")
    Z = np.delete(Z, bare, axis=1)
    if any(_is_small(Z[:, step].ravel(), normal=True) for step in range(Z.shape[1])) or _is_small(
        Z.ravel(), normal=True
    ):
        findings.append("the noise in the fits is smaller than declared")
    same, correlated = _compare_steps(Z)
    if same:
        findings.append("noise is used twice, so that a difference of releases has none")
    elif correlated:
        findings.append("the noise of different releases is correlated, but was accounted as independent")
    return NoiseCheck(scale, bool(bare) or same, tuple(dict.fromkeys(findings)))


def _draw(question: Question, probe: Curator, size: int, rng: np.random.Generator) -> Vector:
    """Noise of a question asked repeatedly, as values of its declared distribution function."""
    drawn = [_transform(question, np.asarray(question.ask(probe)), rng)]
    per_release = len(drawn[0])
    for _ in range(-(-size // per_release) - 1 if per_release else 0):
        drawn.append(_transform(question, np.asarray(question.ask(probe)), rng))
    return np.concatenate(drawn)


def _transform(question: Question, released: NDArray[Any], rng: np.random.Generator) -> Vector:
    """Noise of one release as values of its declared distribution function, so uniform if all is right.

    Where the distribution function jumps, a random point within the jump is taken.
    """
    method, public = question.method, question.public
    if method == "release_response":
        return _transform_response(question, released, rng)
    if method == "release_weighted_sums":
        weights, num_noisy = public["argument 0"], public["num_noisy"]
        spread = public["noise_std"] * np.sqrt((weights[:, :num_noisy] ** 2).sum(axis=1))
        return np.asarray(ndtr((released - (weights * question.private).sum(axis=1)) / spread))
    noise = np.ravel(released - question.private).astype(np.float64)
    if method == "release_gaussian":
        return np.asarray(ndtr(noise / question.noise_std))
    rate = public["epsilon"] / public["sensitivity"]
    if method == "release_integers":
        fall, size = math.exp(-rate), np.round(np.abs(noise))
        below = fall**size / (1 + fall)  # probability of numbers at least this far on one side
        above = np.where(noise >= 0, 1 - below * fall, below)
        return np.asarray(above - rng.uniform(size=len(noise)) * (1 - fall) / (1 + fall) * fall**size)
    distance = np.abs(noise)
    if method == "release_laplace":
        within = -np.expm1(-rate * distance)
    elif method == "release_staircase":
        within = _integrate_staircase(distance / public["sensitivity"], public["epsilon"])
    else:
        return np.empty(0)  # a mechanism of someone else, about which nothing is known
    return np.asarray(0.5 + np.sign(noise) * within / 2)


def _transform_response(question: Question, released: NDArray[Any], rng: np.random.Generator) -> Vector:
    """Outcomes as random points of their steps in the cumulative probabilities, the likeliest outcome first.

    In this order an answer that is too often the likeliest one is noticed, whatever the rows of the records are.
    """
    table = np.asarray(question.public["argument 0"])
    table = table / table.sum(axis=1, keepdims=True)
    order = np.argsort(-table, axis=1, kind="stable")
    ends = np.empty_like(table)
    np.put_along_axis(ends, order, np.cumsum(np.take_along_axis(table, order, axis=1), axis=1), axis=1)
    rows = question.private
    return np.asarray(ends[rows, released] - rng.uniform(size=len(rows)) * table[rows, released])


def _integrate_staircase(distance: Vector, epsilon: float) -> Vector:
    """Probability that staircase noise is at most this large, in units of the sensitivity."""
    fraction, fall = 1 / (1 + math.exp(epsilon / 2)), math.exp(-epsilon)
    step = np.floor(distance)
    rest = distance - step
    within = np.where(rest < fraction, rest, fraction + (rest - fraction) * fall) / (fraction + (1 - fraction) * fall)
    return np.asarray(1 - fall**step + (1 - fall) * fall**step * within)


def _restore_normal(uniform: Vector) -> Vector:
    return np.asarray(ndtri(np.clip(uniform, 1e-300, 1 - 1e-16)))


def _is_small(drawn: Vector, *, normal: bool = False) -> bool:
    """Whether the mean square of Gaussian noise is too small to be chance."""
    z = drawn if normal else _restore_normal(drawn)
    return len(z) > 0 and float(z @ z) < 2 * float(gammaincinv(len(z) / 2, FALSE_ALARM))


def _is_far(uniform: Vector) -> bool:
    """Whether numbers are too far from a uniform distribution to be chance (Dvoretzky, Kiefer, Wolfowitz, Massart)."""
    size = len(uniform)
    if not size:
        return False
    ranked = np.sort(uniform)
    places = np.arange(1, size + 1) / size
    distance = max(float((places - ranked).max()), float((ranked - places + 1 / size).max()))
    return distance > math.sqrt(math.log(2 / FALSE_ALARM) / (2 * size))


def _collect_normal(fits: Sequence[Sequence[Question]]) -> NDArray[np.float64]:
    """Gaussian noise of all fits in standard deviations, shape (fits, releases, coordinates).

    Releases and coordinates that some fit lacks are left out.
    """
    drawn = [
        [np.ravel(each.released - each.private) / each.noise_std for each in fit if each.method == "release_gaussian"]
        for fit in fits
    ]
    num_steps = min(map(len, drawn))
    width = min((len(part) for fit in drawn for part in fit), default=0)
    return np.array([[part[:width] for part in fit[:num_steps]] for fit in drawn]).reshape(len(fits), num_steps, width)


def _compare_steps(Z: NDArray[np.float64]) -> tuple[bool, bool]:
    """Whether the noise of two releases is the same, and whether it is correlated, at any distance in time."""
    pairs = [(Z[:, lag:], Z[:, :-lag]) for lag in range(1, Z.shape[1])]
    if len(Z) > 1:
        pairs.append((Z[1:], Z[:-1]))
    same = correlated = False
    allowed = FALSE_ALARM / max(1, len(pairs))
    for one, other in pairs:
        if not one.size:
            continue
        close = int((np.abs(one - other) < CLOSE).sum())
        # The density of a difference of two normal numbers is at most 0.283.
        same |= close > 0 and float(bdtrc(close - 1, one.size, 0.57 * CLOSE)) < allowed
        # The Chernoff bound of a sum of products of normal numbers, whose logarithm of moments is -log(1 - t^2) / 2.
        correlated |= _bound_products(abs(float((one * other).sum())), one.size) < math.log(allowed / 2)
    return same, correlated


def _bound_products(total: float, size: int) -> float:
    """Bound the logarithm of the probability that a sum of products of independent normal numbers is this large."""
    mean = total / size
    if mean == 0:
        return 0.0
    t = (math.sqrt(1 + 4 * mean**2) - 1) / (2 * mean)  # minimises -log(1 - t^2) / 2 - t mean
    return size * (-math.log1p(-(t**2)) / 2 - t * mean)
