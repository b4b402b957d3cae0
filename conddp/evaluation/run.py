"""Evaluation of a released model on held-out records: spend, release, compute figures."""

import math
from dataclasses import asdict
from itertools import chain

import numpy as np

from conddp._validate import in_range, positive, positive_integer
from conddp.data.records import Records
from conddp.data.scaling import scale_label
from conddp.errors import PrivacyError
from conddp.evaluation.figures import compute_bins, compute_figures
from conddp.evaluation.moments import release_moments
from conddp.evaluation.moves import MomentWeights
from conddp.evaluation.predicted import Predicted
from conddp.evaluation.spreads import release_spreads
from conddp.evaluation.weighting import choose_weights
from conddp.models.evaluation import Evaluation
from conddp.models.result import FitResult
from conddp.privacy.accounting import calibrate_gaussian_mu, check_delta, refuse_large_delta
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.composition import check_cost
from conddp.privacy.digest import CellBytes
from conddp.privacy.events import check_event, make_gaussian_event
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger
from conddp.privacy.locked import Locked
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator

__all__ = ["MOMENTS_SHARE", "NUM_BINS", "check_model", "evaluate_model"]

MOMENTS_SHARE = 0.9  # of the squared mu, for the figures; the rest is for their sampling variances
NUM_BINS = 10  # of the calibration curve
_MOST_BINS = 1000


def evaluate_model(
    result: FitResult,
    records: Records,
    budget: PrivacyBudget,
    *,
    neighbouring: Neighbouring | None = None,
    ledger: PrivacyLedger | None = None,
    random_source: RandomSource | None = None,
    num_bins: int = NUM_BINS,
    level: float = 0.95,
    curator_class: type[Curator] = Curator,
) -> Evaluation:
    """Evaluate a released model on records that were not used for training.

    Privacy
        Costs ``budget`` with respect to the labels of ``records``: two Gaussian releases, the second of which depends
        on the first. The cost is recorded before labels are read. Predictions must be public, so that a model with
        private columns is refused. With units, the guarantee covers all labels of a unit together.

        If the records are on a side of a public split (:class:`~conddp.privacy.sides.Side`), the ledger counts the
        worst side. Otherwise the cost adds to what the ledger holds.

    Parameters
    ----------
    result : FitResult
        The model.
    records : Records
        Held-out records, with public columns encoded as in training.
    budget : PrivacyBudget
        Cost of the evaluation.
    neighbouring : Neighbouring, optional
        Neighbouring relation. If None, that of the ledger or, without a ledger, that of the model's guarantee.
    ledger : PrivacyLedger, optional
        Ledger that records the cost; a new one with just this budget if None.
    random_source : RandomSource, optional
        Source of the noise; a cryptographic generator if None.
    num_bins : int
        Largest number of bins of the calibration curve.
    level : float
        Level of the intervals.
    curator_class : type of Curator
        Class of the curator that makes the releases, for audits.

    Raises
    ------
    PrivacyError
        If the model has private columns.
    BudgetExceeded
        If the ledger does not cover the cost. Nothing is read.
    """
    positive(epsilon=budget.epsilon)
    check_delta(budget.delta)
    refuse_large_delta(budget.delta)
    positive_integer(num_bins=num_bins)
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got level={level!r}.")
    in_range(1, _MOST_BINS, num_bins=num_bins)
    check_model(result)
    if neighbouring is None:
        neighbouring = result.guarantee.neighbouring if ledger is None else ledger.neighbouring
    unit = None if records.units is None else records.units.name
    if ledger is None:
        ledger = PrivacyLedger(budget, neighbouring=neighbouring, unit=unit)
    table = None if ledger.path is None else records.fingerprint
    details = {} if records.units is None else {"unit": unit, "unit_sizes": records.units.digest}
    used = records.arrange()
    predicted = Predicted.of(
        result.predict(used.public), used.label.bounds, num_bins=num_bins, weights=used.weights, units=used.units
    )
    weights, mu = choose_weights(predicted, neighbouring), calibrate_gaussian_mu(budget.epsilon, budget.delta)
    event = make_gaussian_event(mu)
    ledger.check("the evaluation", budget, neighbouring, event=event, table=table, unit=unit, side=records.side)
    settings = {"num_bins": predicted.num_bins, "weights": asdict(weights)}
    source = (random_source or RandomSource.of(None)).bind(_identify(used, predicted, budget, settings, neighbouring))
    curator = curator_class(source.generator("noise"), num_records=used.num_records, budget=budget)
    locked = Locked(used, price=budget, ledger=ledger)
    entry = LedgerEntry(
        "evaluation",
        budget,
        "figures of a released model on these records",
        {**settings, **details},
        event=event,
        table=table,
        side=records.side,
    )
    curator.limit(event)
    held_out = locked.open(ledger.spend(entry, neighbouring=neighbouring, unit=unit))
    evaluation = _release(result, held_out, predicted, weights, curator, mu, budget, neighbouring, level, source.seeded)
    check_cost(curator.transcript, budget, neighbouring)
    check_event(curator.transcript, event)
    return evaluation


def check_model(result: FitResult) -> None:
    """Raise unless the predictions of a model are public."""
    if result.model.private_domains:
        raise PrivacyError(
            f"the model has the private columns {list(result.schema.private)}, so that its predictions are private "
            "too. An evaluation is exact about public predictions only and does not cover them yet."
        )


def _release(
    result: FitResult,
    held_out: Records,
    predicted: Predicted,
    weights: MomentWeights,
    curator: Curator,
    mu: float,
    budget: PrivacyBudget,
    neighbouring: Neighbouring,
    level: float,
    seeded: bool,
) -> Evaluation:
    """Make both releases and compute everything from them."""
    bounds, units = held_out.label.bounds, held_out.units
    errors = scale_label(held_out.label) - predicted.scaled
    moments = release_moments(
        errors, predicted, weights, mu=mu * math.sqrt(MOMENTS_SHARE), neighbouring=neighbouring, curator=curator
    )
    spreads = release_spreads(errors, predicted, moments, mu=mu * math.sqrt(1 - MOMENTS_SHARE), curator=curator)
    return Evaluation(
        held_out.label.name,
        bounds,
        held_out.num_records,
        budget,
        neighbouring,
        level,
        tuple(compute_figures(moments, spreads, predicted, bounds, level)),
        compute_bins(moments, spreads, predicted, bounds, level),
        curator.transcript,
        held_out.side is not None,
        seeded,
        "" if units is None else units.name,
        0 if units is None else units.num_units,
    )


def _identify(
    used: Records, predicted: Predicted, budget: PrivacyBudget, settings: object, neighbouring: Neighbouring
) -> chain[bytes | CellBytes]:
    """Everything that makes this evaluation this one and no other, for the noise of a seeded one."""
    cells = [predicted.scaled, predicted.weights, predicted.unit_codes.astype(np.int64)]
    return chain(
        [repr(("evaluation", budget, settings, neighbouring.value)).encode()],
        map(CellBytes, cells),
        [CellBytes(used.label.bounds.clamp(used.label.values))],
    )
