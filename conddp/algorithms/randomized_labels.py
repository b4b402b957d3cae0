"""Labels randomised once, one by one; then ordinary training of any head, at no further cost."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range, one_of, positive_integer
from conddp.algorithms.algorithm import Algorithm, Task
from conddp.data.parts import PublicFeatures
from conddp.data.records import Records
from conddp.errors import PrivacyError
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.labels.prior import LabelPrior, choose_grid_size, estimate_label_prior, make_grid
from conddp.labels.randomizers import (
    AdditiveNoise,
    Randomizer,
    make_binary_response,
    make_response_on_bins,
    make_unbiased_response,
)
from conddp.models.fitted import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.training.released import fit_released_labels

__all__ = ["RROnBins", "RandomizedLabels"]

LARGEST_PROGRAM = 25  # grid labels of the linear program, which then takes half a second
LARGEST_EPSILON = 16.0  # of one label; beyond it chances are too small to be drawn faithfully, and noise is rare anyway


@dataclass(frozen=True, kw_only=True)
class RandomizedLabels(Algorithm):
    """Pure epsilon, local: every label is randomised once and the model sees nothing else of it.

    Parameters
    ----------
    randomizer : {"bins", "unbiased", "binary", "laplace", "staircase"}
        Randomised response on the best bins for a prior (RR-on-Bins); the unbiased randomiser of least variance for a
        prior; debiased binary randomised response; Laplace noise; staircase noise.
    prior : LabelPrior, optional
        Known distribution of labels, from public knowledge. None estimates one where the randomiser needs it.
    prior_share : float
        Share of epsilon that the estimate of the prior costs.
    grid_size : int, optional
        Number of evenly spaced grid labels between the bounds; by default
        :func:`~conddp.labels.prior.choose_grid_size`.
    smoothing : float
        Width, in grid cells, by which the estimated prior is smoothed, which is free.
    recalibrate : bool
        Scale the released labels about their mean before training, so that a linear fit has the least expected error:
        up, because the best bins shrink labels by a known slope, and down, because the noise that is left in the fit is
        known too. Uses released numbers only: free. False gives the published algorithms.
    """

    labels_only: ClassVar[bool] = True
    replace_only: ClassVar[bool] = True

    randomizer: Literal["bins", "unbiased", "binary", "laplace", "staircase"]
    prior: LabelPrior | None = field(default=None, compare=False)
    prior_share: float = 0.25
    grid_size: int | None = None
    smoothing: float = 1.0
    recalibrate: bool = True

    def __post_init__(self) -> None:
        one_of(("bins", "unbiased", "binary", "laplace", "staircase"), randomizer=self.randomizer)
        if not 0 < self.prior_share < 1:
            raise ValueError(f"prior_share must lie strictly between 0 and 1, got prior_share={self.prior_share!r}.")
        if self.grid_size is not None:
            positive_integer(grid_size=self.grid_size)
        in_range(0.0, float("inf"), smoothing=self.smoothing)

    def cost(self, budget: PrivacyBudget) -> PrivacyBudget:
        """Epsilon alone: the guarantee is pure."""
        return PrivacyBudget(budget.epsilon, 0.0)

    def run(self, task: Task) -> FitResult:
        """Randomise the labels once, then train on them.

        Privacy
            Pure epsilon under REPLACE: ``prior_share`` of it for a histogram of the labels where a prior is needed and
            not given (L1 sensitivity 2), the rest for one randomised value per label. Training is post-processing.
        """
        dataset, epsilon = task.dataset, task.budget.epsilon
        needs_prior = self.randomizer in ("bins", "unbiased") and self.prior is None
        prior_epsilon = min(self.prior_share * epsilon, LARGEST_EPSILON) if needs_prior else 0.0
        label_epsilon = min(epsilon - prior_epsilon, LARGEST_EPSILON)
        grid = self._make_grid(dataset)
        settings = {
            "randomizer": self.randomizer,
            "grid_size": len(grid),
            "recalibrate": bool(self.recalibrate),
            "prior_epsilon": prior_epsilon,
            "label_epsilon": label_epsilon,
        }
        task.spend("every label randomised once", settings)

        generator = task.random_source.generator()
        prior = self.prior or LabelPrior(grid, np.ones(len(grid)))
        if needs_prior:
            prior = estimate_label_prior(dataset.label, grid, epsilon=prior_epsilon, rng=generator)
            prior = prior.smooth(self.smoothing)
        randomizer = self._make_randomizer(dataset, prior, label_epsilon)
        if not randomizer.epsilon <= label_epsilon * (1 + 1e-9):
            raise PrivacyError(f"the randomiser has epsilon {randomizer.epsilon:.6g}, above {label_epsilon:.6g}.")
        released = randomizer.randomize(dataset.label.bounds.clamp(dataset.label.values), generator)
        if self.recalibrate:
            slope = randomizer.compute_slope(prior)
            released = _recalibrate(released, slope, dataset.public, fit_intercept=task.fit_intercept)
        model = fit_released_labels(
            task.head,
            dataset.public,
            released,
            dataset.label.bounds,
            fit_intercept=task.fit_intercept,
            generator=generator,
        )
        mechanism = f"Every label was randomised once ({self.randomizer}, epsilon {settings['label_epsilon']:.4g})"
        mechanism += f" after a noisy histogram of all labels (epsilon {prior_epsilon:.4g})." if needs_prior else "."
        return task.finish(model, mechanism, settings)

    def _make_grid(self, dataset: Records) -> NDArray[np.float64]:
        bounds = dataset.label.bounds
        if self.prior is not None:
            if self.prior.grid[0] < bounds.low or self.prior.grid[-1] > bounds.high:
                raise ValueError(f"the prior's grid must lie within the label bounds [{bounds.low}, {bounds.high}].")
            return self.prior.grid
        size = int(self.grid_size or choose_grid_size(dataset.num_records))
        if self.grid_size is None and self.randomizer == "unbiased":
            size = min(size, LARGEST_PROGRAM)
        return make_grid(bounds, size)

    def _make_randomizer(self, dataset: Records, prior: LabelPrior, epsilon: float) -> Randomizer:
        bounds = dataset.label.bounds
        if self.randomizer == "bins":
            return make_response_on_bins(prior, epsilon)
        if self.randomizer == "unbiased":
            return make_unbiased_response(prior, epsilon, bounds=bounds)
        if self.randomizer == "binary":
            return make_binary_response(bounds, epsilon, prior.grid)
        return AdditiveNoise(bounds, epsilon, self.randomizer)


def _recalibrate(
    released: NDArray[np.float64], slope: float, public: PublicFeatures, *, fit_intercept: bool
) -> NDArray[np.float64]:
    """Released labels, scaled about their mean by the slope and by the share of signal in their linear fit."""
    Z = ConditioningMatrix.from_spectrum(Spectrum.of(public, constant=fit_intercept)).transform(public)
    n, k = Z.shape
    mean = released.mean() if fit_intercept else 0.0
    centred = released - mean
    fitted = Z @ (Z.T @ centred / n)  # least squares: the second moment of Z is the identity
    explained = float(fitted @ fitted) / n
    leftover = float((centred - fitted) @ (centred - fitted)) / max(1, n - k)
    directions = max(1, k - 1)
    noise = leftover * directions / n  # mean of what noise alone would explain
    doubt = 1 + 2 * math.sqrt(2 / directions)  # and two of its standard deviations: the slope may be a large factor
    share = max(0.0, 1 - doubt * noise / explained) if explained > 0 else 0.0
    return mean + share / max(slope, 1e-6) * centred


@dataclass(frozen=True, kw_only=True)
class RROnBins(RandomizedLabels):
    """Randomised response on the best bins for a privately estimated prior (arXiv 2212.06074): the paper's baseline."""

    randomizer: Literal["bins", "unbiased", "binary", "laplace", "staircase"] = "bins"
