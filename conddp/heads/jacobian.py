"""Jacobian of the predictions of a head, one row per record."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.heads.head import Head, Inputs, Layout

__all__ = ["compute_jacobian"]

JACOBIANS_AT_ONCE = 64


def compute_jacobian(
    head: Head, layout: Layout, parameters: NDArray[Any], inputs: Inputs, combine: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Compute the gradient of the prediction with respect to all parameters, one row per record: shape (n, P).

    Use this only if individual rows are needed. For a weighted sum of rows, ``vjp`` is far cheaper.

    Parameters
    ----------
    head, layout : Head, Layout
        Model and its layout.
    parameters : array of shape (P,)
        Parameters at which to compute the gradient.
    inputs : Inputs
        Features of the records, as NumPy arrays.
    combine : array of shape (P, m), optional
        Matrix that multiplies every row, so that the result has shape (n, m) and a large Jacobian is never held in
        memory.
    """
    weights, n = layout.views(parameters[None]), len(inputs.public)
    parts = []
    for start in range(0, n, JACOBIANS_AT_ONCE):
        some = inputs.take(slice(start, start + JACOBIANS_AT_ONCE))
        count = len(some.public)
        rows = np.zeros((count, layout.size))  # one weighted sum per record, with weight one for that record only
        head.vjp(weights, some, head.forward(weights, some), np.eye(count), layout.views(rows))
        parts.append(rows if combine is None else rows @ combine)
    return np.concatenate(parts)
