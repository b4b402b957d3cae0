"""Labels and weights as users pass them: one column of labels, or several."""

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.validation import _check_sample_weight

from conddp.bounds import Bounds
from conddp.data.parts import LABEL_CURE, Labels, as_column, as_numbers
from conddp.errors import SchemaError

__all__ = ["declare_bounds", "make_labels", "read_labels", "read_sample_weight"]


def read_labels(y: Any, estimator: str, *, gaps: bool) -> tuple[list[str], NDArray[Any]]:
    """Read labels as numbers; error messages never quote a value.

    Parameters
    ----------
    y : array or table
        One label for each record, or a row of several.
    estimator : str
        Name of the estimator, for errors.
    gaps : bool
        Whether labels may be missing.

    Returns
    -------
    tuple
        Names, and values: a vector for one label, an array of shape (n, q) for several.
    """
    if y is None:
        raise ValueError(f"This {estimator} estimator requires y to be passed, but the target y is None.")
    if isinstance(y, str) or (isinstance(y, (list, tuple)) and len(y) == 1 and isinstance(y[0], str)):
        raise SchemaError(
            "y must hold the labels, got the name of a column. Pass the column itself, such as y=table['price'], and "
            "leave it out of X: X=table.drop(columns='price') in pandas. Only an Arrow dataset takes a name."
        )
    options: dict[str, Any] = {"what": "Input y", "finite": False, "gaps": gaps, "cure": LABEL_CURE}
    name = getattr(y, "name", None)
    names = [name if isinstance(name, str) and name else "label"]
    if nw.dependencies.is_into_series(y):
        return names, as_column(nw.from_native(y, series_only=True), **options)
    if nw.dependencies.is_into_dataframe(y):
        table = nw.from_native(y, eager_only=True)
        if not table.columns:
            raise ValueError("y has no columns. Pass the label, or a table with one column for each label.")
        values: Any = np.column_stack([as_column(series, **options) for series in table.iter_columns()])
        listed = [str(each) for each in table.columns]
    else:
        values = as_numbers(y, **options)
        listed = [f"label{place}" for place in range(values.shape[1])] if values.ndim == 2 else names
    if values.ndim == 2 and values.shape[1] > 1:
        return listed, values
    return names, np.asarray(column_or_1d(values, warn=True))


def declare_bounds(label_bounds: Any, names: Sequence[str]) -> list[Bounds]:
    """Return the declared range of each label, from one pair for all, a list of pairs, or a mapping by name."""
    if label_bounds is None:
        raise SchemaError("label_bounds=(low, high) is missing. Declare it from domain knowledge, never from the data.")
    if isinstance(label_bounds, Mapping):
        if set(label_bounds) != set(names):
            raise SchemaError(f"label_bounds must have a pair (low, high) for each of the labels {list(names)}.")
        return [Bounds.of(label_bounds[name], column=name) for name in names]
    several = isinstance(label_bounds, (list, tuple, np.ndarray)) and len(label_bounds) and np.ndim(label_bounds[0])
    if several:
        if len(label_bounds) != len(names):
            raise SchemaError(
                f"label_bounds has {len(label_bounds)} pairs (low, high), but y has {len(names)} label"
                f"{'s' if len(names) > 1 else ''}. Give one pair for all, or one for each."
            )
        return [Bounds.of(pair, column=name) for pair, name in zip(label_bounds, names, strict=True)]
    return [Bounds.of(label_bounds, column=name) for name in names]


def make_labels(names: Sequence[str], values: NDArray[Any], bounds: Sequence[Bounds]) -> list[Labels]:
    """Return each label with its name and range."""
    columns = values.reshape(len(values), -1).T
    return [Labels(*each) for each in zip(columns, bounds, names, strict=True)]


def read_sample_weight(sample_weight: Any, num_records: int) -> NDArray[np.float64] | None:
    """Read public weights of records; None if there are none."""
    if sample_weight is None:
        return None
    numbers = as_numbers(sample_weight, what="sample_weight").astype(np.float64)
    return np.asarray(_check_sample_weight(numbers, np.empty((num_records, 0))))
