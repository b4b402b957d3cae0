"""The multilayer perceptron."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from conddp._validate import one_of, positive_integer
from conddp.heads.fused import ClippedRecords, FusedSum, fuse_network
from conddp.heads.head import HEADS, Array, Head, Inputs, Layout, ResidualFunction, Trace, Weights
from conddp.heads.input_layer import apply_input_layer, at_least, input_shapes, squared_norms, sum_input_layer

__all__ = ["MLP"]

CELLS_AT_ONCE = 2**16  # activations of a layer, in sums without clipping


@dataclass(frozen=True)
class MLP(Head):
    """A multilayer perceptron with a scalar output.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the hidden layers.
    activation : {"relu", "tanh"}
        Activation function after every hidden layer.
    embedding : int or None
        Width of a linear layer before the first hidden layer. None connects the columns to the first hidden layer
        directly. The paper's models are ``MLP(hidden=(16, 8), embedding=16)``.
    """

    summary: ClassVar[str] = "layers with ReLU or tanh"
    noun: ClassVar[str] = "a neural network"

    hidden: tuple[int, ...] = (16, 8)
    activation: Literal["relu", "tanh"] = "relu"
    embedding: int | None = None
    _widths: tuple[int, ...] = field(init=False, repr=False, compare=False)  # of all layers below the output
    _weight: tuple[str, ...] = field(init=False, repr=False, compare=False)  # names of layers' weights and biases;
    _bias: tuple[str, ...] = field(init=False, repr=False, compare=False)  # the input layer's has two blocks, no bias

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if not self.hidden:
            raise ValueError("hidden must contain at least one layer width. Use Linear() for a model without any.")
        for width in self.hidden:
            positive_integer(hidden=width)
        if self.embedding is not None:
            positive_integer(embedding=self.embedding)
        one_of(("relu", "tanh"), activation=self.activation)
        widths = self.hidden if self.embedding is None else (self.embedding, *self.hidden)
        object.__setattr__(self, "_widths", widths)
        object.__setattr__(self, "_weight", tuple(f"weight_{number}" for number in range(len(widths) + 1)))
        object.__setattr__(self, "_bias", tuple(f"bias_{number}" for number in range(len(widths) + 1)))

    def layout(self, num_public: int, num_private: int) -> Layout:
        """Return a layout with the weights of the input layer, then weights and biases of each further layer.

        The bias of the input layer is the weight of the constant column.
        """
        widths = (*self._widths, 1)
        shapes = input_shapes(widths[0], num_public, num_private)
        for number, (below, width) in enumerate(zip(widths[:-1], widths[1:], strict=True), start=1):
            shapes[self._weight[number]] = (width, below)
            shapes[self._bias[number]] = (width,)
        return Layout(shapes)

    def initialize(self, layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return Gaussian weights that preserve the scale of activations, small output weights and zero biases."""
        parameters: NDArray[np.float64] = np.zeros((1, layout.size))
        weights = layout.views(parameters)
        last = len(self._widths)
        inputs = sum(layout.shapes[name][1] for name in ("public", "private") if name in layout.shapes)
        for name, weight in weights.items():
            if name.startswith("bias"):
                continue
            fan_in = inputs if name in ("public", "private") else weight.shape[2]
            gain = 0.1 if name == self._weight[last] else np.sqrt(2.0 if self.activation == "relu" else 1.0)
            weight[...] = rng.normal(scale=gain / np.sqrt(fan_in), size=weight.shape)
        return parameters.ravel()

    def forward(self, weights: Weights, inputs: Inputs) -> Trace:
        """Compute predictions and gradient norms of all records."""
        xp = inputs.xp
        activations = self._forward(xp, weights, inputs.public, inputs.private)
        last = len(self._widths)
        # Backward pass: delta = derivative of f with respect to the pre-activations of a layer, shape (K, width, n).
        deltas: list[Array] = [None] * last
        squared = 1.0 + squared_norms(xp, activations[last - 1])
        for number in range(last - 1, -1, -1):
            delta = weights[self._weight[number + 1]].mT
            if number < last - 1:
                delta = delta @ deltas[number + 1]
            if self._is_activated(number):
                delta = delta * self._derivative(xp, activations[number])
            rows = inputs.row_norms**2 if number == 0 else 1.0 + squared_norms(xp, activations[number - 1])
            squared = squared + rows * squared_norms(xp, delta)
            deltas[number] = delta
        trace = Trace(activations[last][:, 0, :], at_least(xp, xp.sqrt(squared)), [activations, deltas])
        if not bool(xp.isfinite(trace.jacobian_norms).all()):
            self._silence(xp, trace)
        return trace

    def vjp(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Write the sum over records of ``coefficients`` times gradient of f into ``out``."""
        activations, deltas = trace.layers
        last = len(self._widths)
        rows = coefficients[:, None, :]
        for number in range(last, -1, -1):
            weighted = rows if number == last else rows * deltas[number]
            if number == 0:
                sum_input_layer(inputs, weighted, out)
            else:
                out[self._weight[number]][...] = weighted @ activations[number - 1].mT
                out[self._bias[number]][...] = weighted.sum(-1)

    def sum_gradients(self, weights: Weights, inputs: Inputs, residual: ResidualFunction, out: Weights) -> None:
        """Write the sum over records of residual times gradient of f into ``out``, a few configurations at a time.

        A few, so that activations stay in the processor cache.
        """
        K, cells = weights["public"].shape[0], max(self._widths) * max(1, inputs.row_norms.shape[0])
        at_once = max(1, CELLS_AT_ONCE // cells)
        for start in range(0, K, at_once):
            span = slice(start, start + at_once)
            some = {name: each[span] for name, each in weights.items()}
            self._sum_some(some, inputs, partial(residual, configurations=span), {n: out[n][span] for n in out})

    def _sum_some(self, weights: Weights, inputs: Inputs, residual: ResidualFunction, out: Weights) -> None:
        activations = self._forward(inputs.xp, weights, inputs.public, inputs.private)
        last = len(self._widths)
        delta = residual(activations[last][:, 0, :])[:, None, :]  # residual times derivative of f
        for number in range(last, 0, -1):
            out[self._weight[number]][...] = delta @ activations[number - 1].mT
            out[self._bias[number]][...] = delta.sum(-1)
            above = weights[self._weight[number]].mT
            delta = above * delta if number == last else above @ delta  # a product with one row is faster than matmul
            if self._is_activated(number - 1):
                delta *= self._derivative(inputs.xp, activations[number - 1])
        sum_input_layer(inputs, delta, out)

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Compute predictions only, shape (K, n)."""
        xp = array_api_compat.array_namespace(public)
        return self._forward(xp, weights, public, private)[-1][:, 0, :]

    def fuse(self, layout: Layout, parameters: Array, out: Array, records: ClippedRecords) -> FusedSum | None:
        """Return a sum in blocks of records, for narrow layers with ReLU."""
        if self.activation != "relu":
            return None
        is_activated = self.embedding is None
        return fuse_network(parameters[0], out[0], records, widths=self._widths, is_activated=is_activated)

    def _silence(self, xp: Any, trace: Trace) -> None:
        """Make records whose gradients overflow contribute exactly zero, even if other values are infinite."""
        fine = xp.isfinite(trace.jacobian_norms)
        activations, deltas = trace.layers
        for layer in (*activations, *deltas):
            layer[...] = xp.where(fine[:, None, :], layer, 0.0)
        trace.jacobian_norms = xp.where(fine, trace.jacobian_norms, float("inf"))

    def _is_activated(self, number: int) -> bool:
        """Whether layer ``number`` (0 is the input layer) is followed by the activation."""
        return number > 0 or self.embedding is None

    def _forward(self, xp: Any, weights: Weights, public: Array, private: Array | None) -> list[Array]:
        """Outputs of all layers, from the input layer to the prediction."""
        last = len(self._widths)
        outputs: list[Array] = []
        for number in range(last + 1):
            if number == 0:
                entering = apply_input_layer(weights, public, private)
            else:
                entering = weights[self._weight[number]] @ outputs[-1]
                entering += weights[self._bias[number]][:, :, None]
            outputs.append(self._activate(xp, entering) if number < last and self._is_activated(number) else entering)
        return outputs

    def _activate(self, xp: Any, entering: Array) -> Array:
        return xp.maximum(entering, 0.0) if self.activation == "relu" else xp.tanh(entering)

    def _derivative(self, xp: Any, output: Array) -> Array:
        """Derivative of the activation, from its output."""
        return output > 0 if self.activation == "relu" else 1.0 - output * output


HEADS.add("mlp", MLP())
