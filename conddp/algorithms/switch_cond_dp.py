"""Switch-Cond-DP: Cond-DP for the first steps, then DPSGD with C folded into the input layer."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from conddp._validate import in_range, one_of
from conddp.algorithms.algorithm import ALGORITHMS
from conddp.algorithms.cond_dp import CondDP
from conddp.algorithms.descent import Phase
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.heads.head import Head, OptimizerName
from conddp.training.optimizers import Optimizer

__all__ = ["SwitchCondDP"]


@dataclass(frozen=True, kw_only=True)
class SwitchCondDP(CondDP):
    """Cond-DP followed by DPSGD: the paper's hybrid (Sec. "More Complex Models").

    Conditioning helps early in training and can hurt later. Bins of categories cannot be multiplied by C: a head that
    looks them up starts from a table made from the public bins instead, as in the paper, and all steps are those of
    DPSGD. This algorithm accepts the settings of
    :class:`~conddp.algorithms.cond_dp.CondDP` and the following:

    Parameters
    ----------
    switch : float
        Fraction of the steps after which C is folded into the input layer. Predictions do not change at the switch.
    feature_scaling : {"columns", "none"}
        Scaling of the features after the switch, as in :class:`~conddp.algorithms.dpsgd.DPSGD`.
    optimizer_state : {"reset", "carry"}
        Whether to reset the moments of Adam at the switch or carry them over. Resetting was slightly better wherever
        it made a difference (``benchmarks/defaults.py switch``). The moments are always reset if the number of
        parameters changes.
    """

    summary: ClassVar[str] = "Cond-DP first, then DP-SGD"
    page: ClassVar[str] = "algorithms/switch_cond_dp.md"
    takes_codes: ClassVar[bool] = True
    conditions_start: ClassVar[bool] = True

    switch: float = 0.25
    feature_scaling: Literal["columns", "none"] = "columns"
    optimizer_state: Literal["reset", "carry"] = "reset"

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(0.0, 1.0, switch=self.switch)
        one_of(("columns", "none"), feature_scaling=self.feature_scaling)
        one_of(("carry", "reset"), optimizer_state=self.optimizer_state)

    def choose_optimizer(self, head: Head, *, num_private: int) -> OptimizerName:
        """Return Adam by default, since no single SGD learning rate suits both conditioned and raw features."""
        return self.optimizer or "adam"

    def phases(self, spectrum: Spectrum, num_steps: int) -> tuple[Phase, ...]:
        """Return a phase with conditioning and one without; a phase with zero steps is left out."""
        scaled = self.feature_scaling == "columns"
        plain = ConditioningMatrix.column_scaling if scaled else ConditioningMatrix.identity
        C = ConditioningMatrix.from_spectrum(spectrum, exponent=self.exponent, damping=self.damping)
        conditioned = round(self.switch * num_steps)
        both = (Phase(C, conditioned), Phase(plain(spectrum), num_steps - conditioned))
        return tuple(phase for phase in both if phase.num_steps > 0)

    def code_phases(self, spectrum: Spectrum, num_steps: int) -> tuple[Phase, ...]:
        """Return one phase without conditioning."""
        return replace(self, switch=0.0).phases(spectrum, num_steps)

    def switch_at(self, fraction: float) -> "SwitchCondDP":
        """Return this algorithm, switching after the given fraction of the steps."""
        return replace(self, switch=fraction)

    def next_optimizer(self, used: Optimizer, fresh: Optimizer, *, same_shape: bool) -> Optimizer:
        """Return the optimizer after the switch, with moments carried over or reset as ``optimizer_state`` says."""
        return used if self.optimizer_state == "carry" and same_shape else fresh


ALGORITHMS.add("switch-cond-dp", SwitchCondDP())
