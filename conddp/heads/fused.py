"""Sums of clipped gradients by compiled kernels, for the heads that have them (:mod:`conddp.heads.fused_sums`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from conddp.features.scaled_rows import ScaledRows
from conddp.heads.fused_sums import (
    CLAMP_RESIDUALS,
    DIFFERENTIATE,
    ENTER_LAYER,
    FINISH_FORWARD,
    SUM_COLUMNS,
    SUM_ROWS,
    SUM_SPARSE,
    WEIGH,
)

__all__ = ["ClippedRecords", "FusedSum", "Layer", "fuse_linear", "fuse_network"]

Vector = NDArray[np.float64]
Positions = NDArray[np.int64]

COLUMNS_AT_ONCE = 512  # records of a block of a linear head
LAYERS_AT_ONCE = 1024  # records of a block of a network
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
        """Whether all of them are arrays in float64, or sparse rows."""
        rows = self.public.columns.data if isinstance(self.public, ScaledRows) else self.public
        arrays = [rows, self.row_norms, self.label]
        arrays += [each for each in (self.private, self.weights) if each is not None]
        return all(isinstance(each, np.ndarray) and each.dtype == np.float64 for each in arrays)


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
        return lambda positions: kernel(
            *stored, constant, everyone if positions is None else positions, label, limits, weights, parameters, out
        )
    rows = records.public
    if records.private is not None:
        if len(rows) * len(parameters) * 8 > LARGEST_COPY:
            return None
        rows = np.hstack([rows, records.private])
        rows = rows if records.are_sampled else np.asfortranarray(rows)
    kernel = SUM_COLUMNS.get()
    if kernel is not None and rows.flags.f_contiguous and not records.are_sampled:
        buffer = np.empty(COLUMNS_AT_ONCE)
        return lambda positions: kernel(rows.T, label, limits, weights, parameters, buffer, out)
    kernel = SUM_ROWS.get()
    if kernel is None or not rows.flags.c_contiguous:
        return None
    few = np.empty(4)
    return lambda positions: kernel(
        rows, everyone if positions is None else positions, label, limits, weights, parameters, few, out
    )


def fuse_network(
    layers: Sequence["Layer"], private_layer: "Layer | None", records: ClippedRecords, *, is_activated: bool
) -> FusedSum | None:
    """Make the sum for a perceptron with ReLU; None if there is no kernel for the records.

    Parameters
    ----------
    layers : sequence of Layer
        Layers from the columns to the prediction.
    private_layer : Layer, optional
        Weights of the private columns in the first layer.
    records : ClippedRecords
        Records to sum over.
    is_activated : bool
        Whether ReLU follows the first layer.
    """
    kernels = [each.get() for each in (ENTER_LAYER, FINISH_FORWARD, DIFFERENTIATE, CLAMP_RESIDUALS, WEIGH)]
    if not records.are_plain or not isinstance(records.public, np.ndarray) or None in kernels:
        return None
    return _NetworkSum(layers, private_layer, records, is_activated, kernels)


@dataclass(frozen=True)
class Layer:
    """Weights and biases of a layer, and where to write their sums of gradients. The first layer has no biases."""

    weights: Vector
    sums: Vector
    biases: Vector = field(default_factory=lambda: NONE)
    bias_sums: Vector = field(default_factory=lambda: NONE)


class _NetworkSum:
    """Products of matrices by BLAS, everything else by kernels, in buffers that are reused."""

    def __init__(
        self,
        layers: Sequence[Layer],
        private_layer: Layer | None,
        records: ClippedRecords,
        is_activated: bool,
        kernels: Sequence[Any],
    ) -> None:
        self._layers, self._private_layer, self._records = layers, private_layer, records
        self._is_activated = is_activated
        self._enter, self._finish, self._differentiate, self._clamp, self._weigh = kernels
        self._widths = [len(layer.weights) for layer in layers[:-1]]
        self._squared = records.row_norms**2
        self._sums = [layer for layer in (*layers, private_layer) if layer is not None]

    def __call__(self, positions: Positions | None) -> None:
        n = len(self._records.label) if positions is None else len(positions)
        for layer in self._layers:
            layer.bias_sums[...] = 0.0
        if n == 0:
            for layer in self._sums:
                layer.sums[...] = 0.0
        for start in range(0, n, LAYERS_AT_ONCE):
            stop = min(start + LAYERS_AT_ONCE, n)
            self._add_block(slice(start, stop) if positions is None else positions[start:stop], is_first=start == 0)

    def _add_block(self, chosen: slice | Positions, *, is_first: bool) -> None:
        records, layers, last = self._records, self._layers, len(self._widths)
        label = records.label[chosen]
        m, total = len(label), sum(self._widths)
        outputs, deltas, lines = np.empty((total, m)), np.empty((total, m)), np.empty((5, m))
        predictions, squares, factors, lengths, norms = lines
        rows = [records.public[chosen]] if records.private is None else [records.public[chosen], records.private[chosen]]
        ends = np.cumsum([0, *self._widths])
        spans = [slice(start, stop) for start, stop in zip(ends[:-1], ends[1:], strict=True)]
        for number, span in enumerate(spans):
            leaving, layer = outputs[span], layers[number]
            np.matmul(layer.weights, rows[0].T if number == 0 else outputs[spans[number - 1]], out=leaving)
            if number == 0 and self._private_layer is not None:
                leaving += self._private_layer.weights @ rows[1].T
            self._enter(leaving, layer.biases, number > 0 or self._is_activated)
        top, upper = layers[last], spans[-1]
        self._finish(outputs[upper], top.weights[0], top.biases[0], predictions, squares, deltas[upper])
        for number in range(last - 1, -1, -1):
            span = spans[number]
            if number < last - 1:
                np.matmul(layers[number + 1].weights.T, deltas[spans[number + 1]], out=deltas[span])
            below = outputs[spans[number - 1]] if number else self._squared[chosen][None]
            self._differentiate(
                deltas[span],
                outputs[span],
                number > 0 or self._is_activated,
                below,
                1.0 if number else -1.0,
                squares,
                lengths,
                norms,
            )
        weights = NONE if records.weights is None else records.weights[chosen]
        clip_norm, smallest = records.clip_norm, records.smallest_norm
        self._clamp(predictions, squares, label, weights, clip_norm, smallest, outputs, deltas, factors)
        for number, layer in enumerate(layers):
            if number == last:
                moves = factors[None]
                layer.bias_sums[0] += factors.sum()
            else:
                moves = deltas[spans[number]]
                self._weigh(moves, factors, layer.bias_sums)
            if number == 0:
                _add_product(moves, rows[0], layer.sums, is_first=is_first)
                if self._private_layer is not None:
                    _add_product(moves, rows[1], self._private_layer.sums, is_first=is_first)
            else:
                _add_product(moves, outputs[spans[number - 1]].T, layer.sums, is_first=is_first)


def _add_product(left: Vector, right: Vector, sums: Vector, *, is_first: bool) -> None:
    if is_first:
        np.matmul(left, right, out=sums)
    else:
        sums += left @ right
