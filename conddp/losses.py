"""Loss functions."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["LOSSES", "Loss", "Squared"]

Array = Any  # a NumPy array or a torch tensor


class Loss(Protocol):
    """Interface of a loss, as used by algorithms, models and reports.

    Labels and predictions are in scaled units (:mod:`conddp.data.scaling`): labels span a range of unit width, and a
    prediction is the output of a head, before the link.
    """

    @property
    def name(self) -> str:
        """Name under which the loss is stored with a model."""

    @property
    def error_name(self) -> str:
        """Name of the error that :meth:`compute_error` measures, for tables and reports."""

    def residual(self, prediction: Array, label: Array) -> Array:
        """Return the negative derivative of the loss with respect to the prediction."""

    def residual_ends(self, prediction: Array, label_range: tuple[float, float]) -> tuple[Array, Array]:
        """Return the smallest and largest residual over all labels in the range. Public if the predictions are."""

    def curvature(self, prediction: Array) -> Any:
        """Return the second derivative of the loss with respect to the prediction, as a scalar or one per record."""

    def link(self, prediction: Array) -> Array:
        """Return the expected label, in scaled units."""

    def compute_error(self, expected: NDArray[Any], label: NDArray[Any]) -> float:
        """Compute the mean error of expected labels, in the original units."""


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
        """Return label minus prediction."""
        return label - prediction

    def residual_ends(self, prediction: Array, label_range: tuple[float, float]) -> tuple[Array, Array]:
        """Return the residuals of the lower and the upper end of the range."""
        low, high = label_range
        return low - prediction, high - prediction

    def curvature(self, prediction: Array) -> float:
        """Return 1 for every prediction."""
        return 1.0

    def link(self, prediction: Array) -> Array:
        """Return the prediction unchanged."""
        return prediction

    def compute_error(self, expected: NDArray[Any], label: NDArray[Any]) -> float:
        """Compute the mean squared error."""
        return float(np.mean((expected - label) ** 2))

    def __repr__(self) -> str:
        return "Squared()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Squared)

    def __hash__(self) -> int:
        return hash(type(self))


LOSSES: dict[str, Loss] = {each.name: each for each in (Squared(),)}
