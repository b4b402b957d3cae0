"""OneShot: least squares from a single noisy release, the sum of label times conditioned row."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from conddp._validate import one_of
from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.algorithms.task import Task
from conddp.algorithms.weighting import describe_weights, weigh_records
from conddp.data.passes import run_pass
from conddp.data.scaling import bound_label_move, scale_bounds, scale_label
from conddp.data.units import Units
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.noise_shape import compute_noise_shape, compute_unit_noise_shape
from conddp.features.spectrum import Spectrum
from conddp.features.unit_moves import bound_largest_move, bound_moves_of_rows
from conddp.heads.folding import move_parameters
from conddp.models.diagnostics import Diagnostics
from conddp.models.result import FitResult
from conddp.models.uncertainty import Uncertainty
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.events import make_gaussian_event

__all__ = ["OneShot"]


@dataclass(frozen=True, kw_only=True)
class OneShot(Algorithm):
    r"""Release :math:`\sum_i y_i u_i` once, with :math:`u_i` the conditioned row, and solve least squares with it.

    With public features, least squares depends on the labels only through this sum. Full-batch gradient steps without
    clipping query the same sum, however many there are, so OneShot is the reference that Cond-DP should approach.

    Parameters
    ----------
    noise : {"optimal", "spherical"}
        "optimal" uses the noise covariance with the least expected error
        (:func:`~conddp.features.noise_shape.compute_noise_shape`). "spherical" uses the same standard deviation in all
        conditioned directions. Both are calibrated to the longest row.
    shrink : bool
        Whether to shrink the result according to its known noise variance. The strength is chosen by empirical Bayes
        from released numbers, at no privacy cost.
    """

    summary: ClassVar[str] = "a single noisy release of the sum that least squares needs"
    page: ClassVar[str] = "algorithms/one_shot.md"
    protects: ClassVar[str] = "label"
    labels_only: ClassVar[bool] = True
    linear_only: ClassVar[bool] = True
    protects_units: ClassVar[bool] = True
    weighs_records: ClassVar[bool] = True

    noise: Literal["optimal", "spherical"] = "optimal"
    shrink: bool = True

    def __post_init__(self) -> None:
        one_of(("spherical", "optimal"), noise=self.noise)

    def run(self, task: Task) -> FitResult:
        r"""Release the sum, solve least squares and shrink.

        Privacy
            One Gaussian release. In coordinates where its noise is spherical, the rows are :math:`v_i = Q^{-1/2} u_i`.
            A label of unit width changes the sum by at most :math:`\max_i \|v_i\|` under REPLACE, and by half as much
            under ZERO_OUT, where the centred label of a record is set to zero.

            With units or weights of the user, row i has a public weight :math:`a_i`. If all labels of a unit (or the
            label of a record, which is then a unit) change, the sum moves by
            :math:`\sum_i t_i a_i v_i` with :math:`|t_i| \le 1` (or 1/2), whose length
            :func:`~conddp.features.unit_moves.bound_largest_move` bounds.
        """
        n, bounds = float(task.num_records), task.schema.label_bounds
        C = ConditioningMatrix.from_spectrum(Spectrum.of(task.public, constant=task.fit_intercept))
        Z = C.transform(task.public)
        weights = weigh_records(task, num_directions=Z.shape[1], bound_moves=partial(bound_moves_of_rows, Z))
        if weights is not None:
            C = C.reweight(task.public, weights.values)
            Z = C.transform(task.public) * weights.values[:, None]
            n = weights.total
        shape = self._shape_noise(Z / math.sqrt(n), task.repeated_units)
        V = np.linalg.solve(shape, Z.T).T  # rows in coordinates where the noise is spherical
        if weights is None:
            longest = float(np.sqrt((V * V).sum(axis=1)).max())
        else:
            longest = bound_largest_move(V, weights.units, beside=np.zeros(weights.units.num_units))
        sensitivity = bound_label_move(bounds, task.neighbouring) * longest
        mu = calibrate_gaussian_mu(task.budget.epsilon, task.budget.delta)
        noise_std = sensitivity / mu
        settings = {
            "noise": self.noise,
            "shrink": self.shrink,
            "noise_std": noise_std / n,
            **describe_weights(weights),
        }
        records = task.spend("one noisy sum of labels times rows", settings, event=make_gaussian_event(mu))

        total = run_pass(lambda _, rows, label: rows.T @ scale_label(label), V, records.label)
        sums = BoundedSum(total, sensitivity, "the sum of labels times rows")
        released = shape @ (task.curator.release_gaussian(sums, noise_std=noise_std) / n)
        if not task.fit_intercept:  # labels were centred for the release; the contribution of the midpoint is public
            released = released + bounds.midpoint / bounds.width * (Z.sum(axis=0) / n)
        covariance = (noise_std / n) ** 2 * shape @ shape.T
        theta = self._shrink(released, covariance) if self.shrink else released
        folded = move_parameters(task.head, theta[None], num_private=0, source=C)
        model = task.make_model(folded[0])
        deviations = model.compute_linear_deviations(C.matrix @ covariance @ C.matrix.T)
        diagnostics = Diagnostics(coefficient_deviations=tuple(deviations.tolist()))
        ends = scale_bounds(bounds, center=task.fit_intercept)
        uncertainty = self._describe_errors(released, covariance, C.matrix, farthest=max(map(abs, ends)))
        return task.finish(model, settings, diagnostics=diagnostics, uncertainty=uncertainty)

    def _describe_errors(
        self, released: NDArray[Any], covariance: NDArray[Any], matrix: NDArray[Any], *, farthest: float
    ) -> Uncertainty:
        """Errors of the coefficients in directions in which the noise is independent. No label is clamped."""
        variance, vectors = np.linalg.eigh(covariance)
        variance = np.maximum(variance, 0.0)
        kept: Any = 1.0
        if self.shrink:
            # The mean square that determines the prior is itself uncertain, by this standard deviation.
            spread = self._estimate_spread(released, covariance) + math.sqrt(2 * float(variance @ variance)) / len(
                released
            )
            kept = spread / np.maximum(spread + variance, 1e-300)
        nothing = np.zeros(len(released))
        return Uncertainty(
            matrix @ vectors, nothing, vectors.T @ released, variance, nothing, np.empty(0), kept * variance, farthest
        )

    def _shape_noise(self, rows: NDArray[Any], units: Units | None) -> NDArray[Any]:
        """Root of the noise covariance, up to a factor."""
        if self.noise == "spherical":
            return np.eye(rows.shape[1])
        return compute_noise_shape(rows) if units is None else compute_unit_noise_shape(rows, units)

    @staticmethod
    def _shrink(released: NDArray[Any], covariance: NDArray[Any]) -> NDArray[Any]:
        """Posterior mean under a normal prior whose variance is estimated from the release."""
        spread = OneShot._estimate_spread(released, covariance)
        return np.asarray(spread * np.linalg.solve(spread * np.eye(len(released)) + covariance, released))

    @staticmethod
    def _estimate_spread(released: NDArray[Any], covariance: NDArray[Any]) -> float:
        """Variance of the prior: the mean square of what is released, beyond that of its noise."""
        return max(0.0, float(released @ released - np.trace(covariance)) / len(released))


ALGORITHMS.add("one-shot", OneShot())
