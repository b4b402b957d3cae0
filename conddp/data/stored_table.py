"""Tables in Parquet files that are read piece by piece, so that they may be larger than memory."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conddp.data.readers import DAMAGED, FAILURES, require_names
from conddp.errors import SchemaError

__all__ = ["Partition", "StoredTable", "list_files"]

ROWS_PER_PARTITION = 1 << 17  # smaller row groups of a file are joined up to this number of rows
FOOTER = 1 << 16  # bytes at the end of a file by which it is recognised
BUFFER = 1 << 20  # bytes of a column that are read at a time


@dataclass(frozen=True)
class Partition:
    """Consecutive row groups of one file.

    Parameters
    ----------
    path : str
        The file.
    row_groups : tuple of int
        Numbers of the row groups.
    num_records : int
        Number of records in them.
    size : int
        Size of the file in bytes.
    digest : str
        Digest of the end of the file, where Parquet keeps its table of contents.
    """

    path: str
    row_groups: tuple[int, ...]
    num_records: int
    size: int
    digest: str


@dataclass(frozen=True)
class StoredTable:
    """A table in one or more Parquet files with the same columns. Holds no cell, and can be sent to other processes.

    Parameters
    ----------
    parts : tuple of Partition
        What the files consist of, in order.
    present : str, optional
        Name of a column. Records that have no value in it are left out; everyone may know which these are.
    """

    parts: tuple[Partition, ...]
    present: str | None = None

    @classmethod
    def of(cls, paths: Sequence[str | Path], names: Sequence[str]) -> "StoredTable":
        """Open files and check that all of them have these columns, of the same types. No cell is read.

        Raises
        ------
        SchemaError
            If a file is missing, damaged, not Parquet or has other columns.
        """
        if not paths:
            raise SchemaError("there is no file to read.")
        parts: list[Partition] = []
        types: list[str] | None = None
        for path in paths:
            require_names(path, names)
            found, more = _open_file(Path(path), names)
            if types is not None and found != types:
                wrong = next(name for name, one, other in zip(names, types, found, strict=True) if one != other)
                raise SchemaError(
                    f"column '{wrong}' has another type in '{path}' than in '{paths[0]}'. Write all files with the "
                    "same types."
                )
            types = found
            parts += more
        table = cls(tuple(part for part in parts if part.num_records))
        if not table.parts:
            raise SchemaError("the table has no rows.")
        return table

    def __len__(self) -> int:
        return sum(part.num_records for part in self.parts)

    @property
    def partitions(self) -> tuple[slice, ...]:
        """Positions of the records of each partition."""
        spans, start = [], 0
        for part in self.parts:
            spans.append(slice(start, start + part.num_records))
            start += part.num_records
        return tuple(spans)

    @property
    def identity(self) -> bytes:
        """Digest of the files, by which the same table is recognised."""
        return hashlib.sha256(
            repr([(each.row_groups, each.size, each.digest) for each in self.parts]).encode()
        ).digest()

    def keep_present(self, column: str, counts: Sequence[int]) -> "StoredTable":
        """Leave out records without a value in a column.

        Parameters
        ----------
        column : str
            Name of the column.
        counts : sequence of int
            Number of records of each partition that have a value.
        """
        pairs = zip(self.parts, counts, strict=True)
        kept = tuple(replace(part, num_records=count) for part, count in pairs if count)
        if not kept:
            raise SchemaError(f"column '{column}' is missing in every record.")
        return StoredTable(kept, column)

    def stream(self, number: int, names: Sequence[str], *, num_rows: int) -> Iterator[Any]:
        """Read a partition as Arrow tables of this number of records; the last one may be shorter.

        Raises
        ------
        SchemaError
            If the file has changed since it was opened, or is damaged. No cell is quoted.
        """
        part = self.parts[number]
        check_unchanged(part)
        failed = False
        try:
            yield from self._stream(part, list(names), num_rows)
        except FAILURES as error:
            if isinstance(error, SchemaError):
                raise
            failed = True  # raised below, because the original message may quote a cell
        if failed:
            raise SchemaError(DAMAGED.format(part.path))

    def _stream(self, part: Partition, names: list[str], num_rows: int) -> Iterator[Any]:
        import pyarrow
        import pyarrow.parquet

        read = names if self.present is None else list(dict.fromkeys([*names, self.present]))
        waiting, rows, left = [], 0, part.num_records
        with pyarrow.parquet.ParquetFile(part.path, buffer_size=BUFFER) as file:
            for batch in file.iter_batches(batch_size=num_rows, row_groups=list(part.row_groups), columns=read):
                piece = pyarrow.Table.from_batches([batch])
                if self.present is not None:
                    piece = piece.filter(_is_present(piece[self.present]))
                waiting.append(piece.select(names))
                rows += len(piece)
                while rows >= num_rows:
                    joined = pyarrow.concat_tables(waiting).combine_chunks()
                    yield joined.slice(0, num_rows)
                    left -= num_rows
                    waiting, rows = [joined.slice(num_rows)], rows - num_rows
        if rows != left:
            raise SchemaError(f"'{part.path}' has another number of records than when it was opened.")
        if rows:
            yield pyarrow.concat_tables(waiting).combine_chunks()


def list_files(data: Sequence[str | Path]) -> list[Path]:
    """Return the files that paths stand for: a folder stands for the Parquet files in it, in alphabetical order."""
    files: list[Path] = []
    for each in map(Path, data):
        if each.is_dir():
            inside = sorted(path for path in each.glob("*.parquet") if path.is_file())
            if not inside:
                raise SchemaError(f"the folder '{each}' holds no .parquet file.")
            files += inside
        else:
            files.append(each)
    repeated = {path for path in files if files.count(path) > 1}
    if repeated:
        raise SchemaError(f"'{min(repeated)}' is given twice: its records would count twice.")
    return files


def check_unchanged(part: Partition) -> None:
    """Raise a SchemaError if a file is not the one that was opened."""
    try:
        size, digest = _recognise(Path(part.path))
    except OSError:
        raise SchemaError(f"the data file '{part.path}' cannot be read any more.") from None
    if (size, digest) != (part.size, part.digest):
        raise SchemaError(f"the data file '{part.path}' has changed since the fit began.")


def _recognise(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - FOOTER))
        return size, hashlib.blake2b(file.read(), digest_size=16).hexdigest()


def _open_file(path: Path, names: Sequence[str]) -> tuple[list[str], list[Partition]]:
    """Types of the columns, and partitions."""
    import pyarrow.parquet

    if path.suffix != ".parquet":
        raise SchemaError(f"several files, and tables larger than memory, are read as .parquet files, got '{path}'.")
    parts: list[Partition] = []
    types: list[str] | None = None
    try:
        size, digest = _recognise(path)
        with pyarrow.parquet.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            types = [str(schema.field(name).type) for name in names]
            groups: list[int] = []
            rows = 0
            for group in range(metadata.num_row_groups):
                more = metadata.row_group(group).num_rows
                if groups and rows + more > ROWS_PER_PARTITION:
                    parts.append(Partition(str(path.resolve()), tuple(groups), rows, size, digest))
                    groups, rows = [], 0
                groups.append(group)
                rows += more
            parts.append(Partition(str(path.resolve()), tuple(groups), rows, size, digest))
    except FAILURES:
        types = None
    if types is None:
        raise SchemaError(DAMAGED.format(path))
    return types, parts


def _is_present(column: Any) -> Any:
    """Whether each value is neither missing nor NaN."""
    import pyarrow.compute
    import pyarrow.types

    present = pyarrow.compute.is_valid(column)
    if pyarrow.types.is_floating(column.type):
        numbers = pyarrow.compute.fill_null(column, float("nan"))
        present = pyarrow.compute.and_(present, pyarrow.compute.invert(pyarrow.compute.is_nan(numbers)))
    return present
