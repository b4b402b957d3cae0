import numpy as np
import pytest

from conddp.newton.prior import CONSTANT_VARIANCE, SIGNAL_FRACTIONS, SignalPrior


def test_one_direction_is_the_posterior_of_a_mixture_of_normals() -> None:
    measured, noise, label_variance = 0.3, 0.04, 0.1
    posterior = SignalPrior(np.ones(1), has_constant=False).update(
        np.array([measured]), np.array([noise]), label_variance
    )
    grid = np.linspace(-3, 3, 200_001)
    density = sum(np.exp(-(grid**2) / (2 * s * label_variance)) / np.sqrt(s) for s in SIGNAL_FRACTIONS)
    density *= np.exp(-((grid - measured) ** 2) / (2 * noise))
    density /= density.sum()
    mean = density @ grid
    assert posterior.mean[0] == pytest.approx(mean, rel=1e-6)
    assert posterior.variance[0] == pytest.approx(density @ grid**2 - mean**2, rel=1e-6)


def test_the_constant_has_a_prior_of_its_own() -> None:
    prior = SignalPrior(np.array([1.0, 2.0, 0.5]), has_constant=True)
    posterior = prior.update(np.array([0.2, 0.0, 0.0]), np.array([0.01, 1.0, 1.0]), 0.1)
    assert posterior.mean[0] == pytest.approx(0.2 * CONSTANT_VARIANCE / (CONSTANT_VARIANCE + 0.01))


def test_exact_measurements_are_believed_and_none_is_the_prior() -> None:
    prior = SignalPrior(np.array([3.0, 1.0, 0.2]), has_constant=False)
    measured = np.array([0.1, -0.2, 0.05])
    assert prior.update(measured, np.full(3, 1e-12), 0.02).mean == pytest.approx(measured, rel=1e-6)
    nothing = prior.update(np.zeros(3), np.full(3, np.inf), 0.02)
    assert nothing.mean == pytest.approx(np.zeros(3))
    assert (np.diff(nothing.variance) < 0).all()  # directions that vary more are believed to matter more
    assert 0.2 * 0.02 < nothing.variance.sum() < 2 * 0.02


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_shrinking_beats_what_was_measured_and_finds_the_exponent(rng: np.random.Generator, exponent: float) -> None:
    variances = np.geomspace(10, 0.1, 30)
    prior = SignalPrior(variances, has_constant=False)
    shape = variances**exponent / (variances**exponent).sum()
    raw, ridge, shrunk = [], [], []
    for _ in range(200):
        truth = rng.normal(scale=np.sqrt(0.6 * 0.02 * shape))
        noise = np.full(30, 0.02 / 30)
        measured = truth + rng.normal(scale=np.sqrt(noise))
        raw.append(np.sum((measured - truth) ** 2))
        shrunk.append(np.sum((prior.update(measured, noise, 0.02).mean - truth) ** 2))
        ridge.append(np.sum((measured * 0.6 * shape / (0.6 * shape + 1 / 30) - truth) ** 2))  # knows the prior
    assert np.mean(shrunk) < 0.6 * np.mean(raw)
    assert np.mean(shrunk) < 1.15 * np.mean(ridge)
