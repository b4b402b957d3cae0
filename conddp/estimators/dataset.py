"""Arrow datasets: tables in Parquet files, which the estimator reads block by block if they are large."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from conddp.data.readers import read_column_names, read_tables, stream_table
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.data.stored_table import list_files
from conddp.errors import SchemaError
from conddp.estimators.labels import declare_bounds
from conddp.features.encoding import Encoding
from conddp.features.reading import read_records
from conddp.features.stored_reading import fits_into_memory, open_records

__all__ = ["declare_dataset", "list_dataset_files", "read_dataset", "stream_dataset"]


def list_dataset_files(X: Any) -> list[Path] | None:
    """Return the files of an Arrow dataset, or None if X is not one.

    Raises
    ------
    SchemaError
        If the dataset is not in Parquet files on this machine's disks, or some of its rows or columns are left out.
    """
    if not (type(X).__module__.startswith("pyarrow.") and hasattr(X, "get_fragments")):
        return None
    files = getattr(X, "files", None)
    local = type(getattr(X, "filesystem", None)).__name__ == "LocalFileSystem"
    if files is None or not local or any(Path(each).suffix.lower() != ".parquet" for each in files):
        raise SchemaError(
            "an Arrow dataset must consist of local .parquet files. Write it with pyarrow.dataset.write_dataset, or "
            "pass a table."
        )
    try:
        list(X.get_fragments())
    except ValueError:
        raise SchemaError(
            "the Arrow dataset has a filter or a projection. Write what is left to files of its own."
        ) from None
    listed = list_files(files)
    outside = [name for name in X.schema.names if name not in read_column_names(listed[0])]
    if outside:
        raise SchemaError(
            f"column '{outside[0]}' of the Arrow dataset is not in its files, but in the names of their folders. Write "
            "it into the files."
        )
    return listed


def declare_dataset(files: Sequence[Path], label: Any, label_bounds: Any, *, missing_labels: str) -> Schema:
    """Make the schema of a dataset all of whose columns are public but the label.

    Raises
    ------
    SchemaError
        If the label is not the name of a column.
    """
    names = read_column_names(files[0])
    if not isinstance(label, str) or label not in names:
        raise SchemaError("for an Arrow dataset, y is the name of its label column, and must be one of its columns.")
    return Schema.of(
        label=label,
        label_bounds=declare_bounds(label_bounds, [label])[0],
        public=[name for name in names if name != label],
        missing_labels=missing_labels,
    )


def read_dataset(
    files: Sequence[Path], schema: Schema, *, squash: bool, num_bins: int | None
) -> tuple[Records, Encoding]:
    """Read the records of a dataset if they are few; otherwise open it, and records are read when they are needed.

    The arguments are those of :func:`~conddp.features.stored_reading.open_records`.
    """
    if fits_into_memory(files, schema):
        return read_records(read_tables(files, schema.names), schema, squash=squash, num_bins=num_bins)
    return open_records(files, schema, squash=squash, num_bins=num_bins)


def stream_dataset(files: Sequence[Path], names: Sequence[str]) -> Iterator[Any]:
    """Read columns of files piece by piece, as Arrow tables."""
    for path in files:
        yield from (piece for piece in stream_table(path, names) if len(piece))
