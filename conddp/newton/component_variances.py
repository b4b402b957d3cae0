r"""Variances of the components of a function, estimated from noisy measurements of it.

The measurements m are normal with covariance :math:`S = N + \sum_c \tau_c K_c`, where N is the covariance of their
noise, which is known, and :math:`K_c` what component c contributes for :math:`\tau_c = 1`. The logarithms of the
:math:`\tau_c` have a normal prior about given guesses: a deviation that all components share, and one of each. Their
posterior mode is found by Newton steps with the average information matrix in place of the Hessian (Gilmour, Thompson
and Cullis 1995), which needs no products of matrices but one inverse per step.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from conddp.newton.roots import take_root

__all__ = ["estimate_variances"]

Vector = NDArray[np.float64]

COMMON_STD, OWN_STD = 1.0, 0.7  # of the logarithm of a variance: deviations shared by all components, and of each
MOST_STEPS = 15
LEAST_GAIN = 0.05  # of the logarithm of the posterior density; smaller ones are not worth a step
LONGEST_STEP = 2.0


def estimate_variances(
    measured: Vector, noise: Vector, kernels: Sequence[Vector], guesses: Vector
) -> tuple[Vector, float]:
    """Estimate the variances of components, shape (C,), and the evidence for these components.

    The evidence is the logarithm of the density of the measurements, up to a constant, averaged over the prior of the
    variances in Laplace's approximation. Its difference between two sets of components says which set the
    measurements favour.

    Privacy
        Post-processing: no cost if the measurements have been released.

    Parameters
    ----------
    measured : array of shape (k,)
        Measurements.
    noise : array of shape (k, k)
        Covariance of their noise.
    kernels : sequence of C arrays of shape (k, k)
        What the components contribute to the covariance of the measurements, for unit variances.
    guesses : array of shape (C,)
        Positive guesses of the variances.
    """
    from scipy.linalg import cho_solve, lapack  # takes a while to import, and only learned features need it

    center = np.log(guesses)
    own = OWN_STD**2 * np.eye(len(guesses))
    precision = np.linalg.inv(own + COMMON_STD**2)
    at, best, reached, information = center, center, -math.inf, precision
    for _ in range(MOST_STEPS):
        variances = np.exp(at)
        covariance = noise + sum(variance * kernel for variance, kernel in zip(variances, kernels, strict=True))
        root = take_root(covariance)
        solved = cho_solve((root, True), measured)
        density = -0.5 * measured @ solved - np.log(np.diag(root)).sum()
        density -= 0.5 * (at - center) @ precision @ (at - center)
        if density < reached:  # too long a step
            at = (at + best) / 2
            if np.abs(at - best).max() < 0.01:
                break
            continue
        gain, reached, best = density - reached, density, at
        if gain < LEAST_GAIN:
            break
        inverse, _ = lapack.dpotri(root, lower=1)  # below the diagonal only
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        pulls = np.column_stack([kernel @ solved for kernel in kernels]) * variances
        traces = variances * np.array([np.vdot(inverse, kernel) for kernel in kernels])
        slope = 0.5 * (pulls.T @ solved - traces) - precision @ (at - center)
        information = 0.5 * pulls.T @ (inverse @ pulls) + precision + 0.25 * np.eye(len(center))
        step = np.linalg.solve(information, slope)
        at = at + step * min(1.0, LONGEST_STEP / max(float(np.abs(step).max()), 1e-12))
    widths = np.linalg.slogdet(precision)[1] - np.linalg.slogdet(information)[1]
    return np.asarray(np.exp(best)), reached + 0.5 * float(widths)
