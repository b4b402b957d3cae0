"""Training loop for noisy gradient descent: sample, clip, release, update."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import array_api_compat
import numpy as np

from conddp._fused import load_kernels
from conddp._validate import in_range, positive, positive_integer
from conddp.errors import PrivacyError
from conddp.features.row_weights import RowWeights
from conddp.heads.head import Array, Head, Inputs, Layout
from conddp.losses import Loss
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator
from conddp.training.batches import Batches
from conddp.training.clipping import Workspace
from conddp.training.fused_steps import FusedSteps
from conddp.training.optimizers import Optimizer
from conddp.training.ranks import Share
from conddp.training.stored_batches import StoredInputs

__all__ = ["Callback", "Progress", "StepCounter", "TrainingPlan", "assist", "count_unseen", "train"]

OVERHEAD = 1e5  # of a step, in multiplications that take as long
LARGEST_PARAMETER = 1e6  # parameters are clamped to this (post-processing), so that a diverging run cannot overflow


@dataclass(frozen=True)
class TrainingPlan:
    """Settings of a run, fixed before data are read; all of them are public.

    Parameters
    ----------
    num_steps : int
        Number of noisy steps.
    clip_norm : float or sequence of K floats, or None
        Maximum norm of the gradient of one record. If None, gradients are not clipped, which is refused when training
        with a curator.
    noise_multiplier : float or sequence of K floats
        Standard deviation of the noise divided by ``clip_norm``; ignored when training without a curator.
    sampling_probability : float
        Probability that a record takes part in a step; 1 is the full batch.
    averaging : float
        Fraction of the iterates, counted from the last, that are averaged into the output. 0 returns the last iterate;
        1 returns the mean of all iterates (the paper's Algorithm 1).
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
        for clip_norm in () if self.clip_norm is None else np.atleast_1d(self.clip_norm):
            positive(clip_norm=float(clip_norm))
        for noise_multiplier in np.atleast_1d(self.noise_multiplier):
            in_range(0.0, np.inf, noise_multiplier=float(noise_multiplier))


@dataclass(frozen=True)
class Progress:
    """Progress passed to a callback after each step; contains released quantities only.

    Parameters
    ----------
    step, num_steps : int
        Number of steps done, and total number of steps.
    parameters : array of shape (K, P)
        Current parameters, already released. Copy them to keep them, because they are updated in place.
    """

    step: int
    num_steps: int
    parameters: Array


Callback = Callable[[Progress], bool | None]  # with ``unseen_steps``, the number of next steps that it need not see


@dataclass(frozen=True)
class StepCounter:
    """A callback that shows how far a run has come, and nothing that was released.

    It need not be called after every step, so that compiled kernels can take many steps at once.
    A fit with a checkpoint need not write every answer to disk before such a callback is called, as it must for others.

    Parameters
    ----------
    show : callable
        Called with the number of steps done and their total number.
    show_work : callable, optional
        Called during long public computations between steps, with the number of steps done and a fraction of the next
        one, their total number, and what is being done.
    """

    show: Callable[[int, int], None]
    show_work: Callable[[float, int, str], None] | None = None
    unseen_steps: ClassVar[float] = math.inf

    def __call__(self, progress: Progress) -> None:
        """Show the number of steps."""
        self.show(progress.step, progress.num_steps)


@np.errstate(all="ignore")  # overflow may depend on private values, and warnings must not reveal it
def train(
    plan: TrainingPlan,
    head: Head,
    layout: Layout,
    inputs: Inputs | StoredInputs,
    label: Any,
    parameters: Array,
    *,
    optimizer: Optimizer,
    curator: Curator | None,
    rng: np.random.Generator,
    neighbouring: Neighbouring = Neighbouring.REPLACE,
    loss: Loss | None = None,
    callback: Callback | None = None,
    weights: RowWeights | None = None,
    state: Mapping[str, Any] | None = None,
    save: Callable[[Callable[[], dict[str, Any]]], None] | None = None,
    share: Share | None = None,
    rounding_elsewhere: float = 0.0,
) -> Array:
    """Train K configurations at once and return their parameters, shape (K, P).

    Privacy
        Makes ``plan.num_steps`` Gaussian releases of clipped sums per configuration, Poisson-sampled unless
        ``plan.sampling_probability`` is 1. The caller must have recorded their cost in the ledger. Nothing else is
        released: the callback receives released parameters. It may stop the run by returning True, which does not save
        any budget. With K > 1 the configurations share each sample, and the guarantee holds for each of them
        separately, not for all of them together. Without a curator no noise is added; use this only for records that
        are already released or need no protection. With units, every record is clipped on its own and multiplied by
        its public weight, so the sensitivity is that of one record times the largest sum of the weights of a unit.
        Samples consist of whole units, each with the same probability and independently of all others. Sums over
        rows that are never formed may be rounded by more than the curator covers. Sensitivity and noise are then
        multiplied by one plus a public bound (``inputs.bound_rounding``). The same goes for sums of activations in
        float32. On several ranks, every record is in the sum of one of them, and their sums are added up before noise
        is added once.

    Parameters
    ----------
    plan : TrainingPlan
        Settings of the run.
    head, layout : Head, Layout
        Model to train.
    inputs, label
        Features of the records, and labels of shape (n,), or (K, n) if every configuration has its own, in the units
        of the predictions.
    parameters : array of shape (K, P)
        Initial parameters; not modified.
    optimizer : Optimizer
        Optimizer. It keeps its state, so a second call continues where the first one ended.
    curator : Curator or None
        Curator through which the sums are released.
    rng : numpy.random.Generator
        Generator for Poisson samples. Those of several steps may be drawn at once.
    neighbouring : Neighbouring
        Neighbouring relation for the sensitivity.
    loss : Loss, optional
        Loss to minimise; half the squared residual if None.
    callback : callable, optional
        Called after every step with :class:`Progress`. If it has an attribute ``unseen_steps``, it need not be called
        after that many of the next steps, and kernels may take them in one call.
    weights : RowWeights, optional
        Units of the records and their weights, if units have several records. The records must be arranged by unit.
    state : mapping, optional
        State of an interrupted run, from which to go on.
    save : callable, optional
        Called after every step, before the callback, with a function that returns the state of the run.
    share : Share, optional
        The records of rank 0, if others take part (:func:`assist`). ``inputs`` and ``label`` are those of this share.
    rounding_elsewhere : float
        Sum of ``inputs.bound_rounding`` of the other ranks.
    """
    xp = array_api_compat.array_namespace(parameters)
    parameters = xp.asarray(parameters, copy=True)
    K = parameters.shape[0]

    def per_configuration(value: Any) -> Array:
        column = np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), (K,)))
        return xp.asarray(column, dtype=parameters.dtype, device=parameters.device)

    if curator is not None and plan.clip_norm is None:
        raise PrivacyError("sums of gradients that are not clipped cannot be released. Choose a clip norm.")
    clip_norm = per_configuration(np.inf if plan.clip_norm is None else plan.clip_norm)
    together = 1.0 if weights is None else max(1.0, weights.largest_total)
    per_unit = 1 if weights is None else weights.units.largest
    if parameters.dtype.itemsize == 8:  # sums in float32, for experiments, are released without a guarantee
        together *= 1.0 + inputs.bound_rounding(per_unit, parameters.dtype) + rounding_elsewhere
    sensitivity = neighbouring.sensitivity(clip_norm) * together
    noise_std = per_configuration(plan.noise_multiplier) * clip_norm * together
    if K == 1:  # the same numbers in every step, as the curator can tell at a glance
        sensitivity, noise_std = float(sensitivity[0]), float(noise_std[0])
    batches = Batches.of(
        inputs,
        label,
        sampling_probability=plan.sampling_probability,
        rng=rng,
        weights=weights,
        share=share,
        like=parameters,
        num_steps=plan.num_steps - (0 if state is None else int(state["step"])),
    )
    workspace = Workspace.of(head, layout, parameters)
    if share is None and load_kernels(plan.num_steps * (batches.expected_weight * parameters.shape[1] + OVERHEAD)):
        batches = batches.fuse(workspace, clip_norm, loss)
    num_averaged = max(1, round(plan.averaging * plan.num_steps))
    total, done = None, 0
    if state is not None:
        state = {name: xp.asarray(each) if isinstance(each, np.ndarray) else each for name, each in state.items()}
        done, total = int(state["step"]), None if "total" not in state else xp.asarray(state["total"], copy=True)
        parameters[...] = state["parameters"]
        optimizer.set_state(state)

    def get_state() -> dict[str, Any]:
        known = {"step": step, "parameters": np.asarray(parameters).copy(), **optimizer.get_state()}
        return known if total is None else {**known, "total": np.asarray(total)}

    if curator is not None and curator.takes_steps and save is None and state is None and count_unseen(callback):
        steps = None
        if isinstance(batches, Batches):
            num_skipped = plan.num_steps - num_averaged if num_averaged > 1 else plan.num_steps
            steps = FusedSteps.of(batches, parameters, optimizer, bound=LARGEST_PARAMETER, num_skipped=num_skipped)
        if steps is not None:
            is_complete = _release_steps(plan, steps, curator, sensitivity, noise_std, parameters, callback)
            return steps.total[None] / num_averaged if is_complete and num_averaged > 1 else parameters
    for step in range(done + 1, plan.num_steps + 1):
        if share is not None:
            share.ranks.start_step(parameters, step)
        gradient = batches.compute_sum(workspace, layout, clip_norm, loss)
        if share is not None:
            share.ranks.add_up(gradient)
        if curator is not None:
            clipped = BoundedSum(gradient, sensitivity, "clipped gradients")
            gradient = curator.release_gaussian(
                clipped, noise_std=noise_std, sampling_probability=plan.sampling_probability
            )
        gradient /= batches.expected_weight
        optimizer.update(parameters, gradient)
        _clamp(parameters)
        if num_averaged > 1 and step > plan.num_steps - num_averaged:
            total = parameters + (0.0 if total is None else total)
        if save is not None:
            save(get_state)
        if callback is not None and callback(Progress(step, plan.num_steps, parameters)):
            return parameters
    return parameters if total is None else total / num_averaged


