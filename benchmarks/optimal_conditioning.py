"""Cond-DP with the paper's C and with the C of least noise, default settings: ratio of test MSE to least squares.

REPLACE, delta 1e-6, linear head, mean over three splits and three noise seeds. The numbers are in docs/theory.md.

    python benchmarks/optimal_conditioning.py
"""

from dataclasses import dataclass

import numpy as np
from rivals import SPLITS

from conddp.algorithms import CondDP
from conddp.algorithms.descent import Phase
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.research.datasets import load_dataset
from conddp.research.evaluation import Evaluation

SETS = ("wine", "energy", "ca_housing", "boston_housing", "supercond")
EPSILONS = (0.25, 1.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class WithMatrix(CondDP):
    """Cond-DP with a given C."""

    conditioning: ConditioningMatrix

    def phases(self, spectrum: Spectrum, num_steps: int) -> tuple[Phase, ...]:
        """One phase with features conditioned by it."""
        return (Phase(self.conditioning, num_steps),)


def main() -> None:
    for name in SETS:
        ratios: dict[str, list[list[float]]] = {"paper's": [], "optimal": []}
        for split in SPLITS:
            evaluation = Evaluation.of(load_dataset(name), random_state=split)
            optimal = WithMatrix(conditioning=ConditioningMatrix.optimal(evaluation.train.public))
            for kind, algorithm in (("paper's", CondDP()), ("optimal", optimal)):
                ratios[kind].append([evaluation.compute_ratio(algorithm, each, num_seeds=3) for each in EPSILONS])
        for kind, values in ratios.items():
            print(f"{name:15} {kind:8} " + " ".join(f"{value:.3f}" for value in np.mean(values, axis=0)), flush=True)


if __name__ == "__main__":
    main()
