"""Cond-DP: DPSGD on public features multiplied by a matrix that evens out their spectrum."""

from dataclasses import dataclass
from typing import ClassVar

from conddp._validate import in_range
from conddp.algorithms.algorithm import ALGORITHMS
from conddp.algorithms.descent import Descent, Phase
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.heads.head import Head, OptimizerName

__all__ = ["CondDP"]


@dataclass(frozen=True, kw_only=True)
class CondDP(Descent):
    """The paper's Algorithm 1 (``alg:cond_dp``), with C from its Eq. ``cond_matrix``.

    Takes the settings of :class:`~conddp.algorithms.descent.Descent`, and:

    Parameters
    ----------
    exponent : float
        Of the spectrum in C: 1 evens it out, 0 leaves it.
    damping : float
        Added to the spectrum, as a fraction of its mean, before it is inverted.

    Notes
    -----
    With linear heads and public columns the default steps are plain gradient steps: the result then does not depend on
    the scaling or mixing of the columns, and 32 steps at rate 1/4 reach the optimum of an evened-out problem. Adam
    works by coordinate, breaks that, and needs more steps; it is the default where private columns, which cannot be
    conditioned, take part.
    """

    summary: ClassVar[str] = "noisy gradient steps on conditioned features"
    page: ClassVar[str] = "algorithms/cond_dp.md"

    exponent: float = 1.0
    damping: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(0.0, 1.0, exponent=self.exponent)
        in_range(0.0, float("inf"), damping=self.damping)

    def choose_optimizer(self, head: Head, *, num_private: int) -> OptimizerName:
        """Adam for networks and for private columns, whose second moments are unknown; otherwise plain steps."""
        return self.optimizer or ("adam" if num_private else head.descent.conditioned_optimizer)

    def phases(self, spectrum: Spectrum, num_steps: int) -> tuple[Phase, ...]:
        """One phase with conditioned features."""
        C = ConditioningMatrix.from_spectrum(spectrum, exponent=self.exponent, damping=self.damping)
        return (Phase(C, num_steps),)


ALGORITHMS.add("cond-dp", CondDP())
