"""Means, scales and correlations of public columns, computed in one pass for conditioning and whitening."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import Matrix, PublicFeatures, require_public
from conddp.errors import SchemaError

__all__ = ["Standardization"]

ROWS_AT_ONCE = 65536  # rows per block when the Gram matrix is summed or features are multiplied by C
TOO_LARGE = "a public column is too large to be squared in floating point. Scale it down."


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

        With an intercept, an approximate mean of every column is subtracted first, so that columns far from zero, such
        as dates, do not lose precision.

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
        scale = np.where(varies, np.sqrt(_add_by_group(variance, groups)), 1.0)
        gram = np.where(np.outer(varies, varies), gram / np.outer(scale, scale), 0.0)
        return cls(num_records, n, center, variance, varies, scale, gram)


def _sum_moments(
    public_features: PublicFeatures | Iterable[PublicFeatures],
    *,
    constant: bool,
    function: str,
    weights: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], int, NDArray[np.intp] | None]:
    """Sums of outer products and of rows, the shift subtracted from the columns, the number of rows, and the groups."""
    gram: NDArray[np.float64] | None = None
    groups: NDArray[np.intp] | None = None
    total = shift = np.zeros(0)
    num_records = 0
    for X, groups in _list_blocks(public_features, function):  # noqa: B007  (the groups of all chunks are the same)
        block = X.astype(np.float64, copy=False)
        if gram is None:
            d = block.shape[1]
            gram, total, shift = np.zeros((d, d)), np.zeros(d), block.mean(axis=0)
        elif len(shift) != block.shape[1]:
            raise SchemaError("chunks of public features must all have the same columns.")
        with np.errstate(over="ignore", invalid="ignore"):
            if constant:
                block = block - shift
            scaled = block
            if weights is not None:
                scaled = block * weights[num_records : num_records + len(block), None]
            gram += scaled.T @ block
            total = total + scaled.sum(axis=0)
        num_records += len(block)
    if gram is None:
        raise SchemaError("there are no public features: the iterator of chunks is empty.")
    if not np.isfinite(gram).all():
        raise SchemaError(TOO_LARGE)
    if len(gram) == 0 and not constant:
        raise SchemaError(
            "there is no public column and no intercept. Make a column public, or keep fit_intercept=True."
        )
    return gram, total, shift, num_records, groups


def _add_by_group(variance: NDArray[np.float64], groups: NDArray[np.intp] | None) -> NDArray[np.float64]:
    """Sum of the variances of the group of each column; its own variance without groups."""
    return variance if groups is None else np.asarray(np.bincount(groups, weights=variance)[groups], dtype=np.float64)


def _list_blocks(
    public_features: PublicFeatures | Iterable[PublicFeatures], function: str
) -> Iterator[tuple[Matrix, NDArray[np.intp] | None]]:
    chunks: Iterable[Any] = [public_features]
    if isinstance(public_features, Iterable):
        chunks = public_features
    for chunk in chunks:
        public = require_public(chunk, function=function)
        X = public.values
        for start in range(0, len(X), ROWS_AT_ONCE):
            yield X[start : start + ROWS_AT_ONCE], public.groups
