"""The constant predictor: one noisy release of the mean label. What every other algorithm must beat."""

from dataclasses import dataclass

import numpy as np

from conddp.accounting import calibrate_gaussian_mu
from conddp.algorithms.algorithm import bound_rounding, make_guarantee, spend
from conddp.data import Dataset
from conddp.fitted import FitResult, FittedModel
from conddp.ledger import PrivacyBudget, PrivacyLedger
from conddp.models import Head, Linear
from conddp.neighbouring import Neighbouring
from conddp.noise import RandomSource
from conddp.preprocessing import label_reach, scale_label
from conddp.training import Callback

__all__ = ["PrivateMean"]


@dataclass(frozen=True, kw_only=True)
class PrivateMean:
    """Predict the private mean of the labels, whatever the features."""

    def cost(self, budget: PrivacyBudget) -> PrivacyBudget:
        """All of the budget."""
        return budget

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
        """Release the mean label.

        Privacy
            One Gaussian release of the sum of labels, each of unit width: it moves by at most 1 under REPLACE and by at
            most 1/2 under ZERO_OUT. Features, private ones included, are not read.
        """
        name, n = type(self).__name__, dataset.num_records
        if not fit_intercept:
            raise ValueError(f"{name} is an intercept and nothing else, got fit_intercept=False.")
        if not isinstance(head or Linear(), Linear):
            raise ValueError(f"{name} has no use for a head, got head={head}.")
        random_source = random_source or RandomSource.of(None)
        bounds = dataset.label.bounds
        sensitivity = label_reach(bounds, neighbouring) * (1 + bound_rounding(n))
        deviation = sensitivity / calibrate_gaussian_mu(budget.epsilon, budget.delta) / n
        settings = {"noise_deviation": deviation}
        spend(ledger, name, budget, neighbouring, reason="one noisy sum of labels", settings=settings)

        noise = random_source.generator().standard_normal()
        private_bounds = () if dataset.private is None else dataset.private.bounds
        layout = Linear().layout(dataset.public.values.shape[1] + 1, len(private_bounds))
        parameters = np.zeros((1, layout.size))
        layout.views(parameters)["public"][0, 0, -1] = scale_label(dataset.label).mean() + deviation * noise
        model = FittedModel(Linear(), layout, parameters[0], True, bounds, private_bounds)
        mechanism = "One Gaussian release of the sum of labels was accounted exactly."
        return FitResult(model, make_guarantee(dataset, budget, neighbouring, mechanism, random_source), settings)
