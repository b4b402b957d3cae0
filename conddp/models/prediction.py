"""Standard deviations of predictions, and intervals for labels, from what a fit has released."""

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PrivateFeatures, PublicFeatures
from conddp.models.result import FitResult
from conddp.models.uncertainty import Uncertainty, compute_quantile

__all__ = ["estimate_deviations", "estimate_intervals"]

Vector = NDArray[np.float64]


def estimate_deviations(result: FitResult, public: PublicFeatures, private: PrivateFeatures | None = None) -> Vector:
    """Estimate the root mean square error of predictions as estimates of the expected label, in its units.

    It counts noise, shrinkage and, if the fit releases the size of its residuals, the sampling error. It does not count
    that the label may not be linear in the columns.

    Privacy
        Post-processing of released numbers: no cost.

    Parameters
    ----------
    result : FitResult
        Result of a fit of a linear model.
    public, private : PublicFeatures, PrivateFeatures
        Encoded features of the records.

    Raises
    ------
    AttributeError
        If the uncertainty of the model is not known.
    """
    variance = _compute_variance(result, result.get_uncertainty(), public, private)
    return np.asarray(result.model.label_bounds.width * np.sqrt(variance))


def estimate_intervals(
    result: FitResult, public: PublicFeatures, private: PrivateFeatures | None = None, *, level: float = 0.95
) -> Vector:
    """Estimate intervals that contain the labels of new records with the given probability, shape (n, 2).

    An interval is the prediction plus or minus a quantile of the normal distribution times the standard deviation of
    the residual, which the fit released. That of a linear model is larger for records whose prediction is less certain,
    and smaller for others. Ends are clamped to the bounds of the label.

    Privacy
        Post-processing of released numbers: no cost.

    Parameters
    ----------
    result : FitResult
        Result of a fit.
    public, private : PublicFeatures, PrivateFeatures
        Encoded features of the records.
    level : float
        Wanted probability.

    Raises
    ------
    AttributeError
        If the fit did not release the size of its residuals.
    """
    quantile, scales = compute_quantile(level), result.diagnostics.residual_deviations
    if not scales:
        raise AttributeError(
            f"there are no prediction intervals: the fit of '{result.guarantee.label}' did not release the size of its "
            "residuals, as CondNewton, the default algorithm, does."
        )
    variance = np.full(len(public), scales[-1] ** 2)
    if result.uncertainty is not None:
        # The released mean square counts the mean error of predictions already.
        width = result.model.label_bounds.width
        mean_error = width**2 * result.uncertainty.mean_error_variance
        errors = width**2 * _compute_variance(result, result.uncertainty, public, private)
        variance = np.maximum(variance - mean_error, 0.25 * variance) + errors
    predicted, half = result.predict(public, private), quantile * np.sqrt(variance)
    bounds = result.model.label_bounds
    return np.column_stack([bounds.clamp(predicted - half), bounds.clamp(predicted + half)])


def _compute_variance(
    result: FitResult, uncertainty: Uncertainty, public: PublicFeatures, private: PrivateFeatures | None
) -> Vector:
    """Expected squared errors of the predictions, for labels of unit range."""
    variance = np.empty(len(public))
    with np.errstate(over="ignore", invalid="ignore"):  # of columns with very large numbers
        for span, products in result.model.compute_products(uncertainty.matrix, public, private):
            variance[span] = products**2 @ uncertainty.error_variance
    return np.where(np.isnan(variance), np.inf, variance)
