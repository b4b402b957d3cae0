"""Simulated tables in files, which every process of a work reads."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["BOUNDS", "Kind", "load_table", "make_sparse", "write_table"]

Kind = Literal["linear", "curved"]
BOUNDS = (-10.0, 10.0)  # of the label
ROWS = 100_000  # made at once
NUM_GROUPS = 16


def write_table(folder: Path, n: int, d: int, *, kind: Kind = "linear") -> None:
    """Independent normal columns, and a label with noise of variance one."""
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(folder / "X.npy", mode="w+", dtype=np.float64, shape=(n, d))
    y = np.empty(n)
    weights = rng.normal(size=d) / np.sqrt(d)
    for start in range(0, n, ROWS):
        part = rng.standard_normal(size=(min(ROWS, n - start), d))
        signal = part @ weights
        if kind == "curved":
            signal = np.sin(2 * signal) + part[:, 0] * part[:, 1] / 2
        X[start : start + ROWS] = part
        y[start : start + ROWS] = np.clip(signal + rng.standard_normal(len(part)), *BOUNDS)
    X.flush()
    np.save(folder / "y.npy", y)


def load_table(folder: str | Path, num_rows: int | None = None) -> tuple[Any, NDArray[np.float64]]:
    """Columns, dense or sparse, and labels, all in memory; the first ``num_rows`` if given."""
    folder = Path(folder)
    y = np.load(folder / "y.npy")[:num_rows]
    if (folder / "X.npz").is_file():
        import scipy.sparse as sp

        return sp.csr_array(sp.load_npz(folder / "X.npz"))[:num_rows], y
    return np.array(np.load(folder / "X.npy", mmap_mode="r")[:num_rows]), y


def make_sparse(folder: Path, n: int, d: int) -> None:
    """Write 16 groups of levels with Zipf-like frequencies and a number far from zero: 17 values per row."""
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    fractions = np.geomspace(1, 100, NUM_GROUPS)
    sizes = np.maximum(2, (fractions / fractions.sum() * (d - 1)).astype(int))
    sizes[-1] += d - 1 - sizes.sum()
    positions = np.empty((n, NUM_GROUPS + 1), dtype=np.int32)
    start = 0
    for group, size in enumerate(sizes.tolist()):
        frequencies = 1 / np.arange(1.0, size + 1)
        positions[:, group] = start + rng.choice(size, size=n, p=frequencies / frequencies.sum())
        start += size
    positions[:, -1] = d - 1
    values = np.ones(positions.shape)
    values[:, -1] = 20_000 + rng.normal(size=n)
    X = sp.csr_array((values.ravel(), positions.ravel(), np.arange(n + 1) * (NUM_GROUPS + 1)), shape=(n, d))
    effects = np.append(rng.normal(scale=0.5, size=d - 1), 0.5)
    signal = X @ effects - 0.5 * 20_000
    sp.save_npz(folder / "X.npz", X, compressed=False)
    np.save(folder / "y.npy", np.clip(signal - signal.mean() + rng.normal(size=n), *BOUNDS))
