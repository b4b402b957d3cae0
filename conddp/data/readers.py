"""Readers for Parquet and CSV files. Columns are read by name, and error messages never quote a cell.

The first line of a CSV file may be a record rather than a header. Messages therefore quote names that the user has
given, and refer to other columns by position.
"""

import csv
import difflib
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conddp.data.column import Kind
from conddp.data.types import TEXT, UNKNOWN, name_type
from conddp.errors import SchemaError

__all__ = [
    "check_header",
    "read_column_names",
    "read_column_types",
    "read_table",
    "read_tables",
    "require_names",
    "stream_table",
]

# What a damaged file makes pyarrow raise, beside exceptions of its own.
FAILURES = (OSError, ValueError, LookupError, TypeError, NotImplementedError, MemoryError, ArithmeticError, EOFError)
MOST_COMPARED = 10_000  # columns among which a similar name is looked for
LONGEST_HEADER = 1 << 24  # characters
BLOCK, LARGEST_BLOCK = 1 << 20, 1 << 26  # bytes
ROWS_AT_ONCE = 1 << 16
DAMAGED = (
    "the data file '{}' is damaged, or a column has mixed types, for example numbers in its first rows and text "
    "further down."
)
STATA_GAP = "."  # also of SAS; a column of numbers with such cells would be read as text
MISSING_MARKS = {"na", "n/a", "#n/a", "<na>", "nan", "null", "none", "nil", "missing", "unknown", "?", "-", "--", "."}


def list_failures() -> tuple[type[Exception], ...]:
    """Exceptions that reading a damaged file may raise. Their messages may quote a cell."""
    import pyarrow

    return (*FAILURES, csv.Error, pyarrow.ArrowException)


def read_table(path: str | Path, names: Sequence[str], *, kinds: Mapping[str, Kind] | None = None) -> Any:
    """Read columns of a Parquet or CSV file (``.csv`` or ``.csv.gz``) as an Arrow table.

    Columns are read by name; other columns are not opened.

    Parameters
    ----------
    path : path
        The file.
    names : sequence of str
        The columns.
    kinds : mapping, optional
        Declared kinds. A category in a CSV file is read as text, so that codes such as 01 keep their zero.
    """
    import pyarrow.csv
    import pyarrow.parquet

    source = Path(path)
    require_names(source, names)
    table = None
    try:
        if source.suffix.lower() == ".parquet":
            table = pyarrow.parquet.read_table(source, columns=list(names))
        else:
            table = pyarrow.csv.read_csv(
                source,
                read_options=pyarrow.csv.ReadOptions(block_size=_choose_block(source)),
                convert_options=_convert(names, kinds or {}),
            )
    except list_failures():
        pass  # raised below, outside the except block, because the original message quotes a line of the file
    if table is None:
        raise SchemaError(DAMAGED.format(source))
    return table


def read_tables(paths: Sequence[str | Path], names: Sequence[str], *, kinds: Mapping[str, Kind] | None = None) -> Any:
    """Read columns of several files, one after the other, as one Arrow table; as :func:`read_table` otherwise."""
    import pyarrow

    tables = [read_table(path, names, kinds=kinds).select(list(names)) for path in paths]
    if len(tables) == 1:
        return tables[0]
    joined = None
    try:
        joined = pyarrow.concat_tables(tables, promote_options="permissive")
    except list_failures():
        pass
    if joined is None:
        raise SchemaError("the files have columns of the same name with different types. Write them alike.")
    return joined


def stream_table(
    path: str | Path, names: Sequence[str], *, kinds: Mapping[str, Kind] | None = None, num_rows: int = ROWS_AT_ONCE
) -> Iterator[Any]:
    """Read columns of a Parquet or CSV file piece by piece, as Arrow tables; as :func:`read_table` otherwise.

    Parameters
    ----------
    path, names, kinds
        As in :func:`read_table`. Numbers and dates of a CSV file are read as such in every piece.
    num_rows : int
        Approximate number of rows of a piece.
    """
    import pyarrow.csv
    import pyarrow.parquet

    source = Path(path)
    require_names(source, names)
    failed = False
    try:
        if source.suffix.lower() == ".parquet":
            with pyarrow.parquet.ParquetFile(source) as file:
                for batch in file.iter_batches(batch_size=num_rows, columns=list(names)):
                    yield pyarrow.Table.from_batches([batch])
        else:
            read_options = pyarrow.csv.ReadOptions(block_size=BLOCK)
            with _open_csv(source, names, kinds or {}, read_options) as reader:
                for batch in reader:
                    yield pyarrow.Table.from_batches([batch])
    except list_failures():
        failed = True
    if failed:
        raise SchemaError(DAMAGED.format(source))


