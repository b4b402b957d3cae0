"""The three parts of a data set, kept apart by type.

A function that must cost nothing takes :class:`PublicFeatures`; it cannot be handed a label by mistake.
"""

import csv
import difflib
import io
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range
from conddp.errors import PrivateDataLeak, SchemaError
from conddp.schema import Bounds, Schema

__all__ = [
    "Dataset",
    "Labels",
    "PrivateFeatures",
    "PublicFeatures",
    "as_matrix",
    "as_numbers",
    "load_features",
    "load_public",
    "read_column_types",
    "require_public",
]

Matrix = NDArray[np.floating[Any]]


def as_numbers(values: object, *, what: str) -> Matrix:
    """Values as a finite float array, or a :class:`SchemaError` that says ``what`` without quoting a value."""
    array = np.asarray(values)
    if np.iscomplexobj(array):
        raise SchemaError(f"Complex data not supported: {what} must hold real numbers.")
    if array.dtype.kind not in "fiub":
        converted = None
        try:
            converted = array.astype(np.float64)
        except (ValueError, OverflowError):
            pass  # raised below, outside: the original message quotes the cell and must not come along
        if converted is None:
            raise SchemaError(f"{what} holds text where a number is expected. Encode it as numbers, or leave it out.")
        array = converted
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise SchemaError(
            f"{what} contains NaN or infinity. Impute or drop such records by a rule that does not depend on "
            "private values."
        )
    return array


def as_matrix(table: nw.DataFrame[Any]) -> Matrix:
    """Columns of a table as a matrix of finite numbers, or a :class:`SchemaError` that names the column."""
    if len(table) == 0 or not table.columns:
        raise SchemaError(f"expected a table with records and columns, got {len(table)} x {len(table.columns)}.")
    columns = []
    for name, series in zip(table.columns, table.iter_columns(), strict=True):
        kind = series.dtype
        if not (kind.is_numeric() or kind in (nw.Boolean, nw.Object)):
            raise SchemaError(
                f"column '{name}' holds {type(kind).__name__} where a number is expected. Encode it as numbers."
            )
        columns.append(as_numbers(series.to_numpy(), what=f"column '{name}'"))
    return np.column_stack(columns)


@dataclass(frozen=True)
class PublicFeatures:
    """Public columns as an (n, d) array: free to read.

    Examples
    --------
    >>> PublicFeatures([[1, 2], [3, 4]])
    PublicFeatures(2 records, columns x0, x1)
    """

    values: Matrix
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _set_matrix(self, "public")

    def __repr__(self) -> str:
        return _describe(self)


