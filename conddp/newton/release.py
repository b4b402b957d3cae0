r"""One noisy answer about the labels: clamped residuals times rows, and the mean square of the residuals.

With whitened rows :math:`u_i` and residuals :math:`r_i = y_i - \theta^\top u_i` the answer is

.. math:: \Big(\sum_i \psi_i\, g \circ u_i,\; \tfrac{h c}{w^2} \sum_i \min(r_i^2, w^2)\Big) + N(0, \sigma^2 I), \qquad
   \psi_i = \mathrm{clamp}\big(r_i,\, \pm c / \|g \circ u_i\|\big)
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from conddp.data.passes import BLOCK_SIZE, run_pass
from conddp.features.whitening import WhitenedRows
from conddp.losses import Loss
from conddp.newton.private_columns import PrivateRows
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import BoundedSum, Curator

__all__ = ["ResidualQuery", "Rows", "StepEstimate", "release_residuals"]

Vector = NDArray[np.float64]
Rows = WhitenedRows | PrivateRows

BLOCKS_FOR_CURVATURE = 16  # a part of the records is enough to know how much of a step clamping leaves


@dataclass(frozen=True)
class ResidualQuery:
    """What one step asks of the records; all of it is public.

    Parameters
    ----------
    clip_norm : float
        c: bound on the clamped residual times the norm of its weighted row.
    direction_weights : array of shape (k,)
        Squares of g, which add up to one; a direction of weight zero is not asked about.
    residual_std : float
        Standard deviation that residuals are believed to have.
    square_limit, square_weight : float
        w and h; a weight of zero leaves the mean square out.
    """

    clip_norm: float
    direction_weights: Vector
    residual_std: float
    square_limit: float
    square_weight: float

    @property
    def square_unit(self) -> float:
        """What the sum of squared residuals is multiplied by before it is released."""
        return self.square_weight * self.clip_norm / self.square_limit**2


@dataclass(frozen=True)
class StepEstimate:
    """One noisy answer, and what is publicly known about it.

    Parameters
    ----------
    step : array of shape (k,)
        Mean over records of clamped residual times row, with noise; zero where the weight is zero.
    noise_variance : array of shape (k,)
        Of the noise in ``step``; infinite where the weight is zero.
    curvature : array of shape (k,)
        How much of a full Newton step the clamping is expected to leave in each direction.
    mean_square, mean_square_std : float
        Noisy mean square of the residuals, and the standard deviation of its noise; infinite if not asked for.
    """

    step: Vector
    noise_variance: Vector
    curvature: Vector
    mean_square: float
    mean_square_std: float


@dataclass(frozen=True)
class _PublicFacts:
    """What public rows tell about a block without its labels."""

    farthest: float
    curvature: Vector | float = 0.0
    num_sampled: int = 0

    def __add__(self, other: "_PublicFacts") -> "_PublicFacts":
        farthest = np.maximum(self.farthest, other.farthest)  # not a number if either is
        return _PublicFacts(float(farthest), self.curvature + other.curvature, self.num_sampled + other.num_sampled)


@np.errstate(all="ignore")  # no warning may depend on a label
def release_residuals(
    rows: Rows,
    label: Vector,
    label_range: tuple[float, float],
    coefficients: Vector,
    query: ResidualQuery,
    *,
    mu: float,
    neighbouring: Neighbouring,
    curator: Curator,
    loss: Loss,
) -> StepEstimate:
    r"""Release clamped residuals times rows, and the mean square of the residuals.

    Privacy
        One Gaussian release whose sensitivity is ``mu`` standard deviations. Record i adds
        :math:`\psi_i\, g \circ u_i` to the first sum. Where rows are public its clamped residual lies between the
        clamped ends of its residual range, which are public too, so replacing the label moves the sum by at most the
        distance of these ends times :math:`\|g \circ u_i\|`, which is never more than 2 ``clip_norm``; setting the
        record's contribution to zero moves it by the farther end times the norm, at most ``clip_norm``. It adds between
        0 and :math:`h c` to the second sum. The sensitivity is the root of the sum of both squares, with the largest
        first part over all records; all of that is public. Where rows, and so predictions, are private too, the first
        part of a record is known to be no longer than the clip norm and nothing else: it moves by at most 2
        ``clip_norm``. The type of the rows decides.

    Parameters
    ----------
    rows : WhitenedRows or PrivateRows
        The rows.
    label : array of shape (n,)
        Labels within ``label_range``.
    label_range : (low, high)
        Declared bounds in the units of ``label``.
    coefficients : array of shape (k,)
        From which predictions are made; released already.
    query : ResidualQuery
        What is asked.
    mu : float
        Sensitivity over standard deviation of the noise.
    neighbouring : Neighbouring
        The relation that sensitivities are meant under.
    curator : Curator
        Who releases it.
    loss : Loss
        What residuals are derivatives of.
    """
    n, k = rows.values.shape
    most = neighbouring.sensitivity(query.clip_norm)
    if isinstance(rows, WhitenedRows):
        stride = BLOCK_SIZE * max(1, n // BLOCK_SIZE // BLOCKS_FOR_CURVATURE)

        def sum_block(span: slice, block: Vector, labels: Vector) -> tuple[Vector, float, _PublicFacts]:
            residuals = _Residuals.of(block, coefficients, query)
            facts = residuals.describe(label_range, neighbouring, loss, with_curvature=span.start % stride == 0)
            return *residuals.add_up(labels, label_range, loss), facts

        total, square, facts = run_pass(sum_block, rows.values, label)
        farthest = facts.farthest if facts.farthest <= most else most  # also where it is not a number
        curvature = facts.curvature / facts.num_sampled
    else:
        total, square = run_pass(
            lambda _, block, labels: _Residuals.of(block, coefficients, query).add_up(labels, label_range, loss),
            rows.values,
            label,
        )
        farthest, curvature = most, np.full(k, 2 * ndtr(query.clip_norm / query.residual_std) - 1)
    # Never below the clip norm, so that the noise also covers the rounding of sums whose terms are as large as that.
    sensitivity = math.hypot(max(farthest, query.clip_norm), query.square_weight * query.clip_norm)
    noise_std = sensitivity / mu
    g = np.sqrt(query.direction_weights)
    sums = BoundedSum(np.append(g * total, query.square_unit * square), sensitivity, "clamped residuals times rows")
    noisy = curator.release_gaussian(sums, noise_std=noise_std)
    asked = g > 0
    unit = query.square_unit
    return StepEstimate(
        np.where(asked, noisy[:k] / np.where(asked, g, 1.0), 0.0) / n,
        np.where(asked, (noise_std / n) ** 2 / np.where(asked, query.direction_weights, 1.0), np.inf),
        np.clip(curvature, 0.1, 1.0),
        float(noisy[k] / unit / n) if unit else math.nan,
        noise_std / unit / n if unit else math.inf,
    )


@dataclass(frozen=True)
class _Residuals:
    """What the residuals of a block can be: predictions, and limits to which residuals are clamped."""

    query: ResidualQuery
    block: Vector
    squared: Vector
    predicted: Vector
    norms: Vector
    limits: Vector

    @classmethod
    def of(cls, block: Vector, coefficients: Vector, query: ResidualQuery) -> "_Residuals":
        squared = block**2
        norms = np.sqrt(squared @ query.direction_weights)
        return cls(query, block, squared, block @ coefficients, norms, query.clip_norm / np.maximum(norms, 1e-12))

    def add_up(self, label: Vector, label_range: tuple[float, float], loss: Loss) -> tuple[Vector, float]:
        """Sums over the block, which are private."""
        residuals = loss.residual(self.predicted, np.clip(label, *label_range))
        total = np.clip(residuals, -self.limits, self.limits) @ self.block
        return total, float(np.minimum(residuals**2, self.query.square_limit**2).sum())

    def describe(
        self, label_range: tuple[float, float], neighbouring: Neighbouring, loss: Loss, *, with_curvature: bool
    ) -> _PublicFacts:
        """How far one label can move the first sum, and how much clamping leaves of a step. No label takes part."""
        low, high = loss.residual_ends(self.predicted, label_range)
        lowest, highest = np.clip(low, -self.limits, self.limits), np.clip(high, -self.limits, self.limits)
        if neighbouring is Neighbouring.REPLACE:
            moves = (highest - lowest) * self.norms
        else:
            moves = np.maximum(np.abs(lowest), np.abs(highest)) * self.norms
        farthest = float(moves.max())
        if not with_curvature:
            return _PublicFacts(farthest)
        left = (2 * ndtr(self.limits / self.query.residual_std) - 1) * loss.curvature(self.predicted)
        return _PublicFacts(farthest, left @ self.squared, len(self.block))