def _release_steps(
    plan: TrainingPlan,
    steps: FusedSteps,
    curator: Curator,
    sensitivity: float,
    noise_std: float,
    parameters: Array,
    callback: Callback | None,
) -> bool:
    """Take all steps, as many at once as the callback need not see; return whether it let them all be taken."""
    clipped, done = BoundedSum(steps.sums, sensitivity, "clipped gradients"), 0
    while done < plan.num_steps:
        count = int(min(plan.num_steps - done, steps.at_once, count_unseen(callback) + 1))
        curator.release_steps(
            steps,
            clipped,
            noise_std=noise_std,
            sampling_probability=plan.sampling_probability,
            num_steps=count,
        )
        done += count
        if callback is not None and callback(Progress(done, plan.num_steps, parameters)):
            return False
    return True


def count_unseen(callback: Callback | None) -> float:
    """Number of next steps after which the callback need not be called."""
    unseen: float = math.inf if callback is None else getattr(callback, "unseen_steps", 0)
    return max(0.0, unseen)


def _clamp(parameters: Array) -> None:
    """Clamp released parameters, in place."""
    if isinstance(parameters, np.ndarray):
        np.maximum(parameters, -LARGEST_PARAMETER, out=parameters)
        np.minimum(parameters, LARGEST_PARAMETER, out=parameters)
    else:
        parameters.clamp_(-LARGEST_PARAMETER, LARGEST_PARAMETER)


