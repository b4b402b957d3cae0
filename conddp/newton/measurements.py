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

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import list_blocks, run_pass
from conddp.data.threads import use_one_blas_thread
from conddp.features.dictionary import PRECISION, ROWS_IN_CACHE, Dictionary
from conddp.newton.component_variances import estimate_variances
from conddp.newton.roots import take_root
from conddp.newton.schedule import allot_weights
from conddp.newton.top_eigenvectors import find_top_eigenvectors

__all__ = ["FunctionPosterior", "Measurements", "Overlap"]

Vector = NDArray[np.float64]

ROWS_AT_ONCE = 4096  # on which a dictionary is evaluated at once
FEATURES_AT_ONCE = 128  # whose products with all others are computed at once
MOST_KEPT = 800  # directions, those that are measured best
LEAST_PRECISION = 1e-10  # relative to the direction that is measured best; below, directions are dependent
LEAST_CURIOSITY = 1.0  # smallest variance of a component, relative to its guess, as long as more is measured
JITTER = 3e-7  # of the trace of a Gram matrix, which is added to its diagonal: products in float32 are not as exact


@dataclass(frozen=True)
class Measurements:
    """Orthonormal directions, and what all releases together say about the labels along them.

    Parameters
    ----------
    buffer : array of shape (n, C)
        The first K columns are the directions. There is room for C.
    values, noise_variance : arrays of shape (K,)
        Measured coefficients, and the variances of their noise, which is independent.
    """

    buffer: NDArray[np.floating]
    values: Vector = field(default_factory=lambda: np.empty(0))
    noise_variance: Vector = field(default_factory=lambda: np.empty(0))

    @property
    def rows(self) -> NDArray[np.floating]:
        """Directions, shape (n, K)."""
        return self.buffer[:, : len(self.values)]

    def leave_rows(self) -> "Measurements":
        """Return these measurements without their directions, which takes no memory."""
        return Measurements(np.empty((0, 0), dtype=self.buffer.dtype), self.values, self.noise_variance)

    def add(
        self,
        rows: NDArray[np.floating],
        along: Vector,
        values: Vector,
        noise_variance: Vector,
        *,
        within: Vector | None = None,
        places: NDArray[np.intp] | None = None,
    ) -> "tuple[Measurements, Vector]":
        r"""Combine measurements along further directions with these.

        Let V be all directions, old and new, G their Gram matrix and :math:`\nu` the variances of their noise. With
        :math:`\mathrm{diag}(\nu)^{-1/2}\, G\, \mathrm{diag}(\nu)^{-1/2} = E \Lambda E^\top`, the directions
        :math:`V \mathrm{diag}(\nu)^{-1/2} E \Lambda^{-1/2}` are orthonormal, and generalised least squares measures
        the labels along them with independent noise of variances :math:`\Lambda^{-1}`. Those that are measured best
        are kept: :data:`MOST_KEPT`, or as many as there is room for. Their rows are written over the old ones. After
        :meth:`leave_rows`, there are no rows, and :data:`MOST_KEPT` measurements are kept.

        Parameters
        ----------
        rows : array of shape (n, m)
            Further directions, and possibly other columns.
        along : array of shape (K, k)
            Products of old and further directions.
        values, noise_variance : arrays of shape (k,)
            What was released of the further directions.
        within : array of shape (k, k), optional
            Products of the further directions. By default they are orthonormal.
        places : integer array of shape (k,), optional
            Columns of ``rows`` that are the further directions; all if None.

        Returns
        -------
        combined : Measurements
            All measurements.
        matrix : array of shape (K + k, L)
            Matrix that converts old and further directions to those of the result.
        """
        has_rows = len(self.buffer) > 0
        most = min(MOST_KEPT, self.buffer.shape[1]) if has_rows else MOST_KEPT
        within = np.eye(len(values)) if within is None else within
        gram = np.block([[np.eye(len(self.values)), along], [along.T, within]])
        measured = np.concatenate([self.values, values])
        stds = np.sqrt(np.concatenate([self.noise_variance, noise_variance]))

        def count(precision: Vector) -> int:
            return min(most, int(np.count_nonzero(precision > LEAST_PRECISION * precision[0])))

        with use_one_blas_thread():
            precision, vectors = find_top_eigenvectors(gram / np.outer(stds, stds), count)
        matrix = vectors / stds[:, None] / np.sqrt(precision)
        if has_rows:
            first, second = np.split(matrix, [len(self.values)])
            spread = np.zeros((rows.shape[1], len(precision)))
            spread[slice(None) if places is None else places] = second
            self._combine(rows, first.astype(self.buffer.dtype), spread.astype(self.buffer.dtype))
        return Measurements(self.buffer, matrix.T @ measured, 1 / precision), matrix

    def _combine(self, rows: NDArray[np.floating], first: NDArray[np.floating], second: NDArray[np.floating]) -> None:
        """Write old directions times one matrix, plus further ones times another, over the old ones."""

        def write(span: slice, kept: NDArray[np.floating], new: NDArray[np.floating]) -> int:
            combined = new.astype(second.dtype, copy=False) @ second
            combined += kept[:, : len(first)] @ first
            kept[:, : combined.shape[1]] = combined
            return 0

        run_pass(write, self.buffer, rows, block_size=ROWS_AT_ONCE, num_cells=rows.size + self.buffer.size)


