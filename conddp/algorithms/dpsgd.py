"""DPSGD: noisy gradient descent with clipped gradients, on raw or column-scaled features."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from conddp._validate import one_of
from conddp.algorithms.algorithm import ALGORITHMS
from conddp.algorithms.descent import Descent, Phase
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum

__all__ = ["DPSGD"]


@dataclass(frozen=True, kw_only=True)
class DPSGD(Descent):
    """The baseline: noisy gradient descent without conditioning (Abadi et al. 2016).

    It accepts the settings of :class:`~conddp.algorithms.descent.Descent` and the following:

    Parameters
    ----------
    feature_scaling : {"columns", "none"}
        "columns" divides each public column by its root mean square, at no privacy cost. "none" uses raw columns, as
        the paper does. This scaling explains much of the published gap between DPSGD and Cond-DP.
    """

    summary: ClassVar[str] = "noisy gradient steps without conditioning"
    page: ClassVar[str] = "algorithms/dpsgd.md"
    takes_codes: ClassVar[bool] = True

    feature_scaling: Literal["columns", "none"] = "columns"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(("columns", "none"), feature_scaling=self.feature_scaling)

    def phases(self, spectrum: Spectrum, num_steps: int) -> tuple[Phase, ...]:
        """Return one phase without conditioning."""
        scaled = self.feature_scaling == "columns"
        make = ConditioningMatrix.column_scaling if scaled else ConditioningMatrix.identity
        return (Phase(make(spectrum), num_steps),)


ALGORITHMS.add("dpsgd", DPSGD())
