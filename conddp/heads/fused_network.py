r"""Kernels for sums of clipped gradients of perceptrons with narrow layers and ReLU.

They compute what ``forward`` and ``vjp`` of :class:`~conddp.heads.mlp.MLP` compute for one configuration in float64.
The products with the rows, of a block of records at a time, are those of BLAS. All that lies between them keeps outputs
and derivatives of all layers in buffers that fit into the processor cache.

Rounding
    Sums are in float64 and in any order, which :func:`conddp.privacy.bounded_sum.bound_rounding` covers.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp._fused import Kernel, make_numbers

__all__ = ["CLIP_BLOCK", "SUM_NETWORK", "make_buffers"]


def _sum_network(
    positions: Any,
    rows: Any,
    are_columns: bool,
    d_public: int,
    label: Any,
    squared_norms: Any,
    weights: Any,
    clip_norm: float,
    smallest: float,
    widths: Any,
    is_activated: bool,
    parameters: Any,
    gathered: Any,
    entering: Any,
    outputs: Any,
    deltas: Any,
    lines: Any,
    turned: Any,
    packed: Any,
    sums: Any,
    added: Any,
    out: Any,
) -> None:
    """Sum the clipped gradients of a network over the records at these positions, a block of records at a time.

    Parameters
    ----------
    positions : array of shape (m,)
        Positions of the records among all records.
    rows : array of shape (n, d)
        Public and private columns side by side.
    are_columns : bool
        Whether the rows are stored by column.
    d_public : int
        Number of public columns. The weights of public and of private columns are two blocks of parameters, each of
        shape (width, columns).
    label, squared_norms, weights, clip_norm, smallest, widths, is_activated, parameters
        As for ``_clip_block``.
    gathered, entering, outputs, deltas, lines, turned, packed, sums, added : arrays
        Buffers (:func:`make_buffers`).
    out : array of shape (P,)
        Overwritten by the sum.
    """
    d, width, size = rows.shape[1], widths[0], gathered.shape[0]
    for j in range(out.shape[0]):
        out[j] = 0.0
    for h in range(width):  # BLAS is faster with the transposed weights as an array
        for j in range(d):
            own = h * d_public + j if j < d_public else width * d_public + h * (d - d_public) + j - d_public
            turned[j, h] = parameters[own]
            sums[h, j] = 0.0
    for start in range(0, positions.shape[0], size):
        block = positions[start : start + size]
        m = block.shape[0]
        if are_columns:
            for j in range(d):
                for i in range(m):
                    gathered[i, j] = rows[block[i], j]
        else:
            for i in range(m):
                row, line = rows[block[i]], gathered[i]
                for j in range(d):
                    line[j] = row[j]
        np.dot(gathered[:m], turned, entering[:m])
        _clip_block(
            entering,
            block,
            label,
            squared_norms,
            weights,
            clip_norm,
            smallest,
            widths,
            is_activated,
            width * d,
            parameters,
            outputs,
            deltas,
            lines,
            out,
        )
        moves = packed[: width * m].reshape(width, m)
        for h in range(width):
            for i in range(m):
                moves[h, i] = deltas[h, i]
        np.dot(moves, gathered[:m], added)
        for h in range(width):
            for j in range(d):
                sums[h, j] += added[h, j]
    for h in range(width):
        for j in range(d):
            own = h * d_public + j if j < d_public else width * d_public + h * (d - d_public) + j - d_public
            out[own] = sums[h, j]


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
    """Make buffers for blocks of up to ``size`` records.

    They hold the rows, what enters the first layer, outputs and deltas of all layers, four lines of numbers, and of the
    first layer its weights, its deltas one after another, and its sums over all blocks and over one.
    """
    d, width, total = num_columns, widths[0], (sum(widths), size)
    shapes = (size, d), (size, width), total, total, (4, size), (d, width), (width * size,), (width, d), (width, d)
    return [np.zeros(shape) for shape in shapes]


def _network_examples() -> Iterator[list[Any]]:
    """Samples of 37 of 50 records in blocks of 20, with rows of all kinds."""
    positions, label, d = 7 * np.arange(37) % 50, 2 * make_numbers(50, start=401), 5
    for kind, order, d_public, num_weights in (("float64", "C", 5, 0), ("float32", "C", 5, 50), ("float64", "F", 3, 0)):
        rows = np.asarray(make_numbers(50, d).astype(kind), order=order)  # type: ignore[call-overload]
        squares = np.sum(rows.astype(np.float64) ** 2, axis=1)
        known = label, squares, np.abs(make_numbers(num_weights)), 0.3, 1e-12, np.array([3, 2]), True
        parameters, buffers = make_numbers(3 * d + 11, start=501), make_buffers(d, (3, 2), 20)
        yield [positions, rows, order == "F", d_public, *known, parameters, *buffers, np.ones(3 * d + 11)]


def _clip_examples() -> Iterator[list[Any]]:
    """Blocks of 37 of 50 records, one of which overflows and another one has a label that is NaN."""
    positions, label, d, m = 7 * np.arange(37) % 50, 2 * make_numbers(50, start=401), 5, 37
    label[0] = np.nan
    for num_weights, widths, is_activated in ((0, (3, 2), True), (50, (2,), True), (0, (2, 2), False)):
        size = widths[0] * d + sum(w * (b + 1) for w, b in zip([*widths[1:], 1], widths, strict=True))
        buffers = make_buffers(d, widths, 40)[2:5]
        entering = make_numbers(m, widths[0])
        entering[3, 0] = np.inf
        known = label, np.abs(make_numbers(50)), np.abs(make_numbers(num_weights)), 0.3, 1e-12
        net = np.array(widths), is_activated, widths[0] * d, make_numbers(size, start=501)
        yield [entering, positions, *known, *net, *buffers, make_numbers(size, start=601)]


_LINES, _LINE = "float64[:, ::1]", "float64[::1]"
CLIP_BLOCK = Kernel(
    _clip_block,
    [
        f"void({_LINES}, int64[::1], {_LINE}, {_LINE}, {_LINE}, float64, float64, int64[::1], boolean, int64, {_LINE}, "
        f"{_LINES}, {_LINES}, {_LINES}, {_LINE})"
    ],
    examples=_clip_examples,
    any_order=True,
)
SUM_NETWORK = Kernel(
    _sum_network,
    [
        f"void(int64[::1], {rows}, boolean, int64, {_LINE}, {_LINE}, {_LINE}, float64, float64, int64[::1], boolean, "
        f"{_LINE}, {', '.join([_LINES] * 6)}, {_LINE}, {_LINES}, {_LINES}, {_LINE})"
        for rows in ("float64[:, ::1]", "float32[:, ::1]", "float64[::1, :]")
    ],
    examples=_network_examples,
    calls={"_clip_block": CLIP_BLOCK},
)
