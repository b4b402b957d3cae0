"""Steps whose sums get noise, each of which depends on the noisy sums of those before."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["GridRule", "NoisySteps"]

Vector = NDArray[np.float64]


class GridRule(NamedTuple):
    """How sums with noise are rounded to the grid, as the kernels need it.

    Attributes
    ----------
    grid, ratio : float
        Distance of two points of the grid, and scale of the noise in units of it.
    tolerance : float
        Bound on the error of the noise, in units of its scale.
    largest : float
        Multiple of the grid to which sums are clamped.
    """

    grid: float
    ratio: float
    tolerance: float
    largest: float


class NoisySteps(Protocol):
    """Steps whose sums get noise. Everything in the arrays but ``noisy`` is private."""

    @property
    def sums(self) -> Vector:
        """Sums of the current step, shape (P,)."""

    @property
    def noisy(self) -> Vector:
        """The same with noise, on the grid. Those at doubtful places are set by the caller of :meth:`advance`."""

    @property
    def doubtful(self) -> NDArray[np.int64]:
        """Places of numbers that have to be decided, shape (P,)."""

    def prepare(self, num_steps: int) -> None:
        """Make ready for so many steps, whose noise is reserved."""

    def advance(self, noise: Vector, rule: GridRule, *, is_decided: bool) -> tuple[int, int]:
        """Take steps with this noise, shape (steps, P), until one has doubtful numbers.

        Returns the number of steps that are complete, and how many numbers of the next one are doubtful. With
        ``is_decided``, the first step goes on from its noisy sums.
        """
