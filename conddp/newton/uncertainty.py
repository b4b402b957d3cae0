"""Uncertainty of the coefficients of a Newton run, from what it measured."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from conddp.models.uncertainty import Uncertainty
from conddp.newton.prior import VAGUE
from conddp.newton.private_columns import PrivateRows, SecondMoments
from conddp.newton.run import NewtonRun

__all__ = ["estimate_uncertainty"]

Vector = NDArray[np.float64]


FARTHEST = 0.5  # of a label from the midpoint, which the start predicts as well as it can


def estimate_uncertainty(run: NewtonRun, start: Vector) -> Uncertainty:
    r"""Describe the errors of the coefficients of all directions.

    Directions are uncorrelated and have unit second moment, so least squares from n records has the sampling variance
    :math:`\sigma^2 / n` in each of them, where :math:`\sigma^2` is the released mean square of the residuals.

    Privacy
        Post-processing of released numbers: no cost.

    Parameters
    ----------
    run : NewtonRun
        The run.
    start : array of shape (k,)
        Its initial coefficients.
    """
    rows, measured = run.rows, run.measurement
    num_records = rows.num_records if rows.weights is None else rows.weights.sampling_records
    known = Uncertainty(
        np.asarray(rows.matrix),
        np.asarray(start),
        start + measured.mean,
        measured.noise_variance,
        measured.bias_variance,
        np.full(len(start), run.residual_stds[-1] ** 2 / num_records),
        run.posterior.variance,
        FARTHEST,
    )
    moments = rows.second_moments if isinstance(rows, PrivateRows) else None
    return known if moments is None else _correct(known, moments, start + measured.asked_at)


def _correct(known: Uncertainty, moments: SecondMoments, asked_at: Vector) -> Uncertainty:
    r"""Correct the estimates for directions of private columns, which are whitened only approximately.

    With second moments G, steps from :math:`\theta_t` on average measured
    :math:`m = \bar\theta + G(\theta - \bar\theta)` plus noise, where :math:`\bar\theta` is the average of
    :math:`\theta_t`. So :math:`\phi = G\theta` is measured by :math:`m + (G - I)\bar\theta`, with the same noise. An
    error :math:`\delta` in the estimate of G adds :math:`\delta(\theta - \bar\theta)`. It counts as noise, because
    noise in the released moments is its cause.

    Private directions are first rotated so that what is new in them is uncorrelated. If its second moment cannot be
    told from zero, the coefficient of a direction is not known, and gets the interval that the bounds allow if the
    second moment is as large as the standard deviation of its noise.
    """
    p, total = moments.values.shape
    k = total - p
    of_public, within = moments.values[:, :k], moments.values[:, k:]
    new, Q = np.linalg.eigh(within - of_public @ of_public.T)
    shares = Q**2  # of the old private directions in the new ones
    within, of_public = Q.T @ within @ Q, Q.T @ of_public
    errors = np.hstack([shares.T @ moments.errors[:, :k], shares.T @ moments.errors[:, k:] @ shares])
    noise_std = np.sqrt(np.diag(errors[:, k:]))
    unknown = new < 2 * noise_std
    of_public[unknown], within[unknown], within[:, unknown] = 0.0, 0.0, 0.0
    within[unknown, unknown] = noise_std[unknown]
    G = np.block([[np.eye(k), of_public.T], [of_public, within]])

    def rotate(vector: Vector) -> Vector:
        return np.concatenate([vector[:k], Q.T @ vector[k:]])

    def rotate_variance(variance: Vector) -> Vector:
        return np.concatenate([variance[:k], shares.T @ variance[k:]])

    scales = np.sqrt(np.diag(G))  # a direction divided by its scale has unit second moment
    origin, before = rotate(known.origin), rotate(asked_at)
    estimate = rotate(known.estimate) + (G - np.eye(total)) @ before
    distances = np.clip(np.linalg.solve(G, estimate) - before, -FARTHEST / scales, FARTHEST / scales)
    noise_variance = rotate_variance(known.noise_variance)
    noise_variance[:k] += distances[k:] ** 2 @ errors[:, :k]
    noise_variance[k:] += errors @ distances**2
    noise_variance[k:][unknown] = VAGUE
    matrix = np.hstack([known.matrix[:, :k], known.matrix[:, k:] @ Q])
    return replace(
        known,
        matrix=np.linalg.solve(G, matrix.T).T * scales,
        origin=G @ origin / scales,
        estimate=estimate / scales,
        noise_variance=noise_variance / scales**2,
        bias_variance=rotate_variance(known.bias_variance) / scales**2,
        error_variance=rotate_variance(known.error_variance) * scales**2,
    )
