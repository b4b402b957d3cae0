"""Losses: what a model minimises, in the one place that knows its shape."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["LOSSES", "Loss", "Squared"]

Array = Any  # a NumPy array or a torch tensor


class Loss(Protocol):
    """Everything that algorithms, models and reports need to know about a loss.

    Labels and predictions are in scaled units (:mod:`conddp.data.scaling`): labels span a range of unit width, and a
    prediction is what a head returns, before the link.
    """

    @property
    def name(self) -> str:
        """By which it is stored with a model."""

    @property
    def error_name(self) -> str:
        """What :meth:`compute_error` measures, for tables and reports."""

    def residual(self, prediction: Array, label: Array) -> Array:
        """Minus the derivative of the loss by the prediction."""

    def residual_ends(self, prediction: Array, label_range: tuple[float, float]) -> tuple[Array, Array]:
        """Smallest and largest residual that any label in the range can have. Public where predictions are."""

    def curvature(self, prediction: Array) -> Any:
        """Second derivative of the loss by the prediction: a number, or one for each record."""

    def link(self, prediction: Array) -> Array:
        """Expected label, in scaled units."""

    def compute_error(self, expected: NDArray[Any], label: NDArray[Any]) -> float:
        """Mean error of expected labels, in the user's units."""


class Squared:
    r"""Half the squared residual, :math:`\tfrac12 (y - f)^2`.

    Examples
    --------
    >>> Squared().residual(0.25, 1.0), Squared().residual_ends(0.25, (0.0, 1.0))
    (0.75, (-0.25, 0.75))
    """

    name = "squared"
    error_name = "mean squared error"

    def residual(self, prediction: Array, label: Array) -> Array:
        """Label minus prediction."""
        return label - prediction

    def residual_ends(self, prediction: Array, label_range: tuple[float, float]) -> tuple[Array, Array]:
        """From the lower and from the upper end of the range."""
        low, high = label_range
        return low - prediction, high - prediction

    def curvature(self, prediction: Array) -> float:
        """One, whatever the prediction."""
        return 1.0

    def link(self, prediction: Array) -> Array:
        """The prediction itself."""
        return prediction

    def compute_error(self, expected: NDArray[Any], label: NDArray[Any]) -> float:
        """Mean squared error."""
        return float(np.mean((expected - label) ** 2))

    def __repr__(self) -> str:
        return "Squared()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Squared)

    def __hash__(self) -> int:
        return hash(type(self))


LOSSES: dict[str, Loss] = {each.name: each for each in (Squared(),)}
