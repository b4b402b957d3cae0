"""Tables in Parquet files that are read piece by piece, so that they may be larger than memory."""

import hashlib
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from conddp.data.readers import DAMAGED, list_failures, require_names
from conddp.errors import SchemaError

__all__ = ["FileState", "Partition", "StoredTable", "list_files"]

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
    state : FileState
        What the file was when it was opened.
    """

    path: str
    row_groups: tuple[int, ...]
    num_records: int
    state: "FileState"


@dataclass(frozen=True)
class FileState:
    """What is compared to see that a file is still the same.

    Parameters
    ----------
    size : int
        Size in bytes.
    digest : str
        Digest of the end of the file, where Parquet keeps its table of contents.
    machine : str
        Machine that looked at the file. Others may have a copy, with stamps of its own.
    stamps : tuple of int
        Device, number, and times of the last change of content and of attributes, on that machine.
    """

    size: int
    digest: str
    machine: str
    stamps: tuple[int, ...]

    @classmethod
    def of(cls, file: IO[bytes]) -> "FileState":
        """Look at an open file."""
        found = os.fstat(file.fileno())
        file.seek(max(0, found.st_size - FOOTER))
        digest = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
        file.seek(0)
        stamps = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
        return cls(found.st_size, digest, platform.node(), stamps)

    def matches(self, other: "FileState") -> bool:
        """Whether both may be states of the same content."""
        same = (self.size, self.digest) == (other.size, other.digest)
        return same and (self.machine != other.machine or self.stamps == other.stamps)


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
        states: list[FileState] = []
        types: list[str] | None = None
        for path in paths:
            require_names(path, names)
            found, more = _open_file(Path(path), names)
            wrong = _find_difference(names, types or found, found)
            if wrong is not None and types is not None:
                raise SchemaError(
                    f"column '{wrong}' holds {_name(found, names, wrong)} in '{path}', but before it held "
                    f"{_name(types, names, wrong)}. Write all files with the same types."
                )
            types = [one if one != "gaps" else other for one, other in zip(types or found, found, strict=True)]
            parts += more
            states.append(more[0].state)
        _refuse_copies([Path(path) for path in paths], states)
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
        failed = False
        try:
            with Path(part.path).open("rb") as file:  # what is checked is what is read
                if not FileState.of(file).matches(part.state):
                    raise SchemaError(f"the data file '{part.path}' has changed since the fit began.")
                yield from self._stream(file, part, list(names), num_rows)
        except FileNotFoundError:
            raise SchemaError(f"the data file '{part.path}' cannot be read any more.") from None
        except list_failures() as error:
            if isinstance(error, SchemaError):
                raise
            failed = True  # raised below, because the original message may quote a cell
        if failed:
            raise SchemaError(DAMAGED.format(part.path))

    def _stream(self, source: IO[bytes], part: Partition, names: list[str], num_rows: int) -> Iterator[Any]:
        import pyarrow
        import pyarrow.parquet

        read = names if self.present is None else list(dict.fromkeys([*names, self.present]))
        waiting, rows, left = [], 0, part.num_records
        with pyarrow.parquet.ParquetFile(source, buffer_size=BUFFER) as file:
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
    """Return the files that paths stand for: a folder stands for the Parquet files in it, in alphabetical order.

    Raises
    ------
    SchemaError
        If a folder holds none, or a file is given twice, also by another path or link.
    """
    files: list[Path] = []
    for each in map(Path, data):
        if each.is_dir():
            files += _list_folder(each)
        else:
            files.append(each)
    found: dict[tuple[int, int], Path] = {}
    for path in files:
        if path.exists():
            stamp = path.stat()
            other = found.setdefault((stamp.st_dev, stamp.st_ino), path)
            if other is not path:
                raise SchemaError(f"'{other}' and '{path}' are the same file: its records would count twice.")
    return files


def _list_folder(folder: Path) -> list[Path]:
    """Parquet files of a folder. Files with cells of another kind are refused rather than left out in silence."""
    inside = sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] not in "._")
    found = [path for path in inside if path.suffix.lower() == ".parquet"]
    others = [path for path in inside if path.name.lower().endswith((".csv", ".csv.gz"))]
    if found and others:
        raise SchemaError(f"the folder '{folder}' holds .parquet and .csv files. Name the files that you mean.")
    if not found:
        below = " Folders below it are not searched." if any(path.is_dir() for path in folder.iterdir()) else ""
        raise SchemaError(f"the folder '{folder}' holds no .parquet file.{below}")
    return found


def _refuse_copies(paths: Sequence[Path], states: Sequence[FileState]) -> None:
    """Raise if a file is given twice, by any name: its records would count twice, and move sums twice as far."""
    seen: dict[tuple[int, str], list[int]] = {}
    for place, state in enumerate(states):
        for other in seen.setdefault((state.size, state.digest), []):
            same = states[other].stamps[:2] == state.stamps[:2]  # by another path or link
            if same or _hash_file(paths[other]) == _hash_file(paths[place]):
                raise SchemaError(
                    f"'{paths[other]}' and '{paths[place]}' are the same file or copies: their records would count "
                    "twice."
                )
        seen[state.size, state.digest].append(place)


def _hash_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _open_file(path: Path, names: Sequence[str]) -> tuple[list[str], list[Partition]]:
    """Types of the columns, and partitions."""
    import pyarrow.parquet

    if path.suffix.lower() != ".parquet":
        raise SchemaError(f"several files, and tables larger than memory, are read as .parquet files, got '{path}'.")
    parts: list[Partition] = []
    types: list[str] | None = None
    try:
        with path.open("rb") as source:
            state = FileState.of(source)
        with pyarrow.parquet.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            types = [_name_family(schema.field(name).type) for name in names]
            groups: list[int] = []
            rows = 0
            for group in range(metadata.num_row_groups):
                more = metadata.row_group(group).num_rows
                if groups and rows + more > ROWS_PER_PARTITION:
                    parts.append(Partition(str(path.resolve()), tuple(groups), rows, state))
                    groups, rows = [], 0
                groups.append(group)
                rows += more
            parts.append(Partition(str(path.resolve()), tuple(groups), rows, state))
    except list_failures():
        types = None
    if types is None:
        raise SchemaError(DAMAGED.format(path))
    return types, parts


def _name_family(kind: Any) -> str:
    """Types that are read alike, whatever their width."""
    import pyarrow.types as types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_null(inner):
        return "gaps"
    if types.is_integer(inner):
        return "whole numbers"
    if types.is_floating(inner):
        return "numbers"
    return "text" if types.is_string(inner) or types.is_large_string(inner) else str(inner)


def _find_difference(names: Sequence[str], one: Sequence[str], other: Sequence[str]) -> str | None:
    """A column whose types differ; a column of gaps goes with any type."""
    triples = zip(names, one, other, strict=True)
    return next((name for name, first, second in triples if first != second and "gaps" not in (first, second)), None)


def _name(families: Sequence[str], names: Sequence[str], name: str) -> str:
    return families[list(names).index(name)]


def _is_present(column: Any) -> Any:
    """Whether each value is neither missing nor NaN."""
    import pyarrow.compute
    import pyarrow.types

    present = pyarrow.compute.is_valid(column)
    if pyarrow.types.is_floating(column.type):
        numbers = pyarrow.compute.fill_null(column, float("nan"))
        present = pyarrow.compute.and_(present, pyarrow.compute.invert(pyarrow.compute.is_nan(numbers)))
    return present
