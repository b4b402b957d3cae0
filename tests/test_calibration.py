"""Calibration of a predictor along its own predictions."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from conddp import CondNewton, PrivacyBudget
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.errors import SchemaError
from conddp.features.calibration import Calibration
from conddp.features.row_weights import RowWeights
from conddp.heads import Additive, Learned
from conddp.heads.auto import LearnedOrAdditive
from conddp.losses import Squared
from conddp.newton.calibration import CONSTANT_STD, SLOPE_STDS, CalibrationQuery
from conddp.newton.release import release_residuals
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from tests.silence import SilentCurator

Vector = NDArray[np.float64]

TINY = 1e-9  # noise in a mean


def make_predictions(rng: np.random.Generator, n: int = 3000) -> Vector:
    """Predictions of which few are large, within the range of labels."""
    return np.asarray(np.minimum(rng.gamma(0.7, 0.1, size=n), 1.0) - 0.5)


def ask(made: CalibrationQuery, label: Vector, *, mu: float, curator: Curator) -> Any:
    return release_residuals(
        made.rows,
        label,
        (-0.5, 0.5),
        made.coefficients,
        made.query,
        mu=mu,
        neighbouring=Neighbouring.REPLACE,
        curator=curator,
        loss=Squared(),
    )


def make_skewed(n: int) -> tuple[Vector, Vector]:
    """Columns, and labels whose spread grows with their mean: a few are far larger than the others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.clip(np.exp(0.8 * X[:, 0] + 0.3 * X[:, 1]) * rng.gamma(0.3, 3.3, size=n), 0, 30)


def test_directions_are_orthonormal_and_no_residual_within_the_range_is_clamped(rng: np.random.Generator) -> None:
    predictions = make_predictions(rng)
    for weights in (None, RowWeights.give(rng.uniform(0.1, 1.0, size=len(predictions)))):
        made = CalibrationQuery.choose(predictions, unit_std=1e-3, residual_std=0.1, weights=weights)
        directions = made.rows.values[:, :-1]
        sizes = np.ones(len(predictions)) if weights is None else weights.values
        gram = (directions.T * sizes) @ directions / sizes.sum()
        np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-7)
        np.testing.assert_allclose(made.rows.values @ made.coefficients, predictions)
        lengths = np.sqrt(made.rows.values**2 @ made.query.direction_weights)
        farthest = np.maximum(np.abs(-0.5 - predictions), np.abs(0.5 - predictions))
        assert (lengths * farthest).max() <= made.query.clip_norm * (1 + 1e-12)
        assert made.query.direction_weights.sum() == pytest.approx(1.0) and made.query.direction_weights[-1] == 0.0


def test_without_noise_it_is_least_squares_on_the_prediction_and_its_hinges(rng: np.random.Generator) -> None:
    predictions = make_predictions(rng)
    label = np.clip(predictions + 0.3 * (predictions + 0.5) ** 2 + 0.02 * rng.normal(size=len(predictions)), -0.5, 0.5)
    made = CalibrationQuery.choose(predictions, unit_std=TINY, residual_std=0.05)
    curator = SilentCurator(rng, num_records=len(predictions))
    found = made.learn(ask(made, label, mu=1e9, curator=curator), sampling_variance=0.0)
    within = np.clip(predictions, found.low, found.high)
    terms = np.column_stack([np.ones_like(within), within, np.maximum(within[:, None] - found.bends, 0.0)])
    expected = predictions + terms @ np.linalg.lstsq(terms, label - predictions, rcond=None)[0]
    np.testing.assert_allclose(found.apply(predictions), expected, atol=1e-6)
    assert found.slope_std < 1e-6


