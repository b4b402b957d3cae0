"""State of a Newton run between releases: what to ask next, and what the answers say."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from conddp.features.public_rows import PublicRows
from conddp.newton.clipping_bias import (
    ATTENUATION_DECAY,
    HALF_RANGE,
    ClippingBias,
    bound_skewness,
    estimate_tails,
    find_largest_contribution,
)
from conddp.newton.posterior import Measurement, ResidualScale, RunningPosterior
from conddp.newton.prior import Posterior, SignalPrior
from conddp.newton.release import ResidualQuery, Rows, StepEstimate
from conddp.newton.schedule import NewtonPlan, allot_weights, choose_clip_norm
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["RunState", "count_noise_records"]

Vector = NDArray[np.float64]

SQUARE_LIMIT = 3.0  # smallest limit, in residual standard deviations, at which squared residuals are clamped
WIDEST_PRIVATE = 2.0  # largest clip norm if rows are private, so that it is not known when nothing is clipped
LOOSEST = 1.5  # factor by which the largest contribution may be overestimated before it is computed again
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
    label_range : (low, high)
        Declared bounds of the labels in units of their range.
    random_effects : bool
        As in :func:`~conddp.newton.run.run_newton`.
    """

    def __init__(
        self,
        rows: Rows,
        start: Vector,
        mu: float,
        neighbouring: Neighbouring,
        plan: NewtonPlan,
        fractions: Sequence[float],
        label_range: tuple[float, float] = (-HALF_RANGE, HALF_RANGE),
        *,
        random_effects: bool = False,
    ) -> None:
        self.mu, self.plan, self.neighbouring, self.fractions = mu, plan, neighbouring, fractions
        self.label_range, self.skewness, self.random_effects = label_range, 0.0, random_effects
        self.scale = ResidualScale(FIRST_GUESS.mean_square, FIRST_GUESS.std)
        self.clip_norms: list[float] = []
        self.asked: list[ResidualQuery] = []  # for the steps so far
        self.precisions: list[float] = []  # of the steps, up to a factor
        self.largest: tuple[float, Vector] | None = None  # contribution of a record, and its direction weights
        self.residual_stds: list[float] = []
        self._use(rows, start)
        self.running = RunningPosterior.of(rows.variances, self.scale.mean_square, has_constant=rows.has_constant)
        self.opening_weights = np.full_like(start, 1 / len(start))
        if rows.has_constant:
            self.opening_weights = np.zeros_like(start)
            self.opening_weights[0] = 1.0

    def _use(self, rows: Rows, start: Vector) -> None:
        self.rows, self.start, self.coefficients, self.largest = rows, start, start, None
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
        widest = math.inf if isinstance(self.rows, PublicRows) else WIDEST_PRIVATE
        clip_norm = choose_clip_norm(posterior, self.bias, unit_std, at_least=narrowest, at_most=widest)
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
        clip_norm = self._limit(clip_norm, weights)
        return ResidualQuery(clip_norm, weights, residual_std, square_limit, self.plan.square_weight)

    def _limit(self, clip_norm: float, weights: Vector) -> float:
        """Lower a large clip norm to the largest contribution that a record can have, or slightly more."""
        if clip_norm <= HALF_RANGE or not isinstance(self.rows, PublicRows):
            return clip_norm
        if self.largest is not None:
            found, before = self.largest
            asked = weights > 0
            growth = math.sqrt(float((weights[asked] / np.maximum(before[asked], 1e-300)).max()))
            if growth < LOOSEST:
                return min(clip_norm, max(found * max(growth, 1 / LOOSEST), HALF_RANGE))
        found = find_largest_contribution(self.rows, self.coefficients, weights, self.label_range)
        self.largest = found, weights
        return min(clip_norm, max(found, HALF_RANGE))

    @property
    def bias(self) -> ClippingBias:
        """What is expected of clipping."""
        plan = self.plan
        return ClippingBias(self.scale.residual_std, self.skewness, plan.clipping_penalty, plan.penalty_decay)

    def measure(self) -> Measurement:
        """Estimate all coefficients without shrinkage, with an estimate of the bias due to clipping."""
        measured = self.running.measure(self.scale.mean_square)
        if not self.asked:
            return measured
        bias, rows, posterior = self.bias, self.rows, self.running.posterior
        in_stds = [each.clip_norm / each.residual_std for each in self.asked]
        smoothed = np.average(np.exp(-np.array(in_stds) / ATTENUATION_DECAY), weights=self.precisions)
        clip_norm = -ATTENUATION_DECAY * math.log(max(float(smoothed), 1e-300)) * bias.residual_std
        slopes = bias.estimate_attenuation(clip_norm, posterior)
        if rows.has_constant:
            slopes[0] = 0.0
        if isinstance(rows, PublicRows):
            typical = replace(self.asked[-1], clip_norm=clip_norm)
            signal = float(np.mean(posterior.mean**2 + posterior.variance))
            tails = estimate_tails(rows, self.coefficients, typical, bias, self.label_range, signal=signal)
        else:
            tails = bias.estimate_excess(clip_norm) / self.sampling_records
        return replace(measured, bias_variance=measured.bias_variance + slopes + tails)

    def learn_opening(self, number: int, answer: StepEstimate) -> None:
        """Update all estimates with the result of an opening query."""
        before = self.coefficients - self.start
        clamped = number == 1 and not isinstance(self.rows, PublicRows)
        self._add(answer, clamped=clamped)
        if number == 1:
            moved = float((self.running.measured - before) ** 2 @ self.opening_weights)
            self.scale = ResidualScale.of(answer.mean_square - moved, answer.mean_square_std)
            opening = self.running.opening
            if self.rows.has_constant:
                self.skewness = bound_skewness(opening.mean, math.sqrt(opening.variance), self.scale.residual_std)
        self.residual_stds.append(self.scale.residual_std)
        self._update()

    def learn_step(self, query: ResidualQuery, answer: StepEstimate) -> None:
        """Update all estimates with the result of the query for a step."""
        self._add(answer, clamped=True)
        heaviest = np.argmax(query.direction_weights)
        self.asked.append(query)
        self.precisions.append(1 / float(answer.noise_variance[heaviest] * query.direction_weights[heaviest]))
        self.scale.update(answer.mean_square, answer.mean_square_std)
        self.clip_norms.append(query.clip_norm)
        self.residual_stds.append(self.scale.residual_std)
        self._update()

    def _add(self, answer: StepEstimate, *, clamped: bool) -> None:
        curvature = np.where(np.isfinite(answer.noise_variance), answer.curvature, 1.0)
        before = self.coefficients - self.start
        self.running.add(before + answer.step / curvature, answer.noise_variance / curvature**2, clamped=clamped)

    def _update(self) -> None:
        self.running.update(self.scale.mean_square, self.sampling_records, random_effects=self.random_effects)
        self.coefficients = self.start + self.running.posterior.mean
