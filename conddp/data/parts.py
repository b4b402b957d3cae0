"""Public features, private features and labels, kept apart by type.

A function that must not cost any budget takes :class:`PublicFeatures`, so it cannot receive a label by mistake.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from typing import Any, cast

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from conddp.bounds import Bounds
from conddp.categories import Categories
from conddp.data.numpy_cells import to_numpy
from conddp.data.ranges import has_infinity, has_nan, is_finite
from conddp.errors import PrivateDataLeak, SchemaError

__all__ = [
    "Domain",
    "Labels",
    "PrivateFeatures",
    "PublicFeatures",
    "SparseMatrix",
    "as_column",
    "as_numbers",
    "require_public",
]

Matrix = NDArray[np.floating[Any]]
Domain = Bounds | Categories  # what is declared of a private column
SparseMatrix = csr_array[np.float64, tuple[int, int]]

LARGEST_DENSE = 2**28  # cells of a sparse matrix that may be expanded: 2 GB

GAP_CURE = "Impute or drop such records by a rule that does not depend on private values."
LABEL_CURE = (
    "If everyone may know which labels are missing, set missing_labels='public': these records are then dropped. "
    "Otherwise replace missing labels by a fixed value within the declared range."
)


def as_numbers(values: object, *, what: str, finite: bool = True, gaps: bool = False, cure: str = GAP_CURE) -> Matrix:
    """Convert values to a float array, or raise a :class:`SchemaError` that names ``what`` but no value.

    Numbers beyond the range of floating point become infinite.

    Privacy
        What is refused depends on types, and on missing values and text, which cannot be clamped to a range. There is
        no warning, since its presence would depend on private values.

    Parameters
    ----------
    values : array
        Numbers, or text or objects that are numbers.
    what : str
        Name for error messages.
    finite : bool
        Whether to refuse infinite values too. Private values are clamped to their bounds instead.
    gaps : bool
        Whether missing values are allowed, as in public columns. They become NaN.
    cure : str
        What to do about missing values, for error messages.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise SchemaError(
            f"{what} is a masked array, whose hidden values would be used. Replace them by a fixed value within the "
            "declared range, with filled(value)."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about masked elements of a list, for example
            array = np.asarray(values)
    except ValueError:
        raise SchemaError(f"{what} must be rectangular: rows of the same length, with one number per cell.") from None
    if np.iscomplexobj(array):
        raise SchemaError(f"Complex data not supported: {what} must hold real numbers.")
    if array.dtype.kind in "mM":
        raise _refuse_times(what)
    if array.dtype.kind not in "fiub":
        array = _convert_cells(array, what)
    if array.dtype not in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            array = array.astype(np.float64)
    both = finite and not gaps
    if not is_finite(array) if both else (finite and has_infinity(array)) or (not gaps and has_nan(array)):
        raise SchemaError(f"{what} contains {'NaN or infinity' if finite else 'NaN'}. {cure}")
    return array


def _convert_cells(array: NDArray[Any], what: str) -> NDArray[np.float64]:
    """Convert objects and text to numbers, one at a time."""
    problem: Exception | None = None
    try:
        return np.array([_convert_cell(cell) for cell in array.ravel().tolist()], dtype=np.float64).reshape(array.shape)
    except _Time:
        problem = _refuse_times(what)
    except TypeError:
        problem = TypeError(f"{what} holds objects where numbers are expected: argument must be a string or a number.")
    except Exception:  # cells may be objects of any kind, with errors of their own
        problem = SchemaError(f"{what} holds text where a number is expected. Encode it as numbers, or leave it out.")
    raise problem  # outside the except blocks, because the original message may quote the cell


class _Time(Exception):  # noqa: N818  (never leaves this file)
    """A cell is a date or a time."""


def _convert_cell(cell: Any) -> float:
    if cell is None or cell is np.ma.masked or type(cell).__name__ in ("NAType", "NaTType"):  # missing, in pandas
        return math.nan
    if isinstance(cell, (date, time, timedelta, np.datetime64, np.timedelta64)):
        raise _Time
    try:
        return float(cell)
    except OverflowError:
        return math.copysign(math.inf, -1 if cell < 0 else 1)


def _refuse_times(what: str) -> SchemaError:
    return SchemaError(
        f"{what} holds dates or times, whose number depends on their unit. Convert them to numbers, for example to "
        "days since a fixed date."
    )


def as_column(
    series: nw.Series[Any], *, what: str, finite: bool = True, gaps: bool = False, cure: str = GAP_CURE
) -> Matrix:
    """Convert a column of a table to numbers, or raise a :class:`SchemaError` that names ``what`` but no value."""
    kind = series.dtype
    if isinstance(kind, (nw.Datetime, nw.Date, nw.Time, nw.Duration)):
        raise _refuse_times(what)
    if not (kind.is_numeric() or kind in (nw.Boolean, nw.Object)):
        raise SchemaError(f"{what} holds {_name_kind(kind)} where a number is expected. Convert it to numbers.")
    return as_numbers(to_numpy(series), what=what, finite=finite, gaps=gaps, cure=cure)


class PublicFeatures:
    """Public columns, shape (n, d), as an array or as a sparse matrix. Reading them costs nothing.

    Parameters
    ----------
    values : array of shape (n, d), or SciPy sparse matrix or array
        The features. A sparse matrix of any format is stored as CSR.
    names : sequence of str
        Their names; x0, x1, ... if empty.
    groups : array of shape (d,), optional
        Number of the group of each feature, such as the indicators of one category. Features of a group are scaled by
        one factor, so that those that vary less count less. If None, each feature is scaled by its own deviation.
    num_codes : int
        Number of columns, counted from the first, that hold bins of categories rather than quantities. Only heads that
        look them up can use them.

    Examples
    --------
    >>> PublicFeatures([[1, 2], [3, 4]])
    PublicFeatures(2 records, columns x0, x1)
    >>> from scipy.sparse import eye_array
    >>> PublicFeatures(eye_array(3), ["a", "b", "c"]).values[0].tolist()
    [1.0, 0.0, 0.0]
    """

    names: tuple[str, ...]
    groups: NDArray[np.intp] | None
    _matrix: "Matrix | SparseMatrix"
    _dense: Matrix | None

    num_codes: int
    derived: dict[Any, Any] | None = None  # what was computed from these features, if it is kept

    def __init__(
        self,
        values: Any,
        names: Sequence[str] = (),
        groups: NDArray[np.intp] | None = None,
        *,
        num_codes: int = 0,
    ) -> None:
        if issparse(values):
            self._matrix, self.names = _as_named_csr(values, names)
            self._dense = None
        else:
            array, self.names = _as_named_matrix(values, names, "public")
            self._matrix = self._dense = array
        self.groups, self.num_codes = groups, num_codes
        if groups is not None and np.shape(groups) != self.shape[1:]:
            raise SchemaError(f"expected one group for each of {self.shape[1]} public columns.")

    @staticmethod
    def of_finite(
        values: Matrix, names: Sequence[str], groups: NDArray[np.intp] | None = None, *, num_codes: int = 0
    ) -> "PublicFeatures":
        """Take an array that is known to hold finite numbers, without looking at each."""
        made = PublicFeatures.__new__(PublicFeatures)
        made._matrix = made._dense = values
        made.names, made.groups, made.num_codes = _check_names("public", names, values.shape), groups, num_codes
        return made

    def keep_moments(self) -> "PublicFeatures":
        """Keep moments for the next call, on condition that no cell will change. Returns the features themselves."""
        self.derived = {} if self.derived is None else self.derived
        return self

    @property
    def matrix(self) -> "Matrix | SparseMatrix":
        """Columns as they are stored: an array or a CSR matrix. Both support ``@`` and slices of rows."""
        return self._matrix

    @property
    def sparse(self) -> SparseMatrix | None:
        """Columns as a CSR matrix in canonical form, if they are stored as one; otherwise None."""
        return self._matrix if isinstance(self._matrix, csr_array) else None

    @property
    def values(self) -> Matrix:
        """Columns as an array. A sparse matrix is expanded and kept, if it is not too large.

        Raises
        ------
        SchemaError
            If a sparse matrix has more than 2**28 cells.
        """
        if self._dense is None:
            self.check_dense()
            self._dense = self.get_block(slice(None))
        return self._dense

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of records n and of columns d."""
        n, d = self._matrix.shape
        return int(n), int(d)

    def get_block(self, span: slice) -> Matrix:
        """Return a block of records as an array. Only this block of a sparse matrix is expanded."""
        block = self._matrix[span]
        return np.asarray(block.toarray() if isinstance(block, csr_array) else block)

    def get_columns(self, span: slice) -> Matrix:
        """Return some columns as an array."""
        columns = self._matrix[:, span]
        return np.asarray(columns.toarray() if isinstance(columns, csr_array) else columns)

    def drop_codes(self, num_codes: int) -> "PublicFeatures":
        """Return the columns after the first ``num_codes``, which are quantities; these features if it is 0."""
        if not num_codes:
            return self
        groups = None if self.groups is None else self.groups[num_codes:]
        names = self.names[num_codes:]
        if isinstance(self._matrix, csr_array):
            return PublicFeatures(self._matrix[:, num_codes:], names, groups)
        return PublicFeatures.of_finite(self._matrix[:, num_codes:], names, groups)

    def check_dense(self) -> None:
        """Raise a :class:`SchemaError` if a sparse matrix is too large to be expanded to an array."""
        n, d = self.shape
        if self.sparse is not None and n * d > LARGEST_DENSE:
            raise SchemaError(
                f"the public features are a sparse matrix of {n:,} x {d:,}, and this algorithm or head needs all cells "
                f"in memory: {8 * n * d / 1e9:,.0f} GB, where {8 * LARGEST_DENSE / 1e9:,.1f} GB are allowed. Use a "
                "linear head with CondNewton (public columns only), CondDP, SwitchCondDP or DPSGD, or fewer columns."
            )

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> "PublicFeatures":
        """Select records by slice or by positions. Sparse features stay sparse."""
        if isinstance(self._matrix, csr_array):
            return PublicFeatures(self._matrix[index], self.names, self.groups, num_codes=self.num_codes)
        return PublicFeatures.of_finite(self._matrix[index], self.names, self.groups, num_codes=self.num_codes)

    def __repr__(self) -> str:
        return _describe(self)


def _name_kind(kind: Any) -> str:
    if kind in (nw.Categorical, nw.Enum):
        return "categories"
    return "text" if kind == nw.String else f"{type(kind).__name__} values"


@dataclass(frozen=True)
class PrivateFeatures:
    """Private columns as an array of shape (n, d), with declared bounds or categories. The repr never shows a value.

    Infinite numbers are clamped to the bounds at once; other numbers outside are clamped by the algorithms. The value
    of a category is its place among the declared ones, counted from 0. Anything else is stored as -1 and stands for
    none of them.

    Parameters
    ----------
    values : array of shape (n, d)
        Numbers, and places of categories.
    domains : tuple of Bounds or Categories
        What is declared of each column.
    names : tuple of str
        Names of the columns.
    """

    values: Matrix = field(repr=False)
    domains: tuple[Domain, ...]
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "PrivateFeatures":
        """Select records by slice or by positions."""
        return PrivateFeatures(self.values[index], self.domains, self.names)

    def __post_init__(self) -> None:
        values, names = _as_named_matrix(self.values, self.names, "private")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "domains", tuple(self.domains))
        if len(self.domains) != self.values.shape[1]:
            raise SchemaError(
                f"expected bounds or categories for each of {self.values.shape[1]} private columns, "
                f"got {len(self.domains)}."
            )
        if any(isinstance(domain, Categories) for domain in self.domains) or np.isinf(self.values).any():
            columns = [
                _read_places(column, domain) if isinstance(domain, Categories) else _clamp_infinite(column, domain)
                for column, domain in zip(self.values.T, self.domains, strict=True)
            ]
            object.__setattr__(self, "values", np.column_stack(columns))

    def __repr__(self) -> str:
        return _describe(self)


@dataclass(frozen=True)
class Labels:
    """The label column with declared bounds. The repr never shows a value.

    Infinite values are clamped to the bounds at once; other values outside are clamped by the algorithms.
    """

    values: Matrix = field(repr=False)
    bounds: Bounds
    name: str = "label"

    def __post_init__(self) -> None:
        values = as_numbers(self.values, what=f"label '{self.name}'", finite=False, cure=LABEL_CURE)
        if values.ndim != 1:
            raise SchemaError(f"label '{self.name}' must be one column, got an array with {values.ndim} dimensions.")
        object.__setattr__(self, "values", _clamp_infinite(values, self.bounds))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "Labels":
        """Select records by slice or by positions."""
        return Labels(self.values[index], self.bounds, self.name)

    def __repr__(self) -> str:
        return f"Labels({len(self)} records, '{self.name}' in [{self.bounds.low}, {self.bounds.high}])"


def require_public(value: object, *, function: str) -> PublicFeatures:
    """Return the value if it is PublicFeatures; otherwise raise :class:`PrivateDataLeak`."""
    if not isinstance(value, PublicFeatures):
        hint = "Pass its attribute 'public'." if hasattr(value, "public") else "Wrap public columns in PublicFeatures."
        raise PrivateDataLeak(f"{function} expects PublicFeatures, got {type(value).__name__}. {hint}")
    return value


def _as_named_matrix(array: Any, names: Sequence[str], role: str) -> tuple[Matrix, tuple[str, ...]]:
    """Validate the values and names of a feature block."""
    finite = role == "public"
    if not isinstance(array, np.ndarray):
        array = as_numbers(array, what=f"{role} features", finite=finite)
    names = _check_names(role, names, array.shape)
    try:
        return as_numbers(array, what=f"{role} features", finite=finite), names
    except SchemaError:
        for name, column in zip(names, array.T, strict=True):
            as_numbers(column, what=f"{role} column '{name}'", finite=finite)
        raise


def _check_names(role: str, names: Sequence[str], shape: tuple[int, ...]) -> tuple[str, ...]:
    """Names of the columns of an array of this shape; made up if there are none."""
    if len(shape) != 2:
        raise SchemaError(f"{role} features must have shape (n, d), got an array with {len(shape)} dimensions.")
    if shape[0] == 0:
        raise SchemaError(f"{role} features have no records.")
    letter = "x" if role == "public" else "q"  # so that default names of public and private columns differ
    names = tuple(names) or tuple(f"{letter}{j}" for j in range(shape[1]))
    if len(names) != shape[1]:
        raise SchemaError(f"expected one name for each of {shape[1]} {role} columns, got {len(names)}.")
    if len(set(names)) < len(names):
        raise SchemaError(f"{role} columns must have different names.")
    return names


def _as_named_csr(values: Any, names: Sequence[str]) -> tuple[SparseMatrix, tuple[str, ...]]:
    """Convert a sparse matrix to CSR with sorted positions, each once, and without zeros; never in place."""
    names = _check_names("public", names, values.shape)
    if values.dtype.kind not in "fiub":
        as_numbers(np.zeros(1, dtype=values.dtype), what="public features")  # says what is wrong with the type
        raise SchemaError(f"public features must hold numbers, got a sparse matrix of {values.dtype}.")
    matrix = csr_array(values)
    if not matrix.has_canonical_format:
        matrix = csr_array(values, copy=True)
        matrix.sum_duplicates()
    matrix = matrix.astype(np.float64, copy=False)
    if not np.isfinite(matrix.data).all():
        position = int(matrix.indices[~np.isfinite(matrix.data)].min())
        as_numbers([np.nan], what=f"public column '{names[position]}'")
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    return cast("SparseMatrix", matrix), names


def _clamp_infinite(values: Matrix, bounds: Bounds) -> Matrix:
    """Replace infinite values by the bound that they exceed."""
    infinite = np.isinf(values)
    return np.where(infinite, bounds.clamp(values), values) if infinite.any() else values


def _read_places(values: Matrix, categories: Categories) -> Matrix:
    """Replace everything that is not the place of a category by -1."""
    known = (values >= 0) & (values < len(categories)) & (values == np.floor(values))
    return np.where(known, values, -1.0).astype(values.dtype, copy=False)


def _describe(part: PublicFeatures | PrivateFeatures) -> str:
    names = ", ".join(part.names[:8]) + (", ..." if len(part.names) > 8 else "")
    return f"{type(part).__name__}({len(part)} records, columns {names})"
