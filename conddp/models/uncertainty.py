r"""Uncertainty of a linear model: noise, clamping bias and sampling error of its coefficients and predictions.

A fit measures coefficients of directions, linear combinations of the columns whose errors are independent. With
:math:`\theta_j` the coefficient of direction j, :math:`m_j` what the releases say about it before shrinkage, and V the
sum of the variances that a target counts, the coefficient :math:`a^\top \theta` of a column has the interval

.. math:: a^\top m \pm z \sqrt{\textstyle\sum_j a_j^2 V_j}

It is centred on the measurement, not on the coefficient of the model: the latter is shrunk, which makes predictions
more accurate and would leave an interval around it too low in coverage.

Directions that no release measured, or measured with an error larger than they can have, contribute no noise but
what the declared bounds allow: directions have unit second moment, so their coefficients together differ from those of
the start by at most the largest distance of a label from its start (Cauchy-Schwarz). The interval then is wide.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from conddp._validate import in_range, one_of
from conddp.stored import require

__all__ = ["MOST_STORED", "CoefficientEstimates", "Target", "Uncertainty", "compute_quantile"]

Vector = NDArray[np.float64]

Target = Literal["population", "data"]

MOST_STORED = 2**22  # entries of the matrix of directions up to which a model keeps its uncertainty
LARGEST_NUMBER = 1e100


def compute_quantile(level: float) -> float:
    """Return the half-width of the central interval of the standard normal distribution.

    Examples
    --------
    >>> round(compute_quantile(0.95), 2)
    1.96
    """
    in_range(0.0, 1.0, level=level)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level!r}.")
    return float(ndtri((1 + level) / 2))


@dataclass(frozen=True, eq=False)
class CoefficientEstimates:
    """Estimates of coefficients before shrinkage, in the units of the columns, with the parts of their errors.

    Parameters
    ----------
    estimate : array of shape (m,)
        Estimates.
    noise_std, bias_std, sampling_std : arrays of shape (m,)
        Standard deviation of the noise, root mean square of the bias from clamping, and standard deviation of the
        sampling error, which is NaN if it is not known.
    bound : array of shape (m,)
        Largest error from directions that were not measured, which the declared bounds imply.
    """

    estimate: Vector
    noise_std: Vector
    bias_std: Vector
    sampling_std: Vector
    bound: Vector

    def compute_std(self, of: Target) -> Vector:
        """Return standard errors for a target."""
        parts = [self.noise_std, self.bias_std, self.bound, *([self.sampling_std] if of == "population" else [])]
        return np.asarray(np.sqrt(np.square(parts).sum(axis=0)))

    def compute_intervals(self, level: float, of: Target) -> Vector:
        """Return the ends of intervals, shape (m, 2)."""
        half = compute_quantile(level) * self._remove_bound().compute_std(of) + self.bound
        return np.column_stack([self.estimate - half, self.estimate + half])

    def compute_p_values(self, of: Target) -> Vector:
        """Return one minus the level of the largest interval that does not contain zero."""
        std = self._remove_bound().compute_std(of)
        distance = np.maximum(np.abs(self.estimate) - self.bound, 0.0)
        return np.asarray(2 * ndtr(-distance / np.maximum(std, 1e-300)))

    def _remove_bound(self) -> "CoefficientEstimates":
        return replace(self, bound=np.zeros_like(self.bound))

    def take(self, places: Any) -> "CoefficientEstimates":
        """Select coefficients."""
        return CoefficientEstimates(
            self.estimate[places],
            self.noise_std[places],
            self.bias_std[places],
            self.sampling_std[places],
            self.bound[places],
        )


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What the releases of a fit say about the coefficients of a linear model, for labels of unit range.

    Errors of the directions are taken as independent of each other.

    Privacy
        Computed from released numbers, public rows and known noise: no cost.

    Parameters
    ----------
    matrix : array of shape (P, k)
        Parameters of the model per coefficient of a direction.
    origin : array of shape (k,)
        Coefficients of the directions at the start of the fit.
    estimate : array of shape (k,)
        Coefficients of the directions as they were measured, before shrinkage.
    noise_variance : array of shape (k,)
        Known variance of the noise in the estimates. A large number marks a direction that was not measured.
    bias_variance : array of shape (k,)
        Estimated mean square of the bias from clamping residuals.
    sampling_variance : array of shape (k,)
        Estimated variance of least squares over samples, for residuals of equal variance. Empty if the fit does not
        release the size of the residuals.
    error_variance : array of shape (k,)
        Expected squared error of the coefficients of the model, which are shrunk.
    bound : float
        Largest root sum of squares of the coefficients of all directions, measured from the origin.
    counts_clamping : bool
        Whether the bias variance accounts for clamping, or there was none. Otherwise it is not known.
    sampling_factors : array of shape (m,)
        Factors by which the sampling variances of the coefficients differ from those for residuals of equal variance.
        Empty if they were not released.
    """

    matrix: Vector
    origin: Vector
    estimate: Vector
    noise_variance: Vector
    bias_variance: Vector
    sampling_variance: Vector
    error_variance: Vector
    bound: float
    counts_clamping: bool = True
    sampling_factors: Vector = field(default_factory=lambda: np.empty(0))

    def keep(self) -> "Uncertainty | None":
        """Return this, or None if it is too large to be kept with a model, or has numbers whose squares overflow."""
        is_usual = all((np.abs(each) < LARGEST_NUMBER).all() for each in self.get_arrays().values())
        return self if self.matrix.size <= MOST_STORED and is_usual else None

    def get_arrays(self) -> dict[str, Vector]:
        """Return all arrays by name."""
        return {name: np.asarray(value) for name, value in self.__dict__.items() if isinstance(value, np.ndarray)}

    def check(self, num_parameters: int) -> None:
        """Raise SchemaError unless the arrays fit together and are of a model with so many parameters."""
        arrays, k = self.get_arrays(), len(self.origin)
        require(self.matrix.shape == (num_parameters, k), "the uncertainty is of a model with other parameters")
        shapes = {name: each.shape for name, each in arrays.items() if name != "matrix"}
        sampling, factors = shapes.pop("sampling_variance"), shapes.pop("sampling_factors")
        require(
            all(shape == (k,) for shape in shapes.values()) and sampling in ((0,), (k,)),
            "the uncertainty does not have a number for every direction",
        )
        require(len(factors) == 1, "the uncertainty does not have a list of factors")
        require(self.keep() is self, "the uncertainty is too large, or has numbers that are not of a usual size")
        positive = [each for name, each in arrays.items() if name.endswith(("_variance", "_factors"))]
        require(
            min(float(each.min(initial=0.0)) for each in positive) >= 0 and 0 <= self.bound < LARGEST_NUMBER,
            "a variance is negative",
        )

    @property
    def knows_sampling(self) -> bool:
        """Whether the sampling error is known."""
        return len(self.sampling_variance) > 0

    @property
    def targets(self) -> tuple[Target, ...]:
        """Targets that intervals can be given for."""
        known: tuple[Target, ...] = get_args(Target)
        return known if self.knows_sampling else known[1:]

    def check_target(self, of: str) -> Target:
        """Return the target, or raise if intervals cannot be given for it."""
        one_of(get_args(Target), of=of)
        if of not in self.targets:
            raise ValueError(
                "the fit did not release the size of its residuals, so the sampling error is not known: only intervals "
                "of='data' can be given. CondNewton, the default algorithm, gives both."
            )
        return of

    def estimate_coefficients(self, slopes: Vector, offsets: Vector) -> CoefficientEstimates:
        """Estimate functions of the parameters, such as coefficients in the units of the columns.

        Parameters
        ----------
        slopes : array of shape (m, P)
            Derivatives of the functions.
        offsets : array of shape (m,)
            Values of the functions at zero.
        """
        of_directions = slopes @ self.matrix
        loose = self.noise_variance + self.bias_variance > self.bound**2
        centre = np.where(loose, self.origin, self.estimate)
        squares = np.where(loose, 0.0, of_directions**2)
        sampling = np.full(len(slopes), np.nan)
        if self.knows_sampling:
            sampling = np.sqrt(squares @ self.sampling_variance)
        return CoefficientEstimates(
            offsets + of_directions @ centre,
            np.sqrt(squares @ self.noise_variance),
            np.sqrt(squares @ self.bias_variance),
            sampling,
            self.bound * np.sqrt(np.where(loose, of_directions**2, 0.0).sum(axis=1)),
        )

    def compute_deviations(self, constant: int) -> Vector:
        """Compute the standard deviation over the training records of what each parameter is multiplied by.

        Directions are uncorrelated and have unit second moment, and depend on the columns through the matrix, which is
        inverted here. For private columns and collinear ones the result is approximate.

        Parameters
        ----------
        constant : int
            Place of the parameter of the constant column.
        """
        lengths = np.sqrt((self.matrix**2).sum(axis=1))
        scales = 1 / np.where(lengths > 0, lengths, 1.0)
        columns = scales[:, None] * np.linalg.pinv((scales[:, None] * self.matrix).T)
        means = columns @ columns[constant]
        return np.asarray(np.sqrt(np.maximum((columns**2).sum(axis=1) - means**2, 0.0)))

    @property
    def mean_error_variance(self) -> float:
        """Mean over the training records of the expected squared error of the prediction."""
        return float(self.error_variance.sum())
