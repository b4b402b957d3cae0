r"""Model heads with closed-form per-example gradients.

Every head starts with a linear input layer :math:`u = \Theta_{pub} x_{pub} + \Theta_{priv} x_{priv}` that keeps
public and private columns apart, and computes a scalar prediction :math:`f` from :math:`u`. The loss of a record is
:math:`\tfrac12 (f - y)^2`, so its gradient is its residual times :math:`J_i = \partial f / \partial\theta`. For
layers that are matrices, :math:`J_i` is an outer product per layer, and therefore

* its norm is a product of two vector norms per layer, and
* a weighted sum of all :math:`J_i` is one matrix product per layer,

so that per-example gradients are never formed.

Arrays carry a leading axis of K configurations, trained at once on the same records: parameters are one flat array
of shape (K, P), activations have shape (K, width, n). Everything is written against the array API and runs on NumPy
arrays and torch tensors alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from conddp._validate import one_of, positive, positive_integer
from conddp.errors import SchemaError

__all__ = [
    "MLP",
    "FactorizationMachine",
    "Head",
    "Inputs",
    "Layout",
    "Linear",
    "Trace",
    "Wide",
]

Array = Any  # a NumPy array or a torch tensor
Weights = Mapping[str, Array]

HIDDEN_GAIN = 1.5  # standard deviation of what enters a hidden unit of Wide, for columns of unit variance
SMALLEST_NORM = 1e-15  # shorter gradients are treated as this long: their squares may underflow in float32


@dataclass(frozen=True)
class Inputs:
    """What a head sees of the records: conditioned public columns and scaled private ones.

    Parameters
    ----------
    public : array of shape (n, d_pub)
        Conditioned public features, the constant column included.
    private : array of shape (n, d_priv) or None
        Private features, clamped and scaled by their declared bounds.
    row_norms : array of shape (n,)
        Euclidean norm of each whole row; made by :meth:`of`.
    xp : module
        The array namespace of all of them.
    """

    public: Array
    private: Array | None
    row_norms: Array
    xp: Any = field(repr=False)

    @classmethod
    def of(cls, public: Array, private: Array | None = None) -> "Inputs":
        """Inputs with their row norms.

        Raises
        ------
        SchemaError
            If a public feature is so large that products of features and weights would overflow.
        """
        xp = array_api_compat.array_namespace(public)
        largest = float(xp.finfo(public.dtype).max) ** 0.25
        if public.shape[0] * public.shape[1] and float(xp.max(xp.abs(public))) > largest:
            raise SchemaError(f"a public feature exceeds {largest:.0e} in size. Scale the column down.")
        squared = xp.sum(public * public, axis=1)
        if private is not None:
            squared = squared + xp.sum(private * private, axis=1)
        return cls(public, private, xp.maximum(xp.sqrt(squared), SMALLEST_NORM), xp)

    @property
    def num_private(self) -> int:
        """Number of private columns."""
        return 0 if self.private is None else self.private.shape[1]

    def take(self, index: Array) -> "Inputs":
        """The records at these positions."""
        private = None if self.private is None else self.private[index]
        return Inputs(self.public[index], private, self.row_norms[index], self.xp)


@dataclass(frozen=True)
class Layout:
    """Where each named weight lies in the flat parameter vector."""

    shapes: Mapping[str, tuple[int, ...]]
    spans: Mapping[str, slice] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        spans, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + int(np.prod(shape))
            spans[name] = slice(start, stop)
            start = stop
        object.__setattr__(self, "spans", spans)

    @property
    def size(self) -> int:
        """Number of parameters P."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def views(self, parameters: Array) -> dict[str, Array]:
        """Named weights of shape (K, ...) that share memory with ``parameters`` of shape (K, P)."""
        K = parameters.shape[0]
        return {name: parameters[:, self.spans[name]].reshape((K, *shape)) for name, shape in self.shapes.items()}


@dataclass
class Trace:
    """What one pass over the records leaves behind.

    Parameters
    ----------
    predictions : array of shape (K, n)
        f of each record.
    jacobian_norms : array of shape (K, n) or (n,)
        Norm of the gradient of f by all parameters, for each record.
    layers : list
        What the head needs again to sum gradients.
    """

    predictions: Array
    jacobian_norms: Array
    layers: list[Any]


