"""Noisy Newton steps on whitened rows, used by CondNewton."""

from conddp.newton.clipping_bias import ClippingBias
from conddp.newton.joint_run import RunStart, run_jointly
from conddp.newton.posterior import Measurement, ResidualScale, RunningMean, RunningPosterior, UnclampedMean
from conddp.newton.prior import Posterior, SignalPrior
from conddp.newton.private_columns import Moments, PrivateRows, bound_moments, release_moments
from conddp.newton.release import ResidualQuery, Rows, StepEstimate, release_residuals
from conddp.newton.run import NewtonRun, count_noise_records, run_newton
from conddp.newton.schedule import NewtonPlan, allot_weights, choose_clip_norm

__all__ = [
    "ClippingBias",
    "Measurement",
    "Moments",
    "NewtonPlan",
    "NewtonRun",
    "Posterior",
    "PrivateRows",
    "ResidualQuery",
    "ResidualScale",
    "Rows",
    "RunStart",
    "RunningMean",
    "RunningPosterior",
    "SignalPrior",
    "StepEstimate",
    "UnclampedMean",
    "allot_weights",
    "bound_moments",
    "choose_clip_norm",
    "count_noise_records",
    "release_moments",
    "release_residuals",
    "run_jointly",
    "run_newton",
]
