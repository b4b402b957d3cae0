"""Weighted-LLP: linear regression on random weighted sums of labels in bags, with noise on some of the labels."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from conddp._validate import in_range, positive
from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.algorithms.task import Task
from conddp.data.scaling import scale_label
from conddp.errors import NotCalibrated
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.heads.folding import move_parameters
from conddp.models.result import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.weighted_sums import calibrate_bag_size, compute_bag_delta, count_noisy

__all__ = ["WeightedLLP"]


@dataclass(frozen=True, kw_only=True)
class WeightedLLP(Algorithm):
    """Learn from random weighted sums of labels (arXiv 2310.10092), with the smallest bags that the budget allows.

    Parameters
    ----------
    noisy_fraction : float
        Fraction rho of the labels of each bag that receive Gaussian noise.
    used_fraction : float
        Fraction alpha of the records that are assigned to bags.
    noise_scale : float
        Standard deviation of the noise divided by the width of the label range.
    """

    summary: ClassVar[str] = "random weighted sums of labels in bags"
    page: ClassVar[str] = "algorithms/weighted_llp.md"
    protects: ClassVar[str] = "label"
    labels_only: ClassVar[bool] = True
    replace_only: ClassVar[bool] = True
    linear_only: ClassVar[bool] = True

    noisy_fraction: float = 1.0
    used_fraction: float = 0.6
    noise_scale: float = 1.0

    def __post_init__(self) -> None:
        positive(noisy_fraction=self.noisy_fraction, used_fraction=self.used_fraction, noise_scale=self.noise_scale)
        in_range(0.0, 1.0, noisy_fraction=self.noisy_fraction, used_fraction=self.used_fraction)

    def expect(self, budget: PrivacyBudget) -> None:
        """Return None: the cost adds by basic composition."""

    def run(self, task: Task) -> FitResult:
        """Sum labels in bags, then solve least squares on the bags.

        Privacy
            One Gaussian release per bag, given public weights. Each label is in at most one bag. Delta is the mean of
            the exact Gaussian delta over the weights (:mod:`conddp.privacy.weighted_sums`).

        Raises
        ------
        NotCalibrated
            If there are fewer bags than coefficients. Raised before any private value is read.
        """
        n, fit_intercept, bounds = task.num_records, task.fit_intercept, task.schema.label_bounds
        C = ConditioningMatrix.from_spectrum(Spectrum.of(task.public, constant=fit_intercept))
        bag_size, num_bags = self._plan_bags(n, C.num_parameters, task.budget)
        num_noisy = count_noisy(bag_size, self.noisy_fraction)
        settings = {"bag_size": bag_size, "num_bags": num_bags, "noisy": num_noisy}
        records = task.spend("one weighted noisy sum of labels per bag", settings)

        rng = task.make_generator("weights")  # bags and weights are public
        members = rng.permutation(n)[: bag_size * num_bags].reshape(num_bags, bag_size)
        weights = rng.standard_normal(members.shape)  # public
        sums = task.curator.release_weighted_sums(
            scale_label(records.label)[members],
            weights,
            label_range=1.0,
            num_noisy=num_noisy,
            noise_std=self.noise_scale,
            used_fraction=bag_size * num_bags / n,
            what="a random weighted sum of labels for every bag",
        )
        if not fit_intercept:  # labels were centred for the release; the contribution of the midpoint is public
            sums = sums + bounds.midpoint / bounds.width * weights.sum(axis=1)
        # Bags of features are public: weights times conditioned rows, computed one bag at a time to save memory.
        Z = C.transform(task.public)
        rows = np.stack([w @ Z[member] for w, member in zip(weights, members, strict=True)])
        parameters = np.linalg.lstsq(rows, sums, rcond=None)[0][None]
        folded = move_parameters(task.head, parameters, num_private=0, source=C)
        return task.finish(task.make_model(folded[0]), settings)

    def _plan_bags(self, n: int, num_parameters: int, budget: PrivacyBudget) -> tuple[int, int]:
        """Return bag size and number of bags; raise with the requirements if there are too few bags."""
        fractions = {"noisy_fraction": self.noisy_fraction, "used_fraction": self.used_fraction}
        label_range = 1 / self.noise_scale
        bag_size = calibrate_bag_size(budget.epsilon, budget.delta, label_range=label_range, **fractions)
        num_bags = int(self.used_fraction * n) // bag_size
        if num_bags >= num_parameters:
            return bag_size, num_bags
        needed_records = math.ceil(bag_size * num_parameters / self.used_fraction)
        hint = f"At this budget {needed_records} records would be enough"
        largest = int(self.used_fraction * n) // num_parameters
        if largest >= 1:
            low, high = budget.epsilon, budget.epsilon
            while not compute_bag_delta(high, bag_size=largest, label_range=label_range, **fractions) <= budget.delta:
                low, high = high, 2 * high
            for _ in range(40):
                middle = (low + high) / 2
                spent = compute_bag_delta(middle, bag_size=largest, label_range=label_range, **fractions)
                low, high = (low, middle) if spent <= budget.delta else (middle, high)
            hint += f"; with {n} records, epsilon {high:.3g} would be enough"
        raise NotCalibrated(
            f"WeightedLLP needs bags of {bag_size} labels for {budget}. The {n} records give {num_bags} bags, fewer "
            f"than the {num_parameters} coefficients of the model. {hint}."
        )


ALGORITHMS.add("weighted-llp", WeightedLLP())
