r"""Random hidden units on public columns, which give a nonlinear model that is linear in its parameters.

The hidden units are :math:`\tanh(w_k^\top z + b_k)`, where z are standardised columns. Their weights are drawn from a
fixed seed and never trained, so both the weights and the expanded rows are public.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from conddp.data.parts import Matrix, PublicFeatures, SparseMatrix, require_public
from conddp.data.passes import list_blocks, run_pass
from conddp.features.standardization import add_by_group, count_rows_of_product, is_large

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
            X, n = public.values, len(public)
            center = X.mean(axis=0, dtype=np.float64) if constant else np.zeros(d)
            spread = np.sqrt(run_pass(_SumSquares(center), X, num_cells=n * d) / n)
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
        X, d = public.values, public.shape[1]
        groups = public.groups
        if groups is not None:  # every hidden unit is a group of its own
            groups = np.concatenate([groups, groups.max(initial=-1) + 1 + np.arange(self.num_added)])
        expanded = np.empty((len(X), d + self.num_added))

        def expand(span: slice, block: Matrix) -> int:
            for part in list_blocks(len(block), block_size=count_rows_of_product(expanded.shape[1])):
                columns, rows = block[part].astype(np.float64, copy=False), expanded[span][part]
                rows[:, :d] = columns
                self._activate(columns, out=rows[:, d:])
            return 0

        run_pass(expand, X, num_cells=expanded.size)
        return PublicFeatures(expanded, groups=groups)

    def compute_hidden(self, public_features: PublicFeatures) -> NDArray[np.float64]:
        """Compute the outputs of the hidden units only, shape (n, width)."""
        public = require_public(public_features, function="RandomFeatures.compute_hidden")
        if public.sparse is not None and is_large(public):
            return self._activate(public.sparse)
        return self._activate(public.values.astype(np.float64, copy=False))

    def _activate(self, X: Matrix | SparseMatrix, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Outputs of the hidden units, in a new array or in a given one."""
        if out is None or isinstance(X, csr_array):
            hidden = np.asarray(X @ self.weights.T)
        else:
            hidden = np.matmul(X, self.weights.T, out=out)
        hidden += self.biases
        return np.asarray(np.tanh(hidden, out=hidden))


@dataclass(frozen=True)
class _SumSquares:
    """Sum of squared deviations of a block from given centres, by column."""

    center: NDArray[np.float64]

    def __call__(self, span: slice, X: Matrix) -> NDArray[np.float64]:
        deviations = X - self.center
        return np.asarray(np.einsum("ij,ij->j", deviations, deviations))


def _describe_sparse(X: SparseMatrix, *, constant: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centres and root mean squared deviations of the columns of a sparse matrix."""
    n, d = X.shape
    center = np.asarray(X.sum(axis=0)) / n if constant else np.zeros(d)
    stored = np.bincount(X.indices, weights=(X.data - center[X.indices]) ** 2, minlength=d)
    zeros = n - np.bincount(X.indices, minlength=d)
    return center, np.sqrt((stored + zeros * center**2) / n)
