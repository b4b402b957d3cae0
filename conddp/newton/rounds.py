r"""Private regression on features that are learned from released numbers.

A run makes the releases of :mod:`conddp.newton.run`, in rounds of a few steps. Before every round

1. a dictionary of features is made: a general one at first, then one along the gradients of the predictor that the
   releases so far determine (:mod:`conddp.features.feature_families`),
2. the variances of its components and the posterior of the function are computed from all releases so far
   (:mod:`conddp.newton.measurements`),
3. the directions in which the function is most uncertain are computed from public rows. Along these, and relative to
   the posterior mean, the steps of the round measure the labels.

The result is the posterior mean given the releases of all rounds, with more features of the kinds that the last round
found to matter: as nothing is measured along them, they cost little. If labels are skewed, or if there is hardly any
noise, a last release measures residuals without clamping along functions of this predictor, which is calibrated
accordingly (:mod:`conddp.newton.calibration`). Otherwise, the last release is one more step.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import Sliceable, list_blocks, run_pass
from conddp.data.threads import use_one_blas_thread
from conddp.features.column_scales import ColumnScales
from conddp.features.dictionary import PRECISION, Dictionary
from conddp.features.feature_families import Relevance
from conddp.features.learned_function import LearnedFunction
from conddp.features.public_rows import PublicRows
from conddp.features.rounded_rows import RoundedRows
from conddp.features.row_sample import draw_rows
from conddp.features.whitening import WhitenedRows
from conddp.losses import Loss
from conddp.newton.calibration import EXPECTED_STD, CalibrationQuery
from conddp.newton.measurements import FunctionPosterior, Measurements, Overlap
from conddp.newton.prior import VAGUE, GivenPrior
from conddp.newton.release import ResidualQuery, StepEstimate, release_residuals
from conddp.newton.rounds_setting import CELLS_IN_SINGLE, MOST_SAMPLED, RoundsSetting, count_directions
from conddp.newton.run_state import RunState
from conddp.newton.schedule import NARROWEST
from conddp.privacy.release import Curator

__all__ = [
    "WORK",
    "RoundsResult",
    "run_rounds",
]

Vector = NDArray[np.float64]

SKEWED = 0.7  # least skewness of labels that are said to be skewed
LEAST_GAIN = 0.03  # expected from a calibration of skewed labels, relative to the variance of the residuals
MOST_NOISE, LITTLE_NOISE = 0.45, 0.03  # standard deviations of the residuals, with which these or all are calibrated
ROWS_AT_ONCE = 1024  # whose directions are computed at once by a thread
ROWS_BETWEEN_REPORTS = 65_536
WORK = {  # before a round, and about which part of it begins and ends when
    "combining directions": (0.0, 0.1),
    "choosing features": (0.1, 0.75),
    "choosing directions": (0.75, 0.8),
    "computing directions": (0.8, 1.0),
    "refining": (0.0, 0.5),
    "calibrating": (0.5, 1.0),
}
MOST_GRADIENTS = 8_000  # rows whose gradients are averaged
WORTH = 3.0  # evidence that interactions must have beyond that of none, to be kept in a model that may be simpler
RIDGE = 0.01  # of the linear function that is closest to a predictor
FAR_LESS = 4.0  # times what is known to vary, the labels are not expected to vary
SIGNAL = 0.6  # expected fraction of the variance of the labels that a function of the columns explains


@dataclass(frozen=True)
class RoundsResult:
    """Result of a run. Everything is released.

    Parameters
    ----------
    function : LearnedFunction
        Function of the public columns, with the features of the last round.
    components : mapping
        Estimated variances of predictions due to the components of the dictionary, by their name.
    residual_stds : tuple of float
        Estimated standard deviation of the residuals after each release.
    num_directions : tuple of int
        Number of directions that each round measured.
    course : tuple of arrays
        Predictions for the first rows after each release.
    posterior : FunctionPosterior
        Posterior of the weights, whose means they are.
    is_decided : bool
        Whether the run was not stopped before the releases could decide on interactions.
    """

    function: LearnedFunction
    components: dict[str, float]
    residual_stds: tuple[float, ...]
    num_directions: tuple[int, ...]
    course: tuple[Vector, ...]
    posterior: FunctionPosterior
    is_decided: bool


Watcher = Callable[[int, Vector], bool | None]  # called with the number of a release and the coefficients
WorkWatcher = Callable[[str, float], None]
Ask = Callable[[PublicRows, Vector, ResidualQuery, float], StepEstimate]


def run_rounds(
    setting: RoundsSetting,
    label: Sliceable,
    label_range: tuple[float, float],
    *,
    curator: Curator,
    loss: Loss,
    callback: Watcher | None = None,
    watch_work: WorkWatcher | None = None,
    num_watched: int = 1000,
) -> RoundsResult:
    r"""Fit labels by a function of public columns.

    Privacy
        Labels are used in releases of :func:`~conddp.newton.release.release_residuals` only. Their fractions of
        :math:`\mu^2` are fixed in advance and add up to one, so together they form one Gaussian mechanism with
        parameter ``setting.mu``. Features, directions and predictions of a round are computed from public columns and
        earlier releases, so that each of its releases has public rows, whatever they are.

    Parameters
    ----------
    setting : RoundsSetting
        Public columns and settings.
    label : array of shape (n,)
        Labels in units of their range, within ``label_range``.
    label_range : (low, high)
        Declared bounds in the same units.
    curator : Curator
        Curator through which the sums are released.
    loss : Loss
        Loss to minimise.
    callback : callable, optional
        Called after every release with its number and the coefficients. Return True to stop the run.
    watch_work : callable, optional
        Called during computations before the next release with what is being done, and a fraction of all of them.
    num_watched : int
        Number of rows of which predictions are kept after each release.
    """

    def ask(rows: PublicRows, coefficients: Vector, query: ResidualQuery, fraction: float) -> StepEstimate:
        return release_residuals(
            rows,
            label,
            label_range,
            coefficients,
            query,
            mu=setting.mu * math.sqrt(fraction),
            neighbouring=setting.neighbouring,
            curator=curator,
            loss=loss,
        )

    return _Rounds(setting, callback, num_watched, watch_work).run(ask)


class _Rounds:
    """A run; sees released answers and public columns only."""

    def __init__(
        self,
        setting: RoundsSetting,
        callback: Watcher | None,
        num_watched: int,
        watch_work: WorkWatcher | None = None,
    ) -> None:
        self.setting, self.callback, self.num_watched, self.watch_work = setting, callback, num_watched, watch_work
        self.X = setting.public.values
        self.weights = None if setting.weights is None else setting.weights.values
        sample = self.X[draw_rows(len(self.X), MOST_SAMPLED, self.weights)]
        self.sample = sample.astype(np.float64, copy=False)
        self.scales = ColumnScales.of(setting.public)
        self.divided = setting.divided
        at_most, kept = count_directions(len(self.X), len(self.divided.rounds))
        self.at_most = min(at_most, setting.most_directions)
        self.measurements = Measurements(np.empty((len(self.X), kept), dtype=np.float32))
        self.course: list[Vector] = []
        self.num_directions: list[int] = []
        self.signal = 1.0
        self.stopped = False

    def run(self, ask: Ask) -> RoundsResult:
        """Make all releases and return the posterior mean."""
        state, relevance = self._open(ask), Relevance(np.ones(self.scales.num_columns))
        self.signal, rounds = SIGNAL * state.scale.mean_square, self.divided.rounds
        is_calibrated = False
        for number, fractions in enumerate(rounds):
            watch = partial(self._show, "choosing features")
            watch(0.0)
            with use_one_blas_thread():  # here and below: the same numbers with any number of threads
                chosen = self.setting.families.make(
                    self.scales, self.sample, relevance, seed=number, boldness=self.setting.boldness
                )
            overlap = Overlap.of(chosen, self.X, self.measurements, self.weights, watch=watch)
            dictionary = overlap.dictionary
            if number + 1 == len(rounds) and not self.setting.refines:  # the last posterior is of these features
                self.measurements = self.measurements.leave_rows()
            posterior = self._compute_posterior(overlap, state)
            if number + 1 == len(rounds) and self.divided.last:
                is_calibrated = self._is_worth_calibrating(posterior, state, is_skewed=state.skewness > SKEWED)
                fractions = fractions if is_calibrated else [*fractions, self.divided.last]
            if not self.stopped:
                later = [each for other in rounds[number + 1 :] for each in other]
                overlap = self._measure(posterior, state, fractions, later, ask)
                posterior = self._compute_posterior(overlap, state)
            if self.stopped:
                break
            if number + 1 < len(rounds):
                self._lower_signal(posterior, state)
                relevance = self._learn_relevance(posterior)
        is_decided = len(self.course) >= self.divided.num_releases - is_calibrated
        if self.setting.families.simplify and is_decided:
            simple = self._compute_posterior(posterior.overlap.take(dictionary.find_additive()), state)
            posterior = simple if simple.evidence > posterior.evidence - WORTH else posterior
        if is_decided and not posterior.overlap.dictionary.has_curves:
            refined = self._compute_posterior(self._refine(posterior), state)
            posterior = max(posterior, refined, key=lambda each: each.evidence)
        function = self._make_function(posterior, state)
        if is_calibrated and not self.stopped:
            function = self._calibrate(function, state, ask)
        return RoundsResult(
            function,
            posterior.explained,
            tuple(state.residual_stds),
            tuple(self.num_directions),
            tuple(self.course),
            posterior,
            is_decided,
        )

    def _open(self, ask: Ask) -> RunState:
        """Release the mean and the spread of the labels."""
        rows = WhitenedRows(np.ones((len(self.X), 1)), np.ones(1), np.ones((1, 1)), True, self.setting.weights)
        setting = self.setting
        fractions = self.divided.opening
        state = RunState(rows, np.zeros(1), setting.mu, setting.neighbouring, setting.plan, fractions)
        for number, fraction in enumerate(fractions):
            if not self.stopped:
                answer = ask(rows, state.coefficients, state.ask_opening(number), fraction)
                state.learn_opening(number, answer)
                self._watch(state, np.full(min(self.num_watched, len(self.X)), state.coefficients[0]))
        return state

    def _compute_posterior(self, overlap: Overlap, state: RunState) -> FunctionPosterior:
        sampling = state.scale.mean_square / state.sampling_records
        return FunctionPosterior.of(overlap, self.measurements, signal_variance=self.signal, sampling_variance=sampling)

    def _lower_signal(self, posterior: FunctionPosterior, state: RunState) -> None:
        """Lower the guess of the signal if the steps have shown that labels vary far less than the opening could tell.

        With bounds that are far too wide, the opening cannot tell small labels from its noise.
        """
        explained = float(posterior.weights @ posterior.overlap.gram @ posterior.weights)
        self.signal = min(self.signal, FAR_LESS * SIGNAL * (state.scale.mean_square + explained))

    def _refine(self, posterior: FunctionPosterior) -> Overlap:
        """Make the last dictionary, of which no more is needed than its products with what was measured."""
        relevance, setting = self._learn_relevance(posterior), self.setting
        families = replace(setting.families, width=setting.refined_width)
        with use_one_blas_thread():
            dictionary = families.make(
                self.scales, self.sample, relevance, seed=len(self.divided.rounds), boldness=setting.boldness
            )
        watch = partial(self._show, "refining")
        return Overlap.of(dictionary, self.X, self.measurements, self.weights, watch=watch, with_gram=False)

    @use_one_blas_thread()
    def _learn_relevance(self, posterior: FunctionPosterior) -> Relevance:
        """Average the gradients of the predictor over a sample of the rows, and fit a linear function to it."""
        dictionary, weights = posterior.overlap.dictionary, posterior.weights
        rows = self.sample[draw_rows(len(self.sample), MOST_GRADIENTS)]
        z, predicted = self.scales.standardize(rows), dictionary.predict(rows, weights)
        z -= z.mean(axis=0)
        gram = z.T @ z / len(z) + RIDGE * np.eye(z.shape[1])
        index = np.linalg.solve(gram, z.T @ (predicted - predicted.mean()) / len(z))
        return Relevance.of(dictionary.compute_gradients(rows, weights), index, posterior.explained)

    def _measure(
        self, posterior: FunctionPosterior, state: RunState, fractions: list[float], later: list[float], ask: Ask
    ) -> Overlap:
        """Measure along the directions of largest posterior variance, and add what was released.

        Directions and clip norms are chosen as if the steps of later rounds measured the same directions, which is
        about what they do.
        """
        overlap, total = posterior.overlap, state.rows.total_weight
        self._show("choosing directions", 0.0)
        # Directions with less variance than the noise of a release along them alone are not worth asking for.
        noise_std = state.per_clip_norm * NARROWEST * state.scale.residual_std / self.setting.mu / total
        least = noise_std**2 / (sum(fractions) + sum(later))
        matrix, variances = posterior.find_directions(at_most=self.at_most, least=least)
        rows = self._make_rows(overlap.dictionary, np.column_stack([matrix, posterior.weights]))
        start = np.zeros(rows.num_directions)
        start[-1] = 1.0  # the prediction so far, as a direction that is not asked about
        state.go_on(rows, start, GivenPrior(np.concatenate([[1.0], variances, [0.0]]), True), [*fractions, *later])
        for number, fraction in enumerate(fractions):
            query = state.ask_step(number)
            state.learn_step(query, ask(rows, state.coefficients, query, fraction))
            with use_one_blas_thread():
                predicted = rows.values[: self.num_watched].astype(np.float64) @ state.coefficients
            self._watch(state, predicted)
            if self.stopped:
                break
        found = state.running.clamped
        asked = np.flatnonzero(found.variance[1:-1] < VAGUE)
        self.num_directions.append(len(asked))
        if len(self.measurements.buffer):
            self._show("combining directions", 0.0)
        chosen = matrix[:, asked]
        with use_one_blas_thread():
            moved = chosen.T @ (overlap.gram @ posterior.weights)  # along what was predicted
            along = overlap.along @ chosen
            within = chosen.T @ overlap.gram @ chosen  # not quite orthonormal: the Gram matrix was made invertible
        self.measurements, combined = self.measurements.add(
            rows.values,
            along,
            moved + found.mean[1:-1][asked],
            found.variance[1:-1][asked],
            within=within,
            places=1 + asked,
        )
        return overlap.add(chosen, combined)

    def _is_worth_calibrating(self, posterior: FunctionPosterior, state: RunState, *, is_skewed: bool) -> bool:
        """Whether the last release should calibrate the predictor, by what has been released of the labels."""
        made = self._plan_calibration(self._make_function(posterior, state), state)
        noise_std, residual_std = made.query.clip_norm * self._compute_unit_std(state), state.scale.residual_std
        wrong = EXPECTED_STD**2 * float(posterior.weights @ posterior.overlap.gram @ posterior.weights)
        gain = wrong**2 / max(wrong + noise_std**2, 1e-300)
        most = MOST_NOISE if is_skewed and gain > LEAST_GAIN * residual_std**2 else LITTLE_NOISE
        return noise_std < most * residual_std

    def _calibrate(self, function: LearnedFunction, state: RunState, ask: Ask) -> LearnedFunction:
        """Measure the residuals of a function without clamping, and calibrate it. Curves are kept."""
        self._show("calibrating", 0.0)
        made = self._plan_calibration(function, state)
        answer = ask(made.rows, made.coefficients, made.query, self.divided.last)
        calibration = made.learn(answer, sampling_variance=state.scale.mean_square / state.sampling_records)
        state.residual_stds.append(state.scale.residual_std)
        self._watch(state, calibration.apply(made.predictions[: self.num_watched]))
        return replace(function, calibration=calibration)

    def _compute_unit_std(self, state: RunState) -> float:
        """Noise of the last release in a mean over records to which each contributes at most one."""
        weights = self.setting.weights
        move = 1.0 if weights is None else weights.compute_move(1.0, 0.0)
        return float(move / (self.setting.mu * math.sqrt(self.divided.last) * state.rows.total_weight))

    @use_one_blas_thread()
    def _plan_calibration(self, function: LearnedFunction, state: RunState) -> CalibrationQuery:
        return CalibrationQuery.choose(
            function.predict(self.X),
            unit_std=self._compute_unit_std(state),
            residual_std=state.scale.residual_std,
            weights=self.setting.weights,
            straight=function.dictionary.has_curves,
        )

    @staticmethod
    def _make_function(posterior: FunctionPosterior, state: RunState) -> LearnedFunction:
        return LearnedFunction(posterior.overlap.dictionary, posterior.weights, float(state.coefficients[0]))

    def _make_rows(self, dictionary: Dictionary, matrix: Vector) -> WhitenedRows | RoundedRows:
        """Rows of the constant and of features times a matrix."""
        k = 1 + matrix.shape[1]
        single = len(self.X) * k >= CELLS_IN_SINGLE and self.setting.weights is None
        values = np.empty((len(self.X), k), dtype=np.float32 if single else np.float64)
        short = matrix.astype(PRECISION)

        def write(span: slice, block: NDArray[np.floating], out: NDArray[np.floating]) -> int:
            out[:, 0] = 1.0
            out[:, 1:] = dictionary.evaluate(block).T @ short
            return 0

        for span in list_blocks(len(self.X), block_size=ROWS_BETWEEN_REPORTS):
            run_pass(write, self.X[span], values[span], block_size=ROWS_AT_ONCE, num_cells=values[span].size)
            self._show("computing directions", min(1.0, span.stop / len(self.X)))
        variances, nothing = np.ones(k), np.zeros((0, k))
        if single:
            return RoundedRows(values, variances, nothing, True)
        return WhitenedRows(values, variances, nothing, True, self.setting.weights)

    def _show(self, what: str, fraction: float) -> None:
        """Show how far the public computations before the next release have come."""
        if self.watch_work is not None and not self.stopped and len(self.course) < self.divided.num_releases:
            begin, end = WORK[what]
            self.watch_work(what, begin + fraction * (end - begin))

    def _watch(self, state: RunState, predictions: Vector) -> None:
        self.course.append(predictions)
        if self.callback is not None and self.callback(len(self.course), state.coefficients):
            self.stopped = True
