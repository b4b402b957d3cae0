r"""Kernels for sums of clipped gradients of linear heads: predictions, clipping and sums in one pass over the records.

They compute what :func:`conddp.training.clipping.compute_clipped_sum` computes with ``forward`` and ``vjp`` of a head,
for one configuration, NumPy arrays and the squared loss. Rows may be in float32; all arithmetic is in float64. Records
are taken in blocks that fit into the processor cache, so that a row is read from memory once. A sample is given by the
positions of its records, whose rows need not be gathered first. Positions are the first argument of every kernel; those
for rows that are stored by column sum over all records and ignore them.

Rounding
    Sums are in float64. Within a block, records are added up by lanes of the processor, and blocks one after another.
    :func:`conddp.privacy.bounded_sum.bound_rounding` covers every order.
"""

from collections.abc import Iterator
from itertools import chain, product
from typing import Any

import numpy as np

from conddp._fused import Kernel, make_numbers

__all__ = ["SUM_COLUMNS", "SUM_FEW_COLUMNS", "SUM_ROWS", "SUM_SPARSE"]


def _sum_columns(
    positions: Any, columns: Any, label: Any, limits: Any, weights: Any, parameters: Any, buffer: Any, out: Any
) -> None:
    """Sum the clipped gradients of a linear head over all records, from rows that are stored by column."""
    d, n = columns.shape
    size = buffer.shape[0]
    out[:] = 0.0
    for start in range(0, n, size):
        stop = min(start + size, n)
        m = stop - start
        rest, y, most = buffer[:m], label[start:stop], limits[start:stop]
        for i in range(m):
            rest[i] = y[i]
        j = 0
        while j + 4 <= d:  # four columns at once, so that residuals are read and written a quarter as often
            p, q, r, s = parameters[j], parameters[j + 1], parameters[j + 2], parameters[j + 3]
            a, b = columns[j, start:stop], columns[j + 1, start:stop]
            c, e = columns[j + 2, start:stop], columns[j + 3, start:stop]
            for i in range(m):
                rest[i] -= (p * a[i] + q * b[i]) + (r * c[i] + s * e[i])
            j += 4
        while j < d:
            p, a = parameters[j], columns[j, start:stop]
            for i in range(m):
                rest[i] -= p * a[i]
            j += 1
        for i in range(m):
            limit, residual = most[i], rest[i]
            residual = limit if residual > limit else residual
            residual = -limit if residual < -limit else residual
            rest[i] = residual if residual == residual else 0.0
        if weights.shape[0]:
            given = weights[start:stop]
            for i in range(m):
                rest[i] *= given[i]
        j = 0
        while j + 4 <= d:
            a, b = columns[j, start:stop], columns[j + 1, start:stop]
            c, e = columns[j + 2, start:stop], columns[j + 3, start:stop]
            p, q, r, s = 0.0, 0.0, 0.0, 0.0
            for i in range(m):
                p += rest[i] * a[i]
                q += rest[i] * b[i]
                r += rest[i] * c[i]
                s += rest[i] * e[i]
            out[j] -= p
            out[j + 1] -= q
            out[j + 2] -= r
            out[j + 3] -= s
            j += 4
        while j < d:
            a, p = columns[j, start:stop], 0.0
            for i in range(m):
                p += rest[i] * a[i]
            out[j] -= p
            j += 1


def _sum_few_columns(
    positions: Any, columns: Any, label: Any, limits: Any, weights: Any, parameters: Any, few: Any, out: Any
) -> None:
    """Sum the clipped gradients of a linear head with at most eight columns: rows and sums stay in registers.

    Columns that are missing are taken to be the last one, with weights of zero.
    """
    d, n = columns.shape
    for j in range(8):
        few[j] = parameters[j] if j < d else 0.0
    a, b, c, e = few[0], few[1], few[2], few[3]
    f, g, h, k = few[4], few[5], few[6], few[7]
    last = d - 1
    p, q, r, s = columns[0], columns[min(1, last)], columns[min(2, last)], columns[min(3, last)]
    t, u, v, w = columns[min(4, last)], columns[min(5, last)], columns[min(6, last)], columns[min(7, last)]
    aa, bb, cc, ee, ff, gg, hh, kk = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        low, high = (a * p[i] + b * q[i]) + (c * r[i] + e * s[i]), (f * t[i] + g * u[i]) + (h * v[i] + k * w[i])
        limit, residual = limits[i], label[i] - (low + high)
        residual = limit if residual > limit else residual
        residual = -limit if residual < -limit else residual
        residual = residual if residual == residual else 0.0
        residual = residual * weights[i] if weights.shape[0] else residual
        aa += residual * p[i]
        bb += residual * q[i]
        cc += residual * r[i]
        ee += residual * s[i]
        ff += residual * t[i]
        gg += residual * u[i]
        hh += residual * v[i]
        kk += residual * w[i]
    few[0], few[1], few[2], few[3], few[4], few[5], few[6], few[7] = aa, bb, cc, ee, ff, gg, hh, kk
    for j in range(d):
        out[j] = -few[j]


