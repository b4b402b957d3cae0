r"""Exact distribution of plain gradient descent with known noise, for a linear model.

Full-batch steps with rate :math:`\eta` are :math:`\theta_{t+1} = \theta_t + \eta\,(G(\theta^* - \theta_t) + \xi_t)`,
with second moments G and least squares :math:`\theta^*`, as long as no gradient is clipped. The steps are affine, so
the average of the last m of T iterates is :math:`a\,\theta_0 + (1 - a)\,\theta^*` plus normal noise, for each
eigenvector of G with eigenvalue :math:`\lambda` and :math:`\rho = 1 - \eta\lambda`:

.. math:: a = \frac1m \sum_{t=T-m+1}^{T} \rho^t, \qquad
   \text{noise} = \frac{\eta}{m} \sum_{i=1}^{T} \xi_i \sum_{t=\max(i,\,T-m+1)}^{T} \rho^{t-i}
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.models.uncertainty import Uncertainty

__all__ = ["Recursion"]

Vector = NDArray[np.float64]

LEAST_EIGENVALUE = 1e-12  # relative to the largest; directions below carry no information


@dataclass(frozen=True)
class Recursion:
    """A run of plain gradient descent.

    Parameters
    ----------
    num_steps, num_averaged : int
        Number of steps, and of the last iterates that are averaged.
    learning_rate : float
        Rate of the steps.
    noise_std : float
        Standard deviation of the noise in a mean gradient.
    """

    num_steps: int
    num_averaged: int
    learning_rate: float
    noise_std: float

    def follow(self, eigenvalues: Vector) -> tuple[Vector, Vector]:
        """Compute what is left of the start in each direction, and the variance of the noise.

        Examples
        --------
        >>> left, variance = Recursion(2, 1, 0.5, 1.0).follow(np.ones(1))
        >>> left.tolist(), variance.tolist()
        ([0.25], [0.3125])
        """
        T, m = self.num_steps, self.num_averaged
        rho = 1 - self.learning_rate * np.asarray(eigenvalues)[:, None]
        powers = rho ** np.arange(T + 1)
        sums = np.cumsum(powers, axis=1)  # of the powers up to each
        left = powers[:, T - m + 1 :].mean(axis=1)
        steps = np.arange(1, T + 1)
        weights = sums[:, T - steps]  # powers from 0 to T - i
        early = steps < T - m + 1  # their noise is damped when averaging starts
        weights[:, early] -= sums[:, T - m - steps[early]]
        return left, (self.learning_rate * self.noise_std / m) ** 2 * (weights**2).sum(axis=1)

    @np.errstate(all="ignore")  # a run that diverges has errors that are not finite
    def describe(self, parameters: Vector, gram: Vector, *, matrix: Vector, farthest: float) -> Uncertainty:
        """Describe the errors of parameters that started at zero.

        Privacy
            Post-processing of released parameters, with public second moments: no cost.

        Parameters
        ----------
        parameters : array of shape (k,)
            Result of the run.
        gram : array of shape (k, k)
            Second moments of the rows.
        matrix : array of shape (P, k)
            Matrix that converts these parameters to those of the model.
        farthest : float
            Largest distance of a label from zero.
        """
        eigenvalues, vectors = np.linalg.eigh(gram)
        kept = eigenvalues > LEAST_EIGENVALUE * eigenvalues[-1]
        eigenvalues, vectors = eigenvalues[kept], vectors[:, kept]
        left, noise_variance = self.follow(eigenvalues)
        roots = np.sqrt(eigenvalues)  # a direction has unit second moment, so its coefficient is this much larger
        released, noise_variance = roots * (vectors.T @ parameters), eigenvalues * noise_variance
        moved = np.where(np.abs(1 - left) > LEAST_EIGENVALUE, 1 - left, LEAST_EIGENVALUE)
        estimate = released / moved
        remaining = np.minimum(estimate**2, farthest**2) * left**2
        return Uncertainty(
            matrix @ (vectors / roots),
            np.zeros(len(roots)),
            estimate,
            noise_variance / moved**2,
            np.zeros(len(roots)),
            np.empty(0),
            noise_variance + remaining,
            farthest,
            counts_clamping=False,
        )
