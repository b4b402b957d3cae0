r"""Kernels for sums of clipped gradients of perceptrons with narrow layers and ReLU.

They compute what ``forward`` and ``vjp`` of :class:`~conddp.heads.mlp.MLP` compute for one configuration in float64.
The products with the rows, of a block of records at a time, are those of BLAS. All that lies between them is one
kernel, which keeps outputs and derivatives of all layers in buffers that fit into the processor cache.

Rounding
    Sums are in float64 and in any order, which :func:`conddp.privacy.bounded_sum.bound_rounding` covers.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp._fused import Kernel, make_numbers

__all__ = ["CLIP_BLOCK", "GATHER", "make_buffers"]


def _gather(rows: Any, positions: Any, out: Any) -> None:
    """Copy the rows at these positions."""
    for i in range(positions.shape[0]):
        row, line = rows[positions[i]], out[i]
        for j in range(rows.shape[1]):
            line[j] = row[j]


def _clip_block(
    entering: Any,
    positions: Any,
    label: Any,
    squared_norms: Any,
    weights: Any,
    clip_norm: float,
    smallest: float,
    widths: Any,
    is_activated: bool,
    first: int,
    parameters: Any,
    outputs: Any,
    deltas: Any,
    lines: Any,
    out: Any,
) -> None:
    """Take a block of records from the products with the first weights to the clipped derivatives with respect to them.

    Parameters
    ----------
    entering : array of shape (m, width)
        Products of the rows with the weights of the first layer.
    positions : array of shape (m,)
        Positions of the records among all records.
    label, squared_norms, weights : arrays of shape (n,)
        Labels, squared norms of the rows and weights of all records. There may be no weights.
    clip_norm, smallest : float
        Maximum norm of a gradient, and lower bound on norms by which it is divided.
    widths : array
        Widths of the layers below the output.
    is_activated : bool
        Whether ReLU follows the first of these layers.
    first : int
        Number of weights of the first layer.
    parameters, out : arrays of shape (P,)
        Parameters, and the sum of gradients. That of all parameters but the first weights is added to.
    outputs, deltas : arrays of shape (sum of widths, size)
        Outputs of all layers below the output one after another, and derivatives of the prediction with respect to what
        enters them. Those of the first layer are multiplied by the clamped residuals, and are the result.
    lines : array of shape (4, size)
        Squared norms of gradients, clamped residuals, and two lines for other uses.
    """
    m, last, total = positions.shape[0], widths.shape[0], outputs.shape[0]
    for i in range(m):
        for h in range(widths[0]):
            value = entering[i, h]
            outputs[h, i] = 0.0 if is_activated and value < 0.0 else value  # NaN stays NaN
    low, high, place = 0, widths[0], first
    for layer in range(1, last):
        w = widths[layer]
        below = high - low
        for h in range(w):
            line, bias = outputs[high + h], parameters[place + w * below + h]
            for i in range(m):
                line[i] = bias
            for j in range(below):
                slope, given = parameters[place + h * below + j], outputs[low + j]
                for i in range(m):
                    line[i] += slope * given[i]
            for i in range(m):
                line[i] = 0.0 if line[i] < 0.0 else line[i]
        low, high, place = high, high + w, place + w * (below + 1)
    squares, factors, lengths, norms = lines[0], lines[1], lines[2], lines[3]
    low, high, place = total - widths[last - 1], total, parameters.shape[0] - widths[last - 1] - 1
    # Predictions, and the derivatives of the prediction from the last layer down, with squared norms.
    for i in range(m):
        factors[i] = parameters[place + high - low]
        squares[i] = 1.0
    for h in range(low, high):
        line, delta, slope = outputs[h], deltas[h], parameters[place + h - low]
        for i in range(m):
            factors[i] += slope * line[i]
            squares[i] += line[i] * line[i]
            delta[i] = slope
    for layer in range(last - 1, -1, -1):
        w = widths[layer]
        if layer < last - 1:
            above = widths[layer + 1]
            place -= above * (w + 1)
            for h in range(w):
                delta = deltas[low + h]
                for i in range(m):
                    delta[i] = 0.0
                for j in range(above):
                    slope, coming = parameters[place + j * w + h], deltas[high + j]
                    for i in range(m):
                        delta[i] += slope * coming[i]
        for i in range(m):
            lengths[i] = 0.0
            norms[i] = 1.0
        for h in range(low, high):
            delta, line = deltas[h], outputs[h]
            if layer > 0 or is_activated:
                for i in range(m):
                    delta[i] *= 1.0 if line[i] > 0.0 else 0.0
            for i in range(m):
                lengths[i] += delta[i] * delta[i]
        if layer == 0:
            for i in range(m):
                norms[i] = squared_norms[positions[i]]
        else:
            for h in range(low - widths[layer - 1], low):
                line = outputs[h]
                for i in range(m):
                    norms[i] += line[i] * line[i]
        for i in range(m):
            squares[i] += norms[i] * lengths[i]
        low, high = (low - widths[layer - 1], low) if layer > 0 else (low, high)
    # Clamped residuals, with the opposite sign. A record whose gradient overflows contributes exactly zero.
    for i in range(m):
        where, norm = positions[i], np.sqrt(squares[i])
        if not np.isfinite(norm):
            factors[i] = 0.0
            for h in range(total):
                outputs[h, i] = 0.0
                deltas[h, i] = 0.0
            continue
        limit = clip_norm / max(norm, smallest)
        residual = factors[i] - label[where]
        residual = limit if residual > limit else residual
        residual = -limit if residual < -limit else residual
        residual = residual if residual == residual else 0.0
        factors[i] = residual * weights[where] if weights.shape[0] else residual
    # Sums, layer by layer.
    for h in range(widths[0]):
        delta = deltas[h]
        for i in range(m):
            delta[i] *= factors[i]
    low, high, place = 0, widths[0], first
    for layer in range(1, last + 1):
        w = widths[layer] if layer < last else 1
        below = high - low
        for h in range(w):
            moves, biased = lengths[:m], 0.0
            if layer < last:
                delta = deltas[high + h]
                for i in range(m):
                    moves[i] = factors[i] * delta[i]
            else:
                for i in range(m):
                    moves[i] = factors[i]
            for i in range(m):
                biased += moves[i]
            out[place + w * below + h] += biased
            for j in range(below):
                given, summed = outputs[low + j], 0.0
                for i in range(m):
                    summed += moves[i] * given[i]
                out[place + h * below + j] += summed
        low, high, place = high, high + w, place + w * (below + 1)


def make_buffers(num_columns: int, widths: Sequence[int], size: int) -> list[NDArray[np.float64]]:
    """Make buffers for blocks of up to ``size`` records: rows, what enters the first layer, outputs, deltas, lines."""
    total = (sum(widths), size)
    return [np.zeros(shape) for shape in ((size, num_columns), (size, widths[0]), total, total, (4, size))]


def _gather_examples() -> Iterator[list[Any]]:
    for kind in ("float64", "float32"):
        yield [make_numbers(9, 37).astype(kind), np.array([7, 0, 3, 8]), np.ones((6, 37))]


def _clip_examples() -> Iterator[list[Any]]:
    """Blocks of 37 of 50 records, one of which overflows and another one has a label that is NaN."""
    positions, label, d, m = 7 * np.arange(37) % 50, 2 * make_numbers(50, start=401), 5, 37
    label[0] = np.nan
    for num_weights, widths, is_activated in ((0, (3, 2), True), (50, (2,), True), (0, (2, 2), False)):
        size = widths[0] * d + sum(w * (b + 1) for w, b in zip([*widths[1:], 1], widths, strict=True))
        _, _, *buffers = make_buffers(d, widths, 40)
        entering = make_numbers(m, widths[0])
        entering[3, 0] = np.inf
        known = label, np.abs(make_numbers(50)), np.abs(make_numbers(num_weights)), 0.3, 1e-12
        net = np.array(widths), is_activated, widths[0] * d, make_numbers(size, start=501)
        yield [entering, positions, *known, *net, *buffers, make_numbers(size, start=601)]


_LINES, _LINE = "float64[:, ::1]", "float64[::1]"
GATHER = Kernel(
    _gather,
    [f"void({kind}[:, ::1], int64[::1], {_LINES})" for kind in ("float64", "float32")],
    examples=_gather_examples,
)
CLIP_BLOCK = Kernel(
    _clip_block,
    [
        f"void({_LINES}, int64[::1], {_LINE}, {_LINE}, {_LINE}, float64, float64, int64[::1], boolean, int64, {_LINE}, "
        f"{_LINES}, {_LINES}, {_LINES}, {_LINE})"
    ],
    examples=_clip_examples,
    any_order=True,
)
