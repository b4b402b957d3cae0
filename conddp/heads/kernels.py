"""Operations on arrays of shape (n, width) whose fast form differs between NumPy and torch."""

from typing import Any

import array_api_compat
import numpy as np

from conddp.heads.head import Array

__all__ = ["activate", "add_by_code", "as_codes", "derivative_times", "row_norms"]


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


def add_by_code(xp: Any, codes: Array, moves: Array, out: Array) -> None:
    """Write the sums of moves, shape (m, width), by code, shape (m,), into ``out``, shape (num_bins, width)."""
    if array_api_compat.is_torch_namespace(xp):
        out.zero_().scatter_add_(0, codes[:, None].expand(-1, moves.shape[1]), moves)
        return
    columns = np.ascontiguousarray(moves.T)
    for place, column in enumerate(columns):
        out[:, place] = np.bincount(codes, weights=column, minlength=out.shape[0])
