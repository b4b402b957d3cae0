r"""Randomisers of individual labels under pure, local epsilon. Training on their output costs nothing more.

A finite randomiser is a table of probabilities M(output | grid label). Its epsilon is the logarithm of the largest
ratio within a column, so it can be computed and tested directly. Laplace and staircase noise have densities instead.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from conddp._validate import one_of, positive
from conddp.bounds import Bounds
from conddp.labels.prior import LabelPrior
from conddp.privacy.composition import compute_response_epsilon
from conddp.privacy.release import Curator

__all__ = [
    "AdditiveNoise",
    "FiniteRandomizer",
    "Randomizer",
    "compute_optimal_bins",
    "make_binary_response",
    "make_response_on_bins",
    "make_unbiased_response",
]


class Randomizer(Protocol):
    """Maps each label to a random label, independently of all others."""

    @property
    def epsilon(self) -> float:
        """Epsilon of one randomised label, under REPLACE."""

    def compute_slope(self, prior: LabelPrior) -> float:
        """Compute the slope of the regression of the expected output on the label, under a prior."""

    def randomize(self, label: NDArray[Any], curator: Curator, *, per_unit: int = 1) -> NDArray[np.float64]:
        """Randomise labels, up to ``per_unit`` of them of one unit. The caller must have recorded the cost."""


@dataclass(frozen=True)
class FiniteRandomizer:
    """Randomiser given by a table of probabilities: rounds labels to the grid, then draws a random output.

    Parameters
    ----------
    grid : array of shape (k,)
        Public grid labels, in increasing order.
    outputs : array of shape (m,)
        Possible outputs.
    probabilities : array of shape (k, m)
        M(output | grid label); rows sum to one.
    """

    grid: NDArray[np.float64]
    outputs: NDArray[np.float64]
    probabilities: NDArray[np.float64]

    def __post_init__(self) -> None:
        table = self.probabilities
        if not (np.isfinite(table).all() and (table >= 0).all() and np.allclose(table.sum(axis=1), 1.0, atol=1e-9)):
            raise ValueError("a table of probabilities must be non-negative, and its rows must sum to one.")

    @property
    def epsilon(self) -> float:
        """Logarithm of the largest ratio of two grid labels' probabilities of the same output."""
        return compute_response_epsilon(self.probabilities)

    @property
    def means(self) -> NDArray[np.float64]:
        """Expected output for each grid label."""
        return self.probabilities @ self.outputs

    def compute_slope(self, prior: LabelPrior) -> float:
        """Compute the slope of the expected output on the label: 1 if unbiased, less if labels are shrunk."""
        centred = prior.weights * (self.grid - prior.mean)
        return float(centred @ self.means) / prior.variance if prior.variance > 0 else 1.0

    def compute_error(self, prior: LabelPrior) -> float:
        """Compute the expected squared difference between output and grid label."""
        squares = (self.outputs[None, :] - self.grid[:, None]) ** 2
        return float(prior.weights @ (self.probabilities * squares).sum(axis=1))

    def randomize(self, label: NDArray[Any], curator: Curator, *, per_unit: int = 1) -> NDArray[np.float64]:
        """Randomise labels, drawing from the row of the table that belongs to the nearest grid label."""
        cells = LabelPrior(self.grid, np.ones(len(self.grid))).locate(label)
        drawn = curator.release_response(cells, self.probabilities, what="every label, once", per_unit=per_unit)
        return self.outputs[drawn]


def make_response_on_bins(prior: LabelPrior, epsilon: float) -> FiniteRandomizer:
    r"""Make randomised response on the optimal bins for a prior and squared loss.

    The bin of the label is reported with probability :math:`e^\epsilon / (e^\epsilon + d - 1)`, and any other bin with
    :math:`1 / (e^\epsilon + d - 1)`. No epsilon-private randomiser of a label has a smaller expected squared error for
    this prior.

    Paper
        "Regression with label differential privacy", arXiv 2212.06074.
    """
    starts, outputs, _ = compute_optimal_bins(prior, epsilon)
    d, k = len(outputs), len(prior.grid)
    own = np.zeros((k, d), dtype=bool)
    own[np.arange(k), np.searchsorted(starts, np.arange(k), side="right") - 1] = True
    total = math.exp(epsilon) + d - 1
    return FiniteRandomizer(prior.grid, outputs, np.where(own, math.exp(epsilon) / total, 1 / total))


