"""Training on labels that were randomised individually, once, under local differential privacy."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range, one_of, positive_integer
from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.algorithms.task import Task
from conddp.bounds import Bounds
from conddp.data.parts import PublicFeatures
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.features.code_spectrum import expand_codes
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.heads.head import Head, Linearity
from conddp.labels.prior import LabelPrior, choose_grid_size, estimate_label_prior, make_grid
from conddp.labels.randomizers import (
    AdditiveNoise,
    Randomizer,
    make_binary_response,
    make_response_on_bins,
    make_unbiased_response,
)
from conddp.models.result import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.events import make_pure_event
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.transcript import Transcript
from conddp.training.released import fit_released_labels

__all__ = ["RROnBins", "RandomizedLabels"]

LARGEST_PROGRAM = 25  # maximum grid size of the linear program, which then takes half a second
LARGEST_EPSILON = 16.0  # per label; above it probabilities are too small to sample accurately, and noise is rare anyway


@dataclass(frozen=True, kw_only=True)
class RandomizedLabels(Algorithm):
    """Randomise every label once under pure, local epsilon, then train any head on the randomised labels.

    Parameters
    ----------
    randomizer : {"bins", "unbiased", "binary", "laplace", "staircase"}
        "bins" is randomised response on the optimal bins for a prior (RR-on-Bins). "unbiased" is the unbiased
        randomiser of least variance for a prior. "binary" is debiased binary randomised response. "laplace" and
        "staircase" add noise.
    prior : LabelPrior, optional
        Distribution of the labels, from public knowledge. If None, it is estimated privately if the randomiser needs
        it.
    prior_fraction : float
        Fraction of epsilon spent on estimating the prior.
    grid_size : int, optional
        Number of evenly spaced grid labels between the bounds; by default
        :func:`~conddp.labels.prior.choose_grid_size`.
    smoothing : float
        Width, in grid cells, of the smoothing applied to the estimated prior, at no privacy cost.
    recalibrate : bool
        Whether to scale the released labels about their mean before training, to minimise the expected error of a
        linear fit. The optimal bins shrink labels by a known slope, which calls for scaling up. The noise left in the
        fit is known too, and calls for scaling down. This uses released numbers only and costs nothing. False gives
        the published algorithms.
    """

    summary: ClassVar[str] = "other ways to randomise each label"
    page: ClassVar[str] = "algorithms/rr_on_bins.md"
    protects: ClassVar[str] = "label"
    labels_only: ClassVar[bool] = True
    replace_only: ClassVar[bool] = True
    protects_units: ClassVar[bool] = True
    weighs_records: ClassVar[bool] = True
    takes_codes: ClassVar[bool] = True

    randomizer: Literal["bins", "unbiased", "binary", "laplace", "staircase"]
    prior: LabelPrior | None = field(default=None, compare=False)
    prior_fraction: float = 0.25
    grid_size: int | None = None
    smoothing: float = 1.0
    recalibrate: bool = True

    def __post_init__(self) -> None:
        one_of(("bins", "unbiased", "binary", "laplace", "staircase"), randomizer=self.randomizer)
        if not 0 < self.prior_fraction < 1:
            raise ValueError(
                f"prior_fraction must lie strictly between 0 and 1, got prior_fraction={self.prior_fraction!r}."
            )
        if self.grid_size is not None:
            positive_integer(grid_size=self.grid_size)
        in_range(0.0, float("inf"), smoothing=self.smoothing)

    def cost(self, budget: PrivacyBudget) -> PrivacyBudget:
        """Return a cost with delta = 0, because the guarantee is pure."""
        return PrivacyBudget(budget.epsilon, 0.0)

    def foresee(
        self, budget: PrivacyBudget, records: Records, *, head: Head, neighbouring: Neighbouring
    ) -> Transcript | None:
        """Return the pure releases: the prior, if one is needed, and one value for every label of a unit."""
        per_unit = 1 if records.units is None else records.units.largest
        prior_epsilon, label_epsilon = self._divide_epsilon(budget.epsilon, per_unit)
        return _state_event(prior_epsilon, label_epsilon, per_unit)

    def _divide_epsilon(self, epsilon: float, per_unit: int) -> tuple[float, float]:
        """Epsilon of the prior, 0 if none is estimated, and of each label."""
        needs_prior = self.randomizer in ("bins", "unbiased") and self.prior is None
        prior_epsilon = min(self.prior_fraction * epsilon, LARGEST_EPSILON) if needs_prior else 0.0
        return prior_epsilon, min((epsilon - prior_epsilon) / per_unit, LARGEST_EPSILON)

    def needs_dense(self, schema: Schema, head: Head) -> bool:
        """Return whether the head is not linear in the columns."""
        return head.linear_in is not Linearity.COLUMNS

    def run(self, task: Task) -> FitResult:
        """Randomise the labels once, then train on them.

        Privacy
            Pure epsilon under REPLACE. If a prior is needed and not given, ``prior_fraction`` of epsilon pays for a
            histogram of the labels (L1 sensitivity 2). The rest pays for one randomised value per label. Training is
            post-processing. If units have up to k records, the L1 sensitivity is 2k and every label gets 1/k of the
            rest, because independent pure mechanisms add up. A declared ``max_rows`` of the unit limits k; records
            beyond it, in the order of the table, are dropped. Weights of records are used in training only.
        """
        epsilon, bounds = task.budget.epsilon, task.schema.label_bounds
        per_unit = 1 if task.units is None else task.units.largest
        prior_epsilon, label_epsilon = self._divide_epsilon(epsilon, per_unit)
        grid = self._make_grid(bounds, task.num_records)
        settings = {
            "randomizer": self.randomizer,
            "grid_size": len(grid),
            "recalibrate": bool(self.recalibrate),
            "prior_epsilon": prior_epsilon,
            "label_epsilon": label_epsilon,
            **({"labels_per_unit": per_unit} if per_unit > 1 else {}),
        }
        event = _state_event(prior_epsilon, label_epsilon, per_unit)
        records = task.spend("every label randomised once", settings, event=event)

        prior = self.prior or LabelPrior(grid, np.ones(len(grid)))
        if prior_epsilon:
            prior = estimate_label_prior(
                records.label, grid, epsilon=prior_epsilon, curator=task.curator, per_unit=per_unit
            )
            prior = prior.smooth(self.smoothing)
        randomizer = self._make_randomizer(bounds, prior, label_epsilon)
        released = randomizer.randomize(bounds.clamp(records.label.values), task.curator, per_unit=per_unit)
        if self.recalibrate:
            slope = randomizer.compute_slope(prior)
            public, codes, bins = task.public, task.head.num_codes, task.head.bins
            if codes and bins:
                public = expand_codes(public, codes, num_bins=bins)
            released = _recalibrate(released, slope, public, fit_intercept=task.fit_intercept, weights=task.weights)
        model = fit_released_labels(
            task.head,
            task.public,
            released,
            bounds,
            fit_intercept=task.fit_intercept,
            rng=task.make_generator("weights"),
            weights=task.weights,
        )
        return task.finish(model, settings)

    def _make_grid(self, bounds: Bounds, num_records: int) -> NDArray[np.float64]:
        if self.prior is not None:
            if self.prior.grid[0] < bounds.low or self.prior.grid[-1] > bounds.high:
                raise ValueError(f"the prior's grid must lie within the label bounds [{bounds.low}, {bounds.high}].")
            return self.prior.grid
        size = int(self.grid_size or choose_grid_size(num_records))
        if self.grid_size is None and self.randomizer == "unbiased":
            size = min(size, LARGEST_PROGRAM)
        return make_grid(bounds, size)

    def _make_randomizer(self, bounds: Bounds, prior: LabelPrior, epsilon: float) -> Randomizer:
        if self.randomizer == "bins":
            return make_response_on_bins(prior, epsilon)
        if self.randomizer == "unbiased":
            return make_unbiased_response(prior, epsilon, bounds=bounds)
        if self.randomizer == "binary":
            return make_binary_response(bounds, epsilon, prior.grid)
        return AdditiveNoise(bounds, epsilon, self.randomizer)


def _state_event(prior_epsilon: float, label_epsilon: float, per_unit: int) -> Transcript:
    return make_pure_event(*filter(None, (prior_epsilon, *[label_epsilon] * per_unit)))


def _recalibrate(
    released: NDArray[np.float64],
    slope: float,
    public: PublicFeatures,
    *,
    fit_intercept: bool,
    weights: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Scale released labels about their mean by the slope and by the fraction of signal in their linear fit."""
    Z = ConditioningMatrix.from_spectrum(Spectrum.of(public, constant=fit_intercept, weights=weights)).apply(public)
    n, k = Z.shape
    mean = np.average(released, weights=weights) if fit_intercept else 0.0
    centred, relative, num_independent = released - mean, None, float(n)
    if weights is not None:
        relative, num_independent = weights * (n / weights.sum()), float(weights.sum() ** 2 / (weights @ weights))
    # Least squares: the (weighted) second moment of Z is the identity.
    counted = centred if relative is None else centred * relative
    fitted = Z @ (Z.T @ counted / n) if isinstance(Z, np.ndarray) else ((counted[None] @ Z / n) @ Z.T)[0]
    left = centred - fitted
    if relative is not None:
        fitted, left = fitted * np.sqrt(relative), left * np.sqrt(relative)
    explained = float(fitted @ fitted) / n
    leftover = float(left @ left) / max(1, n - k)
    directions = max(1, k - 1)
    by_noise = leftover * directions / num_independent  # expected variance explained by noise alone
    doubt = 1 + 2 * math.sqrt(2 / directions)  # plus two standard deviations, since 1 / slope may be large
    fraction = max(0.0, 1 - doubt * by_noise / explained) if explained > 0 else 0.0
    return mean + fraction / max(slope, 1e-6) * (released - mean)


@dataclass(frozen=True, kw_only=True)
class RROnBins(RandomizedLabels):
    """Randomised response on the optimal bins for a private prior (arXiv 2212.06074), the paper's baseline."""

    summary: ClassVar[str] = "randomised response on the optimal bins for a private prior"
    page: ClassVar[str] = "algorithms/rr_on_bins.md"
    protects: ClassVar[str] = "label"

    randomizer: Literal["bins", "unbiased", "binary", "laplace", "staircase"] = "bins"


ALGORITHMS.add("rr-on-bins", RROnBins())
ALGORITHMS.add("unbiased-rr", RandomizedLabels(randomizer="unbiased"))
ALGORITHMS.add("binary-rr", RandomizedLabels(randomizer="binary"))
ALGORITHMS.add("laplace", RandomizedLabels(randomizer="laplace"))
ALGORITHMS.add("staircase", RandomizedLabels(randomizer="staircase"))
