"""The linear input layer that every head starts with."""

from typing import Any

from conddp.heads.head import SMALLEST_NORM, Array, Inputs, Weights

__all__ = ["apply_input_layer", "at_least", "input_shapes", "squared_norms", "sum_input_layer"]


def input_shapes(width: int, num_public: int, num_private: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the public and private blocks of weights."""
    shapes: dict[str, tuple[int, ...]] = {"public": (width, num_public)}
    if num_private:
        shapes["private"] = (width, num_private)
    return shapes


def apply_input_layer(weights: Weights, public: Array, private: Array | None) -> Array:
    """Compute the outputs u, shape (K, width, n), with one matrix product for all configurations."""
    K, width, columns = weights["public"].shape
    embedded = weights["public"].reshape((K * width, columns)) @ public.T
    if private is not None:
        embedded = embedded + weights["private"].reshape((K * width, private.shape[1])) @ private.T
    return embedded.reshape((K, width, public.shape[0]))


def sum_input_layer(inputs: Inputs, deltas: Array, out: Weights) -> None:
    """Sum delta (K, width, n) times input row over records, and write the sums to the input layer of ``out``."""
    K, width, n = deltas.shape
    flat = deltas.reshape((K * width, n))
    out["public"][...] = (flat @ inputs.public).reshape((K, width, inputs.public.shape[1]))
    if inputs.private is not None:
        out["private"][...] = (flat @ inputs.private).reshape((K, width, inputs.num_private))


def squared_norms(xp: Any, columns: Array) -> Array:
    """Compute the squared norm of the vector of each record: (K, width, n) to (K, n)."""
    return xp.vecdot(columns, columns, axis=1)


def at_least(xp: Any, norms: Array) -> Array:
    """Bound norms away from zero, so that divisions by them are finite."""
    return xp.maximum(norms, SMALLEST_NORM)
