r"""Randomisers of a single label: each is pure epsilon, and local, so training on its output costs nothing more.

A finite randomiser is a table of probabilities M(output | grid label). Its epsilon is the logarithm of the largest
ratio within a column, so it can be read off and tested. Laplace and staircase noise have densities instead.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from conddp._validate import one_of, positive
from conddp.bounds import Bounds
from conddp.labels.prior import LabelPrior
from conddp.privacy.release import Curator, compute_response_epsilon

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
    """Takes labels to random labels, one by one."""

    @property
    def epsilon(self) -> float:
        """What one randomised label costs, under REPLACE."""

    def compute_slope(self, prior: LabelPrior) -> float:
        """Slope of the expected output on the label, under a prior."""

    def randomize(self, label: NDArray[Any], curator: Curator) -> NDArray[np.float64]:
        """Randomised labels. The caller has recorded the cost."""


@dataclass(frozen=True)
class FiniteRandomizer:
    """A table of probabilities: labels are taken to the nearest grid label, then to a random output.

    Parameters
    ----------
    grid : array of shape (k,)
        Rising public labels.
    outputs : array of shape (m,)
        What may come out.
    probabilities : array of shape (k, m)
        M(output | grid label); rows sum to one.
    """

    grid: NDArray[np.float64]
    outputs: NDArray[np.float64]
    probabilities: NDArray[np.float64]

    def __post_init__(self) -> None:
        table = self.probabilities
        if not (np.isfinite(table).all() and (table >= 0).all() and np.allclose(table.sum(axis=1), 1.0, atol=1e-9)):
            raise ValueError("a table of probabilities must not be negative, and its rows must sum to one.")

    @property
    def epsilon(self) -> float:
        """Logarithm of the largest ratio of two grid labels' chances of one output."""
        return compute_response_epsilon(self.probabilities)

    @property
    def means(self) -> NDArray[np.float64]:
        """Expected output for each grid label."""
        return self.probabilities @ self.outputs

    def compute_slope(self, prior: LabelPrior) -> float:
        """Slope of the expected output on the label, under a prior: 1 if unbiased, less if labels are shrunk."""
        centred = prior.weights * (self.grid - prior.mean)
        return float(centred @ self.means) / prior.variance if prior.variance > 0 else 1.0

    def compute_error(self, prior: LabelPrior) -> float:
        """Expected squared difference of output and grid label."""
        squares = (self.outputs[None, :] - self.grid[:, None]) ** 2
        return float(prior.weights @ (self.probabilities * squares).sum(axis=1))

    def randomize(self, label: NDArray[Any], curator: Curator) -> NDArray[np.float64]:
        """Randomised labels: of each the nearest grid label decides which row of the table is drawn from."""
        cells = LabelPrior(self.grid, np.ones(len(self.grid))).locate(label)
        return self.outputs[curator.release_response(cells, self.probabilities, what="every label, once")]