def test_it_is_the_posterior_mean_of_a_mixture_of_normal_priors(rng: np.random.Generator) -> None:
    predictions = make_predictions(rng, 400)
    label = np.clip(predictions + 0.2 * (predictions + 0.5) + 0.05 * rng.normal(size=400), -0.5, 0.5)
    made = CalibrationQuery.choose(predictions, unit_std=3e-3, residual_std=0.05)
    answer = ask(made, label, mu=1.0, curator=Curator(rng, num_records=400))
    found = made.learn(answer, sampling_variance=1e-6)
    asked = np.isfinite(answer.noise_variance)
    within = np.clip(predictions, *made.span)
    terms = np.column_stack([np.ones(400), within, np.maximum(within[:, None] - made.bends, 0.0)])
    terms[:, 1:] -= terms[:, 1:].mean(axis=0)
    design = made.rows.values[:, asked].T @ terms / 400
    noise = np.diag(answer.noise_variance[asked] + 1e-6)
    evidence, means, seconds = [], [], []
    for std in SLOPE_STDS:
        prior = np.diag([(CONSTANT_STD * 0.05) ** 2, *np.full(terms.shape[1] - 1, std**2)])
        covariance = design @ prior @ design.T + noise
        gain = np.linalg.solve(covariance, design @ prior).T
        means.append(gain @ answer.step[asked])
        seconds.append((prior - gain @ design @ prior)[1, 1] + means[-1][1] ** 2)
        evidence.append(
            -0.5 * (answer.step[asked] @ np.linalg.solve(covariance, answer.step[asked]))
            - 0.5 * np.linalg.slogdet(covariance)[1]
        )
    probabilities = np.exp(np.array(evidence) - max(evidence))
    probabilities /= probabilities.sum()
    mean = probabilities @ np.array(means)
    np.testing.assert_allclose(found.apply(predictions), predictions + terms @ mean, atol=1e-9)
    assert found.slope_std == pytest.approx(math.sqrt(probabilities @ np.array(seconds) - mean[1] ** 2), rel=1e-6)


def test_noise_leaves_predictions_as_they_are(rng: np.random.Generator) -> None:
    predictions = make_predictions(rng)
    made = CalibrationQuery.choose(predictions, unit_std=10.0, residual_std=0.05)
    curator = Curator(rng, num_records=len(predictions))
    found = made.learn(ask(made, predictions, mu=1e-4, curator=curator), sampling_variance=0.0)
    assert np.abs(found.apply(predictions) - predictions).max() < 0.02


def test_constant_predictions_get_a_constant(rng: np.random.Generator) -> None:
    predictions, label = np.full(500, 0.1), np.full(500, 0.2)
    for straight in (False, True):
        made = CalibrationQuery.choose(predictions, unit_std=1e-6, residual_std=0.3, straight=straight)
        answer = ask(made, label, mu=1e6, curator=SilentCurator(rng, num_records=500))
        found = made.learn(answer, sampling_variance=0.0)
        np.testing.assert_allclose(found.apply(predictions), label, atol=1e-4)


