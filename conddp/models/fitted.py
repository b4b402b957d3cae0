"""A trained model in the original features and units."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from conddp.bounds import Bounds
from conddp.categories import Categories
from conddp.data.parts import Domain, PrivateFeatures, PublicFeatures
from conddp.data.passes import list_blocks
from conddp.data.scaling import code_categories, count_private_features, private_unit, restore_label, scale_private
from conddp.heads.head import Head, Layout, Linearity
from conddp.losses import Loss, Squared

__all__ = ["FittedModel"]

CELLS_AT_ONCE = 2**22  # of a sparse matrix that is expanded in blocks
NUM_COMPARED = 1000  # public rows on which predictions of iterates are compared


@dataclass(frozen=True)
class FittedModel:
    """A head with parameters for original public features and for private columns scaled by what is declared of them.

    The whole model has been released under the guarantee, so it contains nothing private.

    Parameters
    ----------
    head, layout : Head, Layout
        Head and the layout of its parameters.
    parameters : array of shape (P,)
        Parameters in terms of the original public columns, with the constant column last if there is one.
    has_constant : bool
        Whether there is an intercept. Labels and private numbers are then centred on the midpoint of their bounds,
        and private categories on the mean of their levels.
    label_bounds : Bounds
        Declared range of the label.
    private_domains : tuple of Bounds or Categories
        Declared ranges and categories of the private columns.
    loss : Loss
        Loss that was minimised. Its link converts predictions to expected labels.
    """

    head: Head
    layout: Layout
    parameters: NDArray[np.float64]
    has_constant: bool
    label_bounds: Bounds
    private_domains: tuple[Domain, ...] = ()
    loss: Loss = Squared()

    def __post_init__(self) -> None:
        if np.shape(self.parameters) != (self.layout.size,):
            raise ValueError(
                f"{self.head} has {self.layout.size} parameters here, got shape {np.shape(self.parameters)}."
            )

    def predict(self, public: PublicFeatures, private: PrivateFeatures | None = None) -> NDArray[np.float64]:
        """Predict in the units of the label, clamped to its bounds. Private columns are clamped as in training."""
        outputs = self.compute_scores(public, private)
        return restore_label(self.loss.link(outputs), self.label_bounds, center=self.has_constant)

    def compute_scores(self, public: PublicFeatures, private: PrivateFeatures | None = None) -> NDArray[np.float64]:
        """Compute the outputs of the head: predictions before the link, scaling and clamping."""
        scaled = None if private is None else scale_private(private, center=self.has_constant)
        if public.sparse is None or self.head.linear_in is Linearity.COLUMNS:
            return self._compute_outputs(public.matrix, scaled)
        # Expand a few rows at a time.
        blocks = list_blocks(len(public), block_size=max(1, CELLS_AT_ONCE // max(1, public.shape[1])))
        return np.concatenate(
            [self._compute_outputs(public.get_block(span), None if scaled is None else scaled[span]) for span in blocks]
        )

    def compute_products(
        self, directions: NDArray[np.float64], public: PublicFeatures, private: PrivateFeatures | None = None
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Compute what each of K vectors of parameters predicts, before scaling, for linear heads, block by block.

        Parameters
        ----------
        directions : array of shape (P, K)
            The vectors.
        public, private
            Records.

        Yields
        ------
        (slice, array of shape (m, K))
            Places of the records of a block, and the products.
        """
        scaled = None if private is None else scale_private(private, center=self.has_constant)
        weights = self.layout.views(np.ascontiguousarray(directions.T))
        for span in list_blocks(len(public), block_size=max(1, CELLS_AT_ONCE // max(1, *directions.shape))):
            X = self._append_constant(public.matrix[span])
            yield span, np.asarray(self.head.predict(weights, X, None if scaled is None else scaled[span])).T

    def _compute_outputs(self, X: Any, private: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Outputs of the head for public columns, dense or sparse, and scaled private columns."""
        X = self._append_constant(X)
        return np.asarray(self.head.predict(self.layout.views(self.parameters[None]), X, private)[0])

    def _append_constant(self, X: Any) -> Any:
        X = X.astype(np.float64, copy=False)
        if self.has_constant:
            ones = np.ones((X.shape[0], 1))
            X = hstack([X, csr_array(ones)], format="csr") if isinstance(X, csr_array) else np.column_stack([X, ones])
        return X

    def measure_distances(
        self, iterates: Sequence[NDArray[np.float64]], public_features: PublicFeatures
    ) -> tuple[float, ...]:
        """Compute the root mean square distance between the predictions of each iterate and of this model.

        Privacy
            Predicts for the first 1000 public rows, with private numbers at the midpoint of their ranges and private
            categories at none of their levels: no cost.
        """
        rows = public_features[:NUM_COMPARED]
        private = None
        if self.private_domains:
            middle = [-1.0 if isinstance(each, Categories) else each.midpoint for each in self.private_domains]
            private = PrivateFeatures(np.array([middle] * len(rows)), self.private_domains)
        final = self.predict(rows, private)
        predictions = (replace(self, parameters=each).predict(rows, private) for each in iterates)
        return tuple(float(np.sqrt(np.mean((each - final) ** 2))) for each in predictions)

    def compute_linear_coefficients(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Return coefficients of public columns and private terms and the intercept, in original units.

        A private number is one term. Each level of a private category is a term; with an intercept, the effects of all
        levels sum to zero, and a value that is not declared has effect zero. The terms are named by
        :attr:`Schema.private_terms <conddp.data.schema.Schema.private_terms>`.

        Raises
        ------
        ValueError
            If the head is not linear.
        """
        if self.head.linear_in is not Linearity.COLUMNS:
            raise ValueError(f"only a linear head has coefficients, got head={self.head}.")
        weights = self.layout.views(self.parameters[None])
        public = self.label_bounds.width * weights["public"][0, 0]
        private, shift = np.empty(0), 0.0
        if self.private_domains:
            private, shift = self._expand_terms(self.label_bounds.width * weights["private"][0, 0])
        if not self.has_constant:
            return public, private, 0.0
        return public[:-1], private, self.label_bounds.midpoint + float(public[-1]) - shift

    def compute_private_coefficients(self) -> NDArray[np.float64]:
        """Return coefficients of private terms, in original units, of a model in which private columns are linear.

        The terms are those of :meth:`compute_linear_coefficients`.

        Raises
        ------
        ValueError
            If the head is neither linear nor learned.
        """
        if self.head.linear_in not in (Linearity.COLUMNS, Linearity.LEARNED):
            raise ValueError(f"only linear and learned heads have private coefficients, got head={self.head}.")
        if not self.private_domains:
            return np.empty(0)
        weights = np.ravel(self.layout.views(self.parameters[None])["private"])
        return self._expand_terms(self.label_bounds.width * weights)[0]

    def _expand_terms(self, weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Coefficients of all private terms from the weights of the features, and what they add up to at midpoints."""
        terms: list[float] = []
        shift, start = 0.0, 0
        for domain in self.private_domains:
            stop = start + count_private_features([domain], center=self.has_constant)
            if isinstance(domain, Categories):
                terms += (code_categories(len(domain), center=self.has_constant) @ weights[start:stop]).tolist()
            else:
                terms.append(float(weights[start]) / private_unit(domain))
                shift += terms[-1] * domain.midpoint
            start = stop
        return np.array(terms), shift

    def linearize_coefficients(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Express coefficients of public columns and private terms and the intercept as functions of the parameters.

        Returns
        -------
        slopes : array of shape (m, P)
            Derivatives of the coefficients.
        offsets : array of shape (m,)
            Coefficients of a model whose parameters are all zero.
        """

        def compute(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
            public, private, intercept = replace(self, parameters=parameters).compute_linear_coefficients()
            return np.concatenate([public, private, [intercept]])

        offsets = compute(np.zeros_like(self.parameters))
        return np.column_stack([compute(unit) - offsets for unit in np.eye(len(self.parameters))]), offsets

    def compute_linear_deviations(self, covariance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute standard deviations of the coefficients of public columns and private terms and of the intercept.

        Parameters
        ----------
        covariance : array of shape (P, P)
            Covariance of the parameters.
        """
        slopes, _ = self.linearize_coefficients()
        return np.asarray(np.sqrt(np.maximum(((slopes @ covariance) * slopes).sum(axis=1), 0.0)))
