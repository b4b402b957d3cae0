"""One noisy release of all that least squares needs of the labels: the sum of label times conditioned row."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from conddp._validate import one_of
from conddp.algorithms.algorithm import Algorithm, Task, bound_rounding
from conddp.data.scaling import label_reach, scale_label
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.noise_shape import compute_noise_shape
from conddp.features.spectrum import Spectrum
from conddp.heads.folding import move_parameters
from conddp.heads.linear import Linear
from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FitResult, FittedModel
from conddp.privacy.accounting import calibrate_gaussian_mu

__all__ = ["OneShot"]


@dataclass(frozen=True, kw_only=True)
class OneShot(Algorithm):
    r"""Release :math:`\sum_i y_i u_i` once, with :math:`u_i` the conditioned row, and solve least squares with it.

    With public features the labels enter least squares through this sum alone. Any number of full-batch gradient steps
    without clipping queries the same sum, so this is the anchor that Cond-DP should approach.

    Parameters
    ----------
    noise : {"optimal", "spherical"}
        Noise with the covariance that gives the least expected error
        (:func:`~conddp.features.noise_shape.compute_noise_shape`), or of the same size in all conditioned directions;
        both calibrated to the longest row.
    shrink : bool
        Shrink the result by its known noise variance: a ridge chosen by empirical Bayes from released numbers, free.
    """

    labels_only: ClassVar[bool] = True
    linear_only: ClassVar[bool] = True

    noise: Literal["optimal", "spherical"] = "optimal"
    shrink: bool = True

    def __post_init__(self) -> None:
        one_of(("spherical", "optimal"), noise=self.noise)

    def run(self, task: Task) -> FitResult:
        r"""Release, solve, shrink.

        Privacy
            One Gaussian release. In coordinates where its noise is spherical the rows are :math:`v_i = Q^{-1/2} u_i`;
            a label of unit width moves the sum by at most :math:`\max_i \|v_i\|` under REPLACE, and half as far under
            ZERO_OUT, where a record's centred label is set to zero.
        """
        dataset, fit_intercept = task.dataset, task.fit_intercept
        n, bounds = dataset.num_records, dataset.label.bounds
        C = ConditioningMatrix.from_spectrum(Spectrum.of(dataset.public, constant=fit_intercept))
        Z = C.transform(dataset.public)
        shape = compute_noise_shape(Z / math.sqrt(n)) if self.noise == "optimal" else np.eye(Z.shape[1])
        V = np.linalg.solve(shape, Z.T).T  # rows in coordinates where the noise is spherical
        longest = float(np.sqrt((V * V).sum(axis=1)).max())
        sensitivity = label_reach(bounds, task.neighbouring) * longest
        sensitivity *= 1 + bound_rounding(n)
        deviation = sensitivity / calibrate_gaussian_mu(task.budget.epsilon, task.budget.delta) / n
        settings = {"noise": self.noise, "shrink": self.shrink, "noise_deviation": deviation}
        task.spend("one noisy sum of labels times rows", settings)

        label = scale_label(dataset.label)
        noise = task.random_source.generator().standard_normal(Z.shape[1])
        released = shape @ (V.T @ label / n + deviation * noise)
        if not fit_intercept:  # labels were centred for the release; what the middle adds is public
            released = released + bounds.midpoint / bounds.width * Z.mean(axis=0)
        covariance = deviation**2 * shape @ shape.T
        theta = self._shrink(released, covariance) if self.shrink else released
        linear = Linear()
        folded = move_parameters(linear, theta[None], num_private=0, source=C)
        model = FittedModel(linear, linear.layout(len(C.matrix), 0), folded[0], fit_intercept, bounds)
        mechanism = "One Gaussian release of a sum over all records was accounted exactly."
        deviations = model.compute_linear_deviations(C.matrix @ covariance @ C.matrix.T)
        return task.finish(
            model, mechanism, settings, diagnostics=Diagnostics(coefficient_deviations=tuple(deviations.tolist()))
        )

    @staticmethod
    def _shrink(released: NDArray[Any], covariance: NDArray[Any]) -> NDArray[Any]:
        """Posterior mean under a normal prior whose variance is estimated from the release itself."""
        spread = max(0.0, float(released @ released - np.trace(covariance)) / len(released))
        return np.asarray(spread * np.linalg.solve(spread * np.eye(len(released)) + covariance, released))
