"""The algorithms, a recipe each."""

from conddp.algorithms.auto import Auto
from conddp.algorithms.cond_dp import CondDP
from conddp.algorithms.cond_newton import CondNewton
from conddp.algorithms.dpsgd import DPSGD
from conddp.algorithms.non_private import NonPrivate
from conddp.algorithms.one_shot import OneShot
from conddp.algorithms.private_mean import PrivateMean
from conddp.algorithms.randomized_labels import RandomizedLabels, RROnBins
from conddp.algorithms.switch_cond_dp import SwitchCondDP
from conddp.algorithms.weighted_llp import WeightedLLP

__all__ = [
    "DPSGD",
    "Auto",
    "CondDP",
    "CondNewton",
    "NonPrivate",
    "OneShot",
    "PrivateMean",
    "RROnBins",
    "RandomizedLabels",
    "SwitchCondDP",
    "WeightedLLP",
]