def require_names(path: str | Path, names: Collection[str]) -> None:
    """Raise unless a file has each of these columns exactly once. No cell is read."""
    _check_names(Path(path), names)


def _convert(names: Sequence[str], kinds: Mapping[str, Kind], *, strict: bool = False) -> Any:
    """How the columns of a CSV file are converted."""
    import pyarrow
    import pyarrow.csv

    types = {name: pyarrow.string() for name in names if kinds.get(name) is Kind.CATEGORY}
    if strict:
        exact = {
            Kind.NUMBER: pyarrow.float64(),
            Kind.BOOLEAN: pyarrow.bool_(),
            Kind.DATE: pyarrow.string(),  # with a time zone or without
        }
        types |= {name: exact[kinds[name]] for name in names if kinds.get(name) in exact}
    options = pyarrow.csv.ConvertOptions(include_columns=list(names), column_types=types)
    options.null_values = [*options.null_values, STATA_GAP]
    return options


def _open_csv(source: Path, names: Sequence[str], kinds: Mapping[str, Kind], read_options: Any) -> Any:
    """Open a CSV file with the types of its kinds; if its first block has others, with those of this block."""
    import pyarrow
    import pyarrow.csv

    try:
        options = _convert(names, kinds, strict=True)
        return pyarrow.csv.open_csv(source, read_options=read_options, convert_options=options)
    except pyarrow.ArrowInvalid:
        options = _convert(names, kinds)
        return pyarrow.csv.open_csv(source, read_options=read_options, convert_options=options)


def _choose_block(source: Path) -> int:
    """Size of the blocks of a CSV file. Types are those of the first block, so a small file is read as one."""
    size = source.stat().st_size
    return min(max(size + 1, BLOCK), LARGEST_BLOCK) if source.suffix == ".csv" else LARGEST_BLOCK


def read_column_names(path: str | Path, *, leave_out: Collection[str] = ()) -> list[str]:
    """Read the column names of a Parquet or CSV file, without those in ``leave_out``, which must be among them."""
    source = Path(path)
    names = _read_names(source)
    places = {name: number for number, name in reversed(list(enumerate(names)))}
    for number, name in enumerate(names):
        if places[name] < number:
            raise SchemaError(
                f"the {_ordinal(places[name])} and the {_ordinal(number)} column of '{source}' have the same name. If "
                "its first line is a record, add a header. Otherwise give each column its own name."
            )
    _check_names(source, leave_out)
    return [name for name in names if name not in leave_out]


def read_column_types(path: str | Path) -> dict[str, str]:
    """Read the column names of a Parquet or CSV file and the type of each column, in words.

    Types of a CSV file are inferred from its first block of lines. Nothing else is read.
    """
    names = read_column_names(path)
    return {field.name: name_type(field.type) for field in _read_arrow_schema(Path(path), names)}


def check_header(path: str | Path) -> None:
    """Raise if the first line of a CSV file may be a record, so that its cells would be taken for column names.

    A line of names differs from the lines below it: some columns hold numbers or dates below their name, no cell
    repeats the name of its column, and no name is a mark for a missing value.

    Privacy
        Compares the first line with the cells of the first block of lines. Only the outcome is shown.

    Raises
    ------
    SchemaError
        If the first line may be a record. The message quotes nothing from the file.
    """
    import pyarrow.compute

    source = Path(path)
    if source.suffix.lower() == ".parquet":
        return  # the names are not part of the table
    names = _read_names(source)
    types = set(read_column_types(source).values())
    block = _read_first_block(source)
    repeats = any(pyarrow.compute.any(pyarrow.compute.equal(block.column(name), name)).as_py() for name in names)
    if repeats or types <= {TEXT, UNKNOWN} or any(name.strip().lower() in MISSING_MARKS for name in names):
        raise SchemaError(
            f"the first line of '{source}' looks like a record rather than a header. If it is a record, add a line of "
            "column names above it. If it is a header, make sure that it has no name such as NA, that no name is also "
            "a cell of its column, and that some column holds numbers or dates."
        )


def _ordinal(number: int) -> str:
    """Position of a column, in words; positions count from 0 here and from 1 in the words."""
    place = number + 1
    suffix = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place:,}{suffix}"


