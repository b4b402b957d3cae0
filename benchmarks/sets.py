"""Data sets of the benchmarks, by name."""

import numpy as np

from conddp.data import Dataset, PrivateFeatures, PublicFeatures
from conddp.datasets import load_dataset, make_synthetic
from conddp.demo import load_randhie
from conddp.schema import Bounds

PRIVATE_COLUMNS: dict[str, dict[int, tuple[float, float]]] = {
    "wine": {1: (0, 1.5), 7: (0.98, 1.04), 9: (0, 1.2), 10: (7, 16)},
    "ca_housing": {0: (0, 15), 1: (0, 52)},
    "energy": {0: (0, 50), 1: (15, 30), 2: (25, 60), 3: (15, 30), 4: (25, 60), 5: (15, 30)},
}


def load(name: str) -> Dataset:
    """A data set by name; counts are taken to their logarithm, which is free for public columns."""
    if name.startswith("synthetic"):
        power = name.removeprefix("synthetic").strip() or "1"
        return make_synthetic(power=float(power))
    if name == "randhie":
        return load_randhie()
    if name.startswith("semi-private "):
        name = name.removeprefix("semi-private ")
        whole, columns = load_dataset(name), PRIVATE_COLUMNS[name]
        X = whole.public.values
        public = [column for column in range(X.shape[1]) if column not in columns]
        bounds = tuple(Bounds(*pair) for pair in columns.values())
        return Dataset(PublicFeatures(X[:, public]), PrivateFeatures(X[:, list(columns)], bounds), whole.label)
    dataset = load_dataset(name)
    if name == "toms_hardware":
        return Dataset(PublicFeatures(np.log1p(np.maximum(dataset.public.values, 0))), None, dataset.label)
    return dataset
