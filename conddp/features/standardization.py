"""Means, scales and correlations of public columns, computed in one pass for conditioning and whitening."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from conddp.data.parts import Matrix, PublicFeatures, SparseMatrix, require_public
from conddp.data.passes import BLOCK_SIZE, count_rows_in_cache, list_blocks, run_pass
from conddp.errors import SchemaError
from conddp.features.stored_features import StoredFeatures

__all__ = ["FeatureBlocks", "Standardization", "add_by_group", "choose_signs", "count_rows_of_product", "is_large"]

ROWS_AT_ONCE = 65536  # rows that approximate means are taken from, and that are multiplied by C at once
FEWEST_ROWS_OF_PRODUCT = 512  # fewer are multiplied by a matrix less efficiently
SPARSE_ROWS_AT_ONCE = 2**18  # same, for sparse products, whose results take more memory than their rows
LARGEST_IN_MEMORY = 2**27  # cells of public rows that are whitened or conditioned in memory: 1 GB
NO_WEIGHTS = "records of a table that is read from files block by block cannot have weights yet. Use one file."
TOO_LARGE = "a public column is too large to be squared in floating point. Scale it down."


def is_large(public_features: PublicFeatures) -> bool:
    """Whether there are so many cells that whitened and conditioned rows are not kept in memory.

    This depends on the size alone. Sparse features below the limit are expanded block by block and give the same
    numbers as dense features, bit for bit.
    """
    n, d = public_features.shape
    return exceeds_memory(n, d)


def exceeds_memory(num_records: int, num_columns: int) -> bool:
    """Same as :func:`is_large`, for given numbers of records and columns."""
    return num_records * num_columns > LARGEST_IN_MEMORY


def choose_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Signs that make the largest entry of every column positive. Eigenvectors have arbitrary signs otherwise."""
    if not vectors.size:
        return np.ones(vectors.shape[1])
    largest = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=0)[None], axis=0)[0]
    return np.where(largest < 0, -1.0, 1.0)


@dataclass(frozen=True)
class Standardization:
    """Moments of public columns, which are centred if the model has an intercept.

    Privacy
        Reads public columns only: no cost.

    Parameters
    ----------
    num_records : int
        Number of records n.
    total_weight : float
        Sum of the weights of the records; n without weights.
    center, variance : arrays of shape (d,)
        Mean of each column (zero without an intercept), and mean squared deviation from it.
    varies : array of shape (d,)
        Whether a column varies by more than rounding errors.
    scale : array of shape (d,)
        Square root of the variance, or of the sum of the variances of its group; 1 for a constant column.
    gram : array of shape (d, d)
        Gram matrix of the standardised columns; zero for constant columns.
    """

    num_records: int
    total_weight: float
    center: NDArray[np.float64]
    variance: NDArray[np.float64]
    varies: NDArray[np.bool_]
    scale: NDArray[np.float64]
    gram: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        public_features: PublicFeatures | Iterable[PublicFeatures],
        *,
        constant: bool,
        function: str,
        weights: NDArray[np.float64] | None = None,
    ) -> "Standardization":
        """Compute moments of public features, or of an iterator over chunks of them, in one pass.

        Moments of features in files, or of those that were told to, are kept with them for the next call.

        With an intercept, an approximate mean of every column is subtracted first, so that columns far from zero, such
        as dates, do not lose precision. Large sparse features are summed by sparse products. A mean is then subtracted
        from the columns that have no implicit zero; the others include zero among their values.

        Parameters
        ----------
        public_features : PublicFeatures or iterable of PublicFeatures
            Public features, whole or in chunks of rows.
        constant : bool
            Whether to centre the columns.
        function : str
            Name of the calling function, for error messages.
        weights : array of shape (n,), optional
            Weights of the records; all moments are then weighted.
        """
        derived = public_features.derived if isinstance(public_features, PublicFeatures) and weights is None else None
        if derived is not None:
            kept: Standardization | None = derived.get(("moments", constant))
            if kept is None:
                kept = cls._compute(public_features, constant=constant, function=function, weights=None)
                derived["moments", constant] = kept
            return kept
        return cls._compute(public_features, constant=constant, function=function, weights=weights)

    @classmethod
    def _compute(
        cls,
        public_features: PublicFeatures | Iterable[PublicFeatures],
        *,
        constant: bool,
        function: str,
        weights: NDArray[np.float64] | None,
    ) -> "Standardization":
        gram, total, shift, num_records, groups = _sum_moments(
            public_features, constant=constant, function=function, weights=weights
        )
        n = float(num_records) if weights is None else float(weights.sum())
        center = np.zeros(len(gram))
        if constant:
            moved = total / n  # from the shift to the mean
            gram -= n * np.outer(moved, moved)
            center = shift + moved
        variance = np.maximum(np.diag(gram) / n, 0.0)
        varies = variance > (1e-12 * center) ** 2
        scale = np.where(varies, np.sqrt(add_by_group(variance, groups)), 1.0)
        gram = np.where(np.outer(varies, varies), gram / np.outer(scale, scale), 0.0)
        return cls(num_records, n, center, variance, varies, scale, gram)

    @property
    def column_scales(self) -> NDArray[np.float64]:
        """Root mean square of each column; 1 for a column of zeros."""
        with np.errstate(over="ignore"):
            mean_square = self.variance + self.center**2
        if not np.isfinite(mean_square).all():
            raise SchemaError(TOO_LARGE)
        return np.where(mean_square > 0, np.sqrt(mean_square), 1.0)

    def divide(self, divisors: NDArray[np.float64]) -> "Standardization":
        """Return the moments of the columns divided by these numbers, each scaled by its own deviation."""
        variance = self.variance / divisors**2
        scale = np.where(self.varies, np.sqrt(variance), 1.0)
        ratio = self.scale / (divisors * scale)
        gram = self.gram * np.outer(ratio, ratio)
        return Standardization(
            self.num_records, self.total_weight, self.center / divisors, variance, self.varies, scale, gram
        )