def _read_first_block(source: Path) -> Any:
    """First lines of a CSV file below its header, as text."""
    import pyarrow.csv

    block = None
    try:
        kinds = dict.fromkeys(_read_names(source), pyarrow.string())
        options = pyarrow.csv.ConvertOptions(column_types=kinds, include_columns=list(kinds))
        with pyarrow.csv.open_csv(source, convert_options=options) as reader:
            block = reader.schema.empty_table()
            block = pyarrow.Table.from_batches([reader.read_next_batch()])
    except StopIteration:
        pass  # no line below the header
    except list_failures():
        block = None
    if block is None:
        raise SchemaError(f"the data file '{source}' is empty, or not a valid {source.suffix or 'CSV'} file.")
    return block


def _read_names(source: Path) -> list[str]:
    """Column names of a file; only the first line of a CSV file is read."""
    import pyarrow.parquet

    if not source.exists():
        hint = " Let the shell expand the pattern, or give the folder." if "*" in source.name else ""
        raise SchemaError(f"the data file '{source}' does not exist.{hint}")
    if source.is_dir():
        raise SchemaError(f"'{source}' is a folder. Give a Parquet or CSV file.")
    if not source.is_file():
        raise SchemaError(f"'{source}' is a pipe or a device. Give a Parquet or CSV file.")
    names: list[str] = []
    try:
        if source.suffix.lower() == ".parquet":
            return list(pyarrow.parquet.read_schema(source).names)
        with pyarrow.input_stream(str(source), compression="detect") as stream:
            line = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="").readline(LONGEST_HEADER)
            names = next(csv.reader([line], strict=True), []) if len(line) < LONGEST_HEADER else []
    except list_failures():
        pass  # raised below, outside the except block, because the original message may quote a line of the file
    if not names:
        raise SchemaError(f"the data file '{source}' is empty, or not a valid {source.suffix or 'CSV'} file.")
    if any(_looks_like_data(name) for name in names):
        raise SchemaError(
            f"the first line of '{source}' holds numbers where column names are expected. Add a header with "
            "comma-separated names. Rename any column whose name is a number, because the name could be a private "
            "value."
        )
    return names


def _read_arrow_schema(source: Path, names: Sequence[str]) -> Any:
    """Types of some columns of a file; cells of other columns of a CSV file are not converted."""
    import pyarrow.csv
    import pyarrow.parquet

    found = None
    try:
        if source.suffix.lower() == ".parquet":
            found = pyarrow.parquet.read_schema(source)
        else:
            options = pyarrow.csv.ConvertOptions(include_columns=list(names))
            with pyarrow.csv.open_csv(source, convert_options=options) as reader:
                found = reader.schema
    except list_failures():
        pass  # raised below, outside the except block, because the original message quotes a line of the file
    if found is None:
        raise SchemaError(f"the data file '{source}' is empty, or not a valid {source.suffix or 'CSV'} file.")
    return found


def _looks_like_data(text: str) -> bool:
    """Whether a column name may be or contain a cell value, such as a number in any notation or with a currency."""
    try:
        float(text)
        return True  # also "nan" and "inf"
    except ValueError:
        pass
    if re.search(r"[\n\r]|^\s*[{\[]\s*[\"{\[\d]|\d{4}-\d\d-\d\d|\s{2,}.*\d", text):
        return True
    for piece in re.split(r"[;\t|&:]", text):
        bare = re.sub(r"0[xX][0-9a-fA-F]+|(?<=\d)[eEdD][+-]?(?=\d)", "0", piece)
        digits, letters = len(re.findall(r"\d", bare)), len(re.findall(r"[^\W\d_]", bare))
        if digits and (not letters or (digits >= letters and re.match(r"[\W_]*\d", bare))):
            return True
    return False


def _check_names(source: Path, names: Collection[str]) -> None:
    """Raise unless a file has each of these columns exactly once."""
    present = _read_names(source)
    counts = Counter(present)
    for name in names:
        if not counts[name]:
            near = difflib.get_close_matches(name.lower(), [each.lower() for each in present[:MOST_COMPARED]], n=1)
            places = [number for number, each in enumerate(present) if [each.lower()] == near]
            hint = f" Did you mean the {_ordinal(places[0])} column?" if places else ""
            if len(present) == 1 and source.suffix.lower() != ".parquet":
                hint = " If its cells are not separated by commas, convert the file."
            raise SchemaError(
                f"column '{name}' is declared but not among the {len(present)} columns of '{source}'.{hint}"
            )
        if counts[name] > 1:
            raise SchemaError(f"column '{name}' occurs twice in '{source}'. Give each column its own name.")
