"""The non-private optimum: a reference point, not an algorithm to use."""

import math
from dataclasses import dataclass

from conddp.algorithms.algorithm import make_guarantee, spend
from conddp.data import Dataset
from conddp.fitted import FitResult
from conddp.ledger import PrivacyBudget, PrivacyLedger
from conddp.models import Head, Linear
from conddp.neighbouring import Neighbouring
from conddp.noise import RandomSource
from conddp.released import fit_released_labels
from conddp.training import Callback

__all__ = ["NonPrivate"]


@dataclass(frozen=True, kw_only=True)
class NonPrivate:
    """Ordinary training on the labels and private columns themselves; costs an infinite epsilon.

    No finite ledger pays for it, and its guarantee says that there is none.
    """

    def cost(self, budget: PrivacyBudget) -> PrivacyBudget:
        """Infinite, whatever the budget."""
        return PrivacyBudget(math.inf, 0.0)

    def fit(
        self,
        dataset: Dataset,
        budget: PrivacyBudget,
        *,
        head: Head | None = None,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
        fit_intercept: bool = True,
        random_source: RandomSource | None = None,
        ledger: PrivacyLedger | None = None,
        callback: Callback | None = None,
    ) -> FitResult:
        """Train without noise.

        Privacy
            None. The ledger entry has an infinite cost.
        """
        random_source = random_source or RandomSource.of(None)
        cost = self.cost(budget)
        spend(ledger, type(self).__name__, cost, neighbouring, reason="not private at all", settings={})
        model = fit_released_labels(
            head or Linear(),
            dataset.public,
            dataset.label.bounds.clamp(dataset.label.values),
            dataset.label.bounds,
            fit_intercept=fit_intercept,
            generator=random_source.generator(),
            private=dataset.private,
        )
        mechanism = "it was trained on labels and private columns without any noise, as a reference point."
        return FitResult(model, make_guarantee(dataset, cost, neighbouring, mechanism, random_source), {})
