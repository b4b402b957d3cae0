"""Algorithms that fit a model under a privacy budget."""

from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.algorithms.auto import Auto, Choice
from conddp.algorithms.cond_dp import CondDP
from conddp.algorithms.cond_newton import CondNewton
from conddp.algorithms.dpsgd import DPSGD
from conddp.algorithms.non_private import NonPrivate
from conddp.algorithms.one_shot import OneShot
from conddp.algorithms.private_mean import PrivateMean
from conddp.algorithms.randomized_labels import RandomizedLabels, RROnBins
from conddp.algorithms.request import FitRequest
from conddp.algorithms.several import JointFit
from conddp.algorithms.switch_cond_dp import SwitchCondDP
from conddp.algorithms.task import Task
from conddp.algorithms.tuned import Tuned, TuningPrice
from conddp.algorithms.weighted_llp import WeightedLLP

__all__ = [
    "ALGORITHMS",
    "DPSGD",
    "Algorithm",
    "Auto",
    "Choice",
    "CondDP",
    "CondNewton",
    "FitRequest",
    "JointFit",
    "NonPrivate",
    "OneShot",
    "PrivateMean",
    "RROnBins",
    "RandomizedLabels",
    "SwitchCondDP",
    "Task",
    "Tuned",
    "TuningPrice",
    "WeightedLLP",
]
