"""PrivateMean: a constant predictor from one noisy release, the baseline for every other algorithm."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.algorithms.task import Task
from conddp.algorithms.weighting import describe_weights, weigh_records
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.passes import run_pass
from conddp.data.scaling import bound_label_move, scale_label
from conddp.data.schema import Schema
from conddp.heads.head import Head
from conddp.models.result import FitResult
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.events import make_gaussian_event

__all__ = ["PrivateMean"]


@dataclass(frozen=True, kw_only=True)
class PrivateMean(Algorithm):
    """Predict the private mean of the labels, ignoring the features."""

    summary: ClassVar[str] = "predicts the private mean of the labels"
    page: ClassVar[str] = "algorithms/reference_points.md"
    protects: ClassVar[str] = "label"
    linear_only: ClassVar[bool] = True
    protects_units: ClassVar[bool] = True
    weighs_records: ClassVar[bool] = True

    def needs_dense(self, schema: Schema, head: Head) -> bool:
        """Return False: no feature is read."""
        return False

    def reads_blocks(self, public_features: PublicFeatures, head: Head) -> bool:
        """Return True."""
        return True

    def run(self, task: Task) -> FitResult:
        """Release the mean label.

        Privacy
            One Gaussian release of the sum of labels, each scaled to a range of unit width. Its sensitivity is 1 under
            REPLACE and 1/2 under ZERO_OUT. No feature is read, public or private. With units or weights of the user,
            labels have public weights, and the sensitivity is multiplied by the largest sum of the weights of a unit.
        """
        if not task.fit_intercept:
            raise ValueError(f"{task.name} fits an intercept and nothing else, got fit_intercept=False.")
        sensitivity = bound_label_move(task.schema.label_bounds, task.neighbouring)
        weights, total_weight = weigh_records(task, num_directions=1), float(task.num_records)
        if weights is not None:
            sensitivity, total_weight = sensitivity * weights.largest_total, weights.total
        mu = calibrate_gaussian_mu(task.budget.epsilon, task.budget.delta)
        noise_std = sensitivity / mu
        settings = {"noise_std": noise_std / total_weight, **describe_weights(weights)}
        records = task.spend("one noisy sum of labels", settings, event=make_gaussian_event(mu))
        total = run_pass(_SumLabels(None if weights is None else weights.values), records.label)
        released = task.curator.release_gaussian(
            BoundedSum(total, sensitivity, "the sum of labels"), noise_std=noise_std
        )
        layout = task.head.layout(task.num_columns, task.num_private)
        parameters = np.zeros((1, layout.size))
        layout.views(parameters)["public"][0, 0, -1] = released[0] / total_weight
        return task.finish(task.make_model(parameters[0]), settings)


@dataclass(frozen=True)
class _SumLabels:
    """Weighted sum of the scaled labels of a block. The repr shows no number."""

    weights: NDArray[np.float64] | None

    def __call__(self, span: slice, label: Labels) -> NDArray[np.float64]:
        scaled = scale_label(label)
        return np.asarray((scaled if self.weights is None else scaled * self.weights[span]).sum(keepdims=True))

    def __repr__(self) -> str:
        return "<sum of labels>"


ALGORITHMS.add("mean", PrivateMean())
