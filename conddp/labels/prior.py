"""What is known of the distribution of labels on a public grid, and what it costs to find out."""

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
    """Number of grid labels for n records: 32 for a thousand, growing with the cube root of n, from 16 to 256.

    Every cell of the grid is estimated from noisy counts, so a fine grid hurts where records are few.

    Examples
    --------
    >>> [choose_grid_size(n) for n in (100, 404, 4_000, 17_010, 1_386_177)]
    [16, 24, 51, 82, 256]
    """
    positive_integer(num_records=num_records)
    return int(min(256, max(16, round(32 * (num_records / 1000) ** (1 / 3)))))


def make_grid(bounds: Bounds, size: int) -> NDArray[np.float64]:
    """Evenly spaced labels from one bound to the other. Public: nothing is taken from the data."""
    positive_integer(size=size)
    return np.linspace(bounds.low, bounds.high, size) if size > 1 else np.array([bounds.midpoint])


@dataclass(frozen=True)
class LabelPrior:
    """Probabilities of the labels of a public grid.

    Parameters
    ----------
    grid : array of shape (k,)
        Rising labels.
    weights : array of shape (k,)
        Their probabilities.
    """

    grid: NDArray[np.float64]
    weights: NDArray[np.float64]

    def __post_init__(self) -> None:
        grid, weights = np.asarray(self.grid, dtype=np.float64), np.asarray(self.weights, dtype=np.float64)
        if grid.ndim != 1 or grid.shape != weights.shape or len(grid) == 0:
            raise ValueError(f"grid and weights must be vectors of one length, got {grid.shape} and {weights.shape}.")
        if not (np.isfinite(grid).all() and (np.diff(grid) > 0).all()):
            raise ValueError("grid labels must be finite and rising.")
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            raise ValueError("weights must be finite, not negative, and not all zero.")
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
        """Position of the grid label nearest to each label, clamped to the grid: record by record."""
        middles = (self.grid[1:] + self.grid[:-1]) / 2
        return np.searchsorted(middles, np.asarray(label, dtype=np.float64))

    def smooth(self, width: float) -> "LabelPrior":
        """Prior convolved with a Gaussian of so many grid cells. Post-processing: free."""
        in_range(0.0, math.inf, width=width)
        if width == 0:
            return self
        cells = np.arange(len(self.grid))
        kernel = np.exp(-0.5 * ((cells[:, None] - cells[None, :]) / width) ** 2)
        return LabelPrior(self.grid, (kernel / kernel.sum(axis=0)) @ self.weights)


def estimate_label_prior(label: Labels, grid: NDArray[np.float64], *, epsilon: float, curator: Curator) -> LabelPrior:
    """Histogram of the labels on a public grid, with Laplace noise on whole numbers.

    Privacy
        Pure ``epsilon`` under REPLACE: a replaced label leaves one cell and enters another, so the counts move by 2 in
        L1, and each gets discrete Laplace noise of scale 2 / epsilon (whole numbers: no low-order bits to attack).
        The rest is post-processing: the nearest counts that are not negative and add up to n, which is public. Clipping
        alone would leave the noise of empty cells in, and with it a bias of the mean. The caller has recorded the cost.
    """
    positive(epsilon=epsilon)
    uniform = LabelPrior(grid, np.ones(len(grid)))
    counts = np.bincount(uniform.locate(label.bounds.clamp(label.values)), minlength=len(grid))
    noisy = curator.release_integers(counts, sensitivity=2.0, epsilon=epsilon, what="a histogram of all labels")
    return LabelPrior(grid, _project(noisy, len(label)))


def _project(counts: NDArray[Any], total: int) -> NDArray[np.float64]:
    """Nearest vector, in the Euclidean sense, without negative entries and with the given sum."""
    falling = np.sort(counts)[::-1].astype(np.float64)
    excess = (np.cumsum(falling) - total) / np.arange(1, len(falling) + 1)
    if not (falling > excess).any():  # counts so large that n is lost in them
        return np.ones(len(counts))
    return np.asarray(np.maximum(counts - excess[np.flatnonzero(falling > excess)[-1]], 0.0))
