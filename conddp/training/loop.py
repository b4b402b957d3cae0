"""The one training loop: sample, clip, release, step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from conddp._validate import in_range, positive, positive_integer
from conddp.heads.head import Array, Head, Inputs, Layout
from conddp.losses import Loss
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import BoundedSum, Curator
from conddp.training.clipping import Workspace, compute_clipped_sum
from conddp.training.optimizers import Optimizer
from conddp.training.sampling import PoissonSampler

__all__ = ["Progress", "TrainingPlan", "train"]

LARGEST_PARAMETER = 1e6  # parameters are kept within this, so that a diverging run cannot overflow; post-processing


@dataclass(frozen=True)
class TrainingPlan:
    """Everything about a run that is decided before data are read; all of it is public.

    Parameters
    ----------
    num_steps : int
        Number of noisy steps.
    clip_norm : float or sequence of K floats
        Bound on the norm of one record's gradient.
    noise_multiplier : float or sequence of K floats
        Standard deviation of the noise over ``clip_norm``; not used where nothing private takes part.
    sampling_probability : float
        Chance of each record to take part in a step; 1 is the full batch.
    averaging : float
        Fraction of the last iterates whose mean is the output: 0 gives the last iterate, 1 the mean of all (the paper's
        Algorithm 1), between them the mean of a tail.
    """

    num_steps: int
    clip_norm: Any
    noise_multiplier: Any
    sampling_probability: float = 1.0
    averaging: float = 0.0

    def __post_init__(self) -> None:
        positive_integer(num_steps=self.num_steps)
        positive(sampling_probability=self.sampling_probability)
        in_range(0.0, 1.0, sampling_probability=self.sampling_probability, averaging=self.averaging)
        for clip_norm in np.atleast_1d(self.clip_norm):
            positive(clip_norm=float(clip_norm))
        for noise_multiplier in np.atleast_1d(self.noise_multiplier):
            in_range(0.0, np.inf, noise_multiplier=float(noise_multiplier))


@dataclass(frozen=True)
class Progress:
    """What a callback sees after a step: released quantities only.

    Parameters
    ----------
    step, num_steps : int
        Steps done, and steps in all.
    parameters : array of shape (K, P)
        Current parameters, already private. Copy them to keep them.
    """

    step: int
    num_steps: int
    parameters: Array


Callback = Callable[[Progress], bool | None]


@np.errstate(all="ignore")  # whether a product overflows may depend on private values: no warning may say so
def train(
    plan: TrainingPlan,
    head: Head,
    layout: Layout,
    inputs: Inputs,
    label: Array,
    parameters: Array,
    *,
    optimizer: Optimizer,
    curator: Curator | None,
    rng: np.random.Generator,
    neighbouring: Neighbouring = Neighbouring.REPLACE,
    loss: Loss | None = None,
    callback: Callback | None = None,
) -> Array:
    """Train K configurations at once and return their parameters, shape (K, P).

    Privacy
        ``plan.num_steps`` Gaussian releases of clipped sums per configuration, Poisson-sampled unless
        ``plan.sampling_probability`` is 1; the caller has recorded them in the ledger. Nothing else leaves: the
        callback sees parameters, and may stop the run early by returning True, which saves no budget.
        With K > 1 the configurations share each sample: the guarantee is that of every single one, not of all
        together. Without a curator no noise is added: for records that are already released, or need no protection.

    Parameters
    ----------
    plan : TrainingPlan
        The run.
    head, layout : Head, Layout
        The model.
    inputs, label
        The records; labels of shape (n,) in the units of predictions.
    parameters : array of shape (K, P)
        Where to start; not changed.
    optimizer : Optimizer
        Keeps its state, so that a second call goes on where the first ended.
    curator : Curator or None
        Who releases the sums.
    rng : numpy.random.Generator
        For Poisson samples.
    neighbouring : Neighbouring
        The relation that sensitivities are meant under.
    loss : Loss, optional
        Half the squared residual if None.
    callback : callable, optional
        Called after every step with :class:`Progress`.
    """
    xp = array_api_compat.array_namespace(parameters)
    parameters = xp.asarray(parameters, copy=True)
    K = parameters.shape[0]
    is_numpy = isinstance(parameters, np.ndarray)

    def per_configuration(value: Any) -> Array:
        column = np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), (K,)))
        return xp.asarray(column, dtype=parameters.dtype, device=parameters.device)

    clip_norm = per_configuration(plan.clip_norm)
    sensitivity = neighbouring.sensitivity(clip_norm)
    noise_std = per_configuration(plan.noise_multiplier) * clip_norm
    sampler = PoissonSampler(label.shape[0], plan.sampling_probability, rng)
    workspace = Workspace.of(head, layout, parameters)
    num_averaged = max(1, round(plan.averaging * plan.num_steps))
    total = None

    for step in range(1, plan.num_steps + 1):
        batch, batch_label = inputs, label
        if plan.sampling_probability < 1.0:
            index = sampler.draw() if is_numpy else xp.asarray(sampler.draw(), device=parameters.device)
            batch, batch_label = inputs.take(index), label[index]
        gradient = compute_clipped_sum(workspace, batch, batch_label, clip_norm=clip_norm, loss=loss)
        if curator is not None:
            clipped = BoundedSum(gradient, sensitivity, "clipped gradients")
            gradient = curator.release_gaussian(
                clipped, noise_std=noise_std, sampling_probability=plan.sampling_probability
            )
        gradient /= sampler.expected_size
        optimizer.update(parameters, gradient)
        parameters[...] = xp.minimum(xp.maximum(parameters, -LARGEST_PARAMETER), LARGEST_PARAMETER)
        if num_averaged > 1 and step > plan.num_steps - num_averaged:
            total = parameters + (0.0 if total is None else total)
        if callback is not None and callback(Progress(step, plan.num_steps, parameters)):
            return parameters
    return parameters if total is None else total / num_averaged
