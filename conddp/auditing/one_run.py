"""The one-run audit: a single fit in which many labels are decided by coins, and a guess of each coin."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range
from conddp.algorithms.algorithm import Algorithm
from conddp.auditing.black_box import is_gaussian
from conddp.auditing.guessing import Guesses, bound_one_run, bound_one_run_gaussian
from conddp.auditing.result import Evidence
from conddp.auditing.tables import compute_leverage
from conddp.auditing.watching import make_coupled_source
from conddp.data.parts import Labels
from conddp.data.records import Records
from conddp.heads.head import Head, Linearity
from conddp.models.result import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.release import Curator

__all__ = ["audit_one_run"]

GUESS_FRACTION = 0.2  # of the canaries, those with the clearest scores; the others are passed over


def audit_one_run(
    algorithm: Algorithm,
    records: Records,
    budget: PrivacyBudget,
    *,
    head: Head,
    confidence: float,
    num_canaries: int | None = None,
    guess_fraction: float = GUESS_FRACTION,
    seed: int = 0,
    curator_class: type[Curator] = Curator,
    **settings: Any,
) -> Evidence:
    """Fit once with canaries, whose labels are at either end of the bounds by fair coins, and guess the coins.

    A canary is guessed to be high if the model predicts more for it than for canaries on average. The clearest cases
    are guessed and the others passed over. Their number is fixed in advance.

    Privacy
        For simulated records only. Turning one coin replaces one label, so the bound is one on epsilon under REPLACE.

    Parameters
    ----------
    algorithm, records, budget, head
        What is fitted.
    confidence : float
        Confidence of the bound.
    num_canaries : int, optional
        Number of canaries, the records with the most leverage; by default all records.
    guess_fraction : float
        Fraction of the canaries whose coin is guessed.
    seed : int
        Seed of the coins and of the fit.
    curator_class : type of Curator
        Class of the curator.
    **settings
        Other arguments of the fit.
    """
    m = records.num_records if num_canaries is None else num_canaries
    in_range(1, records.num_records, num_canaries=m)
    in_range(0.0, 1.0, guess_fraction=guess_fraction)
    canaries = np.argsort(-compute_leverage(records.public), kind="stable")[:m]
    coins = np.random.default_rng((seed, 5)).integers(0, 2, size=m).astype(bool)
    bounds, values = records.label.bounds, records.label.values.copy()
    values[canaries] = np.where(coins, bounds.high, bounds.low)
    planted = replace(records, label=Labels(values, bounds, records.label.name))
    result = algorithm.fit(
        planted,
        budget,
        head=head,
        random_source=make_coupled_source((seed, 6)),
        curator_class=curator_class,
        **settings,
    )
    scores = _predict(result, records)[canaries]
    scores = scores - np.median(scores)
    num_guesses = max(1, round(guess_fraction * m))
    guessed = np.argsort(-np.abs(scores), kind="stable")[:num_guesses]
    correct = int(((scores[guessed] > 0) == coins[guessed]).sum())
    guesses = Guesses(m, num_guesses, correct)
    bound = bound_one_run_gaussian if is_gaussian(result.transcript) else bound_one_run
    delta = algorithm.cost(budget).delta
    return Evidence(
        bound(guesses, delta, confidence=confidence),
        f"{correct} of {num_guesses} guesses right, {m} canaries",
        bound(guesses.perfect, delta, confidence=confidence),
        1,
    )


def _predict(result: FitResult, records: Records) -> NDArray[np.float64]:
    """Predictions that are not clamped to the label bounds if the model is linear, since clamping makes them equal."""
    linear = result.model.head.linear_in is Linearity.COLUMNS
    predict = result.model.compute_scores if linear else result.model.predict
    return predict(records.public, records.private)
