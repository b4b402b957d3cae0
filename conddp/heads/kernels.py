"""Operations on arrays of shape (n, width) whose fast form differs between NumPy and torch."""

from collections.abc import Iterator
from typing import Any

import array_api_compat
import numpy as np

from conddp._fused import Kernel, as_contiguous, make_numbers
from conddp.heads.head import Array

__all__ = [
    "RECORDS_PER_SUM",
    "activate",
    "add_by_code",
    "as_codes",
    "bound_sum_rounding",
    "derivative_times",
    "look_up",
    "row_norms",
    "square_by_code",
    "sum_products",
]

RECORDS_PER_SUM = 128  # records whose float32 products are summed in float32


def activate(xp: Any, entering: Array, activation: str) -> Array:
    """Apply ReLU or tanh, in place."""
    if array_api_compat.is_torch_namespace(xp):
        return entering.relu_() if activation == "relu" else entering.tanh_()
    return np.maximum(entering, 0.0, out=entering) if activation == "relu" else np.tanh(entering, out=entering)


def derivative_times(xp: Any, delta: Array, output: Array, activation: str) -> Array:
    """Multiply by the derivative of the activation, computed from its output."""
    if activation == "tanh":
        return delta * (1.0 - output * output)
    if array_api_compat.is_torch_namespace(xp):
        return xp.ops.aten.threshold_backward(delta, output, 0)
    return delta * (output > 0)


def row_norms(xp: Any, rows: Array) -> Array:
    """Squared norm of each row."""
    if array_api_compat.is_torch_namespace(xp):
        return rows.norm(dim=1) ** 2
    return np.einsum("ij,ij->i", rows, rows)


def as_codes(xp: Any, columns: Array, num_bins: int) -> Array:
    """Convert numbers to integers from 0 to ``num_bins - 1``. Others are clamped, so that lookups cannot fail."""
    rounded = xp.clip(xp.floor(columns), 0, num_bins - 1)
    return xp.astype(xp.where(xp.isnan(columns), xp.zeros_like(rounded), rounded), xp.int64)


def add_by_code(xp: Any, codes: Array, factors: Array, vectors: Array, out: Array) -> None:
    """Write the sums by code of factors times vectors into ``out``, shape (num_bins, width).

    Products have the precision of the factors, and sums that of ``out``.

    Parameters
    ----------
    xp : module
        Array namespace.
    codes : integer array of shape (n, c)
        Codes of the records.
    factors : array of shape (n, 1)
        Factors of the records.
    vectors : array of shape (n, c * width)
        Vectors of the records, one for each of their codes.
    out : array of shape (num_bins, width)
        Overwritten by the sums.
    """
    kernel = ADD_BY_CODE.get()
    arrays = None if kernel is None else as_contiguous(codes, factors, vectors, out)
    if kernel is not None and arrays is not None and arrays[0].dtype == np.int64 and arrays[3].dtype == np.float64:
        kernel(*arrays)
        return
    moves = xp.reshape(factors * vectors, (-1, out.shape[1]))
    moves, codes = xp.astype(moves, out.dtype, copy=False), xp.reshape(codes, (-1,))
    if array_api_compat.is_torch_namespace(xp):
        out.zero_().scatter_add_(0, codes[:, None].expand(-1, moves.shape[1]), moves)
        return
    columns = np.ascontiguousarray(moves.T)
    for place, column in enumerate(columns):
        out[:, place] = np.bincount(codes, weights=column, minlength=out.shape[0])


def _add_by_code(codes: Any, factors: Any, vectors: Any, out: Any) -> None:
    """Sums by code, without any array of products."""
    (n, c), width = codes.shape, out.shape[1]
    for i in range(out.shape[0]):
        for k in range(width):
            out[i, k] = 0.0
    for i in range(n):
        factor, line, known = factors[i, 0], vectors[i], codes[i]
        for j in range(c):
            sums, vector = out[known[j]], line[j * width : (j + 1) * width]
            for k in range(width):
                sums[k] += factor * vector[k]


def _add_blocks(blocks: Any, total: Any) -> None:
    """Add up blocks, in the precision of the total."""
    for i in range(blocks.shape[0]):
        for h in range(total.shape[0]):
            sums, added = total[h], blocks[i, h]
            for j in range(sums.shape[0]):
                sums[j] += added[j]