def _sum_moments(
    public_features: PublicFeatures | Iterable[PublicFeatures],
    *,
    constant: bool,
    function: str,
    weights: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], int, NDArray[np.intp] | None]:
    """Sums of outer products and of rows, the shift subtracted from the columns, the number of rows, and the groups."""
    if isinstance(public_features, StoredFeatures):
        if weights is not None:
            raise SchemaError(NO_WEIGHTS)
        return _sum_stored(public_features, constant=constant)
    gram: NDArray[np.float64] | None = None
    groups: NDArray[np.intp] | None = None
    total = shift = np.zeros(0)
    num_records = 0
    for column in _list_chunks(public_features, function):
        n, d = len(column), column.public.shape[1]
        if gram is None:
            gram, total, shift = np.zeros((d, d)), np.zeros(d), _choose_shift(column[: column.rows_for_shift])
        elif len(shift) != d:
            raise SchemaError("chunks of public features must all have the same columns.")
        part = None if weights is None else weights[num_records : num_records + n]
        sum_block = _SumMoments(shift if constant else np.zeros(d), part)
        size, num_cells = (SPARSE_ROWS_AT_ONCE, 0) if column.by_products else (BLOCK_SIZE, n * d)
        products, sums = run_pass(sum_block, column, block_size=size, num_cells=num_cells)
        gram += products
        total = total + sums
        num_records, groups = num_records + n, column.public.groups
    if gram is None:
        raise SchemaError("there are no public features: the iterator of chunks is empty.")
    _check_sums(gram, constant=constant)
    return gram, total, shift, num_records, groups


def _check_sums(gram: NDArray[np.float64], *, constant: bool) -> None:
    if not np.isfinite(gram).all():
        raise SchemaError(TOO_LARGE)
    if len(gram) == 0 and not constant:
        raise SchemaError(
            "there is no public column and no intercept. Make a column public, or keep fit_intercept=True."
        )


def _sum_stored(
    features: StoredFeatures, *, constant: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], int, NDArray[np.intp] | None]:
    """Same as :func:`_sum_moments` for features in files, by one pass over them. The sums are kept for the next call.

    The sums are those about the shift, with or without a constant column.
    """
    column = features.column
    if "sums" not in features.derived:
        shift = _choose_shift(features.read(slice(0, min(len(features), column.rows_at_once))))
        size = SPARSE_ROWS_AT_ONCE if features.sparsely else column.rows_at_once
        features.derived["sums"] = (*run_pass(_SumMoments(shift), column, block_size=size), shift)
    gram, total, shift = features.derived["sums"]
    _check_sums(gram, constant=constant)
    if constant:
        return gram.copy(), total, shift, len(features), features.groups
    n = float(len(features))
    gram = gram + np.outer(shift, total) + np.outer(total, shift) + n * np.outer(shift, shift)
    return gram, total + n * shift, np.zeros(len(shift)), len(features), features.groups


