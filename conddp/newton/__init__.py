"""Noisy Newton steps on whitened rows: the engine of CondNewton."""

from conddp.newton.posterior import Learner, Level, ResidualScale, Track
from conddp.newton.prior import Belief, SignalPrior
from conddp.newton.private_columns import Moments, add_private_directions, release_moments
from conddp.newton.release import Release
from conddp.newton.run import NewtonRun, run_newton
from conddp.newton.schedule import NewtonPlan, allot_gains, choose_window

__all__ = [
    "Belief",
    "Learner",
    "Level",
    "Moments",
    "NewtonPlan",
    "NewtonRun",
    "Release",
    "ResidualScale",
    "SignalPrior",
    "Track",
    "add_private_directions",
    "allot_gains",
    "choose_window",
    "release_moments",
    "run_newton",
]
