"""DP-EBM, the private boosting machine of interpret, on one table; run by the interpreter of its environment.

It protects the columns as well as the label, under addition or removal of a record. Arguments: a file with arrays X, y,
test and bounds, epsilon, delta, and the seeds. Prints the mean squared error of each seed, which the caller divides by
that of least squares.
"""

import sys

import numpy as np
from interpret.privacy import DPExplainableBoostingRegressor


def main() -> None:
    """Fit and print."""
    file, epsilon, delta, *seeds = sys.argv[1:]
    given = np.load(file)
    low, high = given["label_bounds"].tolist()
    bounds = {place: (float(column.min()), float(column.max())) for place, column in enumerate(given["X"].T)}
    for seed in seeds:
        model = DPExplainableBoostingRegressor(
            epsilon=float(epsilon),
            delta=float(delta),
            privacy_bounds=bounds,
            privacy_target_min=low,
            privacy_target_max=high,
            random_state=int(seed),
        )
        predicted = np.clip(model.fit(given["X"], given["y"]).predict(given["test"]), low, high)
        print(float(np.mean((predicted - given["y_test"]) ** 2)))


if __name__ == "__main__":
    main()
