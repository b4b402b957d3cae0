r"""Privacy accounting for choosing the best of several private runs by a private score.

A random number K of runs is drawn, each run fits a randomly drawn candidate and scores it with noise, and only the run
with the highest score is released. If every run is a Gaussian mechanism whose sensitivity is :math:`\mu` standard
deviations, score included, it has Renyi divergence :math:`\rho(\lambda) = \lambda \mu^2 / 2`, and the whole has

.. math:: \rho'(\lambda) = \rho(\lambda) + (1 + \eta) \min_{\kappa \ge 1} \Big[(1 - \tfrac1\kappa) \rho(\kappa)
   + \tfrac{\log(1/\gamma)}{\kappa}\Big] + \frac{\log E[K]}{\lambda - 1}

for a truncated negative binomial K, with :math:`\eta = 1` (geometric) or :math:`\eta = 0` (logarithmic). What happened
in the other runs, and how many there were, must stay secret.

Paper
    Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy", arXiv 2110.03620, Theorem 2.
"""

import math
from typing import Literal

import numpy as np

from conddp._validate import in_range, one_of, positive
from conddp.errors import NotCalibrated

__all__ = [
    "RunDistribution",
    "calibrate_selection_mu",
    "compute_selection_delta",
    "compute_selection_epsilon",
    "draw_num_runs",
]

RunDistribution = Literal["geometric", "logarithmic"]
MOST_RUNS = 10_000.0  # largest expected number of runs


def compute_selection_delta(
    mu: float, epsilon: float, *, expected_runs: float, distribution: RunDistribution = "geometric"
) -> float:
    """Bound the delta at ``epsilon`` of releasing the best of a random number of runs.

    Privacy
        Reads no data. The sensitivity ``mu`` of a run determines the neighbouring relation.

    Parameters
    ----------
    mu : float
        Sensitivity of one run, with its score, in standard deviations of its noise.
    epsilon : float
        Epsilon at which to compute delta.
    expected_runs : float
        Expected number of runs, above 1.
    distribution : {"geometric", "logarithmic"}
        Distribution of the number of runs.
    """
    positive(mu=mu)
    above = np.geomspace(1e-4, 1e8, 4000)  # orders less one; every order gives a valid bound
    order = 1 + above
    divergence_times_above = order * above * mu**2 / 2 + above * _price(mu, expected_runs, distribution)
    divergence_times_above += math.log(expected_runs)
    log_delta = divergence_times_above - above * epsilon - np.log(above) + order * np.log1p(-1 / order)
    return float(min(1.0, np.exp(log_delta.min())))


def compute_selection_epsilon(
    mu: float, delta: float, *, expected_runs: float, distribution: RunDistribution = "geometric"
) -> float:
    """Bound the epsilon at ``delta`` of releasing the best of a random number of runs.

    Examples
    --------
    >>> round(compute_selection_epsilon(0.2367, 1e-6, expected_runs=10), 2)
    2.15
    """

    def spent(epsilon: float) -> float:
        return compute_selection_delta(mu, epsilon, expected_runs=expected_runs, distribution=distribution)

    low, high = 0.0, 1.0
    while spent(high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return high


def calibrate_selection_mu(
    epsilon: float, delta: float, *, expected_runs: float, distribution: RunDistribution = "geometric"
) -> float:
    """Find the largest sensitivity of one run, in standard deviations, with which the best of all runs is private.

    Raises
    ------
    NotCalibrated
        If no run can be so private, because epsilon is too small.
    """
    positive(epsilon=epsilon, delta=delta)

    def spent(mu: float) -> float:
        return compute_selection_delta(mu, epsilon, expected_runs=expected_runs, distribution=distribution)

    low, high = 1e-6, 1e3
    if spent(low) > delta:
        raise NotCalibrated(f"no run is private enough for epsilon={epsilon:g} at delta={delta:g}. Raise epsilon.")
    while high > low * (1 + 1e-9):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spent(middle) <= delta else (low, middle)
    return low


def draw_num_runs(expected_runs: float, distribution: RunDistribution, rng: np.random.Generator) -> int:
    """Draw the number of runs, at least one."""
    continues = 1 - _find_gamma(expected_runs, distribution)
    return int(rng.geometric(1 - continues) if distribution == "geometric" else rng.logseries(continues))


def _price(mu: float, expected_runs: float, distribution: RunDistribution) -> float:
    """What the choice adds to the divergence at every order: the minimum over the order kappa, in closed form."""
    log_runs = -math.log(_find_gamma(expected_runs, distribution))
    kappa = max(1.0, math.sqrt(2 * log_runs) / mu)
    return (2 if distribution == "geometric" else 1) * ((kappa - 1) * mu**2 / 2 + log_runs / kappa)


def _find_gamma(expected_runs: float, distribution: RunDistribution) -> float:
    """Parameter gamma of the distribution with this mean."""
    one_of(("geometric", "logarithmic"), distribution=distribution)
    in_range(1.0, MOST_RUNS, expected_runs=expected_runs)
    if expected_runs < 1 + 1e-6:
        raise ValueError(f"expected_runs must be above 1, got expected_runs={expected_runs!r}.")
    if distribution == "geometric":
        return 1 / expected_runs
    low, high = 1e-12, 1 - 1e-12  # the mean (1/gamma - 1) / log(1/gamma) falls from infinity to 1
    while high > low * (1 + 1e-13):
        middle = math.sqrt(low * high)
        mean = (1 / middle - 1) / -math.log(middle)
        low, high = (middle, high) if mean > expected_runs else (low, middle)
    return low
