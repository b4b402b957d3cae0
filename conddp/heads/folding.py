"""Conversion of parameters between conditioned and original features."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.features.conditioning import ConditioningMatrix
from conddp.heads.head import Head

__all__ = ["move_parameters"]


def move_parameters(
    head: Head,
    parameters: NDArray[Any],
    *,
    num_private: int,
    source: ConditioningMatrix,
    target: ConditioningMatrix | None = None,
) -> NDArray[Any]:
    """Convert parameters (K, P) for features conditioned by ``source`` to features conditioned by ``target``.

    Without a target, the result is in terms of the original public features, including the constant column. Predictions
    do not change. Only the public block of the input layer changes, by :meth:`ConditioningMatrix.fold` and ``unfold``.
    """
    before = head.layout(source.num_parameters, num_private)
    columns = source.num_columns if target is None else target.num_parameters
    after = head.layout(columns, num_private)
    moved = np.empty((len(parameters), after.size), dtype=parameters.dtype)
    weights = after.views(moved)
    for name, weight in before.views(parameters).items():
        if name == "public":
            weight = source.fold(weight)
            weight = weight if target is None else target.unfold(weight)
        weights[name][...] = weight
    return moved
