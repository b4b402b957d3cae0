"""Sums of clipped gradients by compiled kernels, for the heads that have them (``fused_linear``, ``fused_network``)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from conddp.features.scaled_rows import ScaledRows
from conddp.heads.fused_linear import SUM_COLUMNS, SUM_FEW_COLUMNS, SUM_ROWS, SUM_SPARSE
from conddp.heads.fused_network import ADD_BLOCK, CLIP_BLOCK, RUN_BLOCK, make_buffers

__all__ = ["ClippedRecords", "FusedSum", "fuse_linear", "fuse_network"]

Vector = NDArray[np.float64]
Positions = NDArray[np.int64]

COLUMNS_AT_ONCE = 512  # records of a block of a linear head
RECORDS_AT_ONCE = 128  # records of a block of a network
WIDEST = 64  # layer for which the kernel is faster than products by BLAS
LARGEST_COPY = 1 << 28  # bytes of rows that are copied to have public and private columns side by side
NONE: Vector = np.empty(0)


class FusedSum(Protocol):
    """Writes a sum of clipped gradients into the workspace of a run."""

    def __call__(self, positions: Positions | None) -> None:
        """Write the sum over the records at these positions, or over all records."""


@dataclass(frozen=True)
class ClippedRecords:
    """Records of a run, and how their gradients are clipped.

    Parameters
    ----------
    public : array or ScaledRows of shape (n, d_pub)
        Conditioned public features.
    private : array of shape (n, d_priv) or None
        Scaled private features.
    row_norms, label : arrays of shape (n,)
        Norms of the rows, and labels.
    weights : array of shape (n,), optional
        Public weights of the records; 1 if None.
    clip_norm, smallest_norm : float
        Maximum norm of the gradient of a record, and lower bound on norms by which it is divided.
    are_sampled : bool
        Whether sums are over samples of the records, not over all of them.
    """

    public: Any
    private: Vector | None
    row_norms: Vector
    label: Vector
    weights: Vector | None
    clip_norm: float
    smallest_norm: float
    are_sampled: bool

    @property
    def are_plain(self) -> bool:
        """Whether all of them are arrays in float64, or sparse rows, that kernels can take."""
        is_sparse = isinstance(self.public, ScaledRows)
        rows = self.public.columns.data if is_sparse else self.public
        places = [self.public.columns.indices, self.public.columns.indptr] if is_sparse else []
        arrays = [rows, self.row_norms, self.label]
        arrays += [each for each in (self.private, self.weights) if each is not None]
        if not all(isinstance(each, np.ndarray) and each.dtype == np.float64 for each in arrays):
            return False
        return all(each.flags.behaved for each in [*arrays, *places])  # kernels refuse arrays that are read-only

    def join_rows(self) -> Vector | None:
        """Return public and private columns side by side, by record for samples; None if the copy would be large."""
        if self.private is None:
            return np.asarray(self.public)
        if len(self.label) * (self.public.shape[1] + self.private.shape[1]) * 8 > LARGEST_COPY:
            return None
        return np.asarray(np.hstack([self.public, self.private]), order="C" if self.are_sampled else "F")


def fuse_linear(parameters: Vector, out: Vector, records: ClippedRecords) -> FusedSum | None:
    """Make the sum for a linear head, whose parameters are one vector; None if there is no kernel for the records."""
    if not records.are_plain:
        return None
    everyone = np.arange(len(records.label))
    label = np.ascontiguousarray(records.label)
    limits = np.ascontiguousarray(records.clip_norm / records.row_norms)
    weights = NONE if records.weights is None else np.ascontiguousarray(records.weights)
    if isinstance(records.public, ScaledRows):
        kernel = None if records.private is not None else SUM_SPARSE.get()
        if kernel is None:
            return None
        stored = records.public.columns.data, records.public.columns.indices, records.public.columns.indptr
        constant = np.nan if records.public.constant is None else records.public.constant
        known, lanes = (label, limits, weights, parameters), np.empty((2, len(parameters)))
        return lambda positions: kernel(
            *stored, constant, everyone if positions is None else positions, *known, lanes, out
        )
    rows = records.join_rows()
    if rows is None:
        return None
    are_few = 1 <= rows.shape[1] <= 8
    kernel = (SUM_FEW_COLUMNS if are_few else SUM_COLUMNS).get()
    if kernel is not None and rows.flags.f_contiguous and not records.are_sampled:
        buffer = np.empty(8 if are_few else COLUMNS_AT_ONCE)
        return lambda positions: kernel(rows.T, label, limits, weights, parameters, buffer, out)
    kernel = SUM_ROWS.get()
    if kernel is None or not rows.flags.c_contiguous:
        return None
    few = np.empty(4)
    return lambda positions: kernel(
        rows, everyone if positions is None else positions, label, limits, weights, parameters, few, out
    )


def fuse_network(
    parameters: Vector, out: Vector, records: ClippedRecords, *, widths: Sequence[int], is_activated: bool
) -> FusedSum | None:
    """Make the sum for a perceptron with ReLU; None if there is no kernel for the records.

    Parameters
    ----------
    parameters, out : arrays of shape (P,)
        Parameters, and where to write the sum.
    records : ClippedRecords
        Records to sum over.
    widths : sequence of int
        Widths of all layers below the output. Wide layers have no kernel, because BLAS is faster.
    is_activated : bool
        Whether ReLU follows the first layer.
    """
    kernels = [each.get() for each in (RUN_BLOCK, CLIP_BLOCK, ADD_BLOCK)]
    if None in kernels or max(widths) > WIDEST or not records.are_plain or isinstance(records.public, ScaledRows):
        return None
    rows = records.join_rows()
    if rows is None or not (rows.flags.c_contiguous or rows.flags.f_contiguous):
        return None
    return _NetworkSum(parameters, out, rows, records, np.array(widths, dtype=np.int64), is_activated, kernels)


class _NetworkSum:
    """Takes blocks of records through three kernels."""

    def __init__(
        self,
        parameters: Vector,
        out: Vector,
        rows: Vector,
        records: ClippedRecords,
        widths: NDArray[np.int64],
        is_activated: bool,
        kernels: Sequence[Any],
    ) -> None:
        self._run, self._clip, self._add = kernels
        self._parameters, self._out = parameters, out
        by_column = not rows.flags.c_contiguous
        self._rows = (rows.T if by_column else rows, by_column)
        self._net = (widths, is_activated, parameters)
        weights = NONE if records.weights is None else np.ascontiguousarray(records.weights)
        self._records = (np.ascontiguousarray(records.label), records.row_norms**2, weights)
        self._limits = (records.clip_norm, records.smallest_norm)
        self._buffers = make_buffers(rows.shape[1], widths.tolist(), RECORDS_AT_ONCE)
        self._everyone = np.arange(len(records.label))
        # The weights of public and of private columns are two blocks, each of shape (width, columns).
        width, d_public, d = int(widths[0]), records.public.shape[1], rows.shape[1]
        self._has_two = d > d_public
        self._spans = (slice(0, width * d_public), slice(width * d_public, width * d))
        self._columns = (slice(0, d_public), slice(d_public, d))
        if self._has_two:
            self._first, self._sums = np.empty((width, d)), np.empty((width, d))
        else:
            self._first, self._sums = (each[: width * d].reshape(width, d) for each in (parameters, out))

    def __call__(self, positions: Positions | None) -> None:
        chosen = self._everyone if positions is None else positions
        gathered, outputs, deltas, lines = self._buffers
        widths = self._net[0]
        self._out[:] = 0.0
        if self._has_two:
            self._sums[:] = 0.0
            for span, columns in zip(self._spans, self._columns, strict=True):
                self._first[:, columns] = self._parameters[span].reshape(len(self._first), -1)
        for start in range(0, len(chosen), RECORDS_AT_ONCE):
            block = chosen[start : start + RECORDS_AT_ONCE]
            self._run(*self._rows, block, *self._net, self._first, gathered, outputs)
            self._clip(block, *self._records, *self._limits, *self._net, outputs, deltas, lines)
            self._add(len(block), widths, gathered, outputs, deltas, lines, self._sums, self._out)
        if self._has_two:
            for span, columns in zip(self._spans, self._columns, strict=True):
                self._out[span] = self._sums[:, columns].reshape(-1)
