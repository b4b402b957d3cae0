"""The non-private optimum: a reference point, not an algorithm to use."""

import math
from dataclasses import dataclass

from conddp.algorithms.algorithm import Algorithm, Task
from conddp.models.fitted import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.training.released import fit_released_labels

__all__ = ["NonPrivate"]


@dataclass(frozen=True, kw_only=True)
class NonPrivate(Algorithm):
    """Ordinary training on the labels and private columns themselves; costs an infinite epsilon.

    No finite ledger pays for it, and its guarantee says that there is none.
    """

    def cost(self, budget: PrivacyBudget) -> PrivacyBudget:
        """Infinite, whatever the budget."""
        return PrivacyBudget(math.inf, 0.0)

    def run(self, task: Task) -> FitResult:
        """Train without noise.

        Privacy
            None. The ledger entry has an infinite cost.
        """
        dataset = task.dataset
        task.spend("not private at all", {})
        model = fit_released_labels(
            task.head,
            dataset.public,
            dataset.label.bounds.clamp(dataset.label.values),
            dataset.label.bounds,
            fit_intercept=task.fit_intercept,
            generator=task.random_source.generator(),
            private=dataset.private,
        )
        mechanism = "it was trained on labels and private columns without any noise, as a reference point."
        return task.finish(model, mechanism, {})
