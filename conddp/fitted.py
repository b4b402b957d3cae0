"""A trained model in the user's own features and units."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.conditioning import ConditioningMatrix
from conddp.data import PrivateFeatures, PublicFeatures
from conddp.guarantee import Guarantee
from conddp.models import Head, Layout, Linear
from conddp.preprocessing import private_unit, restore_label, scale_private
from conddp.schema import Bounds

__all__ = ["FitResult", "FittedModel", "move_parameters"]


def move_parameters(
    head: Head,
    parameters: NDArray[Any],
    *,
    num_private: int,
    source: ConditioningMatrix,
    target: ConditioningMatrix | None = None,
) -> NDArray[Any]:
    """Parameters (K, P) on features conditioned by ``source`` as parameters on features conditioned by ``target``.

    Without a target, on the public features themselves (the constant column included). Predictions stay the same:
    only the public block of the input layer changes, by :meth:`ConditioningMatrix.fold` and ``unfold``.
    """
    before = head.layout(source.num_parameters, num_private)
    columns = len(source.matrix) if target is None else target.num_parameters
    after = head.layout(columns, num_private)
    moved = np.empty((len(parameters), after.size), dtype=parameters.dtype)
    weights = after.views(moved)
    for name, weight in before.views(parameters).items():
        if name == "public":
            weight = source.fold(weight)
            weight = weight if target is None else target.unfold(weight)
        weights[name][...] = weight
    return moved


@dataclass(frozen=True)
class FittedModel:
    """A head with its parameters on the public features themselves and on private features scaled by their bounds.

    Everything in it has been released under the guarantee; nothing in it is private any more.

    Parameters
    ----------
    head, layout : Head, Layout
        The model.
    parameters : array of shape (P,)
        On the public columns, the constant column last if there is one.
    has_constant : bool
        Whether there is an intercept; labels and private columns are then centred on the middle of their bounds.
    label_bounds : Bounds
        Declared range of the label.
    private_bounds : tuple of Bounds
        Declared ranges of the private columns.
    """

    head: Head
    layout: Layout
    parameters: NDArray[np.float64]
    has_constant: bool
    label_bounds: Bounds
    private_bounds: tuple[Bounds, ...] = ()

    def predict(self, public: PublicFeatures, private: PrivateFeatures | None = None) -> NDArray[np.float64]:
        """Predictions in the label's units, clamped to its bounds; private columns are clamped as in training."""
        X = public.values.astype(np.float64, copy=False)
        if self.has_constant:
            X = np.column_stack([X, np.ones(len(X))])
        scaled = None if private is None else scale_private(private, center=self.has_constant)
        weights = self.layout.views(self.parameters[None])
        predictions = self.head.predict(weights, X, scaled)[0]
        return restore_label(predictions, self.label_bounds, center=self.has_constant)

    def compute_linear_coefficients(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Coefficients of public and of private columns, and the intercept, in the user's units; linear heads only."""
        if not isinstance(self.head, Linear):
            raise ValueError(f"only a linear head has coefficients, this one is {self.head}.")
        weights = self.layout.views(self.parameters[None])
        public = self.label_bounds.width * weights["public"][0, 0]
        private = np.empty(0)
        if self.private_bounds:
            units = np.array([private_unit(bounds) for bounds in self.private_bounds])
            private = self.label_bounds.width * weights["private"][0, 0] / units
        if not self.has_constant:
            return public, private, 0.0
        midpoints = np.array([bounds.midpoint for bounds in self.private_bounds])
        intercept = self.label_bounds.midpoint + float(public[-1]) - float(private @ midpoints)
        return public[:-1], private, intercept


@dataclass(frozen=True)
class FitResult:
    """What an algorithm gives back.

    Parameters
    ----------
    model : FittedModel
        In the user's features and units.
    guarantee : Guarantee
        What it promises.
    settings : mapping
        Every choice that was made, by name; all of them public.
    """

    model: FittedModel
    guarantee: Guarantee
    settings: Mapping[str, Any]
