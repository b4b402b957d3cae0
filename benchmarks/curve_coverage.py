"""How often the 95 % bands of the curves of additive models contain the true curves.

Simulated tables of eight columns, of which six have an effect: a wave, a curve with a kink on a column with a long
tail, a flag, a line on a column with few values, a kink, and a jump. Prints, for each setting, the fraction of the
records whose true effect is within the band, for each column and on average, and writes it to a CSV file.

    python benchmarks/curve_coverage.py [--seeds 10]
"""

import argparse
import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp import PrivateRegressor
from conddp.errors import PrivacyWarning

Vector = NDArray[np.float64]

RESULTS = Path(__file__).parent / "results" / "curve_coverage.csv"
BAND = 1.96
EFFECTS = ("wave", "kink with a tail", "flag", "line", "kink", "jump", "nothing", "nothing")
# Records, correlation of the columns, epsilon, standard deviation of the residuals, whether the last column is private.
SETTINGS: tuple[tuple[int, float, float, float, bool], ...] = (
    (2_000, 0.0, 1.0, 0.5, False),
    (3_000, 0.3, 0.25, 1.0, False),
    (5_000, 0.5, 1.0, 0.5, False),
    (20_000, 0.3, 4.0, 0.5, False),
    (3_000, 0.3, 2.0, 0.5, True),
)


def simulate(rng: np.random.Generator, n: int, correlation: float) -> tuple[Vector, Vector]:
    """Columns, and what each adds to the label."""
    X = rng.normal(size=(n, 8)) * np.sqrt(1 - correlation) + np.sqrt(correlation) * rng.normal(size=(n, 1))
    X[:, 1], X[:, 2], X[:, 3] = np.exp(X[:, 1]), X[:, 2] > 0.3, np.round(2 * X[:, 3])
    effects = np.zeros((n, 8))
    effects[:, 0], effects[:, 1], effects[:, 2] = np.sin(2 * X[:, 0]), 0.5 * np.minimum(X[:, 1], 3), 0.8 * X[:, 2]
    effects[:, 3], effects[:, 4], effects[:, 5] = 0.2 * X[:, 3], 0.6 * np.abs(X[:, 4]), 0.5 * (X[:, 5] > 0)
    return X, effects - effects.mean(axis=0)


def measure(seed: int, n: int, correlation: float, epsilon: float, noise_std: float, private: bool) -> list[float]:
    """Coverage of the bands of the first seven columns."""
    rng = np.random.default_rng(seed)
    X, effects = simulate(rng, n, correlation)
    label = effects.sum(axis=1) + noise_std * rng.normal(size=n) + (0.5 * X[:, 7] if private else 0.0)
    hidden: Any = {7: (-3, 3)} if private else None
    model = PrivateRegressor(epsilon, label_bounds=(-5, 5), head="additive", private_columns=hidden, random_state=seed)
    curves, coverage = model.fit(X, label).curves_, []
    for column in range(7):
        curve = curves[f"x{column}"]
        values = curve.values.astype(float)
        effect, std = (np.interp(X[:, column], values, each) for each in (curve.effect, curve.std))
        coverage.append(float(np.mean(np.abs(effect - effects[:, column]) < BAND * std)))
    return coverage


def main() -> None:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["records", "correlation", "epsilon", "noise_std", "private", "seed", "column", "coverage"])
        for setting in SETTINGS:
            table = []
            for seed in range(arguments.seeds):
                table.append(measure(seed, *setting))
                for column, value in enumerate(table[-1]):
                    writer.writerow([*setting, seed, f"x{column}", f"{value:.4f}"])
            means = " ".join(f"{name} {mean:.2f}," for name, mean in zip(EFFECTS, np.mean(table, axis=0), strict=False))
            spread = np.mean(table, axis=1)
            print(setting, means, f"mean {np.mean(table):.3f}, lowest fit {spread.min():.2f}", flush=True)


if __name__ == "__main__":
    main()
