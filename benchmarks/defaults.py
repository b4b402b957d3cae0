"""Measure the settings that algorithms use where the user names none.

Every line is one setting: the ratio of test MSE to non-private least squares (both clamped to the label bounds, split
random_state=42, REPLACE, delta 1e-6) at epsilon 0.25, 1 and 4 on each data set, and the geometric mean of all.

    python benchmarks/defaults.py linear | dpsgd | fm | mlp | switch | private [--seeds 3]
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from sets import load

from conddp.algorithms import DPSGD, CondDP, SwitchCondDP
from conddp.algorithms.descent import Descent
from conddp.heads.factorization import FactorizationMachine
from conddp.heads.head import Head
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.planning import EPSILONS
from conddp.research.split import Split

COARSE = EPSILONS[::2]  # 0.25, 1 and 4
LINEAR_SETS = ("wine", "ca_housing", "energy", "boston_housing", "synthetic")
NONLINEAR_SETS = ("ca_housing", "energy", "supercond", "toms_hardware")
PRIVATE_SETS = ("randhie", "semi-private wine", "semi-private ca_housing", "semi-private energy")


def candidates(what: str) -> Iterator[tuple[str, Descent]]:
    """Settings to try."""
    steps: dict[str, list[tuple[Any, int, float]]] = {
        "linear": [("sgd", t, r) for t in (8, 16, 32, 64) for r in (1.0, 0.5, 0.25, 0.1)]
        + [("adam", t, r) for t in (64, 128, 256) for r in (0.01, 0.03)],
        "dpsgd": [("adam", t, r) for t in (64, 128, 256) for r in (0.01, 0.03)]
        + [("sgd", t, r) for t in (64, 128) for r in (0.05, 0.1)],
        "fm": [("sgd", t, r) for t in (64, 128) for r in (0.1, 0.3)] + [("adam", 256, 0.01)],
        "mlp": [("adam", t, r) for t in (128, 256) for r in (0.01, 0.03)] + [("sgd", 128, 0.3)],
        "private": [("adam", t, r) for t in (64, 128, 256) for r in (0.01, 0.03)]
        + [("sgd", t, r) for t in (128, 256) for r in (0.06, 0.12)],
    }
    if what == "switch":
        yield "DPSGD", DPSGD()
        yield "Cond-DP", CondDP()
        for switch in (0.25, 0.5, 0.75):
            yield f"switch at {switch}, carry", SwitchCondDP(switch=switch, optimizer_state="carry")
            yield f"switch at {switch}, reset", SwitchCondDP(switch=switch, optimizer_state="reset")
        return
    kind = DPSGD if what == "dpsgd" else CondDP
    for optimizer, num_steps, rate in steps[what]:
        yield (
            f"{optimizer} {num_steps} steps at {rate}",
            kind(optimizer=optimizer, num_steps=num_steps, learning_rate=rate),
        )


def main() -> None:
    """Print a line per setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["linear", "dpsgd", "fm", "mlp", "switch", "private"])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    names = {"linear": LINEAR_SETS, "dpsgd": LINEAR_SETS, "private": PRIVATE_SETS}.get(arguments.what, NONLINEAR_SETS)
    heads: dict[str, Head] = {"fm": FactorizationMachine(), "mlp": MLP(), "switch": MLP()}
    head = heads.get(arguments.what, Linear())
    splits = {name: Split.of(load(name)) for name in names}
    print(f"{'setting':<28}" + "".join(f"{name:>26}" for name in names) + f"{'all':>8}")
    for title, algorithm in candidates(arguments.what):
        ratios = [
            split.sweep({title: algorithm}, epsilons=COARSE, seeds=range(arguments.seeds), head=head).compute_ratios(
                title
            )
            for split in splits.values()
        ]
        cells = "".join(f"{' '.join(f'{ratio:.3f}' for ratio in row):>26}" for row in ratios)
        print(f"{title:<28}{cells}{np.exp(np.mean(np.log(ratios))):>8.3f}", flush=True)


if __name__ == "__main__":
    main()
