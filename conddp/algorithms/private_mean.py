"""The constant predictor: one noisy release of the mean label. What every other algorithm must beat."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from conddp.algorithms.algorithm import Algorithm, Task, bound_rounding
from conddp.data.scaling import label_reach, scale_label
from conddp.heads.linear import Linear
from conddp.models.fitted import FitResult, FittedModel
from conddp.privacy.accounting import calibrate_gaussian_mu

__all__ = ["PrivateMean"]


@dataclass(frozen=True, kw_only=True)
class PrivateMean(Algorithm):
    """Predict the private mean of the labels, whatever the features."""

    linear_only: ClassVar[bool] = True

    def run(self, task: Task) -> FitResult:
        """Release the mean label.

        Privacy
            One Gaussian release of the sum of labels, each of unit width: it moves by at most 1 under REPLACE and by at
            most 1/2 under ZERO_OUT. Features, private ones included, are not read.
        """
        dataset, n, bounds = task.dataset, task.dataset.num_records, task.dataset.label.bounds
        if not task.fit_intercept:
            raise ValueError(f"{task.name} is an intercept and nothing else, got fit_intercept=False.")
        sensitivity = label_reach(bounds, task.neighbouring) * (1 + bound_rounding(n))
        deviation = sensitivity / calibrate_gaussian_mu(task.budget.epsilon, task.budget.delta) / n
        settings = {"noise_deviation": deviation}
        task.spend("one noisy sum of labels", settings)

        noise = task.random_source.generator().standard_normal()
        layout = Linear().layout(dataset.public.values.shape[1] + 1, task.num_private)
        parameters = np.zeros((1, layout.size))
        layout.views(parameters)["public"][0, 0, -1] = scale_label(dataset.label).mean() + deviation * noise
        private_bounds = () if dataset.private is None else dataset.private.bounds
        model = FittedModel(Linear(), layout, parameters[0], True, bounds, private_bounds)
        return task.finish(model, "One Gaussian release of the sum of labels was accounted exactly.", settings)
