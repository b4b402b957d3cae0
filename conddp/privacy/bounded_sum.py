"""Sums over records with their sensitivity, and a bound on their rounding errors.

A sum of n bounded vectors in float64 has a rounding error of at most n (n + 1) / 2 times the unit roundoff times their
bound, in each of two neighbouring data sets: adding one after another is the worst of all orders. The relative error of
the bounds themselves is far below 1e-9.
"""

from dataclasses import dataclass
from typing import Any

__all__ = ["BoundedSum", "bound_rounding"]

Array = Any  # a NumPy array or a torch tensor


def bound_rounding(num_records: int, additions: int | None = None) -> float:
    """Bound the fraction by which rounding can increase the sensitivity of a float64 sum of bounded vectors.

    An addition is off by at most the unit roundoff times its result, which is at most the number of vectors in it times
    their bound. These numbers add up to the most, n (n + 1) / 2 - 1, if the vectors are added one after another. The
    bound holds for every other order too: by lanes of the processor, by blocks, or pairwise.

    Parameters
    ----------
    num_records : int
        Number of vectors n.
    additions : int, optional
        Number of additions m that each of them goes through at most, if they are added up in blocks; n if None. The
        rounding error of a sum is then at most n m times the unit roundoff times their bound (Higham 2002, Sec. 4.2).
    """
    sequential = num_records**2 * 2.0**-53
    return 1e-9 + (sequential if additions is None else min(sequential, num_records * additions * 2.0**-52))


@dataclass(frozen=True)
class BoundedSum:
    """A sum over records with its L2 sensitivity. The value is private until released, and the repr does not show it.

    Parameters
    ----------
    value : array of shape (P,), or (K, P) for K configurations
        The sum.
    sensitivity : float, or array of shape (K,)
        L2 sensitivity of the sum under the neighbouring relation of the fit.
    what : str
        Description of the sum, for the transcript.
    """

    value: Array
    sensitivity: Any
    what: str

    def __repr__(self) -> str:
        return f"BoundedSum({self.what!r}, shape={tuple(self.value.shape)}, sensitivity={self.sensitivity})"