def compute_optimal_bins(prior: LabelPrior, epsilon: float) -> tuple[NDArray[np.intp], NDArray[np.float64], float]:
    r"""Compute the first positions of the optimal bins, their outputs, and the expected squared error.

    Let :math:`a = e^\epsilon - 1`, let :math:`M_1, M_2` be the moments of the prior, and let :math:`S_0, S_1, S_2` be
    the sums of p, py and py^2 within a bin. The cost of a bin is
    :math:`L = M_2 + a S_2 - (M_1 + a S_1)^2 / (1 + a S_0)` and its output is :math:`(M_1 + a S_1)/(1 + a S_0)`. The
    error of d bins is :math:`\sum L / (d - 1 + e^\epsilon)`. Dinkelbach's method minimises this ratio, solving a
    one-layer dynamic program in every iteration. An iteration takes O(k^2) time and O(k) memory, and a few iterations
    suffice. L does not satisfy the quadrangle inequality, so a divide-and-conquer optimisation would be incorrect.
    """
    positive(epsilon=epsilon)
    a = math.expm1(epsilon)
    p, y = prior.weights, prior.grid - prior.mean  # centring avoids cancellation and does not change the bins
    S0, S1, S2 = (np.concatenate([[0.0], np.cumsum(p * y**power)]) for power in range(3))
    M1, M2 = S1[-1], S2[-1]
    k = len(p)

    def cost(first: Any, last: Any) -> Any:
        """Cost L of bins that contain positions first .. last - 1."""
        inside = M1 + a * (S1[last] - S1[first])
        return M2 + a * (S2[last] - S2[first]) - inside**2 / (1 + a * (S0[last] - S0[first]))

    starts, best = np.array([0]), float(cost(0, k)) / math.exp(epsilon)
    while True:
        values, previous = np.zeros(k + 1), np.zeros(k + 1, dtype=np.intp)
        for last in range(1, k + 1):
            sums = values[:last] + cost(np.arange(last), last)
            previous[last] = np.argmin(sums)
            values[last] = sums[previous[last]] - best
        found = [k]
        while found[-1] > 0:
            found.append(int(previous[found[-1]]))
        edges = np.array(found[::-1])
        error = float(cost(edges[:-1], edges[1:]).sum()) / (len(edges) - 2 + math.exp(epsilon))
        if not error < best - 1e-12 * abs(best):
            break
        starts, best = edges[:-1], error
    ends = np.append(starts[1:], k)
    outputs = prior.mean + (M1 + a * (S1[ends] - S1[starts])) / (1 + a * (S0[ends] - S0[starts]))
    return starts, outputs, best


def make_binary_response(bounds: Bounds, epsilon: float, grid: NDArray[np.float64]) -> FiniteRandomizer:
    r"""Make debiased binary randomised response, which has two outputs and a mean equal to the label.

    The outputs are :math:`c \pm \frac{R}{2} \frac{e^\epsilon + 1}{e^\epsilon - 1}`, where c is the midpoint and R the
    width of the bounds. Only labels at the bounds attain the ratio :math:`e^\epsilon`. Grid labels outside the bounds
    are clamped.
    """
    positive(epsilon=epsilon)
    grid = np.unique(bounds.clamp(grid))
    distance = bounds.width / 2 / math.tanh(epsilon / 2)  # distance of the outputs from the midpoint
    upper = 0.5 + (grid - bounds.midpoint) / (2 * distance)
    outputs = np.array([bounds.midpoint - distance, bounds.midpoint + distance])
    return FiniteRandomizer(grid, outputs, np.column_stack([1 - upper, upper]))


