"""The white-box audit: the exact privacy of pairs of neighbours, read off the questions that a fit asks about them."""

import math
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from conddp.algorithms.algorithm import Algorithm
from conddp.auditing.distances import check_sampling, compute_pair_epsilon, find_excesses
from conddp.auditing.noise import check_noise
from conddp.auditing.result import Evidence
from conddp.auditing.tables import NeighbourPair, propose_pairs
from conddp.auditing.watching import CoupledFits, Recorder, fit_coupled, fit_watched
from conddp.data.records import Records
from conddp.heads.head import Head
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.release import Curator

__all__ = ["audit_white_box"]

NUM_PAIRS = 9
NUM_PATHS = 3  # fits of a pair, whose smallest epsilon counts
NUM_FINALISTS = 3  # pairs for which so many fits are made
# If samples are drawn, the record must be in some of them: in so many to compare pairs, and to judge the worst one.
NUM_TRIES, NUM_SAMPLES, MOST_PATHS = 4, 30, 40


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

    all_fits: list[CoupledFits] = []
    ranked: list[tuple[float, NeighbourPair, list[CoupledFits]]] = []
    for pair in propose_pairs(records, num_pairs, seed=seed):
        tried = [fit(pair)]
        while len(tried) < NUM_TRIES and _count_samples(tried) < NUM_TRIES:
            tried.append(fit(pair))
        all_fits += tried
        if not any(coupled.differences for coupled in tried):
            ranked.append((compute_pair_epsilon(tried, delta, precise=False), pair, tried))
    ranked.sort(key=lambda each: -each[0])
    finalists: list[list[CoupledFits]] = []
    for _, pair, tried in ranked[:NUM_FINALISTS]:
        more: list[CoupledFits] = []
        while len(more) < MOST_PATHS:
            if len(tried) + len(more) >= NUM_PATHS and _count_samples([*tried, *more]) >= NUM_SAMPLES:
                break
            more.append(fit(pair))
        finalists.append([coupled for coupled in tried + more if not coupled.differences])
        all_fits += more
        if _count_samples(tried) < math.inf:
            break  # sampled fits take many paths
    paths = max(finalists, key=lambda each: compute_pair_epsilon(each, delta, precise=False), default=[])
    alike = [coupled for coupled in all_fits if not coupled.differences]
    noise = check_noise(
        [coupled.questions for coupled in all_fits],
        curator_class,
        num_records=records.num_records,
        confidence=confidence,
        seed=seed,
    )
    findings = [
        *(each for coupled in all_fits for each in coupled.differences),
        *find_excesses(alike),
        *check_sampling(alike),
        *noise.findings,
        *_check_samples(algorithm, records, budget, all_fits[0].questions, seed=seed, settings=settings),
    ]
    # What depends on private values without noise, or on noise that cancels, tells a pair apart for certain.
    if noise.cancels or len(alike) < len(all_fits):
        lower_bound = math.inf
    else:
        lower_bound = compute_pair_epsilon(paths, delta, scale=noise.scale)
    return Evidence(
        lower_bound,
        "distances of neighbours under the same releases",
        math.inf,
        2 * next(seeds),
        tuple(dict.fromkeys(findings)),
    )


def _count_samples(paths: Sequence[CoupledFits]) -> float:
    """In how many samples the record was found; infinite if nothing is sampled."""
    steps = [
        not np.array_equal(question.private, other.private)
        for path in paths
        for question, other in zip(path.questions, path.others, strict=False)
        if question.sampling_probability < 1.0
    ]
    return sum(steps) if steps else math.inf


def _check_samples(
    algorithm: Algorithm, records: Records, budget: PrivacyBudget, heard: Sequence[Any], *, seed: int, settings: Any
) -> list[str]:
    """Fit the same records with the same releases and other samples: nothing may show who was in the samples.

    Checked for heads that start alike whatever the seed, because samples and initial weights share their generator.
    """
    if all(question.sampling_probability == 1.0 for question in heard):
        return []
    head = settings["head"]
    layout = head.layout(records.public.shape[1], 0)
    starts = [head.initialize(layout, np.random.default_rng(each)) for each in (0, 1)]
    if not np.array_equal(starts[0], starts[1]):
        return []
    answers = [question.released for question in heard]
    recorders = [Recorder(answers=answers) for _ in range(2)]
    results = [
        fit_watched(algorithm, records, budget, recorder, seed=(seed, 10**6 + number), **settings)
        for number, recorder in enumerate(recorders)
    ]
    alike = np.array_equal(results[0].model.parameters, results[1].model.parameters)
    alike &= len(recorders[0].questions) == len(recorders[1].questions) == len(answers)
    return [] if alike else ["something beside the releases depends on which records were sampled"]
