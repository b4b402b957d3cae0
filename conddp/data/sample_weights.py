"""Weights of records, as in weighted least squares; public."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.errors import SchemaError

__all__ = ["read_weights"]

HINT = "Give one number per record, at least 0, such as the number of times that a record counts."


def read_weights(values: Any) -> NDArray[np.float64]:
    """Read weights of records from a list, an array or a column, or raise a :class:`SchemaError`.

    Privacy
        Weights are public: they must not be computed from labels or private columns.

    Examples
    --------
    >>> read_weights([1, 2, 0]).tolist()
    [1.0, 2.0, 0.0]
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise SchemaError(f"weights of records have gaps. {HINT}")
    try:
        weights = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise SchemaError(f"weights of records must be numbers, got {type(values).__name__}. {HINT}") from None
    if weights.ndim != 1:
        raise SchemaError(f"weights of records must be one column, got {weights.ndim} dimensions. {HINT}")
    if not np.isfinite(weights).all():
        raise SchemaError(f"weights of records must be finite, without gaps. {HINT}")
    if (weights < 0).any():
        raise SchemaError(f"weights of records must not be negative. {HINT}")
    return weights
