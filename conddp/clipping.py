"""Sums of per-example gradients, each clipped to a norm, that carry their own sensitivity."""

from dataclasses import dataclass
from typing import Any

from conddp.models import Array, Head, Inputs, Layout, Weights
from conddp.neighbouring import Neighbouring

__all__ = ["ClippedSum", "compute_clipped_sum"]


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


def compute_clipped_sum(
    head: Head,
    layout: Layout,
    parameters: Array,
    inputs: Inputs,
    label: Array,
    *,
    clip_norm: Array,
    weights: Weights | None = None,
    out: Array | None = None,
    out_views: Weights | None = None,
) -> ClippedSum:
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
    head, layout, parameters
        The model: parameters have shape (K, P).
    inputs, label
        The records: labels have shape (n,), in the units of the predictions.
    clip_norm : array of shape (K,)
        Bound on each record's gradient, per configuration.
    weights, out, out_views
        Views of ``parameters``, a buffer of shape (K, P) and views of it, where the caller keeps them between steps.
    """
    xp = inputs.xp
    weights = layout.views(parameters) if weights is None else weights
    if out is None or out_views is None:
        out = xp.zeros_like(parameters)
        out_views = layout.views(out)
    if label.shape[0] == 0:
        out[...] = 0.0
        return ClippedSum(out, clip_norm)
    trace = head.trace(weights, inputs)
    coefficients = _clamp(xp, trace.predictions - label, clip_norm[:, None] / trace.jacobian_norms)
    head.weighted_sum(weights, inputs, trace, coefficients, out_views)
    return ClippedSum(out, clip_norm)


def _clamp(xp: Any, residuals: Array, limits: Array) -> Array:
    """Residuals moved into [-limits, limits]."""
    return xp.minimum(xp.maximum(residuals, -limits), limits)
