"""Simulated rows written to a folder, as converted rows would be."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from conddp._validate import in_range, positive_integer
from conddp.research.criteo.columns import NUM_BINS, ROW_GROUP
from conddp.research.criteo.folder import Manifest, PartFolder, is_for_test
from conddp.research.criteo.simulation import simulate_piece

__all__ = ["write_simulation"]


def write_simulation(
    out: Path | str,
    num_rows: int,
    *,
    seed: int = 0,
    num_bins: int = NUM_BINS,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    overwrite: bool = False,
    callback: Callable[[int, int], object] | None = None,
) -> Manifest:
    """Write simulated rows with a sale as Parquet parts, split into training and test rows.

    A run that was killed continues where it stopped.

    Privacy
        Nothing is read: the rows are made up from published figures.

    Parameters
    ----------
    out : path
        Folder for ``train/part-*.parquet``, ``test/part-*.parquet``, ``schema.toml`` and ``manifest.json``.
    num_rows, seed, num_bins
        See :func:`~conddp.research.criteo.simulation.simulate_criteo`.
    test_fraction : float
        Expected fraction of test rows; each row is drawn on its own.
    split_seed : int
        Of the split.
    overwrite : bool
        Whether to delete the parts of another source in the same folder.
    callback : callable, optional
        Called with the rows so far and in all.

    Raises
    ------
    OutputExists
        If the folder holds something else.
    """
    positive_integer(num_rows=num_rows, num_bins=num_bins)
    in_range(0, 2**31 - 1, seed=seed, split_seed=split_seed, num_bins=num_bins)
    in_range(0.0, 1.0, test_fraction=test_fraction)
    source = {"kind": "simulation", "seed": seed, "rows": num_rows}
    folder = PartFolder.start(
        Path(out), Manifest(source, num_bins, float(test_fraction), split_seed), overwrite=overwrite
    )
    num_pieces = -(-num_rows // ROW_GROUP)
    for piece in range(folder.manifest.position, num_pieces):
        start = piece * ROW_GROUP
        rows = simulate_piece(piece, num_rows=min(ROW_GROUP, num_rows - start), seed=seed, num_bins=num_bins)
        for_test = is_for_test(np.arange(start, start + len(rows)), test_fraction=test_fraction, seed=split_seed)
        done = start + len(rows)
        folder.add(rows, for_test, replace(folder.manifest, position=piece + 1, num_lines=done))
        if callback is not None:
            callback(done, num_rows)
    if not folder.manifest.finished:
        folder.record(replace(folder.manifest, counts={"rows": num_rows}, finished=True))
    return folder.manifest