@dataclass(frozen=True)
class _SumMoments:
    """Sums of outer products and of rows of a block, after a shift."""

    shift: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None

    def __call__(self, span: slice, X: Matrix | SparseMatrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        weights = None if self.weights is None else self.weights[span]
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(X, csr_array):
                return _sum_sparse(X, self.shift, weights)
            return _sum_dense(X, self.shift, weights)


def _choose_shift(X: Matrix | SparseMatrix) -> NDArray[np.float64]:
    """Means of the columns; 0 for sparse columns with implicit zeros."""
    if not isinstance(X, csr_array):
        return np.asarray(X.astype(np.float64, order="C", copy=False).mean(axis=0))  # in one order, however stored
    return np.asarray(np.where(find_full_columns(X), X.sum(axis=0) / X.shape[0], 0.0))


def find_full_columns(X: SparseMatrix) -> NDArray[np.bool_]:
    """Whether each column of a sparse matrix has no implicit zero."""
    return np.asarray(np.bincount(X.indices, minlength=X.shape[1]) == X.shape[0])


def subtract_from_stored(X: SparseMatrix, shift: NDArray[np.float64]) -> SparseMatrix:
    """Subtract from the stored values of each column. The shift of columns with implicit zeros must be 0."""
    return csr_array((X.data - shift[X.indices], X.indices, X.indptr), shape=X.shape) if shift.any() else X


def _sum_dense(
    X: Matrix, shift: NDArray[np.float64], weights: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of outer products and of rows, in parts that fit into the processor cache."""
    d = X.shape[1]
    gram, total, shifted = np.zeros((d, d)), np.zeros(d), bool(shift.any())
    size = max(1, min(len(X), count_rows_of_product(d)))
    buffer = np.empty((size, d))
    for span in list_blocks(len(X), block_size=size):
        part = X[span]
        if shifted or part.dtype != np.float64 or not part.flags.c_contiguous:  # all memory orders give the same
            part = np.subtract(part, shift, out=buffer[: len(part)])
        scaled = part if weights is None else part * weights[span, None]
        gram += scaled.T @ part
        total += np.ones(len(part)) @ scaled
    return gram, total


def count_rows_of_product(num_columns: int) -> int:
    """Return the number of rows that are best multiplied by a matrix at once."""
    return max(count_rows_in_cache(num_columns), FEWEST_ROWS_OF_PRODUCT, num_columns)


def _sum_sparse(
    X: SparseMatrix, shift: NDArray[np.float64], weights: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of outer products and of rows, by sparse products."""
    stored = np.where(find_full_columns(X), shift, 0.0)
    block = subtract_from_stored(X, stored)
    scaled, weight = block, float(X.shape[0])
    if weights is not None:
        scaled = csr_array((block.data * np.repeat(weights, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)
        weight = float(weights.sum())
    gram = (scaled.T @ block).toarray()
    total: NDArray[np.float64] = np.asarray(scaled.sum(axis=0))
    left = shift - stored  # of a column without implicit zeros in earlier chunks only
    if left.any():
        gram = gram - np.outer(left, total) - np.outer(total, left) + weight * np.outer(left, left)
        total = total - weight * left
    return np.asarray(gram), total


def add_by_group(variance: NDArray[np.float64], groups: NDArray[np.intp] | None) -> NDArray[np.float64]:
    """Sum of the variances of the group of each column; its own variance without groups."""
    return variance if groups is None else np.asarray(np.bincount(groups, weights=variance)[groups], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class FeatureBlocks:
    """Public features as a column whose blocks are dense, or sparse if they are summed by sparse products."""

    public: PublicFeatures
    by_products: bool = False

    def __len__(self) -> int:
        return len(self.public)

    def __getitem__(self, span: slice) -> Any:
        """Return a block of records."""
        return self.public.matrix[span] if self.by_products else self.public.get_block(span)

    @property
    def rows_for_shift(self) -> int:
        """Number of records that approximate means are taken from."""
        return SPARSE_ROWS_AT_ONCE if self.by_products else ROWS_AT_ONCE


def _list_chunks(public_features: PublicFeatures | Iterable[PublicFeatures], function: str) -> Iterator[FeatureBlocks]:
    chunks: Iterable[Any] = public_features if isinstance(public_features, Iterable) else [public_features]
    for chunk in chunks:
        public = require_public(chunk, function=function)
        if len(public):
            yield FeatureBlocks(public, public.sparse is not None and is_large(public))
