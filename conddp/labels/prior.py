"""Prior distribution of labels on a public grid, and its private estimation."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range, positive, positive_integer
from conddp.bounds import Bounds
from conddp.data.parts import Labels
from conddp.privacy.release import Curator

__all__ = ["LabelPrior", "choose_grid_size", "estimate_label_prior", "make_grid"]


def choose_grid_size(num_records: int) -> int:
    """Choose the number of grid labels for n records: 32 for a thousand, growing with the cube root of n.

    The result lies between 16 and 256. Every cell of the grid is estimated from noisy counts, so a fine grid needs many
    records.

    Examples
    --------
    >>> [choose_grid_size(n) for n in (100, 404, 4_000, 17_010, 1_386_177)]
    [16, 24, 51, 82, 256]
    """
    positive_integer(num_records=num_records)
    return int(min(256, max(16, round(32 * (num_records / 1000) ** (1 / 3)))))


def make_grid(bounds: Bounds, size: int) -> NDArray[np.float64]:
    """Return evenly spaced labels from one bound to the other. The grid is public and does not depend on the data."""
    positive_integer(size=size)
    return np.linspace(bounds.low, bounds.high, size) if size > 1 else np.array([bounds.midpoint])


@dataclass(frozen=True)
class LabelPrior:
    """Probability distribution of labels on a public grid.

    Parameters
    ----------
    grid : array of shape (k,)
        Grid labels, in increasing order.
    weights : array of shape (k,)
        Probabilities of the grid labels. They are normalised to sum to one.
    """

    grid: NDArray[np.float64]
    weights: NDArray[np.float64]

    def __post_init__(self) -> None:
        grid, weights = np.asarray(self.grid, dtype=np.float64), np.asarray(self.weights, dtype=np.float64)
        if grid.ndim != 1 or grid.shape != weights.shape or len(grid) == 0:
            raise ValueError(
                f"grid and weights must be vectors of the same length, got shapes {grid.shape} and {weights.shape}."
            )
        if not (np.isfinite(grid).all() and (np.diff(grid) > 0).all()):
            raise ValueError("grid labels must be finite and strictly increasing.")
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            raise ValueError("weights must be finite, non-negative, and not all zero.")
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "weights", weights / weights.sum())

    @property
    def mean(self) -> float:
        """Expected label."""
        return float(self.weights @ self.grid)

    @property
    def variance(self) -> float:
        """Variance of the label."""
        return float(self.weights @ (self.grid - self.mean) ** 2)

    def locate(self, label: NDArray[Any]) -> NDArray[np.intp]:
        """Return the position of the grid label nearest to each label, for each record separately."""
        middles = (self.grid[1:] + self.grid[:-1]) / 2
        return np.searchsorted(middles, np.asarray(label, dtype=np.float64))

    def smooth(self, width: float) -> "LabelPrior":
        """Smooth the prior with a Gaussian kernel of ``width`` grid cells. Post-processing, at no cost."""
        in_range(0.0, math.inf, width=width)
        if width == 0:
            return self
        cells = np.arange(len(self.grid))
        kernel = np.exp(-0.5 * ((cells[:, None] - cells[None, :]) / width) ** 2)
        return LabelPrior(self.grid, (kernel / kernel.sum(axis=0)) @ self.weights)


def estimate_label_prior(
    label: Labels, grid: NDArray[np.float64], *, epsilon: float, curator: Curator, per_unit: int = 1
) -> LabelPrior:
    """Estimate the prior from a histogram of the labels on a public grid, with discrete Laplace noise.

    Privacy
        Pure ``epsilon`` under REPLACE. A replaced label leaves one cell and enters another, so the L1 sensitivity of
        the counts is 2, and 2 ``per_unit`` if up to ``per_unit`` labels of a unit are replaced together. Each count
        receives discrete Laplace noise whose scale is the sensitivity over epsilon, which leaves no low-order bits to
        attack. The noisy counts are then projected to the nearest non-negative counts that add up to n, which is
        public; this is post-processing. Clipping at zero alone would keep the positive noise of empty cells and bias
        the mean. The caller must have recorded the cost.
    """
    positive(epsilon=epsilon)
    uniform = LabelPrior(grid, np.ones(len(grid)))
    counts = np.bincount(uniform.locate(label.bounds.clamp(label.values)), minlength=len(grid))
    noisy = curator.release_integers(
        counts, sensitivity=2.0 * per_unit, epsilon=epsilon, what="a histogram of all labels"
    )
    return LabelPrior(grid, _project(noisy, len(label)))


def _project(counts: NDArray[Any], total: int) -> NDArray[np.float64]:
    """Project to the nearest vector, in Euclidean distance, with non-negative entries and the given sum."""
    falling = np.sort(counts)[::-1].astype(np.float64)
    excess = (np.cumsum(falling) - total) / np.arange(1, len(falling) + 1)
    if not (falling > excess).any():  # the noise is so large that n is lost to rounding
        return np.ones(len(counts))
    return np.asarray(np.maximum(counts - excess[np.flatnonzero(falling > excess)[-1]], 0.0))
