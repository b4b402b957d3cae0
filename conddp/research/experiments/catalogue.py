"""The experiments of the paper, declared."""

import math
from dataclasses import replace

import numpy as np

from conddp.algorithms import DPSGD, Auto, CondDP, RROnBins, SwitchCondDP, WeightedLLP
from conddp.heads.learned import Learned
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.planning.budgets import EPSILONS
from conddp.research.experiments.experiment import Experiment, Method
from conddp.research.experiments.search import Search, Trial
from conddp.research.experiments.tuning import Schedule

__all__ = ["EXPERIMENTS", "make_quick"]

# Raw features have rows of any norm, so they need a wider range of learning rates.
CONDITIONED = {
    "learning_rate": np.geomspace(1e-4, 1.0, 14).tolist(),
    "clip_residual": np.geomspace(3e-3, 10.0, 14).tolist(),
    "initial_scale": [1e-3, 0.1],
}
RAW = {**CONDITIONED, "learning_rate": np.geomspace(1e-6, 1.0, 18).tolist()}
EVERYTHING_ONCE = ((1.0, 16),)


def _linear_methods(rungs: tuple[tuple[float, int], ...], finalists: int) -> tuple[Method, ...]:
    conditioned = Search.over_grid(CONDITIONED, rungs=rungs, finalists=finalists)
    raw = Search.over_grid(RAW, rungs=rungs, finalists=finalists)
    switching = Search.over_grid(
        {**CONDITIONED, "initial_scale": [1e-3], "switch": [0.1, 0.25, 0.5]}, rungs=rungs, finalists=finalists
    )
    return (
        Method("DPSGD", DPSGD(), raw, tuned=DPSGD(feature_scaling="none")),
        Method("DPSGD, columns scaled", DPSGD(), conditioned, untuned=False),
        Method("Cond-DP", CondDP(), conditioned),
        Method("Switch-Cond-DP", SwitchCondDP(), switching),
        Method("RR-on-Bins", RROnBins(recalibrate=False)),
        Method("Weighted-LLP", WeightedLLP()),
        Method("default", Auto()),
    )


def _mlp_methods(rungs: tuple[tuple[float, int], ...], finalists: int, num_trials: int) -> tuple[Method, ...]:
    ranges = {"learning_rate": (1e-4, 2e-3), "clip_residual": (3e-3, 0.3), "initial_scale": (0.02, 0.3)}
    plain = Search.at_random(ranges, num_trials, rungs=rungs, finalists=finalists)
    switching = Search.at_random(
        {**ranges, "switch": [0.005, 0.02, 0.1, 0.3]}, num_trials, rungs=rungs, finalists=finalists
    )
    return (
        Method("DPSGD", DPSGD(), plain),
        Method("Cond-DP", CondDP()),  # the paper has no such line for MLP models
        Method("Switch-Cond-DP", SwitchCondDP(), switching),
        Method("RR-on-Bins", RROnBins(recalibrate=False)),
        Method("default", Auto()),
        Method("default, linear head", Auto(), head=Linear()),
        Method("default, learned features", Auto(), head=Learned()),
    )


SYNTHETIC = Experiment(
    "synthetic",
    "Linear models on synthetic data with spectrum 1/i^p",
    "",
    ("synthetic 0", "synthetic 0.2", "synthetic 0.5", "synthetic 1"),
    Linear(),
    Schedule(1024),
    _linear_methods(((0.125, 60), (0.5, 12)), finalists=4),
)

LINEAR_REAL = Experiment(
    "linear-real",
    "Linear models on real data",
    "linear_real",
    ("boston_housing", "wine", "energy", "ca_housing"),
    Linear(),
    Schedule(128),
    _linear_methods(EVERYTHING_ONCE, finalists=16),
)

MLP_REAL = Experiment(
    "mlp-real",
    "MLP models (16, 8) on real data",
    "mlp_real",
    ("supercond", "toms_hardware", "wave"),
    MLP(hidden=(16, 8), embedding=16),
    Schedule(1000, batch_size=100),
    _mlp_methods(((1 / 4, 8), (1 / 2, 3)), finalists=3, num_trials=24),
    reference="lowest cell",
)

EXPERIMENTS = {each.name: each for each in (SYNTHETIC, LINEAR_REAL, MLP_REAL)}


def make_quick(experiment: Experiment) -> Experiment:
    """A quick version: fewer budgets, trials, seeds and epochs. For a first look, not for conclusions."""

    def thin(method: Method) -> Method:
        if method.search is None:
            return method
        trials = _spread(method.search.trials, 64 if experiment.schedule.batch_size is None else 8)
        return replace(method, search=Search(trials, ((0.5, 2),), finalists=1))

    num_epochs = experiment.schedule.num_epochs
    shorter = replace(experiment.schedule, num_epochs=min(num_epochs, 128 if experiment.table != "mlp_real" else 10))
    return replace(
        experiment,
        methods=tuple(thin(method) for method in experiment.methods),
        epsilons=(*EPSILONS[::2], math.inf),
        schedule=shorter,
        num_seeds=2,
    )


def _spread(trials: tuple[Trial, ...], number: int) -> tuple[Trial, ...]:
    """A random subset of the trials."""
    chosen = np.random.default_rng(0).permutation(len(trials))[:number]
    return tuple(trials[index] for index in sorted(chosen))
