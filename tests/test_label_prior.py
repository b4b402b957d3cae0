import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from conddp.bounds import Bounds
from conddp.data.parts import Labels
from conddp.labels.prior import LabelPrior, estimate_label_prior, make_grid
from conddp.privacy.release import Curator


def test_grids_come_from_the_bounds_alone() -> None:
    assert make_grid(Bounds(-1, 3), 5).tolist() == [-1, 0, 1, 2, 3]
    assert make_grid(Bounds(-1, 3), 1).tolist() == [1]


def test_labels_go_to_the_nearest_grid_label(rng: np.random.Generator) -> None:
    grid = np.sort(rng.normal(size=9))
    prior = LabelPrior(grid, np.ones(9))
    labels = rng.normal(scale=3, size=500)
    assert prior.locate(labels).tolist() == np.abs(labels[:, None] - grid[None, :]).argmin(axis=1).tolist()


def noisy_counts(monkeypatch: pytest.MonkeyPatch, labels: Labels, grid: NDArray[Any], epsilon: float) -> NDArray[Any]:
    """The counts before post-processing, which turns them into weights that add up to n."""
    seen: list[NDArray[Any]] = []

    def keep(counts: NDArray[Any], total: int) -> NDArray[Any]:
        seen.append(counts)
        return np.ones(len(counts))

    monkeypatch.setattr("conddp.labels.prior._project", keep)
    curator = Curator(np.random.default_rng(0), num_records=len(labels))
    estimate_label_prior(labels, grid, epsilon=epsilon, curator=curator)
    return seen[0]


def test_counts_get_discrete_laplace_noise_of_scale_two_over_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    # Replacing a label moves two counts by one, so P(z) must fall by exp(-epsilon / 2) a step: for both counts together
    # the likelihood ratio is then exp(epsilon). Chi-square on 40,000 draws, fixed seed, false alarm 1e-3.
    epsilon, grid = 1.4, np.linspace(0, 1, 40_000)
    counts = noisy_counts(monkeypatch, Labels(np.zeros(7), Bounds(0, 1)), grid, epsilon)[1:]
    values = np.arange(-8, 9)
    observed = np.array([np.sum(counts == value) for value in values])
    chance = math.tanh(epsilon / 4) * np.exp(-epsilon / 2 * np.abs(values))
    expected = chance * len(counts)
    keep = expected > 5
    other = len(counts) - observed[keep].sum()
    result = chisquare(np.append(observed[keep], other), np.append(expected[keep], len(counts) - expected[keep].sum()))
    assert result.pvalue > 1e-3
    assert float(chance[8] / chance[9]) ** 2 == pytest.approx(math.exp(epsilon))


def test_the_estimate_tends_to_the_truth_without_bias_from_empty_cells() -> None:
    rng = np.random.default_rng(1)
    labels = Labels(rng.beta(2, 30, size=20_000), Bounds(0, 1))
    grid = make_grid(labels.bounds, 60)
    curator = Curator(rng, num_records=len(labels))
    means = [estimate_label_prior(labels, grid, epsilon=0.1, curator=curator).mean for _ in range(100)]
    assert np.mean(means) == pytest.approx(labels.values.mean(), abs=0.01)


@pytest.mark.parametrize("width", [0.0, 0.5, 2.0, 50.0])
def test_smoothing_keeps_a_distribution(rng: np.random.Generator, width: float) -> None:
    prior = LabelPrior(np.arange(20.0), rng.exponential(size=20)).smooth(width)
    assert prior.weights.sum() == pytest.approx(1.0)
    assert (prior.weights >= 0).all()


@pytest.mark.parametrize(
    ("grid", "weights", "message"),
    [
        ([0.0, 1.0], [1.0], "the same length"),
        ([], [], "the same length"),
        ([1.0, 0.0], [1.0, 1.0], "strictly increasing"),
        ([0.0, float("nan")], [1.0, 1.0], "finite and strictly increasing"),
        ([0.0, 1.0], [-1.0, 2.0], "non-negative"),
        ([0.0, 1.0], [0.0, 0.0], "not all zero"),
    ],
)
def test_impossible_priors_are_refused(grid: list[float], weights: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LabelPrior(np.array(grid), np.array(weights))
