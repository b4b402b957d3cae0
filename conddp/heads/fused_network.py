r"""Kernels for sums of clipped gradients of perceptrons with narrow layers and ReLU.

A block of records goes through three kernels, which keep outputs and derivatives of all layers in buffers that fit into
the processor cache. They compute what ``forward`` and ``vjp`` of :class:`~conddp.heads.mlp.MLP` compute for one
configuration in float64. Widths are small, so that products with BLAS, and calls from Python, would take longer.

Rounding
    Sums are in float64 and in any order, which :func:`conddp.privacy.release.bound_rounding` covers.

Arguments of all kernels
    widths
        Widths of the layers below the output.
    is_activated
        Whether ReLU follows the first of these layers.
    parameters, out
        Parameters, and the sum of gradients that is added to, shape (P,).
    first, sums
        Weights of the first layer, and the sum of their gradients that is added to, shape (width, d).
    positions
        Positions of the m records of the block among all records.
    gathered
        Their rows, shape (size, d), with a size of at least m that is a multiple of four.
    outputs, deltas
        Outputs of all layers below the output one after another, and derivatives of the prediction with respect to what
        enters them, shape (sum of widths, size).
    lines
        Squared norms of gradients, clamped residuals, and two lines for other uses, shape (4, size).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp._fused import Kernel, make_numbers

__all__ = ["ADD_BLOCK", "CLIP_BLOCK", "RUN_BLOCK", "make_buffers"]


def _run_block(
    rows: Any,
    by_column: bool,
    positions: Any,
    widths: Any,
    is_activated: bool,
    parameters: Any,
    first: Any,
    gathered: Any,
    outputs: Any,
) -> None:
    """Gather rows, of shape (n, d), or (d, n) if ``by_column``, and compute the outputs of all layers."""
    m, d, last = positions.shape[0], gathered.shape[1], widths.shape[0]
    for i in range(m):
        where = positions[i]
        line = gathered[i]
        if by_column:
            for j in range(d):
                line[j] = rows[j, where]
        else:
            row = rows[where]
            for j in range(d):
                line[j] = row[j]
    for i in range(m, (m + 3) // 4 * 4):  # up to three records of zeros, which contribute nothing
        for j in range(d):
            gathered[i, j] = 0.0
    # The first layer, four records at once.
    for i in range(0, m, 4):
        a, b, c, e = gathered[i], gathered[i + 1], gathered[i + 2], gathered[i + 3]
        for h in range(widths[0]):
            given = first[h]
            p, q, r, s = 0.0, 0.0, 0.0, 0.0
            for j in range(d):
                p += given[j] * a[j]
                q += given[j] * b[j]
                r += given[j] * c[j]
                s += given[j] * e[j]
            outputs[h, i], outputs[h, i + 1], outputs[h, i + 2], outputs[h, i + 3] = p, q, r, s
    if is_activated:
        for h in range(widths[0]):
            line = outputs[h]
            for i in range(m):
                line[i] = 0.0 if line[i] < 0.0 else line[i]  # NaN stays NaN
    # Further layers.
    low, high, place = 0, widths[0], widths[0] * d
    for layer in range(1, last):
        w = widths[layer]
        below = high - low
        for h in range(w):
            line, bias = outputs[high + h], parameters[place + w * below + h]
            for i in range(m):
                line[i] = bias
            for j in range(below):
                slope, entering = parameters[place + h * below + j], outputs[low + j]
                for i in range(m):
                    line[i] += slope * entering[i]
            for i in range(m):
                line[i] = 0.0 if line[i] < 0.0 else line[i]
        low, high, place = high, high + w, place + w * (below + 1)


def _clip_block(
    positions: Any,
    label: Any,
    squared_norms: Any,
    weights: Any,
    clip_norm: float,
    smallest: float,
    widths: Any,
    is_activated: bool,
    parameters: Any,
    outputs: Any,
    deltas: Any,
    lines: Any,
) -> None:
    """Compute derivatives, norms of gradients, and clamped residuals with the opposite sign.

    ``squared_norms`` are those of all rows. Norms are at least ``smallest``.
    """
    m, last, total = positions.shape[0], widths.shape[0], outputs.shape[0]
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


def _add_block(m: int, widths: Any, gathered: Any, outputs: Any, deltas: Any, lines: Any, sums: Any, out: Any) -> None:
    """Add the sums of clamped residuals times gradients of the prediction."""
    last, d = widths.shape[0], gathered.shape[1]
    factors, lengths = lines[1], lines[2]
    # Sums, layer by layer.
    for h in range(widths[0]):
        delta = deltas[h]
        for i in range(m):
            delta[i] *= factors[i]
        for i in range(m, (m + 3) // 4 * 4):
            delta[i] = 0.0
    for i in range(0, m, 4):
        a, b, c, e = gathered[i], gathered[i + 1], gathered[i + 2], gathered[i + 3]
        for h in range(widths[0]):
            p, q, r, s = deltas[h, i], deltas[h, i + 1], deltas[h, i + 2], deltas[h, i + 3]
            line = sums[h]
            for j in range(d):
                line[j] += (p * a[j] + q * b[j]) + (r * c[j] + s * e[j])
    low, high, place = 0, widths[0], widths[0] * d
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
                entering, summed = outputs[low + j], 0.0
                for i in range(m):
                    summed += moves[i] * entering[i]
                out[place + h * below + j] += summed
        low, high, place = high, high + w, place + w * (below + 1)


def make_buffers(num_columns: int, widths: Sequence[int], size: int) -> list[NDArray[np.float64]]:
    """Make buffers for blocks of up to ``size`` records, a multiple of four: rows, outputs, deltas and lines."""
    total = (sum(widths), size)
    return [np.zeros(shape) for shape in ((size, num_columns), total, total, (4, size))]


def _make_example(widths: Sequence[int], d: int, m: int) -> dict[str, Any]:
    """Arguments for a block of ``m`` of 50 records, with an overflow and a label that is NaN."""
    size = widths[0] * d + sum(w * (b + 1) for w, b in zip([*widths[1:], 1], widths, strict=True))
    gathered, outputs, deltas, lines = make_buffers(d, widths, 40)
    label = 2 * make_numbers(50, start=401)
    label[0] = np.nan
    return {
        "positions": 7 * np.arange(m) % 50,
        "net": (np.array(widths), len(widths) > 1),
        "parameters": make_numbers(size, start=501),
        "out": make_numbers(size, start=601),
        "first": make_numbers(widths[0], d, start=501),
        "label": label,
        "buffers": (gathered, outputs, deltas, lines),
    }


def _run_examples() -> Iterator[list[Any]]:
    for by_column, widths in ((False, (2, 2)), (True, (1,))):
        given = _make_example(widths, 37, 37)
        rows = make_numbers(37, 50) if by_column else make_numbers(50, 37)
        known = given["positions"], *given["net"], given["parameters"], given["first"]
        yield [rows, by_column, *known, *given["buffers"][:2]]


def _clip_examples() -> Iterator[list[Any]]:
    for num_weights, widths in ((0, (3, 2)), (50, (2,))):
        given = _make_example(widths, 5, 37)
        outputs = make_numbers(*given["buffers"][1].shape)
        outputs[0, 3] = np.inf
        known = given["label"], np.abs(make_numbers(50)), np.abs(make_numbers(num_weights)), 0.3, 1e-12
        yield [given["positions"], *known, *given["net"], given["parameters"], outputs, *given["buffers"][2:]]


def _add_examples() -> Iterator[list[Any]]:
    for widths in ((2, 2), (1,)):
        given = _make_example(widths, 37, 37)
        buffers = (make_numbers(*each.shape, start=11 * place) for place, each in enumerate(given["buffers"]))
        yield [37, given["net"][0], *buffers, given["first"], given["out"]]


_LINES, _LINE = "float64[:, ::1]", "float64[::1]"
RUN_BLOCK = Kernel(
    _run_block,
    [f"void({_LINES}, boolean, int64[::1], int64[::1], boolean, {_LINE}, {_LINES}, {_LINES}, {_LINES})"],
    examples=_run_examples,
    any_order=True,
)
CLIP_BLOCK = Kernel(
    _clip_block,
    [
        f"void(int64[::1], {_LINE}, {_LINE}, {_LINE}, float64, float64, int64[::1], boolean, {_LINE}, {_LINES}, "
        f"{_LINES}, {_LINES})"
    ],
    examples=_clip_examples,
    any_order=True,
)
ADD_BLOCK = Kernel(
    _add_block,
    [f"void(int64, int64[::1], {_LINES}, {_LINES}, {_LINES}, {_LINES}, {_LINES}, {_LINE})"],
    examples=_add_examples,
    any_order=True,
)
