"""Derive the constants of CondNewton on simulated labels: no real label takes part.

Every line is one setting of :class:`conddp.newton.schedule.NewtonPlan`: for each public design the geometric mean,
over families of simulated labels and epsilon 0.25, 1 and 4, of the expected squared error over that of non-private
least squares; then the geometric mean over designs, and the worst single cell. REPLACE, delta 1e-6.

    python benchmarks/newton_rules.py [--seeds 1]
"""

import argparse
from collections.abc import Iterator
from itertools import product

import numpy as np
from sets import load

from conddp.data.parts import PublicFeatures
from conddp.data.scaling import scale_label
from conddp.features.whitening import WhitenedRows
from conddp.labels.simulation import FAMILIES, Simulation, simulate
from conddp.newton.run import run_newton
from conddp.newton.schedule import NewtonPlan
from conddp.planning import DELTA, EPSILONS
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.release import Curator

COARSE = EPSILONS[::2]  # 0.25, 1 and 4
DESIGNS = (("wine", 4000), ("ca_housing", 10000), ("energy", 10000), ("boston_housing", 400), ("supercond", 3400))


def plans() -> Iterator[NewtonPlan]:
    """Settings to try."""
    for num_steps, growth, penalty, decay in product((8, 12, 24), (1.0, 1.1), (0.003, 0.01, 0.03), (2.0, 4.0)):
        yield NewtonPlan(num_steps=num_steps, growth=growth, clipping_penalty=penalty, penalty_decay=decay)


def compute_ratio(simulation: Simulation, rows: WhitenedRows, plan: NewtonPlan, epsilon: float, seed: int) -> float:
    """Expected squared error of one private fit over that of least squares."""
    label = scale_label(simulation.records.label)
    run = run_newton(
        rows,
        label,
        (-0.5, 0.5),
        np.zeros(rows.num_directions),
        mu=calibrate_gaussian_mu(epsilon, DELTA),
        plan=plan,
        curator=Curator(np.random.default_rng(seed), num_records=len(label)),
    )
    exact = rows.values.T @ label / len(label)
    private, best = (
        simulation.compute_error(np.clip(rows.values @ each + 0.5, 0.0, 1.0)) for each in (run.coefficients, exact)
    )
    return private / best


def main() -> None:
    """Print a line per setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    cases: dict[str, list[tuple[Simulation, WhitenedRows]]] = {}
    for name, num_records in DESIGNS:
        rng = np.random.default_rng(0)
        whole = load(name).public.values
        public = PublicFeatures(whole[rng.permutation(len(whole))[:num_records]])
        rows = WhitenedRows.of(public)
        cases[name] = [(simulate(public, family, rng), rows) for family in FAMILIES]
    print(f"{'steps growth penalty decay':<30}" + "".join(f"{name:>16}" for name in cases) + f"{'all':>8}{'worst':>8}")
    for plan in plans():
        ratios = [
            [
                compute_ratio(simulation, rows, plan, epsilon, seed)
                for simulation, rows in each
                for epsilon in COARSE
                for seed in range(arguments.seeds)
            ]
            for each in cases.values()
        ]
        title = f"{plan.num_steps:>5} {plan.growth:>6} {plan.clipping_penalty:>7} {plan.penalty_decay:>5}"
        cells = "".join(f"{np.exp(np.mean(np.log(each))):>16.4f}" for each in ratios)
        worst = max(max(each) for each in ratios)
        print(f"{title:<30}{cells}{np.exp(np.mean(np.log(ratios))):>8.4f}{worst:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
