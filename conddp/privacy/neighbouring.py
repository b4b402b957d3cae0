"""Neighbouring relations, and the sensitivity of a clipped sum under each of them.

This is the only place where a relation becomes a factor on the clip norm.
"""

from enum import Enum
from typing import Any, TypeVar

__all__ = ["Neighbouring"]

Scalable = TypeVar("Scalable", bound=Any)  # a float, or an array with one clip norm per configuration


class Neighbouring(Enum):
    """How one record may differ between two neighbouring data sets. Public features and n are the same in both.

    ``REPLACE``
        The label and private features of the record are replaced by any other values within the declared
        bounds. This is the paper's definition, and what the library means by (epsilon, delta)-DP without a
        qualifier.
    ``ZERO_OUT``
        The label and private features of the record are replaced by a null value whose gradient is zero. This
        is a weaker guarantee: epsilon 1 under ``ZERO_OUT`` is about 2.1 under ``REPLACE``. It exists because
        results obtained with add/remove accountants, including the paper's, are stated under it.
    """

    REPLACE = "replace"
    ZERO_OUT = "zero-out"

    def sensitivity(self, clip_norm: Scalable) -> Scalable:
        """Return the L2 sensitivity of a sum of vectors of norm at most ``clip_norm``.

        Guarantees
            Under REPLACE the two vectors of the record lie in a ball, at most its diameter apart. Under ZERO_OUT one
            of them is the centre of the ball. Both bounds are attained.

        Examples
        --------
        >>> Neighbouring.REPLACE.sensitivity(0.5), Neighbouring.ZERO_OUT.sensitivity(0.5)
        (1.0, 0.5)
        """
        factor = 2.0 if self is Neighbouring.REPLACE else 1.0
        return clip_norm * factor  # type: ignore[no-any-return]  # the product has the type of clip_norm

    def __str__(self) -> str:
        return self.value
