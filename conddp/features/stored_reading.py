"""Records of a stored table and its schema, with public columns that are encoded when they are read."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from conddp.data.column import Kind
from conddp.data.passes import run_pass
from conddp.data.public_table import PublicTable
from conddp.data.readers import list_failures
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.data.stored_column import ROWS_AT_ONCE, StoredFrame
from conddp.data.stored_labels import StoredLabels, drop_missing_labels
from conddp.data.stored_table import StoredTable
from conddp.errors import SchemaError
from conddp.features.encoding import Encoding
from conddp.features.stored_features import StoredFeatures
from conddp.privacy.fingerprint import PartialFingerprint

__all__ = ["fits_into_memory", "load_records", "open_records"]

LARGEST_TABLE = 2**23  # cells of files that are read into memory, where they take up to 100 bytes each
SAMPLED = 1 << 18  # records from which the encoding is chosen; all of them if there are no more
SAMPLED_CELLS, LEAST_SAMPLED = 1 << 24, 1 << 14  # fewer records of wide tables, but no fewer than these
SPARSE_FROM = 64  # features from which blocks may be sparse
DENSEST = 0.25  # fraction of non-zero cells up to which blocks are sparse


def open_records(
    paths: Sequence[str | Path], schema: Schema, *, squash: bool = True, num_bins: int | None = None
) -> tuple[Records, Encoding]:
    """Open the columns of a schema in Parquet files, and choose the encoding of the public ones.

    One pass reads all public columns and another one the label, to check that it has no gaps. From then on records are
    read when they are needed.

    Privacy
        The encoding depends on a sample of the public columns only, which is drawn without looking at them. The label
        is read by its declaration, and nothing is read off it but whether a value is missing or is no number. If the
        schema says that everyone may know which labels are missing, these records are dropped.

    Parameters
    ----------
    paths : sequence of path
        The files.
    schema : Schema
        The columns to read.
    squash : bool
        Whether to transform heavy-tailed numbers.
    num_bins : int, optional
        Number of bins that categories are hashed into, for heads that look them up.

    Raises
    ------
    SchemaError
        If files or columns do not suit the schema, or the schema has private columns or units.
    """
    if schema.private or schema.unit is not None:
        what = "private columns" if schema.private else f"units ('{schema.unit}')"
        raise SchemaError(
            f"a table that is read from files block by block cannot have {what} yet. Pass one file that fits into "
            "memory."
        )
    table = StoredTable.of(paths, schema.names)
    if schema.label.missing_is_public:
        table = drop_missing_labels(table, schema.label.name)
    frame = StoredFrame(table, schema.public)
    number = min(SAMPLED, max(LEAST_SAMPLED, SAMPLED_CELLS // max(1, len(schema.public))))
    survey = run_pass(_Survey(schema.public, schema.kinds, number / len(table)), frame, block_size=ROWS_AT_ONCE)
    sample = PublicTable.of(survey.join(), schema.public, kinds=schema.kinds)
    encoding = Encoding.of(sample, squash=squash, num_bins=num_bins)
    features = StoredFeatures(table, encoding, sparsely=_is_sparse(encoding, sample), digest=survey.digest)
    label = StoredLabels.of(table, schema.label.name, schema.label_bounds)
    return Records(features, None, label, None, schema, survey.fingerprint.finish()), encoding


def fits_into_memory(paths: Sequence[str | Path], schema: Schema) -> bool:
    """Whether Parquet files are so small that all their records are read at once, which is faster. No cell is read."""
    return len(StoredTable.of(paths, schema.names)) * len(schema.names) <= LARGEST_TABLE


def load_records(records: Records) -> Records:
    """Read all features and labels of records in files into memory.

    Raises
    ------
    SchemaError
        If there are too many.
    """
    assert isinstance(records.public, StoredFeatures)
    return replace(records, public=records.public.load(), label=records.label[:])


def _is_sparse(encoding: Encoding, sample: PublicTable) -> bool:
    """Whether few of the features of a record are not zero."""
    if len(encoding.features) < SPARSE_FROM:
        return False
    some = encoding.transform(sample[: 1 << 12], as_part=True).matrix
    assert isinstance(some, csr_array)
    return bool(some.nnz < DENSEST * some.shape[0] * some.shape[1])


@dataclass(frozen=True)
class _Found:
    """Sampled records and the fingerprint of all records of a block; can be added up."""

    samples: tuple[Any, ...]
    fingerprint: PartialFingerprint
    digests: tuple[bytes, ...]

    def __add__(self, other: "_Found") -> "_Found":
        return _Found(self.samples + other.samples, self.fingerprint + other.fingerprint, self.digests + other.digests)

    @property
    def digest(self) -> bytes:
        """Digest of all public cells, in order."""
        return hashlib.sha256(b"".join(self.digests)).digest()

    def join(self) -> Any:
        import pyarrow

        joined = None
        try:
            joined = pyarrow.concat_tables(self.samples, promote_options="permissive")
        except list_failures():
            pass
        if joined is None:
            raise SchemaError("a public column has types that do not go together in different files.")
        return joined


@dataclass(frozen=True)
class _Survey:
    """Samples and hashes the public columns of a block."""

    names: tuple[str, ...]
    kinds: dict[str, Kind]
    fraction: float

    def __call__(self, span: slice, piece: Any) -> _Found:
        part = PublicTable.of(piece, self.names, kinds=self.kinds)
        taken = np.flatnonzero(_draw(span.start, len(piece)) < self.fraction)
        return _Found((piece.take(taken),), part.hash_part(), (part.digest,))


def _draw(start: int, number: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Numbers in [0, 1) that depend on the positions of records only, so that any division of the work gives the same.

    SplitMix64 of the position.
    """
    z = np.arange(start + 1, start + number + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((z ^ (z >> np.uint64(31))) / 2.0**64)
