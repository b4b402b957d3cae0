"""Sums of per-example gradients, each clipped to a norm, without ever forming a single one."""

from dataclasses import dataclass

import array_api_compat

from conddp.heads.head import Array, Head, Inputs, Layout, Weights
from conddp.losses import Loss, Squared

__all__ = ["Workspace", "compute_clipped_sum"]

SQUARED = Squared()


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


def compute_clipped_sum(
    workspace: Workspace, inputs: Inputs, label: Array, *, clip_norm: Array, loss: Loss | None = None
) -> Array:
    r"""Sum over records of the gradient of the loss, clipped to ``clip_norm`` per record: shape (K, P).

    A record's gradient is :math:`-r_i J_i` with :math:`r_i` its residual; clipping it to norm c replaces :math:`r_i` by
    its value clamped to :math:`\pm c / \|J_i\|`, so that no gradient of a single record is ever formed.

    Privacy
        Costs nothing by itself and is not private: it must be released by a curator before anyone sees it. Replacing
        one record's label and private features moves the sum by at most ``2 * clip_norm``, setting its gradient to zero
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
    loss : Loss, optional
        Half the squared residual if None.
    """
    if label.shape[0] == 0:
        workspace.total[...] = 0.0
        return workspace.total
    trace = workspace.head.forward(workspace.weights, inputs)
    limits = clip_norm[:, None] / trace.jacobian_norms
    residuals = (loss or SQUARED).residual(trace.predictions, label)
    clamped = inputs.xp.minimum(inputs.xp.maximum(residuals, -limits), limits)
    workspace.head.vjp(workspace.weights, inputs, trace, clamped, workspace.sums)
    total = workspace.total
    total *= -1.0
    return total