def make_response_on_bins(prior: LabelPrior, epsilon: float) -> FiniteRandomizer:
    r"""Randomised response on the bins that are best for a prior and squared loss.

    The label's bin is reported with chance :math:`e^\epsilon / (e^\epsilon + d - 1)`, any other with
    :math:`1 / (e^\epsilon + d - 1)`; among all epsilon-private randomisers of a label none has a smaller expected
    squared error for this prior.

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
    r"""First positions of the best bins, their outputs, and the expected squared error.

    With :math:`a = e^\epsilon - 1`, moments :math:`M_1, M_2` of the prior and in-bin sums :math:`S_0, S_1, S_2` of p,
    py, py^2, a bin costs :math:`L = M_2 + a S_2 - (M_1 + a S_1)^2 / (1 + a S_0)` and its output is
    :math:`(M_1 + a S_1)/(1 + a S_0)`; d bins have the error :math:`\sum L / (d - 1 + e^\epsilon)`. The ratio is
    minimised by Dinkelbach's iteration over a dynamic program with one layer: time O(k^2) a round, a handful of
    rounds, memory O(k). L does not satisfy the
    quadrangle inequality, so divide and conquer would be wrong here.
    """
    positive(epsilon=epsilon)
    a = math.expm1(epsilon)
    p, y = prior.weights, prior.grid - prior.mean  # centred: the same bins, and no cancellation
    S0, S1, S2 = (np.concatenate([[0.0], np.cumsum(p * y**power)]) for power in range(3))
    M1, M2 = S1[-1], S2[-1]
    k = len(p)

    def cost(first: Any, last: Any) -> Any:
        """L of bins that hold positions first .. last - 1."""
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
    r"""Debiased binary randomised response: one of two outputs, with mean equal to the label.

    Outputs are :math:`c \pm \frac{R}{2} \frac{e^\epsilon + 1}{e^\epsilon - 1}` with c the middle and R the width of the
    bounds. Only labels at the bounds attain the ratio :math:`e^\epsilon`; grid labels beyond them are moved there.
    """
    positive(epsilon=epsilon)
    grid = np.unique(bounds.clamp(grid))
    distance = bounds.width / 2 / math.tanh(epsilon / 2)  # of the outputs from the middle
    upper = 0.5 + (grid - bounds.midpoint) / (2 * distance)
    outputs = np.array([bounds.midpoint - distance, bounds.midpoint + distance])
    return FiniteRandomizer(grid, outputs, np.column_stack([1 - upper, upper]))


def make_unbiased_response(
    prior: LabelPrior, epsilon: float, *, bounds: Bounds, num_outputs: int | None = None
) -> FiniteRandomizer:
    r"""The epsilon-private randomiser with mean equal to the label and least variance for a prior.

    A linear program: minimise :math:`\sum_y p_y \sum_o M(o|y)(o-y)^2` over tables with rows that sum to one, means
    :math:`\sum_o o M(o|y) = y`, and :math:`z_o \le M(o|y) \le e^\epsilon z_o`. Outputs reach 1.5 times as far as those
    of the binary response.

    Paper
        "Optimal unbiased randomizers for regression with label differential privacy", arXiv 2312.05659.

    Parameters
    ----------
    prior : LabelPrior
        On a grid within the bounds.
    epsilon : float
        Cost of one randomised label.
    bounds : Bounds
        Declared range of the label.
    num_outputs : int, optional
        Number of candidate outputs; four times the grid plus one if None.

    Guarantees
        The table's epsilon is at most ``epsilon`` and its means are the grid labels to 1e-6 of the width.
    """
    positive(epsilon=epsilon)
    grid, k = prior.grid, len(prior.grid)
    if grid[0] < bounds.low or grid[-1] > bounds.high:
        raise ValueError(f"the prior's grid must lie within the bounds [{bounds.low}, {bounds.high}].")
    import scipy.sparse  # slow to import, and only this randomiser needs them
    from scipy.optimize import linprog

    binary = make_binary_response(bounds, epsilon, grid)
    distance = binary.outputs[1] - bounds.midpoint
    # In units of this distance and from the middle, so that the program looks the same whatever the label's units.
    labels = (grid - bounds.midpoint) / distance
    outputs = np.union1d(np.linspace(-1.5, 1.5, num_outputs or 4 * k + 1), [-1.0, 1.0])
    m = len(outputs)
    target = epsilon - 1e-6 * min(1.0, epsilon)  # the solver's answer is repaired below, within this margin

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
    # Where the solver fails, at extreme epsilon, the binary response is feasible and close to the best.
    return binary


def _repair(table: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """A table that is exactly a randomiser: outputs that hardly occur are dropped, ratios and rows made exact."""
    table = np.where(table.max(axis=0) > 1e-8, np.maximum(table, 0.0), 0.0)
    table = np.maximum(table, table.max(axis=0) * math.exp(-epsilon * (1 - 1e-7)))
    repaired: NDArray[np.float64] = table / table.sum(axis=1, keepdims=True)
    return repaired


@dataclass(frozen=True)
class AdditiveNoise:
    r"""The label, clamped to its bounds, plus noise in units of their width.

    Laplace noise has scale 1 / epsilon. Staircase noise has the least variance of all
    (:meth:`conddp.privacy.release.Curator.release_staircase`).
    """

    bounds: Bounds
    epsilon: float
    shape: Literal["laplace", "staircase"]

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)
        one_of(("laplace", "staircase"), shape=self.shape)

    def compute_slope(self, prior: LabelPrior) -> float:
        """One: the noise is added, whatever the label."""
        return 1.0

    def randomize(self, label: NDArray[Any], curator: Curator) -> NDArray[np.float64]:
        """Randomised labels."""
        release = curator.release_laplace if self.shape == "laplace" else curator.release_staircase
        return release(
            self.bounds.clamp(label), sensitivity=self.bounds.width, epsilon=self.epsilon, what="every label, once"
        )
