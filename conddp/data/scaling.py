"""Scaling of labels and private columns by what is declared of them, never by statistics of the data.

A private number becomes one feature. A private category with K levels becomes K - 1 features if the model has an
intercept: its levels are the corners of a regular simplex around the origin, so that no level is special. Without an
intercept it becomes K features, one for each level. A value that is none of the declared categories is the origin.
Columns that are uniform over their range or categories have features of unit variance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from conddp.bounds import Bounds
from conddp.categories import Categories
from conddp.data.parts import Domain, Labels, PrivateFeatures
from conddp.privacy.neighbouring import Neighbouring

__all__ = [
    "PrivateSpan",
    "bound_label_move",
    "code_categories",
    "count_private_features",
    "largest_private",
    "private_unit",
    "restore_label",
    "scale_bounds",
    "scale_label",
    "scale_private",
]


def scale_label(label: Labels, *, center: bool = True, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Clamp labels to their bounds and scale them to a range of unit width; to [-1/2, 1/2] if centred.

    A model without an intercept passes through the origin, so its labels must not be centred.

    Privacy
        Applied to each record separately, using the declared bounds only. The result is as private as the labels.
    """
    bounds = label.bounds
    scaled = (bounds.clamp(label.values) - (bounds.midpoint if center else 0.0)) / bounds.width
    low, high = scale_bounds(bounds, center=center)
    return np.clip(scaled, low, high).astype(dtype)  # rounding may have moved a label beyond its bound


def scale_bounds(bounds: Bounds, *, center: bool = True) -> tuple[float, float]:
    """Return the range of scaled labels. No scaled label exceeds it, not even by a rounding error."""
    return (-0.5, 0.5) if center else (bounds.low / bounds.width, bounds.high / bounds.width)


def bound_label_move(bounds: Bounds, neighbouring: Neighbouring) -> float:
    """Bound the change of a centred, scaled label between neighbours: its full range, or the distance to zero."""
    if neighbouring is Neighbouring.REPLACE:
        return 1.0
    return max(bounds.midpoint - bounds.low, bounds.high - bounds.midpoint) / bounds.width


def restore_label(scaled: NDArray[Any], bounds: Bounds, *, center: bool = True) -> NDArray[np.float64]:
    """Convert scaled predictions to the units of the label, clamped to its bounds."""
    values = bounds.width * np.asarray(scaled, dtype=np.float64)
    return bounds.clamp(values + (bounds.midpoint if center else 0.0))


def private_unit(bounds: Bounds) -> float:
    """Return the standard deviation of a uniform distribution over the bounds."""
    return bounds.width / math.sqrt(12)


def largest_private(domain: Domain, *, center: bool = True) -> float:
    """Return the largest length of the features of a private column, including rounding errors."""
    if isinstance(domain, Categories):
        return math.sqrt(len(domain) - center)
    if center:
        return math.sqrt(3)
    return max(abs(domain.low), abs(domain.high)) / private_unit(domain)


@lru_cache(maxsize=64)
def code_categories(number: int, *, center: bool = True) -> NDArray[np.float64]:
    """Return the features of every category: K - 1 of them with an intercept, otherwise K; shape (K, features).

    Features of different categories are at squared distance 2K from each other.

    Examples
    --------
    >>> code_categories(3).round(3).tolist()
    [[1.225, 0.707], [-1.225, 0.707], [0.0, -1.414]]
    """
    from scipy.linalg import helmert

    coding = math.sqrt(number) * (helmert(number).T if center else np.eye(number))
    coding.flags.writeable = False
    return np.asarray(coding)


def count_private_features(domains: Sequence[Domain], *, center: bool = True) -> int:
    """Return the number of features that private columns are scaled to."""
    return sum(len(each) - center if isinstance(each, Categories) else 1 for each in domains)


@dataclass(frozen=True)
class PrivateSpan:
    """How far the private features of a record can reach, from what is declared only.

    Parameters
    ----------
    num_features : int
        Number of features.
    length : float
        Largest length of the vector of all private features of a record.
    diameter : float
        Largest distance between two such vectors. A number moves by at most its whole range, and a category from one
        level to another. It is never less than ``length``, so that rounding errors, which are relative to the length,
        stay small in comparison.
    """

    num_features: int
    length: float
    diameter: float

    @classmethod
    def of(cls, domains: Sequence[Domain], *, center: bool = True) -> "PrivateSpan":
        """Compute the span of private columns with these bounds and categories."""
        length = math.sqrt(sum(largest_private(each, center=center) ** 2 for each in domains))
        moves = (2 * len(each) if isinstance(each, Categories) else 12 for each in domains)  # squared
        return cls(count_private_features(domains, center=center), length, max(math.sqrt(sum(moves)), length))


def scale_private(private: PrivateFeatures, *, center: bool = True, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Scale private columns to features, by their declared bounds and categories.

    Privacy
        Applied to each record separately, using what is declared only. The result is as private as the columns.
    """
    scaled = np.empty((len(private), count_private_features(private.domains, center=center)), dtype=dtype)
    start = 0
    for column, domain in zip(private.values.T, private.domains, strict=True):
        stop = start + count_private_features([domain], center=center)
        if isinstance(domain, Categories):
            coding = code_categories(len(domain), center=center)
            features = np.vstack([coding, np.zeros(coding.shape[1])])  # the last row is that of the code -1
            scaled[:, start:stop] = features[column.astype(np.intp)]
        else:
            origin = domain.midpoint if center else 0.0
            number = (domain.clamp(column) - origin) / private_unit(domain)
            largest = largest_private(domain, center=center)
            scaled[:, start] = np.clip(number, -largest, largest)  # rounding may have moved a value beyond its bound
        start = stop
    return scaled
