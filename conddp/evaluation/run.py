"""Evaluation of a released model on held-out records: spend, release, compute figures."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range, positive, positive_integer
from conddp.data.parts import Labels
from conddp.data.records import Records
from conddp.data.scaling import scale_label
from conddp.errors import SchemaError
from conddp.evaluation.figures import compute_bins, compute_figures
from conddp.evaluation.moments import release_moments
from conddp.evaluation.moves import MomentWeights
from conddp.evaluation.predicted import Predicted
from conddp.evaluation.private_predictions import choose_private_weights, release_figures
from conddp.evaluation.spreads import release_spreads
from conddp.evaluation.weighting import choose_weights
from conddp.models.evaluation import CalibrationBin, Evaluation, Figure
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

__all__ = ["MOMENTS_SHARE", "NUM_BINS", "evaluate_model"]

MOMENTS_SHARE = 0.9  # of the squared mu, for the figures; the rest is for their sampling variances
NUM_BINS = 10  # of the calibration curve
PREDICTION_DIGITS = 6  # of scaled predictions, in what the noise of a seeded evaluation depends on
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
        Costs ``budget`` with respect to the labels and private columns of ``records``: two Gaussian releases, the
        second of which depends on the first. The cost is recorded before private values are read. If the model has
        private columns, predictions are private too, and slope and calibration curve are left out. With units, the
        guarantee covers all records of a unit together.

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
    SchemaError
        If the records lack the private columns of the model.
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
    if (() if records.private is None else records.private.names) != result.schema.private:
        raise SchemaError(f"the records must have the private columns of the model, {list(result.schema.private)}.")
    if neighbouring is None:
        neighbouring = result.guarantee.neighbouring if ledger is None else ledger.neighbouring
    unit = None if records.units is None else records.units.name
    if ledger is None:
        ledger = PrivacyLedger(budget, neighbouring=neighbouring, unit=unit)
    table = None if ledger.path is None else records.fingerprint
    details = {} if records.units is None else {"unit": unit, "unit_sizes": records.units.digest}
    used = records.arrange()
    recipe = (_PrivateRecipe if result.model.private_domains else _PublicRecipe).of(
        result, used, neighbouring, num_bins
    )
    mu = calibrate_gaussian_mu(budget.epsilon, budget.delta)
    event = make_gaussian_event(mu)
    ledger.check("the evaluation", budget, neighbouring, event=event, table=table, unit=unit, side=records.side)
    source = random_source or RandomSource.of(None)
    source = source.bind(_identify(result, used, budget, num_bins, neighbouring))
    curator = curator_class(source.generator("noise"), num_records=used.num_records, budget=budget)
    locked = Locked(used, price=budget, ledger=ledger)
    entry = LedgerEntry(
        "evaluation",
        budget,
        "figures of a released model on these records",
        {**recipe.settings, **details},
        event=event,
        table=table,
        side=records.side,
    )
    curator.limit(event)
    held_out = locked.open(ledger.spend(entry, neighbouring=neighbouring, unit=unit))
    mus = mu * math.sqrt(MOMENTS_SHARE), mu * math.sqrt(1 - MOMENTS_SHARE)
    figures, bins = recipe.release(held_out, mus, neighbouring, curator, level)
    check_cost(curator.transcript, budget, neighbouring)
    check_event(curator.transcript, event)
    return Evaluation(
        held_out.label.name,
        held_out.label.bounds,
        held_out.num_records,
        budget,
        neighbouring,
        level,
        figures,
        bins,
        curator.transcript,
        held_out.side is not None,
        source.seeded,
        "" if held_out.units is None else held_out.units.name,
        0 if held_out.units is None else held_out.units.num_units,
        result.schema.private,
    )


Released = tuple[tuple[Figure, ...], tuple[CalibrationBin, ...]]


@dataclass(frozen=True)
class _PublicRecipe:
    """Evaluation of public predictions."""

    predicted: Predicted
    weights: MomentWeights
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, result: FitResult, used: Records, neighbouring: Neighbouring, num_bins: int) -> "_PublicRecipe":
        predictions = result.predict(used.public)
        predicted = Predicted.of(
            predictions, used.label.bounds, num_bins=num_bins, weights=used.weights, units=used.units
        )
        weights = choose_weights(predicted, neighbouring)
        return cls(predicted, weights, {"num_bins": predicted.num_bins, "weights": asdict(weights)})

    def release(
        self, held_out: Records, mus: tuple[float, float], relation: Neighbouring, curator: Curator, level: float
    ) -> Released:
        """Make both releases and compute everything from them."""
        predicted, bounds = self.predicted, held_out.label.bounds
        errors = scale_label(held_out.label) - predicted.scaled
        moments = release_moments(errors, predicted, self.weights, mu=mus[0], neighbouring=relation, curator=curator)
        spreads = release_spreads(errors, predicted, moments, mu=mus[1], curator=curator)
        figures = tuple(compute_figures(moments, spreads, predicted, bounds, level))
        return figures, compute_bins(moments, spreads, predicted, bounds, level)


@dataclass(frozen=True)
class _PrivateRecipe:
    """Evaluation of predictions that depend on private columns."""

    result: FitResult
    weights: NDArray[np.float64]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, result: FitResult, used: Records, neighbouring: Neighbouring, num_bins: int) -> "_PrivateRecipe":
        weights = choose_private_weights(neighbouring)
        return cls(result, weights, {"weights": weights.tolist()})

    def release(
        self, held_out: Records, mus: tuple[float, float], relation: Neighbouring, curator: Curator, level: float
    ) -> Released:
        """Make both releases and compute everything from them."""
        n, bounds, units = held_out.num_records, held_out.label.bounds, held_out.units
        predictions = Labels(self.result.predict(held_out.public, held_out.private), bounds)
        figures = release_figures(
            scale_label(held_out.label),
            scale_label(predictions),
            np.ones(n) if held_out.weights is None else held_out.weights,
            np.arange(n) if units is None else units.codes,
            mus=mus,
            moment_weights=self.weights,
            neighbouring=relation,
            curator=curator,
            bounds=bounds,
            level=level,
        )
        return tuple(figures), ()


def _identify(
    result: FitResult, used: Records, budget: PrivacyBudget, num_bins: int, neighbouring: Neighbouring
) -> Iterator[bytes | CellBytes]:
    """Everything that makes this evaluation this one and no other, for the noise of a seeded one."""
    yield repr(("evaluation", budget, num_bins, neighbouring.value)).encode()
    predictions = result.predict(used.public, used.private) / used.label.bounds.width
    yield CellBytes(np.round(predictions, PREDICTION_DIGITS) + 0.0)  # the same on machines that round differently
    yield CellBytes(used.label.bounds.clamp(used.label.values))
    if used.weights is not None:
        yield CellBytes(used.weights, b"weights")
    if used.units is not None:
        yield CellBytes(used.units.codes.astype(np.int64), b"units")
