"""A request for a fit that has been checked, from which its task is made."""

from dataclasses import dataclass
from itertools import chain

from conddp.algorithms.identity import list_private, list_public
from conddp.algorithms.task import Task
from conddp.algorithms.trial import Shared
from conddp.data.passes import count_additions, get_partitions
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.features.stored_features import StoredFeatures
from conddp.heads.head import Head
from conddp.losses import Loss
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.checkpoint import Checkpoint
from conddp.privacy.fingerprint import Fingerprint
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.locked import Locked
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.privacy.transcript import Transcript
from conddp.training.loop import Callback
from conddp.training.ranks import Ranks

__all__ = ["Prepared"]


@dataclass(frozen=True)
class Prepared:
    """A checked request, with the records that the fit will use. Nothing has been spent.

    Parameters
    ----------
    records : Records
        Records of the fit, arranged.
    settings : list of bytes
        Everything but the records that makes the fit this fit.
    head_choice : str
        Sentence that explains why this head is fitted, if the library chose it.
    random_source : RandomSource
        Source of random numbers, before it is bound to the fit.
    name, schema, budget, cost, head, loss, neighbouring, fit_intercept, ledger, table, unit_digest
        As in :class:`~conddp.algorithms.task.Task`.
    """

    name: str
    records: Records
    schema: Schema
    budget: PrivacyBudget
    cost: PrivacyBudget
    head: Head
    loss: Loss
    neighbouring: Neighbouring
    fit_intercept: bool
    random_source: RandomSource
    ledger: PrivacyLedger
    table: Fingerprint | None
    unit_digest: str
    settings: list[bytes]
    head_choice: str = ""

    def make_task(
        self,
        locked: Locked[Records],
        *,
        event: Transcript | None,
        checkpoint: Checkpoint | None = None,
        ranks: Ranks | None = None,
        callback: Callback | None = None,
        curator_class: type[Curator] = Curator,
        shared: Shared | None = None,
    ) -> Task:
        """Check that the ledger covers the cost, unless it was paid before, and make the task with a new curator.

        Parameters
        ----------
        locked : Locked
            The records, locked.
        event : Transcript or None
            Event that the fit is expected to record.
        checkpoint, ranks, callback, curator_class, shared
            As in :class:`~conddp.algorithms.task.Task` and
            :meth:`Algorithm.fit <conddp.algorithms.algorithm.Algorithm.fit>`.
        """
        records, settings, saved, unit = self.records, self.settings, checkpoint, self.schema.unit
        source = self.random_source.bind(chain(settings, list_public(records), list_private(records)))
        resumed = saved is not None and saved.generation > 0
        if not resumed:
            self.ledger.check(
                self.name, self.cost, self.neighbouring, event=event, table=self.table, unit=unit, side=records.side
            )
        purpose = f"noise, {saved.resumption}" if saved is not None and resumed else "noise"
        # Columns in memory and shares of ranks are summed in one product, so the bound on blocks does not apply.
        in_blocks = ranks is None and isinstance(records.public, StoredFeatures)
        partitions = get_partitions(records.label) if in_blocks else None
        curator = curator_class(
            source.generator(purpose),
            num_records=records.num_records,
            additions=None if partitions is None else count_additions(records.num_records, partitions),
            budget=self.cost,
            checkpoint=saved,
        )
        return Task(
            self.name,
            records.public,
            self.schema,
            self.budget,
            self.cost,
            self.head,
            self.loss,
            self.neighbouring,
            self.fit_intercept,
            source,
            self.ledger,
            locked,
            curator,
            callback,
            head_choice=self.head_choice,
            table=self.table,
            checkpoint=saved,
            units=records.units,
            unit_digest=self.unit_digest,
            weights=records.weights,
            ranks=ranks,
            shared=shared,
            side=records.side,
        )
