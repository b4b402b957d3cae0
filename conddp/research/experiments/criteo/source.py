"""Where the records of the Criteo experiment come from: a converted log if there is one, the simulator otherwise."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from conddp.cache import cache_folder
from conddp.research.criteo.columns import NUM_BINS
from conddp.research.criteo.folder import PartFolder
from conddp.research.criteo.loading import BinnedRows, load_criteo_bins
from conddp.research.criteo.profile import NUM_SALES
from conddp.research.criteo.simulated_folder import write_simulation
from conddp.research.criteo.simulation import simulate_piece
from conddp.research.experiments.criteo.table import CriteoTable

__all__ = ["CriteoSource", "find_source", "load_table"]


@dataclass(frozen=True)
class CriteoSource:
    """Records to measure on.

    Parameters
    ----------
    folder : str
        Folder of converted rows; empty for simulated rows.
    num_rows : int
        Training and test rows together.
    real : bool
        Whether the folder holds the published log, all of it, with the paper's number of bins.
    digest : str
        Of the rows, so that results for other rows are not taken for results for these.
    """

    folder: str
    num_rows: int
    real: bool
    digest: str

    @property
    def num_train(self) -> int:
        """About how many of the rows are for training."""
        return round(0.8 * self.num_rows)

    @property
    def description(self) -> str:
        """What the records are, in words."""
        if self.real:
            return f"the published log, {self.num_rows:,} sales"
        if self.folder:
            return f"converted rows of a folder, {self.num_rows:,} sales"
        return f"the simulator, {self.num_rows:,} made-up sales"


def find_source(folder: Path | None = None, *, num_rows: int | None = None) -> CriteoSource:
    """The converted log in a folder, or the simulator if there is none.

    Parameters
    ----------
    folder : path, optional
        Folder of converted rows. If None, or if nothing finished is there, rows are simulated.
    num_rows : int, optional
        Only so many rows; as many as the published log has if None.
    """
    found = None if folder is None else PartFolder.find(folder)
    if found is None or not found.manifest.finished:
        first = repr(simulate_piece(0, num_rows=1000).to_pydict())
        return CriteoSource("", num_rows or NUM_SALES, real=False, digest=_digest(first))
    manifest = found.manifest
    total = sum(manifest.train_rows) + sum(manifest.test_rows)
    whole = num_rows is None or num_rows >= total
    published = manifest.source.get("kind") != "simulation" and total == NUM_SALES  # as many as the paper counts
    real = published and whole and manifest.num_bins == NUM_BINS
    digest = _digest(repr(replace(manifest, counts={}, damaged=())))
    return CriteoSource(str(folder), total if num_rows is None else min(num_rows, total), real, digest)


def load_table(source: CriteoSource) -> CriteoTable:
    """Load the records, after simulating them into the user's cache if need be."""
    folder = Path(source.folder) if source.folder else cache_folder() / f"criteo-{source.num_rows}-{source.digest}"
    if not source.folder:
        write_simulation(folder, source.num_rows)
    train, test = load_criteo_bins(folder)
    total = len(train) + len(test)
    if source.num_rows < total:
        keep = source.num_rows / total
        train, test = _take(train, round(keep * len(train))), _take(test, round(keep * len(test)))
    return CriteoTable(train, test, source.real, source.description, source.digest)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _take(rows: BinnedRows, number: int) -> BinnedRows:
    """The first rows."""
    index = np.arange(number)
    return replace(rows, numbers=rows.numbers[index], bins=rows.bins[index], label=rows.label[index])
