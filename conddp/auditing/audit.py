"""Audits of algorithms by name or instance, on a built-in table or on public columns of the user."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from conddp._validate import one_of, positive_integer
from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.auditing.black_box import audit_black_box
from conddp.auditing.bounds import check_confidence
from conddp.auditing.one_run import audit_one_run
from conddp.auditing.result import Audit, Evidence, Kind
from conddp.auditing.tables import LABEL_BOUNDS, make_canary_table, make_hard_table, simulate_records
from conddp.auditing.white_box import audit_white_box
from conddp.bounds import Bounds
from conddp.data.parts import Domain, PublicFeatures, require_public
from conddp.errors import NotCalibrated, PrivacyError
from conddp.heads import HEADS
from conddp.heads.head import Head
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator

__all__ = ["audit_algorithm", "audit_algorithms"]

CONFIDENCE = 0.999
DEFAULT_FITS: Mapping[Kind, int] = {"white-box": 22, "black-box": 4000, "one-run": 1}
NUM_CANARIES = 500  # of the built-in table
SMALL_TABLE = 12  # records of the built-in table for many fits, on whose models one label has the most influence
LARGEST_TABLE = 5000  # rows of the user's table that are used at most
Advance = Callable[[int, int], None]


def audit_algorithm(
    algorithm: str | Algorithm,
    budget: PrivacyBudget,
    *,
    head: str | Head = "linear",
    kind: Kind = "white-box",
    public: PublicFeatures | None = None,
    label_bounds: Bounds = LABEL_BOUNDS,
    private: Mapping[str, Domain] | None = None,
    num_fits: int | None = None,
    num_canaries: int | None = None,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    curator_class: type[Curator] = Curator,
    callback: Advance | None = None,
    **settings: Any,
) -> Audit:
    """Try to refute what an algorithm claims about its privacy, and bound its actual epsilon from below.

    A bound above the claim, or any finding, means that the claim is wrong. An audit that passes proves nothing beyond
    its lower bound.

    Privacy
        Labels and private columns are simulated. Of real data, it reads public columns and declared bounds: no cost.

    Parameters
    ----------
    algorithm : str or Algorithm
        The algorithm, by name or as an instance.
    budget : PrivacyBudget
        Budget of every fit. The claim is what the algorithm says that a fit with it costs.
    head : str or Head
        The model.
    kind : {"white-box", "black-box", "one-run"}
        "white-box" compares the questions that neighbouring fits ask under the same releases. "black-box" tells the
        released models of many fits apart. "one-run" guesses the labels of many canaries from one model.
    public : PublicFeatures, optional
        Public columns to audit on, of which at most 5000 rows are used; a built-in table if None.
    label_bounds : Bounds
        Declared range of the label.
    private : mapping, optional
        Declared ranges or categories of private columns, by name.
    num_fits : int, optional
        Number of fits of a white-box or black-box audit; by default 22 and 4000.
    num_canaries : int, optional
        Number of canaries of a one-run audit; by default 500 on the built-in table, and all records otherwise.
    confidence : float
        Probability with which the bound holds.
    seed : int
        Seed of the audit, which makes it reproducible.
    curator_class : type of Curator
        Class of the curator that makes the releases, for audits of a curator.
    callback : callable, optional
        Called with the number of fits done and the number of all, in black-box audits.
    **settings
        Other arguments of :meth:`Algorithm.fit <conddp.algorithms.algorithm.Algorithm.fit>`, such as
        ``fit_intercept``.

    Raises
    ------
    NotCalibrated
        If the table has too few records for the algorithm.
    PrivacyError
        If the algorithm does not support these columns.

    Examples
    --------
    >>> audit = audit_algorithm("mean", PrivacyBudget(1.0, 1e-6))
    >>> audit.verdict, 0.9 < audit.lower_bound <= 1.0
    ('holds', True)
    """
    one_of(get_args(Kind), kind=kind)
    check_confidence(confidence)
    name = algorithm if isinstance(algorithm, str) else type(algorithm).__name__
    algorithm, head = ALGORITHMS.resolve(algorithm), HEADS.resolve(head)
    if settings.get("neighbouring", Neighbouring.REPLACE) is not Neighbouring.REPLACE:
        raise ValueError("audits compare records that replace each other, so they need neighbouring='replace'.")
    records = simulate_records(
        _choose_table(public, kind, num_canaries), label_bounds=label_bounds, private=private, seed=seed
    )
    algorithm.check(records.schema, head, Neighbouring.REPLACE, settings.get("loss"))
    if budget.delta == 0 and algorithm.needs_delta:
        raise NotCalibrated(f"{name} needs a delta above 0.")
    settings |= {"head": head, "confidence": confidence, "seed": seed, "curator_class": curator_class}
    if num_fits is not None:
        positive_integer(num_fits=num_fits)
    started = time.perf_counter()
    try:
        if kind == "white-box":
            # Each pair takes two fits, and the worst pair is fitted some more times.
            pairs = max(1, ((num_fits or DEFAULT_FITS[kind]) - 4) // 2)
            found = audit_white_box(algorithm, records, budget, num_pairs=pairs, **settings)
        elif kind == "black-box":
            settings |= {"num_fits": num_fits or DEFAULT_FITS[kind], "callback": callback}
            found = audit_black_box(algorithm, records, budget, **settings)
        else:
            found = audit_one_run(algorithm, records, budget, num_canaries=num_canaries, **settings)
    except NotCalibrated:
        raise
    except PrivacyError as error:  # the checks that run in every fit have refused it
        found = Evidence(0.0, "refused by the fit", math.inf, 1, (f"the fit was refused: {error}",))
    return Audit(
        algorithm=name,
        head=str(head),
        kind=kind,
        claim=algorithm.cost(budget),
        lower_bound=found.lower_bound,
        method=found.method,
        ceiling=found.ceiling,
        confidence=confidence,
        num_fits=found.num_fits,
        seconds=time.perf_counter() - started,
        findings=found.findings,
    )


def audit_algorithms(
    algorithms: Iterable[str | Algorithm], budget: PrivacyBudget, **settings: Any
) -> tuple[list[Audit], dict[str, str]]:
    """Audit several algorithms; returns the audits, and why others could not be audited, by name.

    Parameters
    ----------
    algorithms : iterable of str or Algorithm
        The algorithms.
    budget : PrivacyBudget
        Budget of every fit.
    **settings
        As in :func:`audit_algorithm`.
    """
    audits, skipped = [], {}
    for algorithm in algorithms:
        try:
            audits.append(audit_algorithm(algorithm, budget, **settings))
        except (NotCalibrated, PrivacyError) as error:
            skipped[algorithm if isinstance(algorithm, str) else type(algorithm).__name__] = str(error)
    return audits, skipped


def _choose_table(public: PublicFeatures | None, kind: Kind, num_canaries: int | None) -> PublicFeatures:
    if public is not None:
        return require_public(public, function="audit_algorithm")[:LARGEST_TABLE]
    if kind == "one-run":
        return make_canary_table(num_canaries or NUM_CANARIES)
    return make_hard_table(SMALL_TABLE) if kind == "black-box" else make_hard_table()
