"""The algorithms, a recipe each."""

from conddp.algorithms.cond_dp import CondDP
from conddp.algorithms.dpsgd import DPSGD
from conddp.algorithms.switch_cond_dp import SwitchCondDP

__all__ = ["DPSGD", "CondDP", "SwitchCondDP"]
