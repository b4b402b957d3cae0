"""The factorisation machine."""

from dataclasses import dataclass
from typing import Any, ClassVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from conddp._validate import positive, positive_integer
from conddp.heads.head import HEADS, Array, DescentDefaults, Head, Inputs, Layout, ResidualFunction, Trace, Weights
from conddp.heads.input_layer import apply_input_layer, at_least, input_shapes, sum_input_layer

__all__ = ["FactorizationMachine"]


@dataclass(frozen=True)
class FactorizationMachine(Head):
    r"""Factorisation machine: linear terms plus products of features through ``rank`` factors.

    .. math:: f = u_0 + \tfrac12 \sum_{k=1}^{r} (-1)^{k+1} u_k^2, \qquad u = \Theta x

    Paper
        "Models with linear input transformations". Rendle's (2010) machine sums products of different features only.
        Ours differs in two ways. It keeps the squares, because a linear map of the features mixes squares and products:
        without them, C could not be folded into the weights. It alternates the sign of the factors, because a sum of
        squares alone is convex.

    Parameters
    ----------
    rank : int
        Number of factors.
    initial_scale : float
        Initial standard deviation of u, for features of unit second moment.
    """

    summary: ClassVar[str] = r"$f = u_0 + \tfrac12 \sum_{k=1}^{r} (-1)^{k+1} u_k^2$"
    noun: ClassVar[str] = "a factorisation machine"
    descent: ClassVar[DescentDefaults] = DescentDefaults(
        {"sgd": (64, 0.3), "adam": (256, 0.01)}, conditioned_optimizer="sgd", clip_residual=None
    )

    rank: int = 8
    initial_scale: float = 0.1

    def __post_init__(self) -> None:
        positive_integer(rank=self.rank)
        positive(initial_scale=self.initial_scale)

    def layout(self, num_public: int, num_private: int) -> Layout:
        """Return a layout with one linear weight and ``rank`` factors per column."""
        return Layout(input_shapes(1 + self.rank, num_public, num_private))

    def initialize(self, layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return zero linear weights and small random factors, since the gradient of the products vanishes at zero."""
        parameters: NDArray[np.float64] = np.zeros((1, layout.size))
        weights = layout.views(parameters)
        columns = sum(shape[1] for shape in layout.shapes.values())
        for weight in weights.values():
            weight[:, 1:] = rng.normal(scale=self.initial_scale / np.sqrt(columns), size=weight[:, 1:].shape)
        return parameters.ravel()

    def forward(self, weights: Weights, inputs: Inputs) -> Trace:
        """Compute predictions and gradient norms of all records."""
        xp = inputs.xp
        embedded = apply_input_layer(weights, inputs.public, inputs.private)
        slopes = self._slopes(xp, embedded)
        norms = inputs.row_norms * xp.sqrt(xp.sum(slopes * slopes, axis=1))
        return Trace(self._combine(xp, embedded, slopes), at_least(xp, norms), [slopes])

    def vjp(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Write the sum over records of ``coefficients`` times gradient of f into ``out``."""
        (slopes,) = trace.layers
        sum_input_layer(inputs, coefficients[:, None, :] * slopes, out)

    def sum_gradients(self, weights: Weights, inputs: Inputs, residual: ResidualFunction, out: Weights) -> None:
        """Write the sum over records of residual times gradient of f into ``out``."""
        xp = inputs.xp
        embedded = apply_input_layer(weights, inputs.public, inputs.private)
        slopes = self._slopes(xp, embedded)
        slopes *= residual(self._combine(xp, embedded, slopes))[:, None, :]
        sum_input_layer(inputs, slopes, out)

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Compute predictions only, shape (K, n)."""
        xp = array_api_compat.array_namespace(public)
        embedded = apply_input_layer(weights, public, private)
        return self._combine(xp, embedded, self._slopes(xp, embedded))

    def _slopes(self, xp: Any, embedded: Array) -> Array:
        """Derivative of f with respect to u: 1 for the linear term, +u or -u for the factors."""
        values = [0.0] + [(-1.0) ** k for k in range(self.rank)]
        signs = xp.asarray(values, dtype=embedded.dtype, device=embedded.device)
        slopes = embedded * signs[None, :, None]
        slopes[:, 0, :] = 1.0
        return slopes

    def _combine(self, xp: Any, embedded: Array, slopes: Array) -> Array:
        products = xp.sum(embedded * slopes, axis=1)  # u_0 + sum of sign u^2
        return 0.5 * (embedded[:, 0, :] + products)


HEADS.add("fm", FactorizationMachine())
