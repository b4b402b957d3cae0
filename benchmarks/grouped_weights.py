"""What equal weights within groups of directions cost on sparse columns: errors over those with a weight for each.

The columns are 16 groups of levels with Zipf-like frequencies and a number, so that each row has 17 values.

    python benchmarks/grouped_weights.py
"""

import tempfile
from pathlib import Path

import numpy as np
from speed.tables import BOUNDS, load_table, make_sparse

from conddp import Bounds, Labels, PrivacyBudget, PublicFeatures, Records
from conddp.algorithms import CondNewton
from conddp.features import standardization
from conddp.privacy.randomness import RandomSource


def main() -> None:
    """Print the error of grouped weights over that of a weight for every direction, on a few tables."""
    limit = standardization.LARGEST_IN_MEMORY
    for n, d in ((5_000, 100), (20_000, 300)):
        with tempfile.TemporaryDirectory() as folder:
            make_sparse(Path(folder), 2 * n, d)
            X, y = load_table(folder)
        train, test = slice(0, n), slice(n, None)
        records = Records(PublicFeatures(X[train]), None, Labels(y[train], Bounds(*BOUNDS)))
        for epsilon in (0.25, 1.0, 4.0):
            ratios, errors = [], []
            for seed in range(8):
                found = []
                for standardization.LARGEST_IN_MEMORY in (limit, 0):
                    budget, source = PrivacyBudget(epsilon, 1e-6), RandomSource.of(seed)
                    model = CondNewton().fit(records, budget, random_source=source).model
                    found.append(float(np.mean((model.predict(PublicFeatures(X[test])) - y[test]) ** 2)))
                standardization.LARGEST_IN_MEMORY = limit
                ratios.append(found[1] / found[0])
                errors.append(found[0] / y[test].var())
            print(
                f"{n:6} x {d:4}, epsilon {epsilon:4}: test R2 {1 - np.mean(errors):.3f}, error with groups over "
                f"without {np.mean(ratios):.4f} (standard error {np.std(ratios) / len(ratios) ** 0.5:.4f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
