"""The linear head."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures
from conddp.features.feature_map import FeatureMap, IdentityMap
from conddp.heads.fused import ClippedRecords, FusedSum, fuse_linear
from conddp.heads.head import HEADS, Array, DescentDefaults, Head, Inputs, Layout, Linearity, Trace, Weights
from conddp.heads.input_layer import apply_input_layer, input_shapes, sum_input_layer

__all__ = ["Linear"]


@dataclass(frozen=True)
class Linear(Head):
    r"""Linear regression: :math:`f = \theta_{pub}^\top x_{pub} + \theta_{priv}^\top x_{priv}`.

    The gradient norm of a record is the absolute residual times the norm of its row, for all parameters. Clipping the
    gradient is therefore the same as clamping the residual at a fixed limit.
    """

    summary: ClassVar[str] = "$f = u$"
    noun: ClassVar[str] = "a linear model"
    linear_in: ClassVar[Linearity] = Linearity.COLUMNS
    descent: ClassVar[DescentDefaults] = DescentDefaults(
        {"sgd": (32, 0.25), "adam": (256, 0.01)}, conditioned_optimizer="sgd", clip_residual=None
    )

    def layout(self, num_public: int, num_private: int) -> Layout:
        """Return a layout with one weight per column."""
        return Layout(input_shapes(1, num_public, num_private))

    def initialize(self, layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return zeros. With an intercept, the initial prediction is the midpoint of the label bounds."""
        return np.zeros(layout.size)

    def forward(self, weights: Weights, inputs: Inputs) -> Trace:
        """Compute predictions and gradient norms of all records."""
        return Trace(self.predict(weights, inputs.public, inputs.private), inputs.row_norms, [])

    def vjp(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Write the sum over records of ``coefficients`` times row into ``out``."""
        sum_input_layer(inputs, coefficients[:, None, :], out)

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Compute predictions only, shape (K, n)."""
        return apply_input_layer(weights, public, private)[:, 0, :]

    def fuse(self, layout: Layout, parameters: Array, out: Array, records: ClippedRecords) -> FusedSum | None:
        """Return a sum in one pass over the rows."""
        return fuse_linear(parameters[0], out[0], records)

    def make_features(self, public_features: PublicFeatures, *, constant: bool) -> FeatureMap:
        """Return the identity map: the features are the columns."""
        return IdentityMap()

    def make_parameters(
        self, weights: NDArray[np.float64], features: FeatureMap, *, num_public: int, constant: bool
    ) -> NDArray[np.float64]:
        """Return the weights unchanged."""
        return np.asarray(weights)


HEADS.add("linear", Linear())
