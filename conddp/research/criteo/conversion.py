"""Conversion of the published log to Parquet parts, a block of lines at a time."""

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conddp._validate import in_range, positive_integer
from conddp.research.criteo.columns import NUM_BINS, ROW_GROUP
from conddp.research.criteo.folder import Manifest, PartFolder, is_for_test
from conddp.research.criteo.lines import ConvertedLines, convert_lines
from conddp.research.datasets import DatasetDamaged, DatasetNotFound

__all__ = ["convert_criteo"]

BLOCK = 1 << 24  # bytes that are converted at once, about 40,000 lines
LONGEST_LINE = 1 << 20  # bytes; lines of the log have less than two thousand
SHOWN = 1000  # numbers of damaged lines that the manifest keeps
GZIP = b"\x1f\x8b"


def convert_criteo(
    log: Path | str,
    out: Path | str,
    *,
    num_bins: int = NUM_BINS,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    max_damaged: float = 1e-3,
    overwrite: bool = False,
    callback: Callable[[int, int], object] | None = None,
) -> Manifest:
    """Convert the published log to Parquet parts: rows with a sale, values clipped at 400, categories hashed to bins.

    The log is read once, a block at a time. A run that was killed continues after the last finished part.

    Privacy
        Meant for the published log, which needs no protection. Numbers of damaged lines depend on its content.

    Parameters
    ----------
    log : path
        The tab-separated file of 23 columns, or the same compressed with gzip.
    out : path
        Folder for ``train/part-*.parquet``, ``test/part-*.parquet``, ``schema.toml`` and ``manifest.json``.
    num_bins : int
        Bins of the categories.
    test_fraction : float
        Expected fraction of test rows. Each row is drawn on its own, by its line number and ``split_seed``.
    split_seed : int
        Of the split.
    max_damaged : float
        Fraction of lines that may be damaged. They are left out, and the manifest has their numbers.
    overwrite : bool
        Whether to delete the parts of another source in the same folder.
    callback : callable, optional
        Called with the bytes of the file that were read, and all of them.

    Returns
    -------
    Manifest
        Rows of each part, lines by what became of them, numbers of damaged lines.

    Raises
    ------
    DatasetNotFound
        If there is no such file.
    DatasetDamaged
        If more lines are damaged, or the file is something else. Finished parts are kept.
    OutputExists
        If the folder holds something else.
    """
    positive_integer(num_bins=num_bins)
    in_range(1, 2**31 - 1, num_bins=num_bins)
    in_range(0, 2**31 - 1, split_seed=split_seed)
    in_range(0.0, 1.0, test_fraction=test_fraction, max_damaged=max_damaged)
    log = Path(log)
    planned = Manifest(_describe_source(log), num_bins, float(test_fraction), split_seed)
    folder = PartFolder.start(Path(out), planned, overwrite=overwrite)
    if not folder.manifest.finished:
        _Conversion(log, folder, max_damaged, callback).run()
    return folder.manifest


