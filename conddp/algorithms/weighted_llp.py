"""Weighted-LLP: labels summed with random weights in bags, with noise on some of them; linear models only."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from conddp._validate import in_range, positive
from conddp.algorithms.algorithm import Algorithm, Task, bound_rounding
from conddp.data.scaling import scale_label
from conddp.errors import NotCalibrated
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.heads.folding import move_parameters
from conddp.heads.linear import Linear
from conddp.labels.bags import calibrate_bag_size, compute_bag_delta, count_noisy
from conddp.models.fitted import FitResult, FittedModel
from conddp.privacy.budget import PrivacyBudget

__all__ = ["WeightedLLP"]


@dataclass(frozen=True, kw_only=True)
class WeightedLLP(Algorithm):
    """Learning from random weighted sums of labels (arXiv 2310.10092), with the smallest bags that the budget allows.

    Parameters
    ----------
    noisy_share : float
        Share rho of the labels of each bag that get Gaussian noise.
    used_share : float
        Share alpha of the records that are put into bags.
    noise_scale : float
        Standard deviation of that noise over the width of the label's range.
    """

    labels_only: ClassVar[bool] = True
    replace_only: ClassVar[bool] = True
    linear_only: ClassVar[bool] = True

    noisy_share: float = 1.0
    used_share: float = 0.6
    noise_scale: float = 1.0

    def __post_init__(self) -> None:
        positive(noisy_share=self.noisy_share, used_share=self.used_share, noise_scale=self.noise_scale)
        in_range(0.0, 1.0, noisy_share=self.noisy_share, used_share=self.used_share)

    def run(self, task: Task) -> FitResult:
        """Sum labels in bags, then least squares on the bags.

        Privacy
            One Gaussian release per bag, given public weights; a label is in at most one bag. Delta is the mean of the
            exact Gaussian delta over the weights (:mod:`conddp.labels.bags`).

        Raises
        ------
        NotCalibrated
            If fewer bags come out than the model has coefficients, before anything is read.
        """
        dataset, fit_intercept = task.dataset, task.fit_intercept
        C = ConditioningMatrix.from_spectrum(Spectrum.of(dataset.public, constant=fit_intercept))
        bag_size, num_bags = self._plan_bags(dataset.num_records, C.num_parameters, task.budget)
        settings = {"bag_size": bag_size, "num_bags": num_bags, "noisy": count_noisy(bag_size, self.noisy_share)}
        task.spend("one weighted noisy sum of labels per bag", settings)

        rng = task.random_source.generator()
        members = rng.permutation(dataset.num_records)[: bag_size * num_bags].reshape(num_bags, bag_size)
        weights = rng.standard_normal(members.shape)
        noise = np.zeros(members.shape)
        noise[:, : settings["noisy"]] = self.noise_scale * rng.standard_normal((num_bags, settings["noisy"]))
        label = scale_label(dataset.label)
        sums = (weights * (label[members] + noise)).sum(axis=1)
        if not fit_intercept:  # labels were centred for the release; what the middle adds is public
            sums = sums + dataset.label.bounds.midpoint / dataset.label.bounds.width * weights.sum(axis=1)
        # Bags of features are public: weights times conditioned rows, without forming all of them at once.
        Z = C.transform(dataset.public)
        rows = np.stack([w @ Z[member] for w, member in zip(weights, members, strict=True)])
        parameters = np.linalg.lstsq(rows, sums, rcond=None)[0][None]

        linear = Linear()
        folded = move_parameters(linear, parameters, num_private=0, source=C)
        model = FittedModel(linear, linear.layout(len(C.matrix), 0), folded[0], fit_intercept, dataset.label.bounds)
        mechanism = (
            f"{num_bags} random weighted sums of {bag_size} labels each, {settings['noisy']} of them with Gaussian "
            "noise, were accounted exactly, averaged over the public weights."
        )
        return task.finish(model, mechanism, settings)

    def _plan_bags(self, n: int, num_parameters: int, budget: PrivacyBudget) -> tuple[int, int]:
        """Bag size and number of bags, or an error that says what would be needed."""
        shares = {"noisy_share": self.noisy_share, "used_share": self.used_share}
        label_range = (1 + bound_rounding(n)) / self.noise_scale
        bag_size = calibrate_bag_size(budget.epsilon, budget.delta, label_range=label_range, **shares)
        num_bags = int(self.used_share * n) // bag_size
        if num_bags >= num_parameters:
            return bag_size, num_bags
        needed_records = math.ceil(bag_size * num_parameters / self.used_share)
        hint = f"At this budget {needed_records} records would do"
        largest = int(self.used_share * n) // num_parameters
        if largest >= 1:
            low, high = budget.epsilon, budget.epsilon
            while not compute_bag_delta(high, bag_size=largest, label_range=label_range, **shares) <= budget.delta:
                low, high = high, 2 * high
            for _ in range(40):
                middle = (low + high) / 2
                spent = compute_bag_delta(middle, bag_size=largest, label_range=label_range, **shares)
                low, high = (low, middle) if spent <= budget.delta else (middle, high)
            hint += f"; with {n} records epsilon {high:.3g} would"
        raise NotCalibrated(
            f"WeightedLLP needs bags of {bag_size} labels for {budget}; {n} records give {num_bags} bags, fewer than "
            f"the {num_parameters} coefficients of the model. {hint}."
        )
