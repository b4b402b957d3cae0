"""Cond-DP as it comes, on real data: REPLACE, delta 1e-6, no tuning, split random_state=42, five noise seeds."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from conddp.algorithms import DPSGD, CondDP, OneShot, RROnBins, SwitchCondDP
from conddp.algorithms.algorithm import Algorithm
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.randomness import RandomSource
from tests.conftest import load_or_skip


def ratio_to_least_squares(name: str, algorithm: Algorithm, epsilon: float) -> float:
    train, test = load_or_skip(name).split(random_state=42)
    bounds = train.label.bounds
    label = bounds.clamp(test.label.values)
    least_squares = LinearRegression().fit(train.public.values, train.label.values)
    optimum = np.mean((bounds.clamp(least_squares.predict(test.public.values)) - label) ** 2)
    errors = []
    for seed in range(5):
        result = algorithm.fit(train, PrivacyBudget(epsilon, 1e-6), random_source=RandomSource.of(seed))
        errors.append(np.mean((result.model.predict(test.public) - label) ** 2))
    return float(np.mean(errors) / optimum)


@pytest.mark.parametrize("name", ["ca_housing", "wine", "energy"])
@pytest.mark.parametrize(("epsilon", "limit"), [(0.25, 1.08), (1.0, 1.02), (4.0, 1.01)])
def test_cond_dp_is_close_to_non_private_least_squares(name: str, epsilon: float, limit: float) -> None:
    assert ratio_to_least_squares(name, CondDP(), epsilon) <= limit


@pytest.mark.parametrize("name", ["ca_housing", "wine", "energy"])
@pytest.mark.parametrize("algorithm", [SwitchCondDP(), OneShot(), RROnBins()], ids=lambda each: type(each).__name__)
def test_other_algorithms_are_sensible_as_they_come(name: str, algorithm: Algorithm) -> None:
    assert ratio_to_least_squares(name, algorithm, 1.0) <= 1.2


@pytest.mark.parametrize("name", ["ca_housing", "wine", "energy"])
def test_cond_dp_beats_dpsgd(name: str) -> None:
    assert ratio_to_least_squares(name, CondDP(), 1.0) < ratio_to_least_squares(name, DPSGD(), 1.0)
