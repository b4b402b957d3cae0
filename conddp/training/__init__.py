"""Noisy gradient descent: sampling, clipping, releases and optimizers."""

from conddp.training.clipping import Workspace, compute_clipped_sum
from conddp.training.distillation import Student
from conddp.training.loop import Progress, TrainingPlan, train
from conddp.training.optimizers import SGD, Adam, Optimizer, make_optimizer
from conddp.training.released import fit_released_labels
from conddp.training.sampling import PoissonSampler

__all__ = [
    "Adam",
    "Optimizer",
    "PoissonSampler",
    "Progress",
    "SGD",
    "Student",
    "TrainingPlan",
    "Workspace",
    "compute_clipped_sum",
    "fit_released_labels",
    "make_optimizer",
    "train",
]