@dataclass(frozen=True)
class PrivateFeatures:
    """Private columns as an (n, d) array with declared bounds. Its text never shows a value."""

    values: Matrix = field(repr=False)
    bounds: tuple[Bounds, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _set_matrix(self, "private")
        if len(self.bounds) != self.values.shape[1]:
            raise SchemaError(f"{self.values.shape[1]} private columns need as many bounds, got {len(self.bounds)}.")

    def __repr__(self) -> str:
        return _describe(self)


@dataclass(frozen=True)
class Labels:
    """The label column with declared bounds. Its text never shows a value."""

    values: Matrix = field(repr=False)
    bounds: Bounds
    name: str = "label"

    def __post_init__(self) -> None:
        values = as_numbers(self.values, what=f"label '{self.name}'")
        if values.ndim != 1:
            raise SchemaError(f"label '{self.name}' must be one column, got an array of {values.ndim} dimensions.")
        object.__setattr__(self, "values", values)

    def __repr__(self) -> str:
        return f"Labels({len(self.values)} records, '{self.name}' in [{self.bounds.low}, {self.bounds.high}])"


@dataclass(frozen=True)
class Dataset:
    """Public features, private features (or None) and labels of the same records."""

    public: PublicFeatures
    private: PrivateFeatures | None
    label: Labels

    def __post_init__(self) -> None:
        if not isinstance(self.public, PublicFeatures):
            raise PrivateDataLeak(f"Dataset.public expects PublicFeatures, got {type(self.public).__name__}.")
        lengths = {"public": len(self.public.values), "label": len(self.label.values)}
        if self.private is not None:
            lengths["private"] = len(self.private.values)
        if len(set(lengths.values())) > 1:
            raise SchemaError(f"the parts of a data set must have the same number of records, got {lengths}.")

    @property
    def num_records(self) -> int:
        """Number of records n, which is public."""
        return len(self.label.values)

    @classmethod
    def from_frame(cls, frame: Any, schema: Schema) -> "Dataset":
        """Data set from a pandas, polars or Arrow table and a schema that names its columns."""
        try:
            table = nw.from_native(frame, eager_only=True)
        except TypeError:
            raise SchemaError(f"expected a pandas, polars or Arrow table, got {type(frame).__name__}.") from None
        names = list(table.columns)
        for column in schema.columns:
            if column.name not in names:
                raise SchemaError(f"column '{column.name}' is in the schema but not in the table. It has: {names}.")
        if len(table) == 0:
            raise SchemaError("the table has no rows.")

        def read(columns: Sequence[str]) -> Matrix:
            return as_matrix(table.select(list(columns))) if columns else np.empty((len(table), 0))

        assert schema.label.bounds is not None  # Column has made sure
        return cls(
            public=PublicFeatures(read(schema.public), schema.public),
            private=(
                PrivateFeatures(read(schema.private), schema.private_bounds, schema.private) if schema.private else None
            ),
            label=Labels(read([schema.label.name])[:, 0], schema.label.bounds, schema.label.name),
        )

    @classmethod
    def load(cls, path: str | Path, schema: Schema) -> "Dataset":
        """Data set from a Parquet or CSV file (``.csv`` or ``.csv.gz``); only the schema's columns are read."""
        return cls.from_frame(_read_table(Path(path), [column.name for column in schema.columns]), schema)

    def take(self, index: NDArray[np.intp]) -> "Dataset":
        """The records at these positions."""
        private = self.private
        return Dataset(
            PublicFeatures(self.public.values[index], self.public.names),
            None if private is None else PrivateFeatures(private.values[index], private.bounds, private.names),
            Labels(self.label.values[index], self.label.bounds, self.label.name),
        )

    def split(self, *, test_share: float = 0.2, random_state: int = 42) -> tuple["Dataset", "Dataset"]:
        """Training and test part, the same split as scikit-learn's ``train_test_split``."""
        from sklearn.model_selection import train_test_split

        in_range(0.0, 1.0, test_share=test_share)
        train, test = train_test_split(np.arange(self.num_records), test_size=test_share, random_state=random_state)
        return self.take(train), self.take(test)


def load_features(path: str | Path, schema: Schema) -> tuple[PublicFeatures, PrivateFeatures | None]:
    """Features from a Parquet or CSV file, without the label, which need not be there.

    Columns are read by name; others are not opened.
    """
    table = nw.from_native(_read_table(Path(path), [*schema.public, *schema.private]), eager_only=True)
    if len(table) == 0:
        raise SchemaError("the table has no rows.")
    public = as_matrix(table.select(list(schema.public))) if schema.public else np.empty((len(table), 0))
    private = None
    if schema.private:
        values = as_matrix(table.select(list(schema.private)))
        private = PrivateFeatures(values, schema.private_bounds, schema.private)
    return PublicFeatures(public, schema.public), private


def load_public(path: str | Path, schema: Schema) -> PublicFeatures:
    """Public columns from a Parquet or CSV file.

    Privacy
        Cells of the label and of private columns are not decoded. Their names must be there.
    """
    if not schema.public:
        raise SchemaError("the schema has no public column: there is nothing that could be looked at for free.")
    # A misspelt label would make the label itself a public column.
    _check_names(Path(path), [column.name for column in schema.columns])
    table = nw.from_native(_read_table(Path(path), schema.public), eager_only=True)
    if len(table) == 0:
        raise SchemaError("the table has no rows.")
    return PublicFeatures(as_matrix(table), schema.public)


def read_column_types(path: str | Path, *, leave_out: Collection[str] = ()) -> dict[str, bool]:
    """Names of the columns of a Parquet or CSV file, and whether each holds numbers; nothing else is looked at.

    Of columns in ``leave_out`` not even that: they are not in the answer.
    """
    import pyarrow

    def holds_numbers(kind: Any) -> bool:
        return bool(
            pyarrow.types.is_integer(kind)
            or pyarrow.types.is_floating(kind)
            or pyarrow.types.is_boolean(kind)
            or pyarrow.types.is_decimal(kind)
        )

    names = _read_names(Path(path))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaError(f"column '{twice}' occurs twice in '{path}'. Give each column its own name.")
    _check_names(Path(path), leave_out)
    schema = _read_arrow_schema(Path(path), [name for name in names if name not in leave_out])
    return {field.name: holds_numbers(field.type) for field in schema if field.name not in leave_out}


def _read_names(source: Path) -> list[str]:
    """Names of the columns of a file; of a CSV file only the first line is read."""
    import pyarrow.parquet

    if not source.exists():
        raise SchemaError(f"the data file '{source}' does not exist.")
    if source.is_dir():
        raise SchemaError(f"'{source}' is a folder. Give a Parquet or CSV file.")
    names: list[str] = []
    try:
        if source.suffix == ".parquet":
            return list(pyarrow.parquet.read_schema(source).names)
        with pyarrow.input_stream(str(source), compression="detect") as stream:
            line = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="").readline()
            names = next(csv.reader([line], strict=True), [])
    except (pyarrow.ArrowInvalid, OSError, UnicodeDecodeError, csv.Error):
        pass  # raised below, outside: the original message may quote a line of the file
    if not names:
        raise SchemaError(f"the data file '{source}' is empty, or not a valid {source.suffix or 'CSV'} file.")
    if any(_looks_like_data(name) for name in names):
        raise SchemaError(
            f"the first line of '{source}' holds numbers where names of columns are expected. Add a header, with "
            "commas between the names; a column whose name is a number must be renamed, because the name could be a "
            "private value."
        )
    return names


