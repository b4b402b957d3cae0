r"""Random hidden units on public columns, which give a nonlinear model that is linear in its parameters.

The hidden units are :math:`\tanh(w_k^\top z + b_k)`, where z are standardised columns. Their weights are drawn from a
fixed seed and never trained, so both the weights and the expanded rows are public.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import Matrix, PublicFeatures, SparseMatrix, require_public
from conddp.features.standardization import add_by_group, is_large

__all__ = ["RandomFeatures"]

HIDDEN_GAIN = 1.5  # standard deviation of the input of a hidden unit, for columns of unit variance


@dataclass(frozen=True)
class RandomFeatures:
    """Random hidden units on public columns.

    Privacy
        Built from public columns and a fixed seed: no cost.

    Parameters
    ----------
    weights : array of shape (width, d)
        Weights for the original columns, in their own units.
    biases : array of shape (width,)
        Biases; all zero for a model without an intercept.
    """

    weights: NDArray[np.float64]
    biases: NDArray[np.float64]

    @classmethod
    def of(
        cls, public_features: PublicFeatures, width: int, *, constant: bool = True, seed: int = 0
    ) -> "RandomFeatures":
        """Draw hidden units for these columns.

        Parameters
        ----------
        public_features : PublicFeatures
            Public feature rows, shape (n, d).
        width : int
            Number of hidden units.
        constant : bool
            Whether the model has an intercept. Without one, the units are odd functions of the columns.
        seed : int
            Seed of the weights.
        """
        public = require_public(public_features, function="RandomFeatures.of")
        d = public.shape[1]
        if public.sparse is not None and is_large(public):
            center, spread = _describe_sparse(public.sparse, constant=constant)
        else:
            X = public.values
            center = X.mean(axis=0, dtype=np.float64) if constant else np.zeros(d)
            spread = np.sqrt(np.mean((X - center) ** 2, axis=0, dtype=np.float64))
        varies = spread > 1e-12 * np.abs(center)
        groups = np.arange(d) if public.groups is None else public.groups
        spread = np.sqrt(add_by_group(spread**2, public.groups))
        rng = np.random.default_rng(seed)
        gain = HIDDEN_GAIN / math.sqrt(max(1, len(np.unique(groups[varies]))))
        weights = rng.normal(scale=gain, size=(width, d)) * varies / np.where(varies, spread, 1.0)
        biases = rng.uniform(-1.0, 1.0, size=width) - weights @ center if constant else np.zeros(width)
        return cls(weights, biases)

    @property
    def num_added(self) -> int:
        """Number of hidden units."""
        return len(self.biases)

    def transform(self, public_features: PublicFeatures) -> PublicFeatures:
        """Return the columns followed by the outputs of the hidden units."""
        public = require_public(public_features, function="RandomFeatures.transform")
        X = public.values.astype(np.float64, copy=False)
        groups = public.groups
        if groups is not None:  # every hidden unit is a group of its own
            groups = np.concatenate([groups, groups.max(initial=-1) + 1 + np.arange(self.num_added)])
        return PublicFeatures(np.column_stack([X, self._activate(X)]), groups=groups)

    def compute_hidden(self, public_features: PublicFeatures) -> NDArray[np.float64]:
        """Compute the outputs of the hidden units only, shape (n, width)."""
        public = require_public(public_features, function="RandomFeatures.compute_hidden")
        if public.sparse is not None and is_large(public):
            return self._activate(public.sparse)
        return self._activate(public.values.astype(np.float64, copy=False))

    def _activate(self, X: Matrix | SparseMatrix) -> NDArray[np.float64]:
        hidden = np.asarray(X @ self.weights.T)
        hidden += self.biases
        return np.asarray(np.tanh(hidden, out=hidden))


def _describe_sparse(X: SparseMatrix, *, constant: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centres and root mean squared deviations of the columns of a sparse matrix."""
    n, d = X.shape
    center = np.asarray(X.sum(axis=0)) / n if constant else np.zeros(d)
    stored = np.bincount(X.indices, weights=(X.data - center[X.indices]) ** 2, minlength=d)
    zeros = n - np.bincount(X.indices, minlength=d)
    return center, np.sqrt((stored + zeros * center**2) / n)
