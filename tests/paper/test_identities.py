"""What the paper says must be equal, is."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conddp.algorithms import CondDP
from conddp.data.parts import PublicFeatures
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.heads.head import Inputs
from conddp.heads.linear import Linear
from conddp.privacy.bounded_sum import bound_rounding
from conddp.privacy.noise import NoiseStream, gaussian
from conddp.privacy.release import Curator
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import make_optimizer
from tests.silence import ChosenNoise


def make_rotated(seed: int, rotation: NDArray[Any]) -> Curator:
    """A curator whose normal vectors are rotated."""
    generator = np.random.default_rng(seed)
    curator = ChosenNoise(generator, num_records=300)
    curator.draw = lambda: generator.standard_normal((1, len(rotation))) @ rotation
    return curator


def fit_predictions(
    X: NDArray[Any],
    y: NDArray[Any],
    C: ConditioningMatrix,
    curator: Curator,
    *,
    multiplier: float,
    optimizer: Any = "sgd",
) -> NDArray[Any]:
    Z = C.transform(PublicFeatures(X))
    head = Linear()
    layout = head.layout(Z.shape[1], 0)
    parameters = train(
        TrainingPlan(32, 0.3, multiplier, averaging=0.5),
        head,
        layout,
        Inputs.of(Z),
        y,
        np.zeros((1, layout.size)),
        optimizer=make_optimizer(optimizer, 0.25 if optimizer == "sgd" else 0.03),
        curator=curator if multiplier else None,
        rng=np.random.default_rng(0),
    )
    return Z @ parameters[0]


def features(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    X = rng.normal(size=(300, 5)) * [1.0, 10.0, 0.1, 1.0, 3.0] + [0.0, 20.0, 0.0, 0.0, 1.0]
    y = np.clip(X @ [0.1, 0.01, 1.0, -0.1, 0.0] - 0.2 + 0.2 * rng.normal(size=300), -0.5, 0.5)
    return X, y


def condition(X: NDArray[Any]) -> ConditioningMatrix:
    return ConditioningMatrix.from_spectrum(Spectrum.of(PublicFeatures(X)))


@pytest.mark.parametrize("multiplier", [0.0, 5.0])
def test_with_sgd_the_fit_does_not_depend_on_the_coordinates_of_public_features(
    rng: np.random.Generator, multiplier: float
) -> None:
    X, y = features(rng)
    mixed = X @ (rng.normal(size=(5, 5)) * [1.0, 100.0, 0.01, 1.0, 1.0]) + rng.normal(size=5)
    C, D = condition(X), condition(mixed)
    Z, W = C.transform(PublicFeatures(X)), D.transform(PublicFeatures(mixed))
    rotation = Z.T @ W / len(X)
    assert np.allclose(rotation @ rotation.T, np.eye(6), atol=1e-8)
    assert np.allclose(Z @ rotation, W, atol=1e-7)
    one = fit_predictions(X, y, C, make_rotated(7, np.eye(6)), multiplier=multiplier)
    other = fit_predictions(mixed, y, D, make_rotated(7, rotation), multiplier=multiplier)
    assert np.abs(one - other).max() < 1e-8


def test_with_adam_the_fit_depends_on_the_coordinates(rng: np.random.Generator) -> None:
    # Adam works by coordinate: without any noise, predictions differ by far more than rounding.
    X, y = features(rng)
    mixed = X @ rng.normal(size=(5, 5))
    none = make_rotated(7, np.eye(6))
    one = fit_predictions(X, y, condition(X), none, multiplier=0.0, optimizer="adam")
    other = fit_predictions(mixed, y, condition(mixed), none, multiplier=0.0, optimizer="adam")
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_with_the_identity_cond_dp_is_dpsgd_step_for_step(rng: np.random.Generator, optimizer: Any) -> None:
    X, y = features(rng)
    X = X / np.abs(X).max(axis=0)
    full = np.column_stack([X, np.ones(len(X))])
    rate, clip_norm, multiplier = (0.25, 0.3, 2.0) if optimizer == "sgd" else (0.03, 0.3, 2.0)
    identity = ConditioningMatrix.identity(Spectrum.of(PublicFeatures(X)))
    curator = Curator(np.random.default_rng(7), num_records=len(y))
    found = fit_predictions(X, y, identity, curator, multiplier=multiplier, optimizer=optimizer)

    # DPSGD written out, one record's gradient after another.
    noise, enlarged = NoiseStream(gaussian(), np.random.default_rng(7)), 1 + bound_rounding(len(y))
    theta, iterates = np.zeros(6), []
    first, second = np.zeros(6), np.zeros(6)
    for step in range(1, 33):
        total = np.zeros(6)
        for x, label in zip(full, y, strict=True):
            gradient = (x @ theta - label) * x
            total += gradient * min(1.0, clip_norm / max(float(np.linalg.norm(gradient)), 1e-300))
        mean = noise.add(total, enlarged * multiplier * clip_norm) / len(y)
        if optimizer == "adam":
            first, second = 0.9 * first + 0.1 * mean, 0.999 * second + 0.001 * mean**2
            mean = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        theta = theta - rate * mean
        iterates.append(theta)
    assert np.allclose(found, full @ np.mean(iterates[16:], axis=0), rtol=1e-9, atol=1e-10)


def test_units_of_public_columns_do_not_matter_to_the_default(rng: np.random.Generator) -> None:
    from conddp.bounds import Bounds
    from conddp.data.parts import Labels
    from conddp.data.records import Records
    from conddp.privacy.budget import PrivacyBudget
    from conddp.privacy.randomness import RandomSource

    # The same noise falls in other directions, so single fits differ; their mean errors agree.
    X, y = features(rng)
    label = Labels(y, Bounds(-0.5, 0.5))
    errors: dict[str, list[float]] = {"as given": [], "other units": []}
    for name, table in (("as given", X), ("other units", X * [1e-3, 1.0, 1e6, 5.0, 1.0])):
        data = Records(PublicFeatures(table), None, label)
        for seed in range(200):
            result = CondDP().fit(data, PrivacyBudget(4.0, 1e-5), random_source=RandomSource.of(seed))
            errors[name].append(float(np.mean((result.model.predict(data.public) - y) ** 2)))
    means = [np.mean(values) for values in errors.values()]
    assert means[0] == pytest.approx(means[1], rel=0.02)