@dataclass(frozen=True)
class Overlap:
    """A dictionary, its Gram matrix on all rows, and its products with the directions that were measured.

    Parameters
    ----------
    dictionary : Dictionary
        Features.
    gram : array of shape (M, M)
        Gram matrix of the features, or an empty one if only a posterior is wanted.
    along : array of shape (K, M)
        Products of directions and features.
    """

    dictionary: Dictionary
    gram: Vector
    along: Vector

    @classmethod
    def of(
        cls,
        dictionary: Dictionary,
        X: NDArray[np.floating],
        measurements: Measurements,
        weights: Vector | None,
        *,
        watch: Callable[[float], None] | None = None,
        with_gram: bool = True,
    ) -> "Overlap":
        """Compute all products in one pass over the records, and centre the features on all of them.

        Blocks of rows come one after the other. Threads share first the rows of a block, then the features. So neither
        the result nor the memory that a pass needs depends on their number.

        Parameters
        ----------
        dictionary : Dictionary
            Features.
        X : array of shape (n, d)
            Public rows.
        measurements : Measurements
            Directions, with their rows.
        weights : array of shape (n,), optional
            Public weights of the records.
        watch : callable, optional
            Called with the fraction of the records that have been read.
        with_gram : bool
            Whether directions are to be chosen, for which the Gram matrix is needed.
        """
        n, M, K = len(X), dictionary.num_features, len(measurements.values)
        total = float(n) if weights is None else float(weights.sum())
        gram, along, constant = np.zeros((M, M) if with_gram else (0, 0)), np.zeros((M, K + 1)), np.zeros(K)
        room = np.empty((M, min(n, ROWS_AT_ONCE)), dtype=PRECISION)
        for span in list_blocks(n if M else 0, block_size=ROWS_AT_ONCE):
            features = room[:, : span.stop - span.start]
            directions = np.ones((features.shape[1], K + 1), dtype=PRECISION)  # the last is the constant
            directions[:, :K] = measurements.rows[span]
            roots = None if weights is None else np.sqrt(weights[span]).astype(PRECISION)
            if roots is not None:
                directions *= roots[:, None]
            write, add = partial(_write, dictionary, roots, features), partial(_add, gram, along, features, directions)
            run_pass(write, X[span], block_size=ROWS_IN_CACHE, num_cells=features.size)
            run_pass(add, features, block_size=FEATURES_AT_ONCE, num_cells=features.size)
            with use_one_blas_thread():
                constant += directions[:, K] @ directions[:, :K]
            if watch is not None:
                watch(span.stop / n)
        means = along[:, K] / total
        if with_gram:
            gram += np.tril(gram, -1).T
            gram /= total
            gram -= np.outer(means, means)
        along = along[:, :K].T / total - np.outer(constant / total, means)
        return cls(dictionary.center(means), gram, along)

    def take(self, kept: NDArray[np.bool_]) -> "Overlap":
        """Return the overlap of some of the features."""
        gram = self.gram[np.ix_(kept, kept)] if len(self.gram) else self.gram
        return Overlap(self.dictionary.take(kept), gram, self.along[:, kept])

    def add(self, chosen: Vector, matrix: Vector) -> "Overlap":
        """Return the overlap with directions that were combined with features times ``chosen``, shape (M, k).

        Parameters
        ----------
        chosen : array of shape (M, k)
            Matrix that converts features to further directions.
        matrix : array of shape (K + k, L)
            Matrix that converts all directions to the combined ones (:meth:`Measurements.add`).
        """
        with use_one_blas_thread():
            along = matrix.T @ np.concatenate([self.along, chosen.T @ self.gram])
        return Overlap(self.dictionary, self.gram, along)


