r"""How a predictor is calibrated along its own predictions, from residuals that are not clamped.

Clamped residuals lead to a location between the median and the mean. With skewed labels, predictions of large labels
are then too small. A last release measures the residuals without clamping, along few functions of the released
predictions p: the constant, p itself, and hinges :math:`\max(p - t_j, 0)`. The calibrated prediction is

.. math:: h(p) = a + b\,p + \sum_j b_j \max(p - t_j, 0)

Predictions beyond their outer quantiles, or beyond the range of labels, are moved as far as at these ends: noise grows
with the longest row, and the predictions farthest out have the longest rows by far.

The slope and its changes are normal a priori, about a slope of one, with a standard deviation that is averaged over
candidates by their evidence. Where noise hides the residuals, h stays close to the identity.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from conddp.features.calibration import Calibration, bend
from conddp.features.row_weights import RowWeights
from conddp.features.whitening import WhitenedRows
from conddp.newton.release import ResidualQuery, StepEstimate
from conddp.newton.schedule import allot_weights

__all__ = ["EXPECTED_STD", "CalibrationQuery"]

Vector = NDArray[np.float64]

QUANTILES = (0.05, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99)  # of the predictions, where the slope may change
OUTERMOST = 0.005, 0.995  # quantiles between which predictions are calibrated
HALF_RANGE = 0.5  # of the labels
SLOPE_STDS = np.array([0.03, 0.1, 0.3, 1.0])  # candidates for the standard deviation of slopes, equally likely
EXPECTED_STD = 0.3  # of slopes, before they are measured
CONSTANT_STD = 0.1  # of the constant, in standard deviations of the residuals
LEAST_VARIANCE = 1e-9  # of a direction, relative to the first
NUM_ADJUSTMENTS = 4  # of direction weights to the longest row, which depends on them


@dataclass(frozen=True)
class CalibrationQuery:
    """What the release asks: the residuals of predictions along directions that are functions of the predictions.

    Privacy
        Computed from released predictions and public numbers: no cost.

    Parameters
    ----------
    rows : WhitenedRows
        The constant, orthonormal directions, and the predictions, which are not asked about.
    query : ResidualQuery
        Clip norm and direction weights. No residual of a prediction within the range of labels is clamped.
    bends : array of shape (m,)
        Predictions at which the slope may change.
    span : (low, high)
        Predictions between which it is asked.
    matrix : array of shape (1 + m, k)
        Matrix that converts the prediction and hinges to directions.
    means : array of shape (1 + m,)
        Means of the prediction and the hinges.
    variances : array of shape (k,)
        Expected variances along the directions.
    """

    rows: WhitenedRows
    query: ResidualQuery
    bends: Vector
    span: tuple[float, float]
    matrix: Vector
    means: Vector
    variances: Vector

    @classmethod
    def choose(
        cls,
        predictions: Vector,
        *,
        unit_std: float,
        residual_std: float,
        weights: RowWeights | None = None,
        straight: bool = False,
    ) -> "CalibrationQuery":
        """Choose directions and their weights for the least expected error.

        Parameters
        ----------
        predictions : array of shape (n,)
            Predictions in units of the label range, relative to its middle.
        unit_std : float
            Standard deviation of the noise in a mean over records to which each contributes at most one.
        residual_std : float
            Standard deviation of the residuals.
        weights : RowWeights, optional
            Units of the records and their weights.
        straight : bool
            Whether the result must be a straight line.
        """
        n, sizes = len(predictions), None if weights is None else weights.values
        bends, low, high = np.empty(0), -math.inf, math.inf
        if not straight:
            low, high = np.clip(np.quantile(predictions, OUTERMOST), -HALF_RANGE, HALF_RANGE).tolist()
            bends = np.unique(np.quantile(predictions, QUANTILES))
            bends = bends[(bends > low) & (bends < high)]
            low, high = (low, high) if len(bends) else (-math.inf, math.inf)
        terms = bend(np.clip(predictions, low, high), bends)
        means = np.average(terms, axis=0, weights=sizes)
        terms -= means
        gram = (terms.T if sizes is None else terms.T * sizes) @ terms / (n if sizes is None else sizes.sum())
        values, vectors = np.linalg.eigh(gram)
        values, vectors = values[::-1], vectors[:, ::-1]
        kept = values > max(LEAST_VARIANCE * values[0], 1e-30)
        matrix = vectors[:, kept] / np.sqrt(values[kept])
        directions = np.column_stack([np.ones(n), terms @ matrix])
        variances = np.concatenate([[(CONSTANT_STD * residual_std) ** 2], EXPECTED_STD**2 * values[kept]])
        asked, longest = _allot(directions, variances, unit_std)
        k = directions.shape[1]
        rows = WhitenedRows(
            np.column_stack([directions, predictions]), np.ones(k + 1), np.zeros((0, k + 1)), True, weights
        )
        return cls(
            rows,
            ResidualQuery(longest, np.append(asked, 0.0), residual_std, 1.0, 0.0),
            bends,
            (low, high),
            matrix,
            means,
            variances,
        )

    @property
    def predictions(self) -> Vector:
        """Predictions to calibrate, shape (n,)."""
        return self.rows.values[:, -1]

    @property
    def coefficients(self) -> Vector:
        """Coefficients of the rows that make the predictions."""
        coefficients = np.zeros(self.rows.num_directions)
        coefficients[-1] = 1.0
        return coefficients

    def learn(self, answer: StepEstimate, *, sampling_variance: float) -> Calibration:
        """Compute the calibration from the answer.

        Parameters
        ----------
        answer : StepEstimate
            What was released.
        sampling_variance : float
            Variance of the mean of a residual, as if records were drawn anew.
        """
        asked = np.isfinite(answer.noise_variance[:-1])
        measured, noise = answer.step[:-1][asked], answer.noise_variance[:-1][asked] + sampling_variance
        factors = (SLOPE_STDS / EXPECTED_STD) ** 2
        prior = np.where(np.arange(len(asked)) > 0, factors[:, None], 1.0) * self.variances
        shrinkage = prior[:, asked] / (prior[:, asked] + noise)
        evidence = -0.5 * (measured**2 / (prior[:, asked] + noise) + np.log(prior[:, asked] + noise)).sum(axis=1)
        probabilities = softmax(evidence)
        found = np.zeros_like(prior)
        found[:, asked] = shrinkage * measured
        remaining = prior.copy()
        remaining[:, asked] = shrinkage * noise
        changes = found[:, 1:] @ self.matrix.T
        first = self.matrix[0]
        mean = probabilities @ changes
        spread = probabilities @ (remaining[:, 1:] @ first**2 + (changes[:, 0] - mean[0]) ** 2)
        constant = float(probabilities @ found[:, 0] - self.means @ mean)
        slope_std = math.sqrt(max(float(spread), 0.0))
        return Calibration(constant, float(1.0 + mean[0]), self.bends, mean[1:], *self.span, slope_std)


def _allot(directions: Vector, variances: Vector, unit_std: float) -> tuple[Vector, float]:
    """Direction weights of least expected error, among those of the first directions, and the longest weighted row.

    Noise is proportional to the longest row, and directions in the tails of the predictions have few, long rows. So it
    may be better not to ask about them.
    """
    squares, k = directions**2, directions.shape[1]
    best, lowest, longest = np.eye(k)[0], math.inf, 1.0
    for number in range(1, k + 1):
        weights, length = np.zeros(k), 1.0
        for _ in range(NUM_ADJUSTMENTS):
            weights[:number] = allot_weights(variances[:number], max((length * unit_std) ** 2, 1e-300))
            length = math.sqrt(float((squares @ weights).max()))
        noise = (length * unit_std) ** 2
        error = float((variances * noise / (variances * weights + noise)).sum())
        if error < lowest:
            best, lowest, longest = weights, error, length
    return best, longest
