"""Which data sets count as neighbours, and what that does to the sensitivity of a clipped sum.

This is the only place where a relation is turned into a factor on the clip norm.
"""

from enum import Enum
from typing import Any, TypeVar

__all__ = ["Neighbouring"]

Scalable = TypeVar("Scalable", bound=Any)  # a float, or an array with one clip norm per configuration


class Neighbouring(Enum):
    """What one record may do between two neighbouring data sets; public features and n stay in both.

    ``REPLACE``
        Its label and private features are replaced by any others within the declared bounds. This is
        the paper's definition and what the library means by (epsilon, delta)-DP without a qualifier.
    ``ZERO_OUT``
        Its label and private features are replaced by a null whose gradient is zero. A weaker promise:
        epsilon 1 under ``ZERO_OUT`` is about 2.1 under ``REPLACE``. It exists because results stated
        with add/remove accountants, the paper's included, are stated under it.
    """

    REPLACE = "replace"
    ZERO_OUT = "zero-out"

    def sensitivity(self, clip_norm: Scalable) -> Scalable:
        """L2 distance that a sum of vectors of norm at most ``clip_norm`` moves between neighbours.

        Guarantees
            Under REPLACE two vectors in the ball are at most its diameter apart; under ZERO_OUT one
            of them is the centre. Both are attained.

        Examples
        --------
        >>> Neighbouring.REPLACE.sensitivity(0.5), Neighbouring.ZERO_OUT.sensitivity(0.5)
        (1.0, 0.5)
        """
        factor = 2.0 if self is Neighbouring.REPLACE else 1.0
        return clip_norm * factor  # type: ignore[no-any-return]  # a product has its factor's type

    def __str__(self) -> str:
        return self.value
