"""Sums of clipped per-example gradients, computed without forming individual gradients."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import array_api_compat
import numpy as np

from conddp.heads.fused import ClippedRecords, FusedSum
from conddp.heads.head import SMALLEST_NORM, Array, Head, Inputs, Layout, Weights
from conddp.losses import Loss, Squared

__all__ = ["Workspace", "compute_clipped_sum", "fuse_clipped_sum"]

SQUARED = Squared()
LARGEST_NORM = 1e12  # of a gradient that is not clipped, if others overflow


@dataclass(frozen=True)
class Workspace:
    """Parameters of K configurations and a buffer for a sum of gradients, with named views. Reused between steps.

    Parameters
    ----------
    head, layout : Head, Layout
        Model to train.
    parameters : array of shape (K, P)
        Parameters, which the training loop updates in place. The views share their memory.
    weights, sums : mappings
        Named views of ``parameters`` and of ``total``.
    total : array of shape (K, P)
        Buffer for sums of gradients.
    """

    head: Head
    layout: Layout
    parameters: Array
    weights: Weights
    total: Array
    sums: Weights
    _limits: list[Any] = field(default_factory=list, repr=False)  # of the last step, with what they were made from

    @classmethod
    def of(cls, head: Head, layout: Layout, parameters: Array) -> "Workspace":
        """Create a workspace that shares the memory of the parameters."""
        total = array_api_compat.array_namespace(parameters).zeros_like(parameters)
        return cls(head, layout, parameters, layout.views(parameters), total, layout.views(total))

    def compute_limits(self, clip_norm: Array, norms: Array, inputs: Inputs) -> Array:
        """Limits of the residuals, shape (K, n). Those of a head whose norms are those of the rows are kept.

        The norms of other heads change from step to step, perhaps within the same array.
        """
        if norms is not inputs.row_norms:
            return clip_norm[:, None] / norms
        if not (self._limits and self._limits[1] is norms and bool((self._limits[0] == clip_norm).all())):
            self._limits[:] = clip_norm + 0.0, norms, clip_norm[:, None] / norms  # a copy: it may change in place
        return self._limits[2]


def compute_clipped_sum(
    workspace: Workspace,
    inputs: Inputs,
    label: Array,
    *,
    clip_norm: Array,
    loss: Loss | None = None,
    weights: Array | None = None,
) -> Array:
    r"""Sum the gradients of the loss over records, each clipped to ``clip_norm``; shape (K, P).

    The gradient of a record is :math:`-r_i J_i`, where :math:`r_i` is its residual. Clipping it to norm c is the same
    as clamping :math:`r_i` to :math:`\pm c / \|J_i\|`, so individual gradients are never formed.

    Privacy
        Costs nothing by itself. The sum has no noise and must be released through a curator. Replacing the label and
        private features of one record changes the sum by at most ``2 * clip_norm``. Setting its gradient to zero
        changes the sum by at most ``clip_norm``. Both bounds hold for all parameters. With weights, the contribution of
        a record is multiplied by its weight after clipping, so several records together change the sum by at most the
        sum of their weights times these bounds.
    Guarantees
        An empty set of records gives a zero sum. A record with zero gradient contributes zero. A record whose
        gradient norm overflows contributes zero.

    Parameters
    ----------
    workspace : Workspace
        Model and parameters. The sum is written to ``workspace.total`` and is overwritten by the next call.
    inputs, label
        Features of the records, and labels of shape (n,), or (K, n), in the units of the predictions.
    clip_norm : array of shape (K,)
        Maximum norm of the gradient of a record, per configuration. If all are infinite, norms are not computed.
    loss : Loss, optional
        Loss to minimise; half the squared residual if None.
    weights : array of shape (n,), optional
        Public weights of the records; 1 if None.
    """
    total, n = workspace.total, label.shape[-1]
    if n == 0:
        total[...] = 0.0
        return total
    at_once = workspace.head.records_at_once or n
    if n <= at_once:
        _sum_block(workspace, inputs, label, clip_norm, loss or SQUARED, weights)
    else:
        added = inputs.xp.zeros_like(total)
        for start in range(0, n, at_once):
            span = slice(start, start + at_once)
            some = None if weights is None else weights[span]
            _sum_block(workspace, inputs.take(span), label[..., span], clip_norm, loss or SQUARED, some)
            added += total
        total[...] = added
    total *= -1.0
    return total


def _sum_block(
    workspace: Workspace, inputs: Inputs, label: Array, clip_norm: Array, loss: Loss, weights: Array | None
) -> None:
    """Write the sum of clamped residuals times gradients of predictions into the workspace."""
    if bool((clip_norm == math.inf).all()):
        residual = _Residual(loss, label, weights)
        workspace.head.sum_gradients(workspace.weights, inputs, residual, workspace.sums)
        if bool(inputs.xp.isfinite(workspace.total).all()):
            return
        clip_norm = inputs.xp.full_like(clip_norm, LARGEST_NORM)  # records whose gradients overflow are left out
    trace = workspace.head.forward(workspace.weights, inputs)
    limits = workspace.compute_limits(clip_norm, trace.jacobian_norms, inputs)
    residuals = loss.residual(trace.predictions, label)
    clamped = inputs.xp.minimum(inputs.xp.maximum(residuals, -limits), limits)
    if weights is not None:
        clamped = clamped * weights
    workspace.head.vjp(workspace.weights, inputs, trace, clamped, workspace.sums)


@dataclass(frozen=True)
class _Residual:
    """Residuals of predictions, times the weights of the records."""

    loss: Loss
    label: Array
    weights: Array | None

    def __call__(self, predictions: Array, configurations: slice = slice(None)) -> Array:
        label = self.label[configurations] if self.label.ndim == 2 and self.label.shape[0] > 1 else self.label
        residuals = self.loss.residual(predictions, label)
        return residuals if self.weights is None else residuals * self.weights


def fuse_clipped_sum(
    workspace: Workspace,
    inputs: Inputs,
    label: Array,
    *,
    clip_norm: Array,
    loss: Loss | None = None,
    weights: Array | None = None,
    are_sampled: bool = False,
) -> FusedSum | None:
    """Return a function that writes what :func:`compute_clipped_sum` computes into the workspace, by compiled kernels.

    Privacy
        As :func:`compute_clipped_sum`. The sums differ by rounding errors, which the curator covers for both. They may
        be those of rows that are rounded to float32 (:meth:`~conddp.heads.fused.ClippedRecords.round_rows`).

    Parameters
    ----------
    workspace, inputs, label, clip_norm, loss, weights
        As for :func:`compute_clipped_sum`.
    are_sampled : bool
        Whether sums are over samples of the records. The function then takes the positions of a sample.

    Returns
    -------
    FusedSum or None
        None if kernels are not in use, or there is none for this head, loss or kind of arrays.
    """
    parameters, total = workspace.parameters, workspace.total
    if not isinstance(parameters, np.ndarray) or parameters.dtype != np.float64:
        return None
    if (loss or SQUARED) != SQUARED or not parameters.flags.carray:
        return None
    if "fuse" not in vars(type(workspace.head)):  # a subclass may compute something else
        return None
    K, known = len(parameters), (inputs.public, inputs.private, inputs.row_norms)
    sums = []
    for k in range(K):
        own = label if label.ndim == 1 else label[k if len(label) == K else 0]
        records = ClippedRecords(*known, own, weights, float(clip_norm[k]), SMALLEST_NORM, are_sampled, K)
        fused = workspace.head.fuse(workspace.layout, parameters[k : k + 1], total[k : k + 1], records)
        if fused is None:
            return None
        sums.append(fused)
    return sums[0] if K == 1 else _SumOfEach(sums)


@dataclass(frozen=True)
class _SumOfEach:
    """Writes the sums of all configurations, one after another."""

    sums: Sequence[FusedSum]

    def __call__(self, positions: Any) -> None:
        for each in self.sums:
            each(positions)
