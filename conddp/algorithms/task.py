"""Inputs of one fit: public columns and declared bounds, and private records locked until their cost is recorded."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.trial import Shared
from conddp.data.parts import PublicFeatures
from conddp.data.records import Records
from conddp.data.scaling import count_private_features
from conddp.data.schema import Schema
from conddp.data.units import Units
from conddp.heads.head import Head
from conddp.losses import Loss
from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.models.uncertainty import Uncertainty
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.checkpoint import Checkpoint
from conddp.privacy.composition import describe_transcript
from conddp.privacy.fingerprint import Fingerprint
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger
from conddp.privacy.locked import Locked
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.privacy.sides import Side
from conddp.privacy.transcript import Transcript
from conddp.training.loop import Callback
from conddp.training.ranks import Ranks

__all__ = ["Task"]

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Task:
    """Inputs of a fit, and the operations that every algorithm needs.

    Privacy
        Labels and private columns are locked. :meth:`spend` records the cost and unlocks them; there is no other way to
        read them. Algorithms release private quantities through :attr:`curator`. :meth:`Algorithm.fit
        <conddp.algorithms.algorithm.Algorithm.fit>` compares the cost of these releases with the recorded cost.

    Parameters
    ----------
    name : str
        Name of the algorithm.
    public : PublicFeatures
        Public columns of all records.
    schema : Schema
        Names, roles and declared bounds of all columns.
    budget, cost : PrivacyBudget
        Budget of the fit, and the actual cost of this algorithm under that budget.
    head : Head
        Model to fit.
    loss : Loss
        Loss to minimise.
    neighbouring : Neighbouring
        Neighbouring relation under which the budget is stated.
    fit_intercept : bool
        Whether to fit an intercept.
    random_source : RandomSource
        Source of random numbers other than privacy noise: initial weights, samples, public weights.
    ledger : PrivacyLedger
        Ledger that records the cost.
    locked_records : Locked
        Training records, locked until their cost is recorded.
    curator : Curator
        Curator through which private quantities are released.
    callback : callable, optional
        Progress callback of the user.
    head_choice, choice : str
        Sentences that explain why this head and this algorithm are used, if the library chose them.
    table : Fingerprint, optional
        Fingerprint of the public columns, for a ledger that is kept in a file.
    checkpoint : Checkpoint, optional
        File that keeps what is released, so that a killed fit can go on.
    unit_digest : str
        Digest of the numbers of records of all units.
    units : Units, optional
        Units of the records, arranged: the records of a unit are side by side. If None, each record is protected on its
        own.
    weights : array of shape (n,), optional
        Public weights of the records, of which the largest is 1. If None, all records have the same weight.
    ranks : Ranks, optional
        Processes that share the work, of which this is rank 0. If None, there is this process only.
    shared : Shared, optional
        What several trials on the same public columns have in common. If None, there is one fit only.
    side : Side, optional
        Side of a public split of the table on which the records are.
    """

    name: str
    public: PublicFeatures
    schema: Schema
    budget: PrivacyBudget
    cost: PrivacyBudget
    head: Head
    loss: Loss
    neighbouring: Neighbouring
    fit_intercept: bool
    random_source: RandomSource
    ledger: PrivacyLedger
    locked_records: Locked[Records] = field(repr=False)
    curator: Curator = field(repr=False)
    callback: Callback | None = None
    head_choice: str = ""
    choice: str = ""
    table: Fingerprint | None = None
    checkpoint: Checkpoint | None = None
    units: Units | None = None
    unit_digest: str = ""
    weights: NDArray[np.float64] | None = None
    ranks: Ranks | None = None
    shared: Shared | None = None
    side: Side | None = None

    @property
    def repeated_units(self) -> Units | None:
        """The units, if any of them has several records. Otherwise a unit is a record, and nothing else changes."""
        return None if self.units is None or self.units.largest == 1 else self.units

    @property
    def num_records(self) -> int:
        """Number of records n, which is public."""
        return len(self.public)

    @property
    def num_private(self) -> int:
        """Number of features that the private columns are scaled to."""
        return count_private_features(self.schema.private_domains, center=self.fit_intercept)

    @property
    def num_columns(self) -> int:
        """Number of public features, including the constant column if there is one."""
        return len(self.public.names) + self.fit_intercept

    def share(self, key: Hashable, make: Callable[[], ResultT]) -> ResultT:
        """Return a result that depends on public columns and the key only; trials compute it once for all of them."""
        return make() if self.shared is None else self.shared.get((key, self.fit_intercept), make)

    def make_generator(self, purpose: str = "samples") -> np.random.Generator:
        """Return a generator for random numbers other than privacy noise; an own one for every purpose.

        The purpose "weights" is for numbers that need not be secret, such as initial weights. A resumed fit draws the
        same ones again; it never repeats others.
        """
        checkpoint = self.checkpoint
        if checkpoint is not None and purpose == "weights" and not self.random_source.seeded:
            return RandomSource(checkpoint.weights_seed).generator(purpose)
        if checkpoint is not None and purpose != "weights" and checkpoint.generation:
            purpose = f"{purpose}, {checkpoint.resumption}"
        return self.random_source.generator(purpose)

    def spend(self, reason: str, settings: Mapping[str, Any], *, event: Transcript | None = None) -> Records:
        """Record the cost of the fit, then return the private records. Can be called once.

        Parameters
        ----------
        reason : str
            One sentence that justifies the cost.
        settings : mapping
            Public settings of the fit.
        event : Transcript, optional
            Everything that the fit will release (:mod:`conddp.privacy.events`). The ledger composes it exactly with
            other fits, and a fit that releases more is refused. If None, the cost adds by basic composition.
        """
        self.curator.limit(event)
        details, receipt = dict(settings), None
        unit = None if self.units is None else self.units.name
        if unit is not None:
            details |= {"unit": unit, "unit_sizes": self.unit_digest}
        if self.checkpoint is not None:
            details["fit"] = self.checkpoint.fit_id
            if self.checkpoint.generation:
                receipt = self.ledger.resume(
                    self.checkpoint.fit_id, self.checkpoint.generation, neighbouring=self.neighbouring, unit=unit
                )
        if receipt is None:
            entry = LedgerEntry(self.name, self.cost, reason, details, event=event, table=self.table, side=self.side)
            receipt = self.ledger.spend(entry, neighbouring=self.neighbouring, unit=unit)
        return self.locked_records.open(receipt)

    def note_free(self, what: str, reason: str) -> None:
        """Record a computation that costs nothing, with the reason."""
        entry = LedgerEntry(f"{self.name}: {what}", PrivacyBudget(0.0, 0.0), reason)
        unit = None if self.units is None else self.units.name
        self.ledger.spend(entry, neighbouring=self.neighbouring, unit=unit)

    def make_model(self, parameters: Any) -> FittedModel:
        """Make a model from parameters stated in terms of the original public columns."""
        return FittedModel(
            self.head,
            self.head.layout(self.num_columns, self.num_private),
            parameters,
            self.fit_intercept,
            self.schema.label_bounds,
            self.schema.private_domains,
            self.loss,
        )

    def finish(
        self,
        model: FittedModel,
        settings: Mapping[str, Any],
        *,
        note: str = "",
        diagnostics: Diagnostics | None = None,
        uncertainty: Uncertainty | None = None,
    ) -> FitResult:
        """Return the result with the guarantee that its transcript supports.

        Parameters
        ----------
        model : FittedModel
            The trained model.
        settings : mapping
            All settings of the fit; they are public.
        note : str
            Sentence about post-processing, appended to the description of the releases.
        diagnostics : Diagnostics, optional
            Diagnostics of the fit.
        uncertainty : Uncertainty, optional
            Uncertainty of the coefficients of a linear model. It is not kept if it is too large.
        """
        transcript = self.curator.transcript
        mechanism = " ".join(filter(None, (describe_transcript(transcript, self.neighbouring), note)))
        guarantee = Guarantee(
            self.cost,
            self.neighbouring,
            self.num_records,
            self.schema.label.name,
            self.schema.label_bounds,
            self.schema.public,
            self.schema.private,
            mechanism,
            self.random_source.seeded,
            " ".join(filter(None, (self.head_choice, self.choice))),
            *(("", 0, 0) if self.units is None else (self.units.name, self.units.num_units, self.units.largest)),
            self.schema.category_columns,
            weighted=self.weights is not None,
            missing_is_public=self.schema.label.missing_is_public,
            rounding=self.curator.rounding,
        )
        return FitResult(
            model,
            guarantee,
            dict(settings),
            diagnostics or Diagnostics(),
            transcript,
            self.schema,
            self.ledger,
            uncertainty=None if uncertainty is None else uncertainty.keep(),
        )