@np.errstate(all="ignore")
def assist(
    plan: TrainingPlan,
    head: Head,
    layout: Layout,
    inputs: Inputs | StoredInputs,
    label: Any,
    share: Share,
    *,
    rng: np.random.Generator,
    loss: Loss | None = None,
    weights: RowWeights | None = None,
) -> None:
    """Compute the sums of a rank other than 0, as long as rank 0 trains (:func:`train`).

    Rank 0 first receives ``inputs.bound_rounding`` of every other rank.

    Privacy
        Sends one sum of clipped gradients per step to rank 0, without noise: rank 0 releases the total. Adds no noise
        and releases nothing. The cost must have been recorded by rank 0.

    Parameters
    ----------
    plan, head, layout, loss, weights
        As on rank 0.
    inputs, label
        Features and labels of the records of this rank.
    share : Share
        Which of all records these are.
    rng : numpy.random.Generator
        Copy of the generator for Poisson samples of rank 0.
    """
    parameters = np.zeros((1, layout.size))
    clip_norm = np.array([plan.clip_norm], dtype=np.float64)
    workspace = Workspace.of(head, layout, parameters)
    batches = Batches.of(
        inputs,
        label,
        sampling_probability=plan.sampling_probability,
        rng=rng,
        weights=weights,
        share=share,
        like=parameters,
        num_steps=plan.num_steps,
    )
    share.ranks.report(inputs.bound_rounding(1 if weights is None else weights.units.largest, parameters.dtype))
    is_first = True
    while share.ranks.await_step(parameters, is_first=is_first):
        is_first = False
        share.ranks.answer(batches.compute_sum(workspace, layout, clip_norm, loss))
