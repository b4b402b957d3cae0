"""Sums of clipped gradients by compiled kernels, for the heads that have them (``fused_linear``, ``fused_network``)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from conddp._fused import Kernel, align
from conddp.features.scaled_rows import ScaledRows
from conddp.heads.fused_linear import SUM_COLUMNS, SUM_FEW_COLUMNS, SUM_ROWS, SUM_SPARSE
from conddp.heads.fused_network import SUM_NETWORK, make_buffers

__all__ = ["ClippedRecords", "FusedSum", "KernelSum", "fuse_linear", "fuse_network"]

Vector = NDArray[np.float64]
Rows = NDArray[np.float64 | np.float32]
Positions = NDArray[np.int64]

FEW_COLUMNS = 8  # for which there is a kernel of its own
COLUMNS_AT_ONCE = 256  # records of a block of a linear head
RECORDS_AT_ONCE = 256  # records of a block of a network
WIDEST = 64  # layer for which the kernel is faster than products by BLAS
LARGEST_COPY = 1 << 28  # bytes of rows that are copied into another order or type
ROUNDED_FROM = 1 << 20  # bytes of rows from which on a cache holds them in float32 only, if at all
LARGEST_ERROR = 1e-5  # of a rounded column, relative to the range of its values
LARGEST_ENTRY = 1e37  # of a row in float32
ROWS_AT_ONCE = 1024  # of which norms are computed
NONE: Vector = np.empty(0)


class FusedSum(Protocol):
    """Writes a sum of clipped gradients into the workspace of a run."""

    def __call__(self, positions: Positions | None) -> None:
        """Write the sum over the records at these positions, or over all records."""


@dataclass(frozen=True)
class KernelSum:
    """A sum that one kernel writes.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the sum. Its first argument are positions of records.
    compiled : callable
        The kernel, compiled.
    everyone : array of shape (n,)
        Positions of all records.
    known : tuple
        All other arguments of the kernel: rows, parameters and buffers, the last of which the sum is written to.
    """

    kernel: Kernel
    compiled: Callable[..., None]
    everyone: Positions
    known: tuple[Any, ...]

    @classmethod
    def of(cls, kernel: Kernel, num_records: int, known: tuple[Any, ...]) -> "KernelSum | None":
        """Bind a kernel to its arguments; None if kernels are not in use."""
        compiled = kernel.get()
        return None if compiled is None else cls(kernel, compiled, np.arange(num_records), known)

    def __call__(self, positions: Positions | None) -> None:
        """Write the sum over the records at these positions, or over all records."""
        self.compiled(self.everyone if positions is None else positions, *self.known)


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
    num_configurations : int
        Number of configurations that are trained at once. There are kernels for rows with few columns only: on others,
        products of BLAS with all configurations are faster.
    """

    public: Any
    private: Vector | None
    row_norms: Vector
    label: Vector
    weights: Vector | None
    clip_norm: float
    smallest_norm: float
    are_sampled: bool
    num_configurations: int = 1

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

    @property
    def num_columns(self) -> int:
        """Number of public and private columns."""
        return int(self.public.shape[1]) + (0 if self.private is None else int(self.private.shape[1]))

    def round_rows(self) -> "ClippedRecords":
        """Return these records with rows in float32, of which more fit into the cache, if they are many.

        Privacy
            The rounded rows are the rows from here on: gradients are those of a model on rounded columns, and the
            norms by which they are clipped are those of the rounded rows, computed in float64. So is every sum. The
            sensitivity holds for all rows, these included. Whether to round depends on public columns alone. Records
            with private columns keep their rows.
        """
        if self.private is not None or self.public.nbytes < ROUNDED_FROM or self.public.nbytes // 2 > LARGEST_COPY:
            return self
        low, high = self.public.min(axis=0), self.public.max(axis=0)
        largest = np.maximum(-low, high)
        errors = largest * 2.0**-24 + 2.0**-150  # of rounding to nearest
        if largest.max() > LARGEST_ENTRY or not ((errors <= LARGEST_ERROR * (high - low)) | (low == high)).all():
            return self
        rounded = self.public.astype(np.float32)
        norms = np.empty(len(rounded))
        for start in range(0, len(rounded), ROWS_AT_ONCE):
            exact = rounded[start : start + ROWS_AT_ONCE].astype(np.float64)
            np.sqrt(np.einsum("ij,ij->i", exact, exact), out=norms[start : start + ROWS_AT_ONCE])
        return replace(self, public=rounded, row_norms=np.maximum(norms, self.smallest_norm))

    def join_rows(self) -> Rows | None:
        """Return public and private columns side by side, by record for samples; None if a copy would be large."""
        order: Literal["C", "F"] = "C" if self.are_sampled else "F"
        if self.private is None and (not self.are_sampled or self.public.flags.c_contiguous):
            return np.asarray(self.public)
        if len(self.label) * self.num_columns * 8 > LARGEST_COPY:
            return None
        return np.asarray(self.public if self.private is None else np.hstack([self.public, self.private]), order=order)


