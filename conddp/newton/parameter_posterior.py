r"""Posterior of functions of single columns, given the releases of a run in rounds.

Of weights w with independent prior variances T and measurements :math:`m = B w + \epsilon`,
:math:`\mathrm{cov}(\epsilon) = N`, the posterior covariance is

.. math:: T - T B^\top S^{-1} B T, \qquad S = N + B T B^\top

It is used in factored form, for the few weights that one function depends on.

The variances T are shared by all columns of a component. The function of one column may vary more than they suggest,
and then shrinks too much. So the standard deviation of its function allows for this: the prior variance of the terms of
this column alone is multiplied by 1, 4, 16 or 64, with prior probabilities that fall, and their posterior
probabilities follow from the evidence. The variance is that of the mixture about the released function. Where the
releases say much about a column, they decide on the factor; where they say little, the prior has heavy tails.

Privacy
    Post-processing: reads released numbers and public rows only.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from conddp.data.threads import use_one_blas_thread
from conddp.features.additive_terms import Functional
from conddp.newton.measurements import FunctionPosterior
from conddp.newton.roots import take_root

__all__ = ["ParameterPosterior"]

Vector = NDArray[np.float64]

FACTORS = np.array([1.0, 4.0, 16.0, 64.0])  # by which the prior variance of a column may be larger
PROBABILITIES = np.array([0.4, 0.3, 0.2, 0.1])  # of these, a priori
LEAST_VARIANCE = 1e-10  # of linear terms, relative to the largest; those with less are dependent


@dataclass(frozen=True)
class ParameterPosterior:
    """Posterior of the coefficients of standardised columns and of products.

    Parameters
    ----------
    prior_linear : array of shape (d, d)
        Prior covariance of the coefficients of standardised columns.
    prior_products : array of shape (P,)
        Prior variances of the coefficients of products.
    whitened : array of shape (K, d + P)
        Products of measured directions and terms, times the inverse of a root of S.
    known : array of shape (K, d + P)
        The same times the prior covariance.
    measured : array of shape (K,)
        Measurements times the inverse of the root.
    """

    prior_linear: Vector
    prior_products: Vector
    whitened: Vector
    known: Vector
    measured: Vector

    @classmethod
    @use_one_blas_thread()
    def of(cls, posterior: FunctionPosterior) -> "ParameterPosterior":
        """Convert the posterior of the weights of a dictionary without projections."""
        from scipy.linalg import solve_triangular

        overlap, dictionary = posterior.overlap, posterior.overlap.dictionary
        number, variances = dictionary.axes.shape[1], posterior.variances[dictionary.component]
        axes, gains = dictionary.axes * dictionary.gains[:number], dictionary.gains[number:]
        prior_linear = (axes * variances[:number]) @ axes.T
        # Linear terms are rotations of the columns: return to the columns.
        values, vectors = np.linalg.eigh(axes @ axes.T)
        kept = values > LEAST_VARIANCE * values.max(initial=0.0)
        inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        along = np.hstack([overlap.along[:, :number] @ axes.T @ inverse, overlap.along[:, number:] / gains])
        covariance = posterior.noise + (overlap.along * variances) @ overlap.along.T
        root = take_root(covariance) if len(covariance) else covariance
        whitened, measured = along, posterior.measured
        if len(covariance):
            whitened, measured = (solve_triangular(root, each, lower=True) for each in (along, posterior.measured))
        prior_products = variances[number:] * gains**2
        d = len(prior_linear)
        known = np.hstack([whitened[:, :d] @ prior_linear, whitened[:, d:] * prior_products])
        return cls(prior_linear, prior_products, whitened, known, measured)

    @use_one_blas_thread()
    def compute_variance(self, functional: Functional, *, allowing: bool = True) -> Vector:
        """Compute the posterior variance of a function at every point of its grid.

        Parameters
        ----------
        functional : Functional
            The function, as a matrix that the coefficients are multiplied by.
        allowing : bool
            Whether to allow for a prior variance of this function larger than that of its component.
        """
        matrix, d = functional.matrix, len(self.prior_linear)
        num_linear = len(functional.linear)
        places = np.concatenate([functional.linear, d + functional.products])
        linear, products = matrix[:, :num_linear], matrix[:, num_linear:]
        within = self.prior_linear[np.ix_(functional.linear, functional.linear)]
        variance = ((linear @ within) * linear).sum(axis=1)
        variance += products**2 @ self.prior_products[functional.products]
        known = matrix @ self.known[:, places].T
        variance -= (known**2).sum(axis=1)
        variance = np.asarray(np.maximum(variance, 0.0))
        if not allowing or not len(self.measured):
            return variance
        own = functional.products[functional.own]
        root = np.zeros((num_linear + len(own), num_linear + len(own)))
        root[:num_linear, :num_linear] = _take_root(within)
        root[num_linear:, num_linear:] = np.diag(np.sqrt(self.prior_products[own]))
        seen = self.whitened[:, np.concatenate([functional.linear, d + own])] @ root
        # Each further multiple of the prior adds independent coefficients, of which this is the remaining effect.
        effect = np.hstack([linear, products[:, functional.own]]) @ root - known @ seen
        values, vectors = np.linalg.eigh(seen.T @ seen)
        values, score = np.maximum(values, 0.0), vectors.T @ (seen.T @ self.measured)
        effect = effect @ vectors
        further = FACTORS[:, None] - 1
        trust = further / (1 + further * values)  # of the added coefficients
        evidence = 0.5 * (trust * score**2 - np.log1p(further * values)).sum(axis=1)
        probabilities = softmax(evidence + np.log(PROBABILITIES))
        moved = effect @ (trust * score).T
        return np.asarray(variance + (effect**2 @ trust.T + moved**2) @ probabilities)


def _take_root(covariance: Vector) -> Vector:
    """Symmetric root of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