def _code_examples() -> Iterator[list[Any]]:
    codes = np.array([[0, 3], [2, 2], [3, 0], [1, 3]])
    for kind in _FLOATS:
        factors, vectors = make_numbers(4, 1).astype(kind), make_numbers(4, 74, start=5).astype(kind)
        yield [codes, factors, vectors, np.ones((5, 37))]


def _block_examples() -> Iterator[list[Any]]:
    yield [make_numbers(3, 2, 75).astype(np.float32), make_numbers(2, 75, start=451)]


_FLOATS = ("float32", "float64")
ADD_BY_CODE = Kernel(
    _add_by_code,
    [f"void(int64[:, ::1], {kind}[:, ::1], {kind}[:, ::1], float64[:, ::1])" for kind in _FLOATS],
    examples=_code_examples,
)
ADD_BLOCKS = Kernel(_add_blocks, ["void(float32[:, :, ::1], float64[:, ::1])"], examples=_block_examples)


def square_by_code(xp: Any, codes: Array, vectors: Array, squares: Array) -> Array:
    """Squared norms of vectors, shape (m, c, width), that are added up where codes, shape (m, c), are equal.

    They are raised by what rounding can take away, because products of both signs may cancel.

    Parameters
    ----------
    xp : module
        Array namespace.
    codes, vectors : arrays
        See above.
    squares : array of shape (m,)
        Sums of the squared norms of the vectors.
    """
    c, width = vectors.shape[1:]
    products = vectors @ vectors.mT
    equal = xp.astype(codes[:, :, None] == codes[:, None, :], vectors.dtype)
    allowance = c * (width + c * c) * float(xp.finfo(vectors.dtype).eps)
    return xp.sum(products * equal, axis=(1, 2)) + allowance * squares


def look_up(xp: Any, table: Array, codes: Array) -> Array:
    """Rows of a table at these places."""
    return table.index_select(0, codes) if array_api_compat.is_torch_namespace(xp) else np.take(table, codes, axis=0)


def sum_products(xp: Any, left: Array, right: Array, dtype: Any) -> Array:
    """Sum over records of left, shape (n, h), times right, shape (n, w), as an array of this type; shape (h, w).

    If the factors are less precise than the sum, products are summed in their precision within blocks of 128 records,
    and the sums of blocks in that of the result.
    """
    if left.dtype == dtype:
        return left.T @ right
    n, b = left.shape[0], RECORDS_PER_SUM
    whole = n - n % b
    blocks = xp.reshape(left[:whole], (-1, b, left.shape[1])).mT @ xp.reshape(right[:whole], (-1, b, right.shape[1]))
    total = _sum_blocks(xp, blocks, dtype)
    if whole < n:
        total += xp.astype(left[whole:].T @ right[whole:], dtype)
    return total


def _sum_blocks(xp: Any, blocks: Array, dtype: Any) -> Array:
    """Sum of blocks in this type, one after another or pairwise."""
    kernel = ADD_BLOCKS.get()
    if kernel is not None and blocks.dtype == xp.float32 and dtype == xp.float64:
        total = xp.zeros(blocks.shape[1:], dtype=dtype, device=blocks.device)
        arrays = as_contiguous(blocks, total)
        if arrays is not None:
            kernel(*arrays)
            return total
    return xp.sum(xp.astype(blocks, dtype), axis=0)


def bound_sum_rounding(xp: Any, dtype: Any, *, per_unit: int) -> float:
    r"""Bound what rounding adds to the move of :func:`sum_products` by one unit, in norms of the largest summand.

    The sum of a block of b products, in any order, is off by at most :math:`\gamma_b = b u / (1 - b u)` times the sum
    of their norms, with u the unit roundoff (Higham 2002, Sec. 3.1), which is at most b times the largest norm. Blocks
    without a record of the unit have the same sums in both data sets, errors included. So a record adds up to
    :math:`2 b \gamma_b` to the move, and m adjacent records as much for each block that they are in.
    """
    b, u = RECORDS_PER_SUM, float(xp.finfo(dtype).eps) / 2
    blocks = 1 if per_unit == 1 else 2 + per_unit // b
    return blocks * 2 * b * (b * u / (1 - b * u))