def fuse_linear(parameters: Vector, out: Vector, records: ClippedRecords) -> KernelSum | None:
    """Make the sum for a linear head, whose parameters are one vector; None if there is no kernel for the records."""
    if not records.are_plain:
        return None
    is_sparse = isinstance(records.public, ScaledRows)
    if is_sparse and records.private is not None:
        return None
    are_few = not is_sparse and 1 <= records.num_columns <= FEW_COLUMNS
    if records.num_configurations > 1 and (records.are_sampled or records.private is not None or not are_few):
        return None
    if not is_sparse and not are_few:
        records = records.round_rows()
    label = np.ascontiguousarray(records.label)
    limits = np.ascontiguousarray(records.clip_norm / records.row_norms)
    weights = NONE if records.weights is None else np.ascontiguousarray(records.weights)
    if records.num_configurations == 1:  # several share their rows, and the cache
        label, limits = align(label), align(limits)
    known = label, limits, weights, parameters
    if is_sparse:
        stored = records.public.columns.data, records.public.columns.indices, records.public.columns.indptr
        constant = np.nan if records.public.constant is None else records.public.constant
        return KernelSum.of(SUM_SPARSE, len(label), (*stored, constant, *known, np.empty((2, len(parameters))), out))
    rows = records.join_rows()
    if rows is None:
        return None
    if records.are_sampled or not rows.flags.f_contiguous:
        if not rows.flags.c_contiguous:
            return None
        return KernelSum.of(SUM_ROWS, len(label), (rows, *known, np.empty(4), out))
    rows = align(rows) if records.num_configurations == 1 else rows
    if are_few:
        return KernelSum.of(SUM_FEW_COLUMNS, len(label), (rows.T, *known, np.empty(FEW_COLUMNS), out))
    return KernelSum.of(SUM_COLUMNS, len(label), (rows.T, *known, np.empty(COLUMNS_AT_ONCE), out))


def fuse_network(
    parameters: Vector, out: Vector, records: ClippedRecords, *, widths: Sequence[int], is_activated: bool
) -> KernelSum | None:
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
    if max(widths) > WIDEST or records.num_configurations > 1:
        return None
    if not records.are_plain or isinstance(records.public, ScaledRows):
        return None
    records = records.round_rows() if records.are_sampled else records
    rows = records.join_rows()
    if rows is None or not (rows.flags.c_contiguous or rows.flags.f_contiguous):
        return None
    rows = np.ascontiguousarray(rows) if rows.nbytes <= LARGEST_COPY else rows  # rows are gathered, not columns
    weights = NONE if records.weights is None else np.ascontiguousarray(records.weights)
    of_records = np.ascontiguousarray(records.label), np.ascontiguousarray(records.row_norms**2), weights
    net = records.clip_norm, records.smallest_norm, np.array(widths, dtype=np.int64), is_activated, parameters
    buffers = make_buffers(records.num_columns, widths, RECORDS_AT_ONCE)
    layout = not rows.flags.c_contiguous, int(records.public.shape[1])
    return KernelSum.of(SUM_NETWORK, len(records.label), (rows, *layout, *of_records, *net, *buffers, out))
