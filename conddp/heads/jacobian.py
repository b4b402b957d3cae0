"""Gradients of a head's predictions, a row for each record."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.heads.head import Head, Inputs, Layout

__all__ = ["compute_jacobian"]

JACOBIANS_AT_ONCE = 64


def compute_jacobian(
    head: Head, layout: Layout, parameters: NDArray[Any], inputs: Inputs, combine: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Gradient of the prediction by all parameters, a row for each record: shape (n, P).

    For the few uses that need the rows themselves. Where a sum of them will do, ``vjp`` is far cheaper.

    Parameters
    ----------
    head, layout : Head, Layout
        The model.
    parameters : array of shape (P,)
        Where the gradient is taken.
    inputs : Inputs
        The records, as NumPy arrays.
    combine : array of shape (P, m), optional
        Takes every row to m combinations of its entries, so that a large Jacobian is never held in memory.
    """
    weights, n = layout.views(parameters[None]), len(inputs.public)
    parts = []
    for start in range(0, n, JACOBIANS_AT_ONCE):
        some = inputs.take(slice(start, start + JACOBIANS_AT_ONCE))
        count = len(some.public)
        rows = np.zeros((count, layout.size))  # one weighted sum for each record, with a single weight of one
        head.vjp(weights, some, head.forward(weights, some), np.eye(count), layout.views(rows))
        parts.append(rows if combine is None else rows @ combine)
    return np.concatenate(parts)