def _read_arrow_schema(source: Path, names: Sequence[str]) -> Any:
    """Types of these columns of a file; of other columns of a CSV file no cell is converted."""
    import pyarrow.csv
    import pyarrow.parquet

    found = None
    try:
        if source.suffix == ".parquet":
            found = pyarrow.parquet.read_schema(source)
        else:
            options = pyarrow.csv.ConvertOptions(include_columns=list(names))
            with pyarrow.csv.open_csv(source, convert_options=options) as reader:
                found = reader.schema
    except (pyarrow.ArrowInvalid, OSError, UnicodeDecodeError):
        pass  # raised below, outside: the original message quotes a line of the file
    if found is None:
        raise SchemaError(f"the data file '{source}' is empty, or not a valid {source.suffix or 'CSV'} file.")
    return found


def _looks_like_data(text: str) -> bool:
    """Whether a name is, or holds, what may be a cell: a number, also with a currency or in another notation."""
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
    """Raise unless a file has each of these columns once."""
    present = _read_names(source)
    for name in names:
        if name not in present:
            near = difflib.get_close_matches(name.lower(), {each.lower(): each for each in present}, n=1)
            hint = next((f" Is '{each}' meant?" for each in present if [each.lower()] == near), "")
            raise SchemaError(f"column '{name}' is declared but not among the {len(present)} of '{source}'.{hint}")
        if present.count(name) > 1:
            raise SchemaError(f"column '{name}' occurs twice in '{source}'. Give each column its own name.")


def _read_table(source: Path, names: Sequence[str]) -> Any:
    """Columns of a Parquet or CSV file as an Arrow table; no other column is opened."""
    import pyarrow.csv
    import pyarrow.parquet

    _check_names(source, names)
    table = None
    try:
        if source.suffix == ".parquet":
            table = pyarrow.parquet.read_table(source, columns=list(names))
        else:
            options = pyarrow.csv.ConvertOptions(include_columns=list(names))
            table = pyarrow.csv.read_csv(source, convert_options=options)
    except (pyarrow.ArrowInvalid, OSError):
        pass  # raised below, outside: the original message quotes a line of the file
    if table is None:
        raise SchemaError(
            f"the data file '{source}' is damaged, or a column changes its type on the way: a number further up, text "
            "further down."
        )
    return table


def require_public(value: object, *, function: str) -> PublicFeatures:
    """The value if it is PublicFeatures; otherwise :class:`PrivateDataLeak`."""
    if not isinstance(value, PublicFeatures):
        hint = " Pass dataset.public." if isinstance(value, Dataset) else " Wrap public columns in PublicFeatures."
        raise PrivateDataLeak(f"{function} expects PublicFeatures, got {type(value).__name__}.{hint}")
    return value


def _set_matrix(part: PublicFeatures | PrivateFeatures, role: str) -> None:
    """Check and store values and names of a feature block."""
    array = np.asarray(part.values)
    if array.ndim != 2:
        raise SchemaError(f"{role} features must be a table of n records and d columns, got {array.ndim} dimensions.")
    if len(array) == 0:
        raise SchemaError(f"{role} features have no records.")
    letter = "x" if role == "public" else "q"  # so that public and private columns without names differ
    names = tuple(part.names) or tuple(f"{letter}{j}" for j in range(array.shape[1]))
    if len(names) != array.shape[1]:
        raise SchemaError(f"{array.shape[1]} {role} columns need as many names, got {len(names)}.")
    object.__setattr__(part, "names", names)
    try:
        object.__setattr__(part, "values", as_numbers(array, what=f"{role} features"))
    except SchemaError:
        for name, column in zip(names, array.T, strict=True):
            as_numbers(column, what=f"{role} column '{name}'")
        raise


def _describe(part: PublicFeatures | PrivateFeatures) -> str:
    names = ", ".join(part.names[:8]) + (", ..." if len(part.names) > 8 else "")
    return f"{type(part).__name__}({len(part.values)} records, columns {names})"
