"""DPSGD and Cond-DP with the settings that are best on the test set: the rivals of the default, which tunes nothing.

For each data set, head, algorithm and epsilon, full batches with a grid of number of steps, update rule, learning rate
and clip norm are tried on one split and one seed; the best few are run on three splits and three seeds, and the lowest
mean test MSE is kept. Tuning on test labels is not private: this is an upper bound on what a user of them could get.
REPLACE, delta 1e-6, ratios to non-private least squares with intercept, predictions and test labels clamped.

    python benchmarks/rivals.py --data supercond --head mlp --out rivals.csv
"""

import argparse
import csv
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sets import load

from conddp.algorithms import DPSGD, CondDP
from conddp.algorithms.descent import Descent
from conddp.data.scaling import scale_label
from conddp.features.spectrum import Spectrum
from conddp.heads.folding import move_parameters
from conddp.heads.head import Head, Inputs, OptimizerName
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.models.fitted import FittedModel
from conddp.planning import DELTA, EPSILONS
from conddp.privacy.accounting import calibrate_noise_multiplier
from conddp.privacy.release import Curator
from conddp.research.split import Split
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import make_optimizer

SPLITS = (42, 0, 1)
SEEDS = (0, 1, 2)
ALGORITHMS: dict[str, Descent] = {"DPSGD": DPSGD(), "Cond-DP": CondDP()}
Setting = tuple[
    OptimizerName, int, float, float
]  # update rule, steps, learning rate, residual at which a typical row is clipped


def make_grid(head: Head) -> list[Setting]:
    """Settings to try."""
    residuals = (0.02, 0.05, 0.1, 0.2, 0.4)
    adam: OptimizerName = "adam"
    sgd: OptimizerName = "sgd"
    if isinstance(head, Linear):
        return [
            *((adam, *rest) for rest in product((64, 256), (0.003, 0.01, 0.03, 0.1), residuals)),
            *((sgd, *rest) for rest in product((16, 64), (0.03, 0.1, 0.25, 0.5, 1.0), residuals)),
        ]
    return [(adam, *rest) for rest in product((64, 256), (0.003, 0.01, 0.03), (0.02, 0.05, 0.1, 0.2))]


def run(
    split: Split, algorithm: Descent, head: Head, epsilon: float, settings: list[Setting], seed: int
) -> NDArray[np.float64]:
    """Test MSE of each setting; those that share rule and number of steps are trained at once."""
    train_set = split.train
    spectrum = Spectrum.of(train_set.public)
    errors = np.empty(len(settings))
    label = scale_label(train_set.label)
    for rule, num_steps in dict.fromkeys((setting[0], setting[1]) for setting in settings):
        members = [i for i, setting in enumerate(settings) if setting[:2] == (rule, num_steps)]
        C = algorithm.phases(spectrum, num_steps)[0].conditioning
        inputs = Inputs.of(np.asfortranarray(C.transform(train_set.public)))
        layout = head.layout(C.num_parameters, 0)
        noise = calibrate_noise_multiplier(epsilon, DELTA, num_steps=num_steps)
        for start in range(0, len(members), 25):
            group = members[start : start + 25]
            generators = [np.random.default_rng([seed, i]) for i in group]
            rates = [settings[i][2] for i in group]
            clips = [settings[i][3] * math.sqrt(spectrum.rank) for i in group]
            initial = np.stack([head.initialize(layout, generator) for generator in generators])
            parameters = train(
                TrainingPlan(num_steps, clips, noise, averaging=0.5),
                head,
                layout,
                inputs,
                label,
                initial,
                optimizer=make_optimizer(rule, rates),
                curator=Curator(generators, num_records=len(label), float32_without_guarantee=True),
                rng=generators[0],
            )
            folded = move_parameters(head, parameters, num_private=0, source=C)
            for i, row in zip(group, folded, strict=True):
                layout_raw = head.layout(len(C.matrix), 0)
                model = FittedModel(head, layout_raw, row, True, train_set.label.bounds)
                errors[i] = split.measure(model)
    return errors / split.optimum


def tune(splits: list[Split], algorithm: Descent, head: Head, epsilon: float) -> tuple[float, Setting]:
    """Lowest mean ratio over splits and seeds, and its setting."""
    grid = make_grid(head)
    first = run(splits[0], algorithm, head, epsilon, grid, seed=0)
    best = [grid[i] for i in np.argsort(first)[:4]]
    ratios: Any = [[run(each, algorithm, head, epsilon, best, seed) for seed in SEEDS] for each in splits]
    means = np.mean(ratios, axis=(0, 1))
    return float(means.min()), best[int(means.argmin())]


def main() -> None:
    """Print a line per algorithm and epsilon, and append it to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--head", choices=["linear", "mlp"], default="linear")
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--out", type=Path, default=Path("rivals.csv"))
    arguments = parser.parse_args()
    head: Head = Linear() if arguments.head == "linear" else MLP()
    for data in arguments.data:
        dataset = load(data)
        splits = [Split.of(dataset, random_state=state) for state in SPLITS]
        for name, epsilon in product(arguments.algorithms, EPSILONS):
            ratio, setting = tune(splits, ALGORITHMS[name], head, epsilon)
            row = [data, arguments.head, name, epsilon, f"{ratio:.4f}", *setting]
            print(*row, flush=True)
            with arguments.out.open("a", newline="") as file:
                csv.writer(file).writerow(row)


if __name__ == "__main__":
    main()
