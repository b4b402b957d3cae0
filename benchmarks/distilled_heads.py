"""Nonlinear heads beside the learned features that they are distilled from.

Ratio of test MSE to non-private least squares with intercept, predictions of both clamped to the label bounds; REPLACE,
delta 1e-6. One split (random_state 42), mean over three noise seeds. Every head learns the same
released predictions. "before" is an MLP 16-8 by random features and Gauss-Newton steps, which cannot be measured any
more; its numbers stay in the file.

    python benchmarks/distilled_heads.py run [--only wine]
    python benchmarks/distilled_heads.py show
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from learned_heads import simulate
from numpy.typing import NDArray
from sets import load
from threadpoolctl import threadpool_limits

from conddp.algorithms import CondNewton
from conddp.heads import MLP, FactorizationMachine, Head, Learned
from conddp.models.fitted import FittedModel
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.randomness import RandomSource
from conddp.research.split import Split
from conddp.training.distillation import Student, mix_rows

RESULTS = Path(__file__).parent / "results" / "distilled_heads.csv"
EPSILONS = (0.25, 1.0, 4.0)
SEEDS = (0, 1, 2)
SETS = ("ca_housing", "energy", "wine", "supercond", "Friedman 1 2000", "Friedman 3 2000", "product 2000")
HEADS: dict[str, Head] = {"MLP 16-8": MLP(), "MLP 64-32": MLP((64, 32)), "fm": FactorizationMachine()}
MODELS = ("before", "learned", *HEADS)
FIELDS = ("data", "epsilon", "model", "ratio")


def load_split(name: str) -> Split:
    """The split of a set, real or simulated."""
    function, _, size = name.rpartition(" ")
    return Split.of(simulate(function, int(size))[0] if size.isdigit() else load(name))


def distil(split: Split, learned: FittedModel, head: Head, seed: int) -> float:
    """Test MSE of a head that learns predictions of a model."""
    public, bounds = split.train.public, split.train.label.bounds
    mixed = mix_rows(public)
    student = Student.of(head, public, constant=True, mixed=mixed)
    parts = [learned.predict(rows) for rows in (public, mixed) if rows is not None]
    targets: NDArray[np.float64] = (np.concatenate(parts) - bounds.midpoint) / bounds.width
    student.learn(targets, np.random.default_rng(seed))
    parameters = student.export()
    layout = head.layout(len(public.names) + 1, 0)
    return split.measure(FittedModel(head, layout, parameters, True, bounds))


def measure(name: str) -> None:
    """Measure all models on one set."""
    split = load_split(name)
    for epsilon in EPSILONS:
        ratios = defaultdict(list)
        for seed in SEEDS:
            source, budget = RandomSource.of(seed), PrivacyBudget(epsilon, 1e-6)
            learned = CondNewton().fit(split.train, budget, head=Learned(), random_source=source).model
            ratios["learned"].append(split.measure(learned) / split.optimum)
            for model, head in HEADS.items():
                ratios[model].append(distil(split, learned, head, seed) / split.optimum)
        with RESULTS.open("a", newline="") as file:
            for model, each in ratios.items():
                row = [name, epsilon, model, f"{np.mean(each):.4f}"]
                csv.writer(file).writerow(row)
                print(*row, flush=True)


def show() -> None:
    """Print a table in Markdown."""
    with RESULTS.open() as file:
        cells = {
            (row["data"], float(row["epsilon"]), row["model"]): float(row["ratio"]) for row in csv.DictReader(file)
        }
    print("| | epsilon | " + " | ".join(MODELS) + " |\n" + "|---" * (len(MODELS) + 2) + "|")
    for name in SETS:
        for epsilon in EPSILONS:
            keys = [(name, epsilon, model) for model in MODELS]
            numbers = (f"{cells[key]:.3f}" if key in cells else "" for key in keys)
            print(f"| {name} | {epsilon:g} | " + " | ".join(numbers) + " |")


def main() -> None:
    """Measure or show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("--only", nargs="+", default=SETS, choices=SETS)
    arguments = parser.parse_args()
    if arguments.what == "run":
        with threadpool_limits(1):
            for name in arguments.only:
                measure(name)
    else:
        show()


if __name__ == "__main__":
    main()
