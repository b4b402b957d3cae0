"""State of a Newton run between releases: what to ask next, and what the answers say."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from conddp.features.public_rows import PublicRows
from conddp.newton.posterior import ResidualScale, RunningPosterior
from conddp.newton.prior import Posterior, SignalPrior
from conddp.newton.release import ResidualQuery, Rows, StepEstimate
from conddp.newton.schedule import HALF_RANGE, NewtonPlan, allot_weights, choose_clip_norm
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["RunState", "count_noise_records"]

Vector = NDArray[np.float64]

SQUARE_LIMIT = 3.0  # smallest limit, in residual standard deviations, at which squared residuals are clamped
FIRST_GUESS = ResidualScale(0.12**2, 0.12**2)  # initial estimate of the label variance, in units of the label range


def count_noise_records(rows: Rows) -> int:
    """Number of records, each protected on its own, whose mean would need as much noise; n without units."""
    return rows.num_records if rows.weights is None else max(1, int(rows.weights.noise_records))


class RunState:
    """State of a run between releases, derived from released and public numbers only.

    Parameters
    ----------
    rows : PublicRows or PrivateRows
        Feature rows.
    start : array of shape (k,)
        Initial coefficients, which are also the target of shrinkage.
    mu : float
        Sensitivity divided by standard deviation, for all releases together.
    neighbouring : Neighbouring
        Neighbouring relation for the sensitivities.
    plan : NewtonPlan
        Constants of the method.
    fractions : sequence of float
        Fraction of the squared ``mu`` for every release.
    """

    def __init__(
        self,
        rows: Rows,
        start: Vector,
        mu: float,
        neighbouring: Neighbouring,
        plan: NewtonPlan,
        fractions: Sequence[float],
    ) -> None:
        self.mu, self.plan, self.neighbouring, self.fractions = mu, plan, neighbouring, fractions
        self.scale = ResidualScale(FIRST_GUESS.mean_square, FIRST_GUESS.std)
        self.clip_norms: list[float] = []
        self.residual_stds: list[float] = []
        self._use(rows, start)
        self.running = RunningPosterior.of(rows.variances, self.scale.mean_square, has_constant=rows.has_constant)
        self.opening_weights = np.full_like(start, 1 / len(start))
        if rows.has_constant:
            self.opening_weights = np.zeros_like(start)
            self.opening_weights[0] = 1.0

    def _use(self, rows: Rows, start: Vector) -> None:
        self.rows, self.start, self.coefficients = rows, start, start
        self.per_clip_norm = math.hypot(self.neighbouring.sensitivity(1.0), self.plan.square_weight)
        self.sampling_records: float = rows.num_records
        if rows.weights is not None:
            move = self.neighbouring.sensitivity(1.0)
            self.per_clip_norm = rows.weights.compute_move(move, self.plan.square_weight)
            self.sampling_records = rows.weights.sampling_records

    def go_on(self, rows: Rows, start: Vector, prior: SignalPrior, fractions: Sequence[float]) -> None:
        """Go on with other directions and their prior. The constant must be the first direction, with start 0.

        What is known about the mean of the labels and the size of the residuals is kept.
        """
        self.fractions = fractions
        self._use(rows, start)
        self.running = self.running.restart(prior)
        self._update()

    def ask_opening(self, number: int) -> ResidualQuery:
        """Query for the mean of the labels (first release), then for their spread (second release)."""
        clip_norm = HALF_RANGE
        if self.rows.has_constant and isinstance(self.rows, PublicRows):
            clip_norm += abs(self.coefficients[0])  # no residual is clamped, and a label can change by the full range
        square_weight = 0.0 if number == 0 else HALF_RANGE / clip_norm
        return ResidualQuery(clip_norm, self.opening_weights, 1e-3, 0.7, square_weight)

    def ask_step(self, number: int) -> ResidualQuery:
        """Query for a Newton step, with the clip norm and direction weights of least expected error."""
        residual_std, variance = self.scale.residual_std, self.rows.pool(self.running.posterior.variance)
        posterior = Posterior(self.running.posterior.mean, variance)
        unit_std = self.per_clip_norm / self.mu / self.rows.total_weight / math.sqrt(sum(self.fractions[number:]))
        narrowest = 0.4 * self.clip_norms[-1] if self.clip_norms else 0.0
        clip_norm = choose_clip_norm(posterior, residual_std, unit_std, self.plan, at_least=narrowest)
        noise_variance = (clip_norm * unit_std / (2 * ndtr(clip_norm / residual_std) - 1)) ** 2
        # A higher limit is useful only as far as the mean square stands out from the noise.
        precision = (
            self.plan.square_weight
            * self.rows.total_weight
            * self.mu
            * math.sqrt(self.fractions[number])
            / self.per_clip_norm
        )
        square_limit = min(max(SQUARE_LIMIT, math.sqrt(precision)) * residual_std, 1.0)
        weights = allot_weights(variance, noise_variance)
        return ResidualQuery(clip_norm, weights, residual_std, square_limit, self.plan.square_weight)

    def learn_opening(self, number: int, answer: StepEstimate) -> None:
        """Update all estimates with the result of an opening query."""
        before = self.coefficients - self.start
        clamped = number == 1 and not isinstance(self.rows, PublicRows)
        self._add(answer, clamped=clamped)
        if number == 1:
            moved = float((self.running.measured - before) ** 2 @ self.opening_weights)
            self.scale = ResidualScale.of(answer.mean_square - moved, answer.mean_square_std)
        self.residual_stds.append(self.scale.residual_std)
        self._update()

    def learn_step(self, query: ResidualQuery, answer: StepEstimate) -> None:
        """Update all estimates with the result of the query for a step."""
        self._add(answer, clamped=True)
        self.scale.update(answer.mean_square, answer.mean_square_std)
        self.clip_norms.append(query.clip_norm)
        self.residual_stds.append(self.scale.residual_std)
        self._update()

    def _add(self, answer: StepEstimate, *, clamped: bool) -> None:
        curvature = np.where(np.isfinite(answer.noise_variance), answer.curvature, 1.0)
        before = self.coefficients - self.start
        self.running.add(before + answer.step / curvature, answer.noise_variance / curvature**2, clamped=clamped)

    def _update(self) -> None:
        self.running.update(self.scale.mean_square, self.sampling_records)
        self.coefficients = self.start + self.running.posterior.mean
