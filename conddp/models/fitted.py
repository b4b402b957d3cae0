"""A trained model in the original features and units."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from conddp.bounds import Bounds
from conddp.data.parts import PrivateFeatures, PublicFeatures
from conddp.data.passes import list_blocks
from conddp.data.scaling import private_unit, restore_label, scale_private
from conddp.heads.head import Head, Layout, Linearity
from conddp.losses import Loss, Squared

__all__ = ["FittedModel"]

CELLS_AT_ONCE = 2**22  # of a sparse matrix that is expanded in blocks
NUM_COMPARED = 1000  # public rows on which predictions of iterates are compared


@dataclass(frozen=True)
class FittedModel:
    """A head with parameters for original public features and for private features scaled by their bounds.

    The whole model has been released under the guarantee, so it contains nothing private.

    Parameters
    ----------
    head, layout : Head, Layout
        Head and the layout of its parameters.
    parameters : array of shape (P,)
        Parameters in terms of the original public columns, with the constant column last if there is one.
    has_constant : bool
        Whether there is an intercept. Labels and private columns are then centred on the midpoint of their bounds.
    label_bounds : Bounds
        Declared range of the label.
    private_bounds : tuple of Bounds
        Declared ranges of the private columns.
    loss : Loss
        Loss that was minimised. Its link converts predictions to expected labels.
    """

    head: Head
    layout: Layout
    parameters: NDArray[np.float64]
    has_constant: bool
    label_bounds: Bounds
    private_bounds: tuple[Bounds, ...] = ()
    loss: Loss = Squared()

    def __post_init__(self) -> None:
        if np.shape(self.parameters) != (self.layout.size,):
            raise ValueError(
                f"{self.head} has {self.layout.size} parameters here, got shape {np.shape(self.parameters)}."
            )

    def predict(self, public: PublicFeatures, private: PrivateFeatures | None = None) -> NDArray[np.float64]:
        """Predict in the units of the label, clamped to its bounds. Private columns are clamped as in training."""
        scaled = None if private is None else scale_private(private, center=self.has_constant)
        if public.sparse is None or self.head.linear_in is Linearity.COLUMNS:
            outputs = self._compute_outputs(public.matrix, scaled)
        else:  # expand a few rows at a time
            blocks = list(list_blocks(len(public), block_size=max(1, CELLS_AT_ONCE // max(1, public.shape[1]))))
            parts = [
                self._compute_outputs(public.get_block(span), None if scaled is None else scaled[span])
                for span in blocks
            ]
            outputs = np.concatenate(parts)
        return restore_label(self.loss.link(outputs), self.label_bounds, center=self.has_constant)

    def _compute_outputs(self, X: Any, private: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Outputs of the head for public columns, dense or sparse, and scaled private columns."""
        X = X.astype(np.float64, copy=False)
        if self.has_constant:
            ones = np.ones((X.shape[0], 1))
            X = hstack([X, csr_array(ones)], format="csr") if isinstance(X, csr_array) else np.column_stack([X, ones])
        return np.asarray(self.head.predict(self.layout.views(self.parameters[None]), X, private)[0])

    def measure_distances(
        self, iterates: Sequence[NDArray[np.float64]], public_features: PublicFeatures
    ) -> tuple[float, ...]:
        """Compute the root mean square distance between the predictions of each iterate and of this model.

        Privacy
            Predicts for the first 1000 public rows, with private columns at the midpoint of their ranges: no cost.
        """
        rows = public_features[:NUM_COMPARED]
        private = None
        if self.private_bounds:
            middle = [[bounds.midpoint for bounds in self.private_bounds]] * len(rows)
            private = PrivateFeatures(np.array(middle), self.private_bounds)
        final = self.predict(rows, private)
        predictions = (replace(self, parameters=each).predict(rows, private) for each in iterates)
        return tuple(float(np.sqrt(np.mean((each - final) ** 2))) for each in predictions)

    def compute_linear_coefficients(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Return coefficients of public and private columns and the intercept, in original units. Linear heads only."""
        if self.head.linear_in is not Linearity.COLUMNS:
            raise ValueError(f"only a linear head has coefficients, got head={self.head}.")
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

    def compute_linear_deviations(self, covariance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute standard deviations of the coefficients of public and private columns and of the intercept.

        Parameters
        ----------
        covariance : array of shape (P, P)
            Covariance of the parameters.
        """

        def compute(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
            public, private, intercept = replace(self, parameters=parameters).compute_linear_coefficients()
            return np.concatenate([public, private, [intercept]])

        origin = compute(np.zeros_like(self.parameters))
        slopes = np.column_stack([compute(unit) - origin for unit in np.eye(len(self.parameters))])
        return np.asarray(np.sqrt(np.maximum(((slopes @ covariance) * slopes).sum(axis=1), 0.0)))
