"""Cond-DP with the paper's C and with the C of least noise, default settings: ratio of test MSE to least squares.

REPLACE, delta 1e-6, linear head, mean over three splits and three noise seeds. The numbers are in docs/theory.md.

    python benchmarks/optimal_conditioning.py
"""

from dataclasses import dataclass

import numpy as np
from rivals import SEEDS, SPLITS

from conddp.algorithms import CondDP
from conddp.algorithms.descent import Phase
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.planning import EPSILONS
from conddp.research.datasets import load_dataset
from conddp.research.split import Split

SETS = ("wine", "energy", "ca_housing", "boston_housing", "supercond")
COARSE = EPSILONS[::2]  # 0.25, 1 and 4


@dataclass(frozen=True, kw_only=True)
class WithMatrix(CondDP):
    """Cond-DP with a given C."""

    conditioning: ConditioningMatrix

    def phases(self, spectrum: Spectrum, num_steps: int) -> tuple[Phase, ...]:
        """One phase with features conditioned by it."""
        return (Phase(self.conditioning, num_steps),)


def main() -> None:
    for name in SETS:
        sweeps = []
        for state in SPLITS:
            split = Split.of(load_dataset(name), random_state=state)
            optimal = WithMatrix(conditioning=ConditioningMatrix.optimal(split.train.public))
            sweeps.append(split.sweep({"paper's": CondDP(), "optimal": optimal}, epsilons=COARSE, seeds=SEEDS))
        for kind in sweeps[0].errors:
            ratios = np.mean([sweep.compute_ratios(kind) for sweep in sweeps], axis=0)
            print(f"{name:15} {kind:8} " + " ".join(f"{ratio:.3f}" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main()
