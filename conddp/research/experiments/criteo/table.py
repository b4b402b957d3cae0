"""The Criteo table in memory: its columns in the forms that the methods need, each computed once."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from conddp.data.column import Kind
from conddp.data.parts import PublicFeatures
from conddp.data.passes import list_blocks
from conddp.data.public_table import PublicTable
from conddp.data.records import Records
from conddp.data.scaling import scale_label
from conddp.features.encoding import Encoding
from conddp.features.grouped_rows import GroupedRows
from conddp.research.criteo.columns import CATEGORIES, NUMBERS
from conddp.research.criteo.loading import UNITS, BinnedRows

__all__ = ["CriteoTable", "SingleRows"]


@dataclass(frozen=True, eq=False)
class SingleRows:
    """Sparse rows times a matrix, in single precision, for many gradient steps; never formed.

    Like :class:`~conddp.features.conditioned_rows.ConditionedRows`, in half the time, without a bound on rounding.

    Parameters
    ----------
    columns : sparse array of shape (n, d)
        The rows, with a column of ones.
    matrix : array of shape (d, k), optional
        The matrix; the identity if None.
    """

    columns: Any
    matrix: NDArray[Any] | None = None

    __array_ufunc__ = None  # so that array @ rows is left to __rmatmul__

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of directions."""
        n, d = self.columns.shape
        return int(n), int(d if self.matrix is None else self.matrix.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> "SingleRows":
        """Select records."""
        return replace(self, columns=self.columns[index])

    def __rmatmul__(self, factors: NDArray[Any]) -> NDArray[Any]:
        sums = (self.columns.T @ factors.T).T
        return np.asarray(sums if self.matrix is None else sums @ self.matrix)

    @property
    def T(self) -> "_Transposed":  # noqa: N802  (the name that arrays use)
        """Transposed rows, for products ``weights @ rows.T``."""
        return _Transposed(self)

    def fold(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Weights of the columns from weights of the directions, shape (K, k)."""
        return weights if self.matrix is None else np.asarray((self.matrix @ np.ascontiguousarray(weights.T)).T)


@dataclass(frozen=True, eq=False)
class _Transposed:
    rows: SingleRows

    __array_ufunc__ = None

    def __rmatmul__(self, weights: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((self.rows.columns @ self.rows.fold(weights).T).T)


@dataclass(frozen=True, eq=False)
class CriteoTable:
    """Training and test records, and what is computed from their public columns.

    Privacy
        Test labels are read: for data that need no protection.

    Parameters
    ----------
    binned_train, binned_test : BinnedRows
        The rows.
    real : bool
        Whether these are the published records. Printed numbers are shown beside them only.
    name : str
        What the records are, in words.
    digest : str
        Of the records, so that interrupted runs on other records are not continued on these.
    """

    binned_train: BinnedRows
    binned_test: BinnedRows
    real: bool
    name: str
    digest: str = ""

    @cached_property
    def train(self) -> Records:
        """Training records with sparse public features."""
        return self.binned_train.to_records()

    @cached_property
    def test(self) -> Records:
        """Test records with sparse public features."""
        return self.binned_test.to_records()

    @cached_property
    def whitened(self) -> GroupedRows:
        """Whitened training rows with a constant, as CondNewton makes them for large tables."""
        return GroupedRows.of(self.train.public)

    @cached_property
    def label(self) -> NDArray[Any]:
        """Training labels, scaled to [-1/2, 1/2], in single precision."""
        return scale_label(self.train.label, dtype=np.float32)

    @cached_property
    def single(self) -> tuple[Any, Any]:
        """Public columns of training and test records and a column of ones, in single precision."""
        return _add_ones(self.train.public), _add_ones(self.test.public)

    @cached_property
    def coded(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Bins, numbers and a column of ones of training and test records, in single precision, for embeddings."""
        return _add_bins(self.binned_train), _add_bins(self.binned_test)

    @cached_property
    def encoded(self) -> tuple[PublicFeatures, PublicFeatures]:
        """Features of training and test records with each category encoded on its own, as a fit of a table does."""
        train, test = (_make_table(rows) for rows in (self.binned_train, self.binned_test))
        encoding = Encoding.of(train)
        return encoding.transform(train), encoding.transform(test)

    @property
    def delta(self) -> float:
        """One over the number of training records, as in the paper."""
        return 1.0 / self.train.num_records

    def measure(self, scaled: NDArray[Any]) -> float:
        """Test MSE of predictions in units of scaled labels, clamped to the bounds."""
        label = self.test.label
        predicted = label.bounds.midpoint + label.bounds.width * np.clip(scaled.astype(np.float64), -0.5, 0.5)
        return float(np.mean((predicted - label.bounds.clamp(label.values)) ** 2))

    def measure_weights(self, weights: NDArray[np.float64]) -> float:
        """Test MSE of a linear model with these weights of the columns and the constant, for scaled labels."""
        public = self.test.public
        parts = [public[span].matrix @ weights[:-1] + weights[-1] for span in list_blocks(len(public))]
        return self.measure(np.concatenate(parts))

    @cached_property
    def constant(self) -> float:
        """Test MSE of the mean of the training labels."""
        return self.measure(np.full(self.test.num_records, self.label.mean(dtype=np.float64)))


def _make_table(rows: BinnedRows) -> PublicTable:
    """The columns of a converted folder: numbers as they were, with gaps where 0 stands for one, and bins."""
    numbers = np.where(rows.numbers == 0, np.nan, np.expm1(rows.numbers * UNITS))
    columns = {name: pa.array(numbers[:, place]) for place, name in enumerate(NUMBERS)}
    columns |= {name: pa.array(rows.bins[:, place]) for place, name in enumerate(CATEGORIES)}
    return PublicTable.of(pa.table(columns), kinds=dict.fromkeys(CATEGORIES, Kind.CATEGORY))


def _add_ones(public: PublicFeatures) -> Any:
    ones = sp.csr_array(np.ones((len(public), 1), dtype=np.float32))
    return sp.hstack([sp.csr_array(public.matrix).astype(np.float32), ones], format="csr")


def _add_bins(rows: BinnedRows) -> NDArray[Any]:
    return np.hstack([rows.bins, rows.numbers, np.ones((len(rows), 1))], dtype=np.float32)