class Head(Protocol):
    """From features to a prediction, with gradients in closed form."""

    def layout(self, num_public: int, num_private: int) -> Layout:
        """Names and shapes of the weights for so many input columns."""

    def initialize(self, layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        """Initial parameters, shape (P,), drawn without looking at data."""

    def trace(self, weights: Weights, inputs: Inputs) -> Trace:
        """Predictions and gradient norms of all records."""

    def weighted_sum(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Write the sum over records of ``coefficients`` (K, n) times the gradient of f into ``out``."""

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Predictions alone, shape (K, n)."""


def _input_shapes(width: int, num_public: int, num_private: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"public": (width, num_public)}
    if num_private:
        shapes["private"] = (width, num_private)
    return shapes


def _apply_input_layer(weights: Weights, public: Array, private: Array | None) -> Array:
    """U of shape (K, width, n), by one matrix product for all configurations."""
    K, width, columns = weights["public"].shape
    embedded = weights["public"].reshape((K * width, columns)) @ public.T
    if private is not None:
        embedded = embedded + weights["private"].reshape((K * width, private.shape[1])) @ private.T
    return embedded.reshape((K, width, public.shape[0]))


def _sum_input_layer(inputs: Inputs, deltas: Array, out: Weights) -> None:
    """Sum over records of delta (K, width, n) times input row, into the input layer's weights."""
    K, width, n = deltas.shape
    flat = deltas.reshape((K * width, n))
    out["public"][...] = (flat @ inputs.public).reshape((K, width, inputs.public.shape[1]))
    if inputs.private is not None:
        out["private"][...] = (flat @ inputs.private).reshape((K, width, inputs.num_private))


@dataclass(frozen=True)
class Linear:
    r"""Linear regression: :math:`f = \theta_{pub}^\top x_{pub} + \theta_{priv}^\top x_{priv}`.

    The gradient norm of a record is the norm of its row, whatever the parameters, so clipping a gradient is clamping
    its residual.
    """

    def layout(self, num_public: int, num_private: int) -> Layout:
        """One weight per column."""
        return Layout(_input_shapes(1, num_public, num_private))

    def initialize(self, layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        """All zero: the middle of the label bounds is predicted at first."""
        return np.zeros(layout.size)

    def trace(self, weights: Weights, inputs: Inputs) -> Trace:
        """Predictions and gradient norms of all records."""
        return Trace(self.predict(weights, inputs.public, inputs.private), inputs.row_norms, [])

    def weighted_sum(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Write the sum over records of ``coefficients`` times row into ``out``."""
        _sum_input_layer(inputs, coefficients[:, None, :], out)

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Predictions alone, shape (K, n)."""
        return _apply_input_layer(weights, public, private)[:, 0, :]


@dataclass(frozen=True)
class FactorizationMachine:
    r"""Linear terms and products of features through ``rank`` factors.

    .. math:: f = u_0 + \tfrac12 \sum_{k=1}^{r} (-1)^{k+1} u_k^2, \qquad u = \Theta x

    Paper
        "Models with linear input transformations"; the machine of Rendle (2010) sums products of different features
        only. Ours keeps the squares, because a linear map of the features mixes squares and products and the model
        must not depend on the coordinates (C could not be folded into its weights otherwise), and alternates the
        sign of the factors, because a sum of squares alone could only bend upwards.

    Parameters
    ----------
    rank : int
        Number of factors.
    initial_scale : float
        Standard deviation of u at the start, for features of unit second moment.
    """

    rank: int = 8
    initial_scale: float = 0.1

    def __post_init__(self) -> None:
        positive_integer(rank=self.rank)
        positive(initial_scale=self.initial_scale)

    def layout(self, num_public: int, num_private: int) -> Layout:
        """One linear weight and ``rank`` factors per column."""
        return Layout(_input_shapes(1 + self.rank, num_public, num_private))

    def initialize(self, layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        """Linear weights zero, factors small: products need a start that is not flat."""
        parameters: NDArray[np.float64] = np.zeros((1, layout.size))
        weights = layout.views(parameters)
        columns = sum(shape[1] for shape in layout.shapes.values())
        for weight in weights.values():
            weight[:, 1:] = rng.normal(scale=self.initial_scale / np.sqrt(columns), size=weight[:, 1:].shape)
        return parameters.ravel()

    def trace(self, weights: Weights, inputs: Inputs) -> Trace:
        """Predictions and gradient norms of all records."""
        xp = inputs.xp
        embedded = _apply_input_layer(weights, inputs.public, inputs.private)
        slopes = self._slopes(xp, embedded)
        norms = inputs.row_norms * xp.sqrt(xp.sum(slopes * slopes, axis=1))
        return Trace(self._combine(xp, embedded, slopes), _at_least(xp, norms), [slopes])

    def weighted_sum(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Write the sum over records of ``coefficients`` times gradient of f into ``out``."""
        (slopes,) = trace.layers
        _sum_input_layer(inputs, coefficients[:, None, :] * slopes, out)

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Predictions alone, shape (K, n)."""
        xp = array_api_compat.array_namespace(public)
        embedded = _apply_input_layer(weights, public, private)
        return self._combine(xp, embedded, self._slopes(xp, embedded))

    def _slopes(self, xp: Any, embedded: Array) -> Array:
        """Derivative of f by u: 1 for the linear term, +u or -u for the factors."""
        values = [0.0] + [(-1.0) ** k for k in range(self.rank)]
        signs = xp.asarray(values, dtype=embedded.dtype, device=embedded.device)
        slopes = embedded * signs[None, :, None]
        slopes[:, 0, :] = 1.0
        return slopes

    def _combine(self, xp: Any, embedded: Array, slopes: Array) -> Array:
        products = xp.sum(embedded * slopes, axis=1)  # u_0 + sum of sign u^2
        return 0.5 * (embedded[:, 0, :] + products)


@dataclass(frozen=True)
class Wide:
    r"""Linear terms and one wide hidden layer beside them.

    .. math:: f = u_0 + \sum_{k=1}^{w} v_k \tanh u_k, \qquad u = \Theta x

    With many hidden units a good fit needs no change of their weights, only of :math:`v` and the linear terms, in which
    the model is linear. :class:`~conddp.algorithms.cond_newton.CondNewton` makes use of that.

    Parameters
    ----------
    width : int
        Number of hidden units w.
    """

    width: int = 500

    def __post_init__(self) -> None:
        positive_integer(width=self.width)

    def layout(self, num_public: int, num_private: int) -> Layout:
        """A row of linear weights and ``width`` rows of hidden weights, then the output weights."""
        return Layout({**_input_shapes(1 + self.width, num_public, num_private), "output": (self.width,)})

    def initialize(self, layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        """Hidden weights random, all others zero."""
        parameters: NDArray[np.float64] = np.zeros((1, layout.size))
        weights = layout.views(parameters)
        inputs = [name for name in ("public", "private") if name in layout.shapes]
        columns = sum(layout.shapes[name][1] for name in inputs)
        for name in inputs:
            weights[name][:, 1:] = rng.normal(scale=HIDDEN_GAIN / np.sqrt(columns), size=weights[name][:, 1:].shape)
        return parameters.ravel()

    def trace(self, weights: Weights, inputs: Inputs) -> Trace:
        """Predictions and gradient norms of all records."""
        xp = inputs.xp
        embedded = _apply_input_layer(weights, inputs.public, inputs.private)
        hidden = xp.tanh(embedded[:, 1:, :])
        slopes = xp.ones_like(embedded)
        slopes[:, 1:, :] = weights["output"][:, :, None] * (1.0 - hidden * hidden)
        squared = inputs.row_norms**2 * _squared_norms(xp, slopes) + _squared_norms(xp, hidden)
        predictions = embedded[:, 0, :] + xp.sum(weights["output"][:, :, None] * hidden, axis=1)
        return Trace(predictions, _at_least(xp, xp.sqrt(squared)), [hidden, slopes])

    def weighted_sum(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Write the sum over records of ``coefficients`` times gradient of f into ``out``."""
        hidden, slopes = trace.layers
        _sum_input_layer(inputs, coefficients[:, None, :] * slopes, out)
        out["output"][...] = (hidden @ coefficients[:, :, None])[:, :, 0]

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Predictions alone, shape (K, n)."""
        xp = array_api_compat.array_namespace(public)
        embedded = _apply_input_layer(weights, public, private)
        return embedded[:, 0, :] + xp.sum(weights["output"][:, :, None] * xp.tanh(embedded[:, 1:, :]), axis=1)


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron with a scalar output.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the hidden layers.
    activation : {"relu", "tanh"}
        After every hidden layer.
    embedding : int or None
        Width of a linear layer in front of the first hidden layer; None feeds the columns to the first hidden layer
        directly. The paper's models are ``MLP(hidden=(16, 8), embedding=16)``.
    """

    hidden: tuple[int, ...] = (16, 8)
    activation: Literal["relu", "tanh"] = "relu"
    embedding: int | None = None
    _widths: tuple[int, ...] = field(init=False, repr=False, compare=False)  # of all layers below the output
    _weight: tuple[str, ...] = field(init=False, repr=False, compare=False)  # names of layers' weights and biases;
    _bias: tuple[str, ...] = field(init=False, repr=False, compare=False)  # the input layer's has two blocks, no bias

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if not self.hidden:
            raise ValueError("hidden must name at least one layer width; use Linear() for none.")
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
        """Weights of the input layer, then weights and biases of each further layer.

        The input layer's bias is the weight of the constant column.
        """
        widths = (*self._widths, 1)
        shapes = _input_shapes(widths[0], num_public, num_private)
        for number, (below, width) in enumerate(zip(widths[:-1], widths[1:], strict=True), start=1):
            shapes[self._weight[number]] = (width, below)
            shapes[self._bias[number]] = (width,)
        return Layout(shapes)

    def initialize(self, layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        """Gaussian weights that keep the size of activations; the output layer starts small, biases at zero."""
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

    def trace(self, weights: Weights, inputs: Inputs) -> Trace:
        """Predictions and gradient norms of all records."""
        xp = inputs.xp
        activations = self._forward(xp, weights, inputs.public, inputs.private)
        last = len(self._widths)
        # Going down: delta = derivative of f by what enters a layer's activation, shape (K, width, n).
        deltas: list[Array] = [None] * last
        squared = 1.0 + _squared_norms(xp, activations[last - 1])
        for number in range(last - 1, -1, -1):
            delta = weights[self._weight[number + 1]].mT
            if number < last - 1:
                delta = delta @ deltas[number + 1]
            if self._is_activated(number):
                delta = delta * self._derivative(xp, activations[number])
            rows = inputs.row_norms**2 if number == 0 else 1.0 + _squared_norms(xp, activations[number - 1])
            squared = squared + rows * _squared_norms(xp, delta)
            deltas[number] = delta
        trace = Trace(activations[last][:, 0, :], _at_least(xp, xp.sqrt(squared)), [activations, deltas])
        if not bool(xp.isfinite(trace.jacobian_norms).all()):
            self._silence(xp, trace)
        return trace

    def weighted_sum(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Write the sum over records of ``coefficients`` times gradient of f into ``out``."""
        activations, deltas = trace.layers
        last = len(self._widths)
        rows = coefficients[:, None, :]
        for number in range(last, -1, -1):
            weighted = rows if number == last else rows * deltas[number]
            if number == 0:
                _sum_input_layer(inputs, weighted, out)
            else:
                out[self._weight[number]][...] = weighted @ activations[number - 1].mT
                out[self._bias[number]][...] = weighted.sum(-1)

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Predictions alone, shape (K, n)."""
        xp = array_api_compat.array_namespace(public)
        return self._forward(xp, weights, public, private)[-1][:, 0, :]

    def _silence(self, xp: Any, trace: Trace) -> None:
        """Make records whose gradients overflow contribute exactly zero, whatever else is infinite in them."""
        fine = xp.isfinite(trace.jacobian_norms)
        activations, deltas = trace.layers
        for layer in (*activations, *deltas):
            layer[...] = xp.where(fine[:, None, :], layer, 0.0)
        trace.jacobian_norms = xp.where(fine, trace.jacobian_norms, float("inf"))

    def _is_activated(self, number: int) -> bool:
        """Whether layer ``number`` (0 is the input layer) is followed by the activation."""
        return number > 0 or self.embedding is None

    def _forward(self, xp: Any, weights: Weights, public: Array, private: Array | None) -> list[Array]:
        """Outputs of all layers, the input layer first, the prediction last."""
        last = len(self._widths)
        outputs: list[Array] = []
        for number in range(last + 1):
            if number == 0:
                entering = _apply_input_layer(weights, public, private)
            else:
                entering = weights[self._weight[number]] @ outputs[-1] + weights[self._bias[number]][:, :, None]
            outputs.append(self._activate(xp, entering) if number < last and self._is_activated(number) else entering)
        return outputs

    def _activate(self, xp: Any, entering: Array) -> Array:
        return xp.maximum(entering, 0.0) if self.activation == "relu" else xp.tanh(entering)

    def _derivative(self, xp: Any, output: Array) -> Array:
        """Derivative of the activation, from its output."""
        return output > 0 if self.activation == "relu" else 1.0 - output * output


def _squared_norms(xp: Any, columns: Array) -> Array:
    """Squared norm of each record's vector: (K, width, n) to (K, n)."""
    return xp.vecdot(columns, columns, axis=1)


def _at_least(xp: Any, norms: Array) -> Array:
    """Norms kept away from zero, so that a division by them is finite."""
    return xp.maximum(norms, SMALLEST_NORM)