@pytest.mark.parametrize("head", [Learned(width=60), Additive(width=60)], ids=repr)
def test_means_of_skewed_labels_are_right_at_all_predictions(head: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    """The large predictions of a fit with clamped residuals are too small."""
    X, label = make_skewed(20_000)
    records = Records(PublicFeatures(X), None, Labels(label, Bounds(0, 30)))
    ratios = []
    for little_noise in (0.0, math.inf):
        monkeypatch.setattr("conddp.newton.rounds.LITTLE_NOISE", little_noise)
        monkeypatch.setattr("conddp.newton.rounds.LEAST_GAIN", math.inf)
        result = CondNewton().fit(records, PrivacyBudget(1.0, 1e-6), head=head, random_source=RandomSource.of(0))
        predictions = result.model.predict(records.public)
        large = predictions > np.quantile(predictions, 0.9)
        ratios.append(label[large].mean() / predictions[large].mean())
        assert sum(each.count for each in result.transcript.releases) == 27
    assert ratios[0] > 1.1 and 0.9 < ratios[1] < 1 + 0.6 * (ratios[0] - 1)


def test_only_skewed_labels_are_calibrated_unless_there_is_hardly_any_noise() -> None:
    X = make_skewed(4000)[0]
    skewed = np.clip(np.exp(2 * X[:, 0] - 1) * np.random.default_rng(1).gamma(5.0, 0.2, size=4000), 0, 30)
    even = np.clip(15 + X[:, 0] + np.random.default_rng(1).normal(size=4000), 0, 30)
    for label, epsilon, expected in ((skewed, 6.0, True), (even, 6.0, False), (skewed, 0.1, False), (even, 1e3, True)):
        records = Records(PublicFeatures(X), None, Labels(label, Bounds(0, 30)))
        budget, source = PrivacyBudget(epsilon, 1e-6), RandomSource.of(0)
        result = CondNewton().fit(records, budget, head=Learned(width=40), random_source=source)
        assert isinstance(result.model.head, Learned)
        assert (result.model.head.num_bends > 0) is expected


def test_a_calibrated_sum_of_functions_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A straight line keeps a model additive: its curves add up to its predictions."""
    X, label = make_skewed(4000)
    table = Records(PublicFeatures(X), None, Labels(label, Bounds(0, 30)))
    monkeypatch.setattr("conddp.newton.rounds.WORTH", math.inf)
    result = CondNewton().fit(
        table, PrivacyBudget(2.0, 1e-6), head=LearnedOrAdditive(60), random_source=RandomSource.of(0)
    )
    head, effects = result.model.head, result.diagnostics.effects
    assert isinstance(head, Additive) and not head.num_bends and effects is not None
    curves = head.compute_curves(result.model.layout.views(result.model.parameters[None]), list(X[:50].T))
    total = np.sum(curves, axis=0)
    scores = result.model.compute_scores(PublicFeatures(X[:50]))
    np.testing.assert_allclose(scores - scores.mean(), total - total.mean(), atol=1e-5)


def test_a_straight_line_keeps_its_standard_deviation(rng: np.random.Generator) -> None:
    predictions = make_predictions(rng)
    made = CalibrationQuery.choose(predictions, unit_std=2e-3, residual_std=0.05, straight=True)
    assert not len(made.bends)
    errors = []
    for _ in range(400):
        slope = 1 + 0.1 * rng.normal()
        middle = predictions.mean()
        label = np.clip(middle + slope * (predictions - middle), -0.5, 0.5)
        clamped = np.polyfit(predictions, label, 1)[0]  # a few labels are at the end of the range
        answer = ask(made, label, mu=1 / (2e-3 * len(predictions)), curator=Curator(rng, num_records=len(predictions)))
        found = made.learn(answer, sampling_variance=0.0)
        errors.append((found.slope - clamped) / found.slope_std)
    assert np.mean(np.abs(errors) < norm.ppf(0.975)) > 0.9


def test_a_calibration_is_continuous_and_linear_between_its_bends() -> None:
    made = Calibration(0.1, 2.0, np.array([-0.2, 0.3]), np.array([-1.0, 0.5]))
    grid = np.array([-1.0, -0.2, 0.3, 1.0])
    heights = [0.1 - 2.0, 0.1 - 0.4, 0.1 - 0.4 + 0.5, 0.1 - 0.4 + 0.5 + 0.7 * 1.5]
    np.testing.assert_allclose(made.apply(grid), heights)
    between = np.linspace(-1, 1, 41)
    np.testing.assert_allclose(made.apply(between), np.interp(between, grid, heights), atol=1e-12)
    assert Calibration().is_identity and not made.is_identity
    ended = replace(made, low=-0.5, high=0.4)  # predictions farther out are moved as far as at the ends
    np.testing.assert_allclose(ended.apply(np.array([-0.9, 0.7])), made.apply(np.array([-0.5, 0.4])) + [-0.4, 0.3])


def test_long_rows_are_not_calibrated_by_noise() -> None:
    """Few large predictions have long rows, for which noise is large."""
    rng = np.random.default_rng(1)
    X = np.exp(1.5 * rng.normal(size=(1000, 4)))
    label = np.clip(0.5 * X[:, 0] + 0.2 * X[:, 1] + rng.gamma(0.5, 2.0, size=1000), 0, 20)
    records = Records(PublicFeatures(X), None, Labels(label, Bounds(0, 20)))
    for seed in range(3):
        result = CondNewton().fit(
            records, PrivacyBudget(2.0, 1e-6), head=Learned(200), random_source=RandomSource.of(seed)
        )
        assert isinstance(result.model.head, Learned) and not result.model.head.num_bends


def test_a_fit_stopped_before_its_calibration_has_decided_on_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.newton.rounds.LITTLE_NOISE", math.inf)
    X, label = make_skewed(1500)
    records = Records(PublicFeatures(X), None, Labels(label, Bounds(0, 30)))
    for last, told in ((1, False), (2, True)):
        result = CondNewton().fit(
            records,
            PrivacyBudget(2.0, 1e-6),
            head=LearnedOrAdditive(60),
            random_source=RandomSource.of(0),
            callback=lambda at, last=last: at.step == at.num_steps - last,  # type: ignore[misc]
        )
        assert ("stopped before" in result.guarantee.choice) is told


def test_an_additive_model_with_bends_is_refused() -> None:
    head = Additive(num_knots=1, num_bends=1)
    layout = head.layout(2, 0)
    with pytest.raises(SchemaError, match="bends"):
        head.check_weights(layout.views(np.zeros((1, layout.size))))