def make_unbiased_response(
    prior: LabelPrior, epsilon: float, *, bounds: Bounds, num_outputs: int | None = None
) -> FiniteRandomizer:
    r"""Make the epsilon-private unbiased randomiser with the least variance for a prior.

    It solves a linear program: minimise :math:`\sum_y p_y \sum_o M(o|y)(o-y)^2` over tables whose rows sum to one,
    whose means are :math:`\sum_o o M(o|y) = y`, and which satisfy :math:`z_o \le M(o|y) \le e^\epsilon z_o`. The range
    of candidate outputs is 1.5 times that of the binary response. If the solver fails, the binary response is returned.

    Paper
        "Optimal unbiased randomizers for regression with label differential privacy", arXiv 2312.05659.

    Parameters
    ----------
    prior : LabelPrior
        Prior on a grid within the bounds.
    epsilon : float
        Epsilon of one randomised label.
    bounds : Bounds
        Declared range of the label.
    num_outputs : int, optional
        Number of candidate outputs; four times the grid size plus one if None.

    Guarantees
        The epsilon of the table is at most ``epsilon``. Its means equal the grid labels to within 1e-6 of the width.
    """
    positive(epsilon=epsilon)
    grid, k = prior.grid, len(prior.grid)
    if grid[0] < bounds.low or grid[-1] > bounds.high:
        raise ValueError(f"the prior's grid must lie within the bounds [{bounds.low}, {bounds.high}].")
    import scipy.sparse  # slow to import, and only this randomiser needs them
    from scipy.optimize import linprog

    binary = make_binary_response(bounds, epsilon, grid)
    distance = binary.outputs[1] - bounds.midpoint
    # In units of this distance from the midpoint, so that the program does not depend on the units of the label.
    labels = (grid - bounds.midpoint) / distance
    outputs = np.union1d(np.linspace(-1.5, 1.5, num_outputs or 4 * k + 1), [-1.0, 1.0])
    m = len(outputs)
    target = epsilon - 1e-6 * min(1.0, epsilon)  # margin for the repair of the solution below

    eye: Any = scipy.sparse.eye_array(m, format="csr")
    each: Any = scipy.sparse.eye_array(k)
    table: Any = scipy.sparse.block_diag([eye] * k, format="csr")
    column: Any = scipy.sparse.vstack([eye] * k, format="csr")
    empty: Any = scipy.sparse.csr_array((k, m))
    lower: Any = scipy.sparse.hstack([-table, column])
    upper: Any = scipy.sparse.hstack([table, -math.exp(target) * column])
    rows: Any = scipy.sparse.hstack([scipy.sparse.kron(each, np.ones((1, m))), empty])
    means: Any = scipy.sparse.hstack([scipy.sparse.kron(each, outputs[None, :]), empty])
    unequal: Any = scipy.sparse.vstack([lower, upper], format="csr")
    equal: Any = scipy.sparse.vstack([rows, means], format="csr")
    objective = np.concatenate(
        [((outputs[None, :] - labels[:, None]) ** 2 * np.maximum(prior.weights, 1e-6)[:, None]).ravel(), np.zeros(m)]
    )
    solution = linprog(
        objective,
        A_ub=unequal,
        b_ub=np.zeros(2 * k * m),
        A_eq=equal,
        b_eq=np.concatenate([np.ones(k), labels]),
        bounds=(0, None),
        method="highs",
    )
    if solution.status == 0 and solution.x is not None:
        table = _repair(solution.x[: k * m].reshape(k, m), epsilon)
        keep = table.max(axis=0) > 0
        found = FiniteRandomizer(grid, bounds.midpoint + distance * outputs[keep], table[:, keep])
        if found.epsilon <= epsilon and np.abs(found.means - grid).max() <= 1e-6 * bounds.width:
            return found
    # If the solver fails, at extreme epsilon, the binary response is feasible and nearly optimal.
    return binary


def _repair(table: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """Drop outputs that hardly occur, and make the ratios and row sums of a table exact."""
    table = np.where(table.max(axis=0) > 1e-8, np.maximum(table, 0.0), 0.0)
    table = np.maximum(table, table.max(axis=0) * math.exp(-epsilon * (1 - 1e-7)))
    repaired: NDArray[np.float64] = table / table.sum(axis=1, keepdims=True)
    return repaired


@dataclass(frozen=True)
class AdditiveNoise:
    r"""Additive noise on the label, which is clamped to its bounds.

    In units of the width of the bounds, Laplace noise has scale 1 / epsilon. Staircase noise has the least variance of
    all additive noise (:meth:`conddp.privacy.release.Curator.release_staircase`).
    """

    bounds: Bounds
    epsilon: float
    shape: Literal["laplace", "staircase"]

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)
        one_of(("laplace", "staircase"), shape=self.shape)

    def compute_slope(self, prior: LabelPrior) -> float:
        """Return 1, because the noise does not depend on the label."""
        return 1.0

    def randomize(self, label: NDArray[Any], curator: Curator, *, per_unit: int = 1) -> NDArray[np.float64]:
        """Randomise labels."""
        release = curator.release_laplace if self.shape == "laplace" else curator.release_staircase
        bounds = self.bounds
        scaled = np.clip((bounds.clamp(label) - bounds.midpoint) / bounds.width, -0.5, 0.5)
        released = release(scaled, sensitivity=1.0, epsilon=self.epsilon, what="every label, once", per_unit=per_unit)
        return np.asarray(bounds.midpoint + bounds.width * released)
