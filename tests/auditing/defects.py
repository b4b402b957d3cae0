"""A small correct algorithm, and the same with planted defects that audits must catch."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms import Algorithm, Task
from conddp.data import scale_label
from conddp.models.result import FitResult
from conddp.privacy import BoundedSum, Curator, calibrate_gaussian_mu, calibrate_noise_multiplier

Defect = Literal[
    "",
    "c for 2c",
    "no clipping",
    "private maximum",
    "label-dependent stop",
    "batch-size leak",
    "sample size in the update",
    "labels not clamped",
    "residuals without noise",
    "too many samples",
]


@dataclass(frozen=True, kw_only=True)
class SmallDescent(Algorithm):
    """A few noisy gradient steps for a linear head, on scaled columns."""

    labels_only: ClassVar[bool] = True
    replace_only: ClassVar[bool] = True
    linear_only: ClassVar[bool] = True

    defect: Defect = ""
    num_steps: int = 4
    clip_norm: float = 0.2
    sampling_probability: float = 1.0

    def run(self, task: Task) -> FitResult:
        """Clip, sum, release, step."""
        X = task.public.values / np.sqrt((task.public.values**2).mean(axis=0))
        n, q, clip_norm = len(X), self.sampling_probability, self.clip_norm
        rng = task.make_generator()
        if q == 1.0:
            mu = calibrate_gaussian_mu(task.budget.epsilon, task.budget.delta)
            multiplier = 2 * math.sqrt(self.num_steps) / mu
        else:
            multiplier = calibrate_noise_multiplier(
                task.budget.epsilon, task.budget.delta, num_steps=self.num_steps, sampling_probability=q
            )
        settings = {"clip_norm": clip_norm}
        records = task.spend("noisy sums of clipped gradients", settings)

        label = scale_label(records.label)
        if self.defect == "labels not clamped":
            label = (records.label.values - records.label.bounds.midpoint) / records.label.bounds.width
        if self.defect == "private maximum":
            clip_norm = float(np.linalg.norm(label[:, None] * X, axis=1).max())
        sensitivity = 2 * clip_norm
        noise_std = multiplier * clip_norm
        if self.defect == "c for 2c":
            sensitivity, noise_std = sensitivity / 2, noise_std / 2
        theta, before = np.zeros(X.shape[1]), math.inf
        for _ in range(self.num_steps):
            chance = min(1.0, 2 * q) if self.defect == "too many samples" else q
            sample = rng.random(n) < chance if q < 1 else np.ones(n, dtype=bool)
            total = self._sum_gradients(X[sample], label[sample], theta, clip_norm)
            size = n * q
            if self.defect == "batch-size leak":  # a mean over the sample, taken for a sum over its expected size
                total = total * size / max(1, sample.sum())
            released = task.curator.release_gaussian(
                BoundedSum(total, sensitivity, "clipped gradients"), noise_std=noise_std, sampling_probability=q
            )
            if self.defect == "sample size in the update":
                size = max(1, sample.sum())
            theta = theta + 0.3 * released / size
            loss = float(((label - X @ theta) ** 2).mean())
            if self.defect == "label-dependent stop" and loss > before:
                break
            before = loss
        if self.defect == "residuals without noise":
            theta = theta + 1e-6 * (label - X @ theta).mean()
        scales = np.sqrt((task.public.values**2).mean(axis=0))
        parameters = np.append(theta / scales, np.zeros(task.num_columns - len(theta)))
        return task.finish(task.make_model(parameters), settings)

    def _sum_gradients(
        self, X: NDArray[np.float64], label: NDArray[np.float64], theta: NDArray[np.float64], clip_norm: float
    ) -> NDArray[np.float64]:
        residual = label - X @ theta
        limits = clip_norm / np.maximum(np.linalg.norm(X, axis=1), 1e-12)
        if self.defect not in ("no clipping",):
            residual = np.clip(residual, -limits, limits)
        if self.defect == "labels not clamped":
            residual = label - X @ np.clip(theta, -1, 1)
            residual = np.where(np.abs(residual) < 1, np.clip(residual, -limits, limits), residual)
        return np.asarray(residual @ X)


class HalfNoise(Curator):
    """Half of the noise that it records."""

    def release_gaussian(self, bounded: BoundedSum, **settings: Any) -> Any:
        """Release with half of the noise."""
        released = super().release_gaussian(bounded, **settings)
        return bounded.value + (released - bounded.value) / 2


class ReusedNoise(Curator):
    """The noise of its first release again and again."""

    first: Any = None

    def release_gaussian(self, bounded: BoundedSum, **settings: Any) -> Any:
        """Release with the first noise in its new scale."""
        released = super().release_gaussian(bounded, **settings)
        if self.first is None or self.first.shape != released.shape:
            self.first = (released - bounded.value) / settings["noise_std"]
        return bounded.value + self.first * settings["noise_std"]


class SameNoise(Curator):
    """The same noise in every fit."""

    def __init__(self, generators: Any, **settings: Any) -> None:
        super().__init__(np.random.default_rng(0), **settings)


class CorrelatedNoise(Curator):
    """Noise of the right size that resembles that of the release before."""

    last: Any = None

    def release_gaussian(self, bounded: BoundedSum, **settings: Any) -> Any:
        """Release with three quarters of the last noise."""
        released = super().release_gaussian(bounded, **settings)
        fresh = (released - bounded.value) / settings["noise_std"]
        if self.last is not None and self.last.shape == fresh.shape:
            fresh = 0.75 * self.last + math.sqrt(1 - 0.75**2) * fresh
        self.last = fresh
        return bounded.value + fresh * settings["noise_std"]


class NoNoiseOnce(Curator):
    """No noise in its third release."""

    number = 0

    def release_gaussian(self, bounded: BoundedSum, **settings: Any) -> Any:
        """Release, the third time as it is."""
        released = super().release_gaussian(bounded, **settings)
        self.number += 1
        return np.array(bounded.value) if self.number == 3 else released


SAMPLED: Any = {"sampling_probability": 0.25, "num_steps": 6}

# What is planted, and where. All of them claim what the correct algorithm claims.
DEFECTS: dict[str, tuple[Algorithm, type[Curator]]] = {
    "noise for c instead of 2c": (SmallDescent(defect="c for 2c"), Curator),
    "no clipping": (SmallDescent(defect="no clipping"), Curator),
    "labels not clamped to their bounds": (SmallDescent(defect="labels not clamped"), Curator),
    "clip norm from the largest label": (SmallDescent(defect="private maximum"), Curator),
    "stop when the loss rises": (SmallDescent(defect="label-dependent stop", num_steps=12), Curator),
    "residuals added without noise": (SmallDescent(defect="residuals without noise"), Curator),
    "mean over the actual sample": (SmallDescent(defect="batch-size leak", **SAMPLED), Curator),
    "size of the sample in the update": (SmallDescent(defect="sample size in the update", **SAMPLED), Curator),
    "samples twice as large as declared": (SmallDescent(defect="too many samples", **SAMPLED), Curator),
    "half the noise": (SmallDescent(), HalfNoise),
    "noise re-used in every step": (SmallDescent(), ReusedNoise),
    "the same noise in every fit": (SmallDescent(), SameNoise),
    "correlated noise": (SmallDescent(num_steps=40), CorrelatedNoise),
    "one step without noise": (SmallDescent(), NoNoiseOnce),
}
CORRECT: dict[str, Algorithm] = {
    "no defect": SmallDescent(),
    "no defect, sampled": SmallDescent(**SAMPLED),
    "no defect, many steps": SmallDescent(num_steps=40),
}
