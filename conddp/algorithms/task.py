"""One fit, as an algorithm sees it: public columns and declared bounds; private records only after it has paid."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conddp.data.parts import PublicFeatures
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.heads.head import Head
from conddp.losses import Loss
from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.composition import check_cost, describe_transcript
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger
from conddp.privacy.locked import Locked
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.training.loop import Callback

__all__ = ["Task"]


@dataclass(frozen=True)
class Task:
    """What an algorithm is given, and the few things that every algorithm does with it.

    Privacy
        Labels and private columns are locked. :meth:`spend` records the cost and hands them out; there is no other way
        to them. They leave through :attr:`curator`, and :meth:`finish` compares what left with what was recorded.

    Parameters
    ----------
    name : str
        Of the algorithm.
    public : PublicFeatures
        Public columns of all records.
    schema : Schema
        Names, roles and declared bounds of all columns.
    budget, cost : PrivacyBudget
        What the fit may cost, and what this algorithm makes of it.
    head : Head
        The model.
    loss : Loss
        What is minimised.
    neighbouring : Neighbouring
        The relation under which the budget is meant.
    fit_intercept : bool
        Whether the model has an intercept.
    random_source : RandomSource
        For chance that is not noise: initial weights, samples, public weights.
    ledger : PrivacyLedger
        Where the cost is recorded.
    locked_records : Locked
        The records.
    curator : Curator
        Through whom private quantities are released.
    callback : callable, optional
        Of the user, for progress.
    choice : str
        Why this algorithm was chosen, if the library chose it.
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
    choice: str = ""

    @property
    def num_records(self) -> int:
        """Number of records n, which is public."""
        return len(self.public)

    @property
    def num_private(self) -> int:
        """Number of private columns."""
        return len(self.schema.private)

    @property
    def num_columns(self) -> int:
        """Number of public columns, and the constant column if there is one."""
        return len(self.schema.public) + self.fit_intercept

    def make_generator(self) -> np.random.Generator:
        """A generator for chance that is not noise."""
        return self.random_source.generator()

    def spend(self, reason: str, settings: Mapping[str, Any]) -> Records:
        """Record the cost of the fit, then hand out the private records. Works once."""
        entry = LedgerEntry(self.name, self.cost, reason, dict(settings))
        return self.locked_records.open(self.ledger.spend(entry, neighbouring=self.neighbouring))

    def note_free(self, what: str, reason: str) -> None:
        """Record something that costs nothing, with the reason."""
        entry = LedgerEntry(f"{self.name}: {what}", PrivacyBudget(0.0, 0.0), reason)
        self.ledger.spend(entry, neighbouring=self.neighbouring)

    def make_model(self, parameters: Any) -> FittedModel:
        """The model with these parameters, on the public columns themselves."""
        return FittedModel(
            self.head,
            self.head.layout(self.num_columns, self.num_private),
            parameters,
            self.fit_intercept,
            self.schema.label_bounds,
            self.schema.private_bounds,
            self.loss,
        )

    def finish(
        self,
        model: FittedModel,
        settings: Mapping[str, Any],
        *,
        note: str = "",
        diagnostics: Diagnostics | None = None,
    ) -> FitResult:
        """The result with its guarantee, after what was released has been compared with what was recorded.

        Parameters
        ----------
        model : FittedModel
            The trained model.
        settings : mapping
            Every choice that was made; all of it is public.
        note : str
            A sentence on post-processing, after those on what was released.
        diagnostics : Diagnostics, optional
            The course of the fit.

        Raises
        ------
        PrivacyError
            If the releases cost more than the recorded entry. Nothing is returned then.
        """
        transcript = self.curator.transcript
        check_cost(transcript, self.cost, self.neighbouring)
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
            self.choice,
        )
        return FitResult(
            model,
            guarantee,
            dict(settings),
            diagnostics or Diagnostics(),
            transcript,
            self.schema,
            self.ledger,
        )
