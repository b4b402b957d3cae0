"""Cond-DP: DPSGD on public features multiplied by a matrix that flattens their spectrum."""

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
    """Noisy gradient descent on conditioned public features.

    This is the paper's Algorithm 1 (``alg:cond_dp``), with C from its Eq. ``cond_matrix``. It accepts the settings of
    :class:`~conddp.algorithms.descent.Descent` and the following:

    Parameters
    ----------
    exponent : float
        Exponent of the spectrum in C: 1 flattens the spectrum, 0 leaves it unchanged.
    damping : float
        Value added to the spectrum before it is inverted, as a fraction of its mean.

    Notes
    -----
    For linear heads on public columns the default optimizer is plain gradient descent. The result then does not depend
    on scaling or linear mixing of the columns, and 32 steps with learning rate 1/4 reach the optimum of the conditioned
    problem. Adam scales each coordinate separately, which breaks this invariance, and needs more steps. It is the
    default with private columns, because those cannot be conditioned.
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
        """Return Adam for networks and for private columns, whose second moments are unknown; otherwise SGD."""
        return self.optimizer or ("adam" if num_private else head.descent.conditioned_optimizer)

    def phases(self, spectrum: Spectrum, num_steps: int) -> tuple[Phase, ...]:
        """Return one phase on conditioned features."""
        C = ConditioningMatrix.from_spectrum(spectrum, exponent=self.exponent, damping=self.damping)
        return (Phase(C, num_steps),)


ALGORITHMS.add("cond-dp", CondDP())