class _Conversion:
    """A conversion under way: rows that wait for the next part, and the manifest that will cover them."""

    def __init__(
        self,
        log: Path,
        folder: PartFolder,
        max_damaged: float,
        callback: Callable[[int, int], object] | None,
    ) -> None:
        self.log, self.folder, self.max_damaged, self.callback = log, folder, max_damaged, callback
        self.covered = folder.manifest
        self.rows: list[pa.Table] = []
        self.numbers: list[NDArray[np.int64]] = []
        self.part_rows = round(ROW_GROUP / max(1 - self.covered.test_fraction, 0.5))

    def run(self) -> None:
        size = self.log.stat().st_size
        with _open(self.log) as (file, opened):
            for block in _read_blocks(file, self.log, self.covered.position):
                self._add(convert_lines(block, self.covered.num_bins), len(block))
                if self.callback is not None:
                    self.callback(opened.tell(), size)
                self._check(10 * self.max_damaged)  # damage may come in bursts
                if sum(map(len, self.rows)) >= self.part_rows:
                    self._flush()
        self._check(self.max_damaged)
        if self.rows:
            self._flush()
        self.folder.record(replace(self.covered, finished=True))

    def _add(self, lines: ConvertedLines, num_bytes: int) -> None:
        before = self.covered
        counts = dict(before.counts)
        for what, more in (
            ("lines", lines.num_lines),
            ("sales", len(lines.rows)),
            ("sales without a value", lines.num_without_value),
            ("damaged", len(lines.damaged)),
        ):
            counts[what] = counts.get(what, 0) + more
        damaged = (*before.damaged, *(before.num_lines + 1 + lines.damaged).tolist())[:SHOWN]
        self.rows.append(lines.rows)
        self.numbers.append(before.num_lines + lines.row_places)
        self.covered = replace(
            before,
            position=before.position + num_bytes,
            num_lines=before.num_lines + lines.num_lines,
            counts=counts,
            damaged=damaged,
        )

    def _check(self, allowed: float) -> None:
        lines, damaged = self.covered.num_lines, self.covered.counts.get("damaged", 0)
        if damaged > allowed * lines:
            first = ", ".join(map(str, self.covered.damaged[:5]))
            raise DatasetDamaged(
                f"{self.log}: {damaged:,} of {lines:,} lines are damaged, more than the fraction max_damaged="
                f"{self.max_damaged:g}. The first are: {first}. Expected 23 tab-separated fields, Sale 0 or 1 first. "
                "Download the file again, or allow more."
            )

    def _flush(self) -> None:
        rows, numbers = pa.concat_tables(self.rows), np.concatenate(self.numbers)
        for_test = is_for_test(numbers, test_fraction=self.covered.test_fraction, seed=self.covered.split_seed)
        self.folder.add(rows.combine_chunks(), for_test, self.covered)
        self.covered = self.folder.manifest
        self.rows, self.numbers = [], []


def _describe_source(log: Path) -> dict[str, object]:
    """Name, size and a digest of the beginning, by which a log is recognised."""
    if not log.is_file():
        raise DatasetNotFound(
            f"there is no file '{log}'. The Criteo log is available from its page after accepting the licence; see "
            "describe_dataset('criteo_ssc')."
        )
    with log.open("rb") as file:
        start = blake2b(file.read(1 << 16), digest_size=16).hexdigest()
    return {"kind": "log", "name": log.name, "size": log.stat().st_size, "start": start}


@contextmanager
def _open(log: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The log, uncompressed, and the file itself, which tells how far it was read."""
    with log.open("rb") as opened:
        is_gzip = opened.read(2) == GZIP
        opened.seek(0)
        if not is_gzip:
            yield opened, opened
            return
        with gzip.GzipFile(fileobj=opened) as unpacked:
            yield cast("BinaryIO", unpacked), opened


def _read_blocks(file: BinaryIO, log: Path, position: int) -> Iterator[bytes]:
    """Whole lines from a position on; only the last block may end without a line break.

    Blocks end before a multiple of their size, so that they, and the parts, are the same after a restart.
    """
    try:
        file.seek(position)
        rest = b""
        while chunk := file.read(BLOCK - (position + len(rest)) % BLOCK):
            if position == 0 and chunk[257:262] == b"ustar":
                raise DatasetDamaged(f"{log} is a tar archive. Unpack it first, and convert the file CriteoSearchData.")
            whole, found, rest = (rest + chunk).rpartition(b"\n")
            if len(rest) > LONGEST_LINE:
                raise DatasetDamaged(f"{log} has a line of more than {LONGEST_LINE:,} bytes. It is not the Criteo log.")
            if found:
                position += len(whole) + 1
                yield whole + found
        if rest:
            yield rest
    except (EOFError, gzip.BadGzipFile, OSError) as error:
        if isinstance(error, DatasetDamaged):
            raise
        raise DatasetDamaged(f"{log} cannot be read to its end: {error}. Download it again.") from error
