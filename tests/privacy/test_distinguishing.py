"""Many fits of two neighbouring data sets, told apart as well as anyone could."""

import numpy as np
import pytest

from conddp import CondDP, PrivacyBudget
from conddp.bounds import Bounds
from conddp.data import Labels, PublicFeatures, Records
from conddp.privacy import RandomSource, calibrate_gaussian_mu


@pytest.mark.slow
def test_neighbouring_data_sets_are_as_hard_to_tell_apart_as_promised() -> None:
    # One full-batch step on a record that is clipped on both sides. The best test between the two data sets looks
    # along the record's own direction; the means of its statistic differ by mu standard deviations, which is what the
    # accountant allows. 4,000 fits of each: the standard error of the estimate is 0.022 of a standard deviation.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    labels = rng.uniform(0, 1, size=40)
    budget = PrivacyBudget(3.0, 1e-3)
    algorithm = CondDP(num_steps=1, averaging=0.0, clip_norm=0.05, learning_rate=1.0)
    public = PublicFeatures(X)
    released = []
    for value in (0.0, 1.0):
        labels[0] = value
        data = Records(public, None, Labels(labels.copy(), Bounds(0, 1)))
        runs = [
            algorithm.fit(data, budget, random_source=RandomSource.of(np.random.default_rng((int(value), seed))))
            for seed in range(4000)
        ]
        released.append(np.stack([run.model.parameters for run in runs]))
    low, high = released
    covariance = (np.cov(low.T) + np.cov(high.T)) / 2
    shift = high.mean(axis=0) - low.mean(axis=0)
    found = float(np.sqrt(shift @ np.linalg.solve(covariance, shift)))
    assert found == pytest.approx(calibrate_gaussian_mu(3.0, 1e-3), abs=4 * 0.022)
