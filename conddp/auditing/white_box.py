"""The white-box audit: the exact privacy of pairs of neighbours, read off the questions that a fit asks about them."""

import math
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from conddp.algorithms.algorithm import Algorithm
from conddp.auditing.distances import compute_pair_epsilon, find_excesses
from conddp.auditing.noise import check_noise
from conddp.auditing.result import Evidence
from conddp.auditing.tables import NeighbourPair, propose_pairs
from conddp.auditing.watching import CoupledFits, Recorder, fit_coupled, fit_watched
from conddp.data.records import Records
from conddp.heads.head import Head
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.release import Curator

__all__ = ["audit_white_box"]

NUM_PAIRS = 8
NUM_PATHS = 3  # fits of the worst pair whose smallest epsilon counts
MOST_PATHS = 40  # if samples are drawn, the record must be in some


def audit_white_box(
    algorithm: Algorithm,
    records: Records,
    budget: PrivacyBudget,
    *,
    head: Head,
    confidence: float,
    num_pairs: int = NUM_PAIRS,
    seed: int = 0,
    curator_class: type[Curator] = Curator,
    **settings: Any,
) -> Evidence:
    """Compare fits of neighbours under the same releases, and compute what the worst pair of them shows.

    Privacy
        For simulated records only.

    Parameters
    ----------
    algorithm, records, budget, head
        What is fitted. The private values of ``records`` are replaced one record at a time.
    confidence : float
        Confidence of the limit of the noise that was really drawn.
    num_pairs : int
        Number of pairs of neighbours to try.
    seed : int
        Seed of all fits.
    curator_class : type of Curator
        Class of the curator.
    **settings
        Other arguments of the fit.
    """
    settings |= {"head": head, "curator_class": curator_class}
    delta = algorithm.cost(budget).delta
    seeds = count()

    def fit(pair: NeighbourPair) -> CoupledFits:
        return fit_coupled(algorithm, pair.low, pair.high, budget, seed=(seed, next(seeds)), **settings)

    worst: NeighbourPair | None = None
    largest, fits, findings = -1.0, [], []
    for pair in propose_pairs(records, num_pairs, seed=seed):
        coupled = fit(pair)
        fits.append(coupled.questions)
        findings += [*coupled.differences, *_find_excesses(coupled)]
        if coupled.differences:
            continue
        found, wrong = compute_pair_epsilon([coupled], delta)
        findings += wrong
        if found > largest:
            worst, largest, first = pair, found, coupled
    noise = check_noise(fits, curator_class, num_records=records.num_records, confidence=confidence, seed=seed)
    lower_bound = math.inf
    if worst is not None:
        paths = [first]
        while len(paths) < NUM_PATHS or (len(paths) < MOST_PATHS and not _has_sampled(paths)):
            paths.append(fit(worst))
        same = [path for path in paths if not path.differences]
        lower_bound, wrong = compute_pair_epsilon(same, delta, scale=noise.scale)
        findings += [*wrong, *(each for path in paths for each in (*path.differences, *_find_excesses(path)))]
    findings += [*noise.findings, *_check_samples(algorithm, records, budget, fits[0], seed=seed, settings=settings)]
    # What depends on private values without noise tells the pair apart for certain.
    if noise.cancels or any("depends on private" in each or "depend on private" in each for each in findings):
        lower_bound = math.inf
    return Evidence(
        lower_bound,
        "distances of neighbours under the same releases",
        math.inf,
        2 * next(seeds),
        tuple(dict.fromkeys(findings)),
    )


def _find_excesses(coupled: CoupledFits) -> Iterator[str]:
    return find_excesses(coupled) if len(coupled.questions) == len(coupled.others) else iter(())


def _has_sampled(paths: Sequence[CoupledFits]) -> bool:
    """Whether the record was in several samples, or is always."""
    steps = [
        not np.array_equal(question.private, other.private)
        for path in paths
        for question, other in zip(path.questions, path.others, strict=False)
        if question.sampling_probability < 1.0
    ]
    return not steps or sum(steps) >= 10


def _check_samples(
    algorithm: Algorithm, records: Records, budget: PrivacyBudget, heard: Sequence[Any], *, seed: int, settings: Any
) -> list[str]:
    """Fit the same records with the same releases and other samples: nothing may show who was in the samples.

    Checked for heads that start alike whatever the seed, because samples and initial weights share their generator.
    """
    if all(question.sampling_probability == 1.0 for question in heard):
        return []
    head = settings["head"]
    layout = head.layout(records.public.values.shape[1], 0)
    starts = [head.initialize(layout, np.random.default_rng(each)) for each in (0, 1)]
    if not np.array_equal(*starts):
        return []
    answers = [question.released for question in heard]
    recorders = [Recorder(answers=answers) for _ in range(2)]
    results = [
        fit_watched(algorithm, records, budget, recorder, seed=(seed, 10**6 + number), **settings)
        for number, recorder in enumerate(recorders)
    ]
    alike = np.array_equal(*(result.model.parameters for result in results))
    alike &= len(recorders[0].questions) == len(recorders[1].questions) == len(answers)
    return [] if alike else ["something beside the releases depends on which records were sampled"]