def _sum_rows(
    positions: Any, rows: Any, label: Any, limits: Any, weights: Any, parameters: Any, buffer: Any, out: Any
) -> None:
    """Sum the clipped gradients of a linear head over the records at these positions."""
    d, n = rows.shape[1], positions.shape[0]
    for j in range(d):
        out[j] = 0.0
    for start in range(0, n, 4):  # four records at once, so that the sum is read and written a quarter as often
        end = n - start - 1
        a, b = rows[positions[start]], rows[positions[start + min(1, end)]]
        c, e = rows[positions[start + min(2, end)]], rows[positions[start + min(3, end)]]
        p, q, r, s = 0.0, 0.0, 0.0, 0.0
        for j in range(d):
            p += parameters[j] * a[j]
            q += parameters[j] * b[j]
            r += parameters[j] * c[j]
            s += parameters[j] * e[j]
        buffer[0], buffer[1], buffer[2], buffer[3] = p, q, r, s
        for i in range(4):
            place = positions[start + min(i, end)]
            limit, residual = limits[place], label[place] - buffer[i]
            residual = limit if residual > limit else residual
            residual = -limit if residual < -limit else residual
            residual = residual if residual == residual and i <= end else 0.0
            buffer[i] = residual * weights[place] if weights.shape[0] else residual
        p, q, r, s = buffer[0], buffer[1], buffer[2], buffer[3]
        for j in range(d):
            out[j] -= (p * a[j] + q * b[j]) + (r * c[j] + s * e[j])


def _sum_sparse(
    positions: Any,
    values: Any,
    columns: Any,
    starts: Any,
    constant: float,
    label: Any,
    limits: Any,
    weights: Any,
    parameters: Any,
    lanes: Any,
    out: Any,
) -> None:
    """Sum the clipped gradients of a linear head over the records at these positions, from sparse rows.

    A constant that is not NaN follows the stored columns. Records are added to two ``lanes``, shape (2, P), in turn,
    because an addition that depends on the one before takes longer.
    """
    has_constant, size = constant == constant, parameters.shape[0]
    for j in range(size):
        lanes[0, j] = 0.0
        lanes[1, j] = 0.0
    offset, total = constant * parameters[size - 1] if has_constant else 0.0, 0.0
    for i in range(positions.shape[0]):
        place = positions[i]
        stored, known = columns[starts[place] : starts[place + 1]], values[starts[place] : starts[place + 1]]
        predicted = offset
        for k in range(stored.shape[0]):
            predicted += known[k] * parameters[np.uint64(stored[k])]
        limit, residual = limits[place], label[place] - predicted
        residual = limit if residual > limit else residual
        residual = -limit if residual < -limit else residual
        residual = residual if residual == residual else 0.0
        residual = residual * weights[place] if weights.shape[0] else residual
        lane = lanes[i & 1]
        for k in range(stored.shape[0]):
            lane[np.uint64(stored[k])] -= residual * known[k]
        total -= residual
    for j in range(size):
        out[j] = lanes[0, j] + lanes[1, j]
    if has_constant:
        out[size - 1] = constant * total


def _column_examples(d: int, n: int, size: int, *kinds: str) -> Iterator[list[Any]]:
    """Sums over n records in blocks of a size, without weights and with them."""
    for kind, num_weights in product(kinds, (0, n)):
        label, limits = 2 * make_numbers(n, start=601), np.abs(make_numbers(n, start=701))
        label[3:5], limits[5] = np.nan, np.inf
        rows, parameters = make_numbers(d, n).astype(kind), make_numbers(d, start=801)
        known = label, limits, np.abs(make_numbers(num_weights)), parameters
        yield [np.arange(n), rows, *known, np.ones(size), np.ones(d)]


def _row_examples() -> Iterator[list[Any]]:
    for kind, num_weights in (("float64", 0), ("float64", 9), ("float32", 9)):
        label, limits = 2 * make_numbers(9, start=601), np.abs(make_numbers(9, start=701))
        label[3] = np.nan
        positions, weights = np.array([7, 0, 3, 5, 8, 2]), np.abs(make_numbers(num_weights))
        rows, parameters = make_numbers(9, 45).astype(kind), make_numbers(45, start=801)
        yield [positions, rows, label, limits, weights, parameters, np.ones(4), np.ones(45)]


def _sparse_examples() -> Iterator[list[Any]]:
    label, limits = 2 * make_numbers(5, start=601), np.abs(make_numbers(5, start=701))
    label[4] = np.nan
    for kind in (np.int32, np.int64):
        columns = (7 * np.arange(60) % 40).astype(kind)
        starts, positions = np.array([0, 0, 37, 38, 49, 60], dtype=kind), np.array([4, 1, 0, 3, 2])
        for constant, num_weights in ((np.nan, 0), (0.5, 5)):
            known = label, limits, np.abs(make_numbers(num_weights)), make_numbers(41, start=801)
            yield [positions, make_numbers(60), columns, starts, constant, *known, np.ones((2, 41)), np.ones(41)]


_LINE = "float64[::1]"
_PLACES = "int64[::1]"
_KNOWN = ", ".join([_LINE] * 6)  # label, limits, weights, parameters, buffer, out
SUM_COLUMNS = Kernel(
    _sum_columns,
    [f"void({_PLACES}, {kind}[:, ::1], {_KNOWN})" for kind in ("float64", "float32")],
    examples=lambda: _column_examples(6, 83, 46, "float64", "float32"),
    any_order=True,
)
SUM_FEW_COLUMNS = Kernel(
    _sum_few_columns,
    [f"void({_PLACES}, float64[:, ::1], {_KNOWN})"],
    examples=lambda: chain(_column_examples(3, 37, 8, "float64"), _column_examples(8, 37, 8, "float64")),
    any_order=True,
)
SUM_ROWS = Kernel(
    _sum_rows,
    [f"void({_PLACES}, {kind}[:, ::1], {_KNOWN})" for kind in ("float64", "float32")],
    examples=_row_examples,
    any_order=True,
)
SUM_SPARSE = Kernel(
    _sum_sparse,
    [
        f"void({_PLACES}, {_LINE}, {kind}[::1], {kind}[::1], float64, {_LINE}, {_LINE}, {_LINE}, {_LINE}, "
        f"float64[:, ::1], {_LINE})"
        for kind in ("int32", "int64")
    ],
    examples=_sparse_examples,
    any_order=True,
)
