"""The wide head: linear terms plus one wide hidden layer."""

from dataclasses import dataclass
from typing import ClassVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from conddp._validate import positive_integer
from conddp.data.parts import PublicFeatures
from conddp.features.feature_map import FeatureMap
from conddp.features.random_features import HIDDEN_GAIN, RandomFeatures
from conddp.heads.head import HEADS, Array, Head, Inputs, Layout, Linearity, Trace, Weights
from conddp.heads.input_layer import apply_input_layer, at_least, input_shapes, squared_norms, sum_input_layer

__all__ = ["Wide"]


@dataclass(frozen=True)
class Wide(Head):
    r"""Linear terms plus one wide hidden layer.

    .. math:: f = u_0 + \sum_{k=1}^{w} v_k \tanh u_k, \qquad u = \Theta x

    With many hidden units, a good fit requires training only :math:`v` and the linear terms, in which the model is
    linear; the weights of the hidden units can stay fixed. :class:`~conddp.algorithms.cond_newton.CondNewton` exploits
    this. It gives private columns linear terms only.

    Parameters
    ----------
    width : int
        Number of hidden units w.
    """

    summary: ClassVar[str] = r"$f = u_0 + \sum_{k=1}^{w} v_k \tanh u_k$"
    noun: ClassVar[str] = "a model with random features"
    linear_in: ClassVar[Linearity] = Linearity.FEATURES

    width: int = 500

    def __post_init__(self) -> None:
        positive_integer(width=self.width)

    def layout(self, num_public: int, num_private: int) -> Layout:
        """Return a layout with one row of linear weights, ``width`` rows of hidden weights, and the output weights."""
        return Layout({**input_shapes(1 + self.width, num_public, num_private), "output": (self.width,)})

    def initialize(self, layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return random hidden weights; all other weights are zero."""
        parameters: NDArray[np.float64] = np.zeros((1, layout.size))
        weights = layout.views(parameters)
        inputs = [name for name in ("public", "private") if name in layout.shapes]
        columns = sum(layout.shapes[name][1] for name in inputs)
        for name in inputs:
            weights[name][:, 1:] = rng.normal(scale=HIDDEN_GAIN / np.sqrt(columns), size=weights[name][:, 1:].shape)
        return parameters.ravel()

    def forward(self, weights: Weights, inputs: Inputs) -> Trace:
        """Compute predictions and gradient norms of all records."""
        xp = inputs.xp
        embedded = apply_input_layer(weights, inputs.public, inputs.private)
        hidden = xp.tanh(embedded[:, 1:, :])
        slopes = xp.ones_like(embedded)
        slopes[:, 1:, :] = weights["output"][:, :, None] * (1.0 - hidden * hidden)
        squared = inputs.row_norms**2 * squared_norms(xp, slopes) + squared_norms(xp, hidden)
        predictions = embedded[:, 0, :] + xp.sum(weights["output"][:, :, None] * hidden, axis=1)
        return Trace(predictions, at_least(xp, xp.sqrt(squared)), [hidden, slopes])

    def vjp(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Write the sum over records of ``coefficients`` times gradient of f into ``out``."""
        hidden, slopes = trace.layers
        sum_input_layer(inputs, coefficients[:, None, :] * slopes, out)
        out["output"][...] = (hidden @ coefficients[:, :, None])[:, :, 0]

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Compute predictions only, shape (K, n)."""
        xp = array_api_compat.array_namespace(public)
        embedded = apply_input_layer(weights, public, private)
        return embedded[:, 0, :] + xp.sum(weights["output"][:, :, None] * xp.tanh(embedded[:, 1:, :]), axis=1)

    def make_features(self, public_features: PublicFeatures, *, constant: bool) -> FeatureMap:
        """Return hidden units with random weights, which are not trained."""
        return RandomFeatures.of(public_features, self.width, constant=constant)

    def make_parameters(
        self, weights: NDArray[np.float64], features: FeatureMap, *, num_public: int, constant: bool
    ) -> NDArray[np.float64]:
        """Make parameters from the given linear and output weights and the random hidden weights.

        Private features have linear weights only.
        """
        assert isinstance(features, RandomFeatures)
        start = num_public + self.width  # of the constant, after which the private features come
        layout = self.layout(num_public + constant, len(weights) - start - constant)
        parameters: NDArray[np.float64] = np.zeros((1, layout.size))
        views = layout.views(parameters)
        views["public"][0, 0, :num_public] = weights[:num_public]
        views["public"][0, 1:, :num_public] = features.weights
        views["output"][0] = weights[num_public:start]
        if "private" in views:
            views["private"][0, 0] = weights[start + constant :]
        if constant:
            views["public"][0, 0, -1] = weights[start]
            views["public"][0, 1:, -1] = features.biases
        return np.asarray(parameters[0])


HEADS.add("wide", Wide())
