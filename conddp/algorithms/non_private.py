"""The non-private optimum, for reference only."""

import math
from dataclasses import dataclass
from typing import ClassVar

from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.algorithms.task import Task
from conddp.data.schema import Schema
from conddp.heads.head import Head, Linearity
from conddp.models.result import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.transcript import Transcript, UnprotectedRelease
from conddp.training.released import fit_released_labels

__all__ = ["NonPrivate"]


@dataclass(frozen=True, kw_only=True)
class NonPrivate(Algorithm):
    """Training on the labels and private columns without noise, at an infinite epsilon.

    No finite budget covers it, and its guarantee states that the model is not private.
    """

    summary: ClassVar[str] = "least squares, or Adam for other heads, without noise"
    page: ClassVar[str] = "algorithms/reference_points.md"
    protects: ClassVar[str] = "nothing"
    ignores_units: ClassVar[bool] = True
    weighs_records: ClassVar[bool] = True
    takes_codes: ClassVar[bool] = True

    def cost(self, budget: PrivacyBudget) -> PrivacyBudget:
        """Return an infinite cost, regardless of the budget."""
        return PrivacyBudget(math.inf, 0.0)

    def needs_dense(self, schema: Schema, head: Head) -> bool:
        """Return whether the head is not linear in the columns."""
        return head.linear_in is not Linearity.COLUMNS

    def run(self, task: Task) -> FitResult:
        """Train without noise.

        Privacy
            None. The ledger entry has an infinite cost.
        """
        what = "labels and private columns as they are"
        records = task.spend("not private at all", {}, event=Transcript((UnprotectedRelease(what),)))
        records = task.curator.release_unprotected(records, what=what)
        model = fit_released_labels(
            task.head,
            records.public,
            records.label.bounds.clamp(records.label.values),
            records.label.bounds,
            fit_intercept=task.fit_intercept,
            rng=task.make_generator("weights"),
            private=records.private,
            weights=task.weights,
        )
        note = "it was trained on labels and private columns without any noise, as a reference point."
        return task.finish(model, {}, note=note)


ALGORITHMS.add("non-private", NonPrivate())