def _write(
    dictionary: Dictionary,
    roots: NDArray[np.float32] | None,
    features: NDArray[np.float32],
    part: slice,
    rows: NDArray[np.floating],
) -> int:
    """Write the features of some rows of a block, times the roots of their weights."""
    dictionary.evaluate(rows, out=features[:, part])
    if roots is not None:
        features[:, part] *= roots[part]
    return 0


def _add(
    gram: Vector,
    along: Vector,
    features: NDArray[np.float32],
    directions: NDArray[np.float32],
    part: slice,
    some: NDArray[np.float32],
) -> int:
    """Add products of some features with those up to the same place, if they are wanted, and with directions."""
    if len(gram):
        below = some @ features[: part.stop].T
        below[:, part.start :] = np.tril(below[:, part.start :])
        gram[part, : part.stop] += below
    along[part] += some @ directions
    return 0


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
    evidence : float
        Evidence of the measurements for the components of the dictionary
        (:func:`~conddp.newton.component_variances.estimate_variances`).
    """

    overlap: Overlap
    weights: Vector
    variances: Vector
    guesses: Vector
    noise: Vector
    measured: Vector
    evidence: float

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
        from scipy.linalg import cho_solve

        dictionary, along = overlap.dictionary, overlap.along
        guesses = np.maximum(dictionary.fractions, 1e-12) * signal_variance
        noise = np.diag(measurements.noise_variance + sampling_variance)
        if not len(along):
            return cls(overlap, np.zeros(dictionary.num_features), guesses, guesses, noise, measurements.values, 0.0)
        variances, used = guesses.copy(), np.unique(dictionary.component)
        parts = [along[:, dictionary.component == number] for number in used]
        kernels = [part @ part.T for part in parts]
        variances[used], evidence = estimate_variances(measurements.values, noise, kernels, guesses[used])
        covariance = noise + sum(variances[number] * kernel for number, kernel in zip(used, kernels, strict=True))
        solved = cho_solve((take_root(covariance), True), measurements.values)
        weights = variances[dictionary.component] * (along.T @ solved)
        return cls(overlap, weights, variances, guesses, noise, measurements.values, evidence)

    @property
    def explained(self) -> dict[str, float]:
        """Estimated variance that components of each name explain together."""
        explained: dict[str, float] = {}
        for name, variance in zip(self.overlap.dictionary.names, self.variances.tolist(), strict=True):
            explained[name] = explained.get(name, 0.0) + variance
        return explained

    @use_one_blas_thread()
    def find_directions(self, *, at_most: int, least: float) -> tuple[Vector, Vector]:
        """Find the orthonormal directions of largest posterior variance.

        Parameters
        ----------
        at_most : int
            Largest number of directions.
        least : float
            Variance of the noise of a release along one direction alone. Directions of less variance are left out, and
            those that get no weight even so (:func:`~conddp.newton.schedule.allot_weights`), but for the first.

        Returns
        -------
        matrix : array of shape (M, k)
            Matrix that converts features to directions.
        variances : array of shape (k,)
            Posterior variances of the function along the directions, in decreasing order.
        """
        from scipy.linalg import lapack, solve_triangular

        overlap = self.overlap
        stds = np.sqrt(np.maximum(self.variances, LEAST_CURIOSITY * self.guesses)[overlap.dictionary.component])
        gram = overlap.gram * np.outer(stds, stds)
        size = len(gram)
        if not size:
            return np.empty((0, 0)), np.empty(0)
        root = take_root(gram, jitter=JITTER)  # gram = root root'
        unknown, _ = lapack.dlauum(root, lower=1)  # root' root; below the diagonal only
        if len(overlap.along):
            along = overlap.along * stds
            covariance = self.noise + along @ along.T
            known = solve_triangular(take_root(covariance), along, lower=True) @ root
            unknown -= known.T @ known

        def count(variances: Vector) -> int:
            above = variances[variances > least][:at_most]
            return (
                int(np.count_nonzero(allot_weights(above, least))) if least > 0 and len(above) else max(1, len(above))
            )

        variances, vectors = find_top_eigenvectors(unknown, count)
        matrix = solve_triangular(root, vectors, lower=True, trans=1) * stds[:, None]
        return matrix, np.maximum(variances, 0.0)
