r"""What all releases of a fit say about a function, whatever directions they measured.

A release along orthonormal directions V measures :math:`V^\top y / n` with noise of known variances :math:`\nu`.
Releases along different directions are combined to measurements along orthonormal ones. Under a prior on the weights of
a dictionary of features :math:`\Phi` the labels are :math:`\Phi w + e` with independent residuals e of variance
:math:`s^2`, so that

.. math:: m = B w + \epsilon, \qquad B = V^\top \Phi / n, \qquad
   \mathrm{cov}(\epsilon) = \mathrm{diag}(\nu) + \tfrac{s^2}{n} I

The posterior of w is in closed form, for any dictionary: nothing that was measured is lost when features change.

Privacy
    Post-processing: reads released numbers and public rows only.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import run_pass
from conddp.data.threads import use_one_blas_thread
from conddp.features.dictionary import Dictionary
from conddp.newton.component_variances import estimate_variances

__all__ = ["FunctionPosterior", "Measurements", "Overlap"]

Vector = NDArray[np.float64]

ROWS_AT_ONCE = 2048  # rows on which a dictionary is evaluated at once
MOST_KEPT = 800  # directions, those that are measured best
LEAST_PRECISION = 1e-10  # relative to the direction that is measured best; below, directions are dependent
LEAST_CURIOSITY = 1.0  # smallest variance of a component, relative to its guess, as long as more is measured
JITTER = 3e-7  # of the trace of a Gram matrix, which is added to its diagonal: products in float32 are not as exact


@dataclass(frozen=True)
class Measurements:
    """Orthonormal directions, and what all releases together say about the labels along them.

    Parameters
    ----------
    rows : array of shape (n, K)
        Directions.
    values, noise_variance : arrays of shape (K,)
        Measured coefficients, and the variances of their noise, which is independent.
    """

    rows: NDArray[np.floating]
    values: Vector = field(default_factory=lambda: np.empty(0))
    noise_variance: Vector = field(default_factory=lambda: np.empty(0))

    def add(
        self, rows: NDArray[np.floating], along: Vector, values: Vector, noise_variance: Vector
    ) -> "tuple[Measurements, Vector]":
        r"""Combine measurements along further orthonormal directions with these.

        Let V be all directions, old and new, G their Gram matrix and :math:`\nu` the variances of their noise. With
        :math:`\mathrm{diag}(\nu)^{-1/2}\, G\, \mathrm{diag}(\nu)^{-1/2} = E \Lambda E^\top`, the directions
        :math:`V \mathrm{diag}(\nu)^{-1/2} E \Lambda^{-1/2}` are orthonormal, and generalised least squares measures
        the labels along them with independent noise of variances :math:`\Lambda^{-1}`. The :data:`MOST_KEPT` that are
        measured best are kept.

        Parameters
        ----------
        rows : array of shape (n, k)
            Further directions.
        along : array of shape (K, k)
            Products of old and further directions.
        values, noise_variance : arrays of shape (k,)
            What was released of the further directions.

        Returns
        -------
        combined : Measurements
            All measurements.
        matrix : array of shape (K + k, L)
            Matrix that converts old and further directions to those of the result.
        """
        gram = np.block([[np.eye(len(self.values)), along], [along.T, np.eye(len(values))]])
        measured = np.concatenate([self.values, values])
        stds = np.sqrt(np.concatenate([self.noise_variance, noise_variance]))
        precision, vectors = np.linalg.eigh(gram / np.outer(stds, stds))
        number = min(MOST_KEPT, int(np.count_nonzero(precision > LEAST_PRECISION * precision.max(initial=0.0))))
        precision, vectors = precision[::-1][:number], vectors[:, ::-1][:, :number]
        matrix = vectors / stds[:, None] / np.sqrt(precision)
        first, second = np.split(matrix.astype(self.rows.dtype), [len(self.values)])
        combined = np.empty((len(rows), number), dtype=self.rows.dtype)

        def write(span: slice, old: NDArray[np.floating], new: NDArray[np.floating]) -> int:
            combined[span] = old @ first + new @ second
            return 0

        run_pass(write, self.rows, rows, num_cells=combined.size)
        return Measurements(combined, matrix.T @ measured, 1 / precision), matrix


@dataclass(frozen=True)
class Overlap:
    """A dictionary, its Gram matrix on all rows, and its products with the directions that were measured.

    Parameters
    ----------
    dictionary : Dictionary
        Features.
    gram : array of shape (M, M)
        Gram matrix of the features.
    along : array of shape (K, M)
        Products of directions and features.
    """

    dictionary: Dictionary
    gram: Vector
    along: Vector

    @classmethod
    def of(
        cls, dictionary: Dictionary, X: NDArray[np.floating], measurements: Measurements, weights: Vector | None
    ) -> "Overlap":
        """Compute all products in one pass over the records, which may have public weights."""
        total = float(len(X)) if weights is None else float(weights.sum())

        def sum_block(span: slice, block: NDArray[np.floating], rows: NDArray[np.floating]) -> tuple[Vector, Vector]:
            features = dictionary.evaluate(block)
            weighted = features if weights is None else features * weights[span].astype(features.dtype)
            gram, along = weighted @ features.T, (weighted @ rows.astype(features.dtype, copy=False)).T
            return gram.astype(np.float64), along.astype(np.float64)

        cells = len(X) * dictionary.num_features
        gram, along = run_pass(sum_block, X, measurements.rows, block_size=ROWS_AT_ONCE, num_cells=cells)
        return cls(dictionary, gram / total, along / total)

    def add(self, chosen: Vector, matrix: Vector) -> "Overlap":
        """Return the overlap with directions that were combined with features times ``chosen``, shape (M, k).

        Parameters
        ----------
        chosen : array of shape (M, k)
            Matrix that converts features to further directions.
        matrix : array of shape (K + k, L)
            Matrix that converts all directions to the combined ones (:meth:`Measurements.add`).
        """
        along = np.concatenate([self.along, chosen.T @ self.gram])
        return Overlap(self.dictionary, self.gram, matrix.T @ along)


@dataclass(frozen=True)
class FunctionPosterior:
    """Posterior of the weights of a dictionary given all measurements.

    Parameters
    ----------
    overlap : Overlap
        Dictionary and its products.
    weights : array of shape (M,)
        Posterior means.
    variances : array of shape (C,)
        Estimated variances of the components.
    guesses : array of shape (C,)
        What they were a priori.
    noise : array of shape (K, K)
        Covariance of the noise of all measurements, sampling error included.
    measured : array of shape (K,)
        What was measured.
    """

    overlap: Overlap
    weights: Vector
    variances: Vector
    guesses: Vector
    noise: Vector
    measured: Vector

    @classmethod
    @use_one_blas_thread()  # the same numbers on any machine, also on one that is busy
    def of(
        cls, overlap: Overlap, measurements: Measurements, *, signal_variance: float, sampling_variance: float
    ) -> "FunctionPosterior":
        """Estimate the variances of the components and compute the posterior.

        Parameters
        ----------
        overlap : Overlap
            Dictionary and its products.
        measurements : Measurements
            All measurements.
        signal_variance : float
            Guess of the variance of the function.
        sampling_variance : float
            Variance of the mean of a residual, as if records were drawn anew.
        """
        from scipy.linalg import cho_solve, cholesky

        dictionary, along = overlap.dictionary, overlap.along
        guesses = np.maximum(dictionary.fractions, 1e-12) * signal_variance
        noise = np.diag(measurements.noise_variance + sampling_variance)
        if not len(along):
            return cls(overlap, np.zeros(dictionary.num_features), guesses, guesses, noise, measurements.values)
        numbers = range(len(guesses))
        parts = [along[:, dictionary.component == number] for number in numbers]
        kernels = [part @ part.T for part in parts]
        variances = estimate_variances(measurements.values, noise, kernels, guesses)
        covariance = noise + sum(variances[number] * kernels[number] for number in numbers)
        solved = cho_solve((cholesky(covariance, lower=True), True), measurements.values)
        weights = variances[dictionary.component] * (along.T @ solved)
        return cls(overlap, weights, variances, guesses, noise, measurements.values)

    @use_one_blas_thread()
    def find_directions(self, *, at_most: int, least: float) -> tuple[Vector, Vector]:
        """Find the orthonormal directions of largest posterior variance.

        Returns
        -------
        matrix : array of shape (M, k)
            Matrix that converts features to directions.
        variances : array of shape (k,)
            Posterior variances of the function along the directions, all above ``least``, but for the first.
        """
        from scipy.linalg import cholesky, eigh, solve_triangular

        overlap = self.overlap
        stds = np.sqrt(np.maximum(self.variances, LEAST_CURIOSITY * self.guesses)[overlap.dictionary.component])
        gram = overlap.gram * np.outer(stds, stds)
        size = len(gram)
        root = cholesky(gram + JITTER * max(np.trace(gram), 1e-300) * np.eye(size))  # gram = root' root
        unknown = root @ root.T
        if len(overlap.along):
            along = overlap.along * stds
            covariance = self.noise + along @ along.T
            known = solve_triangular(cholesky(covariance, lower=True), along, lower=True) @ root.T
            unknown -= known.T @ known
        first = max(0, size - at_most)
        variances, vectors = eigh(unknown, subset_by_index=[first, size - 1])
        number = max(1, int(np.count_nonzero(variances > least)))
        variances, vectors = variances[::-1][:number], vectors[:, ::-1][:, :number]
        matrix = solve_triangular(root, vectors) * stds[:, None]
        return matrix, np.maximum(variances, 0.0)
