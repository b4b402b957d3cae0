"""Sums of per-example gradients, each clipped to a norm, that carry their own sensitivity."""

from dataclasses import dataclass
from typing import Any

import array_api_compat

from conddp.heads.head import Array, Head, Inputs, Layout, Weights
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["ClippedSum", "Workspace", "compute_clipped_sum"]


@dataclass(frozen=True)
class ClippedSum:
    """A sum over records of vectors of norm at most ``clip_norm``. Not private until noise is added.

    Parameters
    ----------
    value : array of shape (K, P)
        The sum, one row per configuration.
    clip_norm : array of shape (K,)
        Bound on the norm of one record's vector.
    """

    value: Array
    clip_norm: Array

    def sensitivity(self, neighbouring: Neighbouring) -> Array:
        """How far the sum can move between neighbouring data sets, shape (K,)."""
        return neighbouring.sensitivity(self.clip_norm)

    def __repr__(self) -> str:  # the value is private
        return f"ClippedSum(shape={tuple(self.value.shape)}, clip_norm={self.clip_norm})"


@dataclass(frozen=True)
class Workspace:
    """Parameters of K configurations with named views of them, and room for a sum of gradients. Kept between steps.

    Parameters
    ----------
    head : Head
        The model.
    parameters : array of shape (K, P)
        Changed in place by whoever trains; the views follow.
    weights, sums : mappings
        Named views of ``parameters`` and of ``total``.
    total : array of shape (K, P)
        Where sums of gradients are written.
    """

    head: Head
    parameters: Array
    weights: Weights
    total: Array
    sums: Weights

    @classmethod
    def of(cls, head: Head, layout: Layout, parameters: Array) -> "Workspace":
        """Workspace around parameters that are shared, not copied."""
        total = array_api_compat.array_namespace(parameters).zeros_like(parameters)
        return cls(head, parameters, layout.views(parameters), total, layout.views(total))


def compute_clipped_sum(workspace: Workspace, inputs: Inputs, label: Array, *, clip_norm: Array) -> ClippedSum:
    r"""Sum over records of the gradient of half the squared residual, clipped to ``clip_norm`` per record.

    A record's gradient is :math:`r_i J_i`; clipping it to norm c replaces :math:`r_i` by its value clamped to
    :math:`\pm c / \|J_i\|`, so that no gradient of a single record is ever formed.

    Privacy
        Costs nothing by itself and is not private: the caller must add noise before anyone sees it. Replacing one
        record's label and private features moves the sum by at most ``2 * clip_norm``, setting its gradient to zero
        by at most ``clip_norm``, whatever the parameters.
    Guarantees
        An empty set of records gives a zero sum. A record with zero gradient contributes zero. A record whose
        gradient norm overflows contributes zero.

    Parameters
    ----------
    workspace : Workspace
        The model and its parameters. The sum is written to ``workspace.total`` and holds until the next call.
    inputs, label
        The records: labels have shape (n,), in the units of the predictions.
    clip_norm : array of shape (K,)
        Bound on each record's gradient, per configuration.
    """
    if label.shape[0] == 0:
        workspace.total[...] = 0.0
        return ClippedSum(workspace.total, clip_norm)
    trace = workspace.head.trace(workspace.weights, inputs)
    limits = clip_norm[:, None] / trace.jacobian_norms
    coefficients = _clamp(inputs.xp, trace.predictions - label, limits)
    workspace.head.weighted_sum(workspace.weights, inputs, trace, coefficients, workspace.sums)
    return ClippedSum(workspace.total, clip_norm)


def _clamp(xp: Any, residuals: Array, limits: Array) -> Array:
    """Residuals moved into [-limits, limits]."""
    return xp.minimum(xp.maximum(residuals, -limits), limits)
