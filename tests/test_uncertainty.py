"""Uncertainty of linear models: closed forms, coverage, units, what is refused, storage."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

from conddp import PrivateRegressor
from conddp.algorithms import DPSGD, CondDP, CondNewton, OneShot
from conddp.algorithms.algorithm import Algorithm
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.records import Records
from conddp.data.units import Units
from conddp.heads import MLP, Linear, Wide
from conddp.models.prediction import estimate_deviations, estimate_intervals
from conddp.models.result import FitResult
from conddp.models.saving import ModelFileError, load_model, save_model, sign_record
from conddp.models.summary import Summary
from conddp.models.uncertainty import CoefficientEstimates, Uncertainty, compute_quantile
from conddp.newton.prior import VAGUE
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.randomness import RandomSource
from conddp.training.recursion import Recursion

Vector = NDArray[np.float64]

BOUNDS = Bounds(-12.0, 14.0)
TRUTH = np.array([1.0, -0.5, 0.25, 0.0])
SAVED = Path(__file__).parent / "data" / "saved_models"


def make_records(
    rng: np.random.Generator, n: int, *, private: int = 0, skewed: bool = False, intercept: float = 1.0
) -> tuple[Records, Vector, Vector]:
    """Records, all their columns with a constant, and the clamped labels."""
    X = rng.normal(size=(n, 4)) @ (np.eye(4) + 0.4) * [1.0, 3.0, 0.2, 1.0]
    X[:, 4 - private :] = np.clip(X[:, 4 - private :], -5, 5)
    noise = rng.exponential(size=n) - 1 if skewed else rng.normal(size=n)
    y = np.clip(X @ TRUTH + intercept + 1.5 * noise, BOUNDS.low, BOUNDS.high)
    hidden = PrivateFeatures(X[:, 4 - private :], (Bounds(-5, 5),) * private) if private else None
    return Records(PublicFeatures(X[:, : 4 - private]), hidden, Labels(y, BOUNDS)), np.column_stack([X, np.ones(n)]), y


def fit(algorithm: Algorithm, records: Records, epsilon: float, seed: int, **settings: Any) -> FitResult:
    return algorithm.fit(records, PrivacyBudget(epsilon, 1e-6), random_source=RandomSource.of(seed), **settings)


def measure(
    algorithm: Algorithm, epsilon: float, *, of: Any, fits: int = 60, n: int = 1500, **settings: Any
) -> tuple[float, float]:
    """Coverage of 95 % intervals of all coefficients, and the mean square of errors over standard errors."""
    rng, hits, scores = np.random.default_rng(7), [], []
    for seed in range(fits):
        records, X, y = make_records(rng, n, **settings)
        target = np.append(TRUTH, 1.0) if of == "population" else np.linalg.lstsq(X, y, rcond=None)[0]
        _, estimates = fit(algorithm, records, epsilon, seed).estimate_coefficients()
        low, high = estimates.compute_intervals(0.95, of).T
        hits.append((low < target) & (target < high))
        scores.append((estimates.estimate - target) / estimates.compute_std(of))
    return float(np.mean(hits)), float(np.mean(np.square(scores)))


# Of 300 intervals, five of each of 60 fits, the fraction that covers has a standard deviation of at most 0.02.
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("of", ["population", "data"])
def test_intervals_of_newton_steps_cover(epsilon: float, of: str) -> None:
    coverage, size = measure(CondNewton(), epsilon, of=of)
    assert coverage > 0.90 and size > 0.3  # at most 1.8 times as wide as errors of well-behaved residuals need


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("of", ["population", "data"])
def test_intervals_of_private_columns_cover(epsilon: float, of: str) -> None:
    """Also of a column that varies little within its bounds, whose second moment is hardly known."""
    coverage, _ = measure(CondNewton(), epsilon, of=of, private=2, n=3000)
    assert coverage > 0.93


@pytest.mark.parametrize("of", ["population", "data"])
def test_intervals_of_private_columns_are_not_too_wide(of: str) -> None:
    coverage, size = measure(CondNewton(), 4.0, of=of, private=1, n=4000)
    assert 0.90 < coverage < 0.995 and size > 0.6


@pytest.mark.parametrize("algorithm", [OneShot(), OneShot(noise="spherical"), CondDP(clip_norm=4.0)], ids=repr)
def test_errors_of_linear_methods_are_those_of_their_noise(algorithm: Algorithm) -> None:
    """Without clipping, errors over standard errors are standard normal: the mean of 300 squares is 1 +- 0.08."""
    coverage, size = measure(algorithm, 2.0, of="data", skewed=True)
    assert size == pytest.approx(1.0, abs=0.33)
    assert 0.90 < coverage < 0.99


@pytest.mark.parametrize("scaling", ["columns", "none"])
def test_a_descent_that_did_not_arrive_is_carried_on(scaling: Any) -> None:
    """Its estimates are centred on least squares although its coefficients are far away, as few steps lead there."""
    algorithm = DPSGD(optimizer="sgd", num_steps=6, learning_rate=0.1, clip_norm=20.0, feature_scaling=scaling)
    _, size = measure(algorithm, 20.0, of="data")
    assert size == pytest.approx(1.0, abs=0.33)
    records, X, y = make_records(np.random.default_rng(0), 1500)
    result = fit(algorithm, records, 1e6, 0)
    target = np.linalg.lstsq(X, y, rcond=None)[0]
    coefficients = np.append(*result.model.compute_linear_coefficients()[::2])
    assert np.abs(coefficients - target).max() > 0.1
    _, estimates = result.estimate_coefficients()
    np.testing.assert_allclose(estimates.estimate, target, atol=0.02)


@pytest.mark.parametrize(("num_steps", "num_averaged"), [(1, 1), (5, 1), (7, 3), (6, 6)])
def test_the_recursion_is_that_of_the_steps(num_steps: int, num_averaged: int) -> None:
    """Against the steps themselves, with a unit start and with a unit of noise in one step at a time."""
    rate, eigenvalue = 0.3, 1.7

    def run(start: float, noise: Vector) -> float:
        value, iterates = start, []
        for each in noise:
            value += rate * (-eigenvalue * value + each)
            iterates.append(value)
        return float(np.mean(iterates[-num_averaged:]))

    left, variance = Recursion(num_steps, num_averaged, rate, 2.0).follow(np.array([eigenvalue]))
    assert left[0] == pytest.approx(run(1.0, np.zeros(num_steps)))
    assert variance[0] == pytest.approx(4 * sum(run(0.0, impulse) ** 2 for impulse in np.eye(num_steps)))


def test_only_the_size_of_errors_depends_on_the_epsilon_of_one_shot() -> None:
    records, X, y = make_records(np.random.default_rng(0), 800)
    target = np.linalg.lstsq(X, y, rcond=None)[0]
    for shrink in (True, False):
        _, estimates = fit(OneShot(shrink=shrink), records, 1e5, 0).estimate_coefficients()
        np.testing.assert_allclose(estimates.estimate, target, atol=1e-2)
    wide, narrow = (fit(OneShot(), records, epsilon, 0).estimate_coefficients()[1] for epsilon in (0.1, 10.0))
    assert (wide.noise_std > 5 * narrow.noise_std).all()


@pytest.mark.parametrize("private", [0, 2])
def test_units_of_columns_and_label_change_nothing_else(private: int) -> None:
    records, _, y = make_records(np.random.default_rng(3), 600, private=private)
    scales, factor = np.array([1000.0, 0.01, 7.0, 0.5]), 40.0
    hidden = records.private
    if hidden is not None:
        bounds = tuple(Bounds(-5 * scale, 5 * scale) for scale in scales[2:])
        hidden = PrivateFeatures(hidden.values * scales[2:], bounds)
    other = Records(
        PublicFeatures(records.public.values * scales[: 4 - private]),
        hidden,
        Labels(factor * y + 5, Bounds(factor * BOUNDS.low + 5, factor * BOUNDS.high + 5)),
    )
    source, budget = RandomSource.for_neighbours(0), PrivacyBudget(2.0, 1e-6)
    one, changed = (CondNewton().fit(each, budget, random_source=source) for each in (records, other))
    known = [each.estimate_coefficients()[1] for each in (one, changed)]
    target: Any = known[0].compute_intervals(0.9, "data")
    target[:4] *= factor / scales[:, None]
    target[4] = factor * target[4] + 5
    np.testing.assert_allclose(known[1].compute_intervals(0.9, "data"), target, rtol=1e-5, atol=1e-8)
    deviations = [estimate_deviations(each, of.public, of.private) for each, of in ((one, records), (changed, other))]
    np.testing.assert_allclose(deviations[1], factor * deviations[0], rtol=1e-5)
    if not private:  # the noise of others is another, because their directions are rotated
        for algorithm in (CondDP(), OneShot()):
            known = [fit(algorithm, each, 2.0, 0).estimate_coefficients()[1] for each in (records, other)]
            factors = factor / np.append(scales, 1.0)
            np.testing.assert_allclose(known[1].noise_std, factors * known[0].noise_std, rtol=1e-5)


def make_uncertainty(**changes: Any) -> Uncertainty:
    """Two directions of which the second was not measured."""
    whole = Uncertainty(
        matrix=np.array([[1.0, 0.5], [0.0, 2.0]]),
        origin=np.array([0.0, 0.1]),
        estimate=np.array([0.3, 123.0]),
        noise_variance=np.array([0.01, VAGUE]),
        bias_variance=np.array([0.02, 0.0]),
        sampling_variance=np.array([0.03, 0.03]),
        error_variance=np.array([0.04, 0.2]),
        bound=0.5,
    )
    return replace(whole, **changes)


def test_directions_that_were_not_measured_are_as_uncertain_as_the_bounds_allow() -> None:
    estimates = make_uncertainty().estimate_coefficients(np.eye(2), np.array([0.0, 7.0]))
    np.testing.assert_allclose(estimates.estimate, [0.3 + 0.05, 7.2])
    np.testing.assert_allclose(estimates.bound, [0.25, 1.0])
    low, high = estimates.compute_intervals(0.95, "population").T
    half = 1.96 * np.sqrt([0.06, 0.0]) + [0.25, 1.0]
    np.testing.assert_allclose([low, high], [estimates.estimate - half, estimates.estimate + half], rtol=1e-4)
    narrower = estimates.compute_intervals(0.95, "data")
    assert narrower[0, 1] == pytest.approx(0.35 + ndtri(0.975) * np.sqrt(0.03) + 0.25)
    np.testing.assert_allclose(estimates.compute_std("data") ** 2, [0.03 + 0.25**2, 1.0])


def test_p_values_are_those_of_the_intervals() -> None:
    estimates = CoefficientEstimates(
        np.array([0.5, 3.0, 0.1]), np.ones(3), np.zeros(3), np.full(3, np.nan), np.array([0.0, 0.7, 0.2])
    )
    p_values = estimates.compute_p_values("data")
    assert p_values[2] == 1.0
    for place in (0, 1):
        low, high = estimates.compute_intervals(1 - p_values[place], "data")[place]
        assert min(abs(low), abs(high)) == pytest.approx(0.0, abs=1e-9)


def test_levels_outside_of_the_unit_interval_are_refused() -> None:
    assert compute_quantile(0.5) == pytest.approx(0.674, abs=1e-3)
    for level in (0.0, 1.0, 95.0, float("nan")):
        with pytest.raises(ValueError, match="level must"):
            compute_quantile(level)


@pytest.fixture(scope="module")
def table() -> tuple[pd.DataFrame, Vector]:
    rng, n = np.random.default_rng(0), 3000
    made = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n),
            "hidden": rng.uniform(0, 10, n),
            "city": rng.choice(["Bonn", "Oslo", "Rome"], n),
            "income": rng.exponential(30_000, n),
        }
    )
    label = 0.1 * made.age + 1e-4 * made.income + 2 * (made.city == "Bonn") + made.hidden + rng.normal(size=n)
    return made, label.clip(0, 40).to_numpy()


@pytest.fixture(scope="module")
def model(table: tuple[pd.DataFrame, Vector]) -> PrivateRegressor:
    hidden: Any = {"hidden": (0, 10)}
    made = PrivateRegressor(3.0, label_bounds=(0, 40), head="linear", private_columns=hidden, random_state=0)
    return made.fit(*table)


def test_the_estimator_gives_errors_in_the_order_of_its_coefficients(model: PrivateRegressor) -> None:
    names = list(model.coef_names_)
    assert names.index("hidden") == 1  # the order of the table, not that of the model
    intervals, narrower = model.coef_interval(0.95), model.coef_interval(0.95, of="data")
    assert intervals.shape == (len(names), 2)
    summary = model.summary()
    assert [row.name for row in summary.rows] == [*names, "intercept"]
    np.testing.assert_array_equal([[row.low, row.high] for row in summary.rows[:-1]], intervals)
    np.testing.assert_array_equal([row.std for row in summary.rows[:-1]], model.coef_std_)
    np.testing.assert_array_equal([row.coefficient for row in summary.rows[:-1]], model.coef_)
    assert summary["intercept"].coefficient == model.intercept_
    assert (np.ptp(narrower, axis=1) < np.ptp(intervals, axis=1)).all()
    assert intervals[1, 0] < 1.0 < intervals[1, 1] and 0.9 < intervals[1, 0]
    row = summary["hidden"]
    assert row.std == pytest.approx(np.sqrt(row.noise**2 + row.bias**2 + row.sampling**2 + row.bound**2))


def test_a_summary_reads_as_text_html_and_rows(model: PrivateRegressor) -> None:
    summary = model.summary(0.9)
    text, html = str(summary), summary._repr_html_()
    assert "[0.05" in text and "0.95]" in text and "90 %" in text
    for row in summary.rows:
        line = next(line for line in text.splitlines() if line.startswith(row.name))
        assert f"{row.coefficient:.4g}" in line and f"{row.high:.4g}" in line and f"{row.high:.4g}" in html
    assert len({len(line) for line in text.splitlines() if "0." in line and "  " in line}) == 1  # columns are aligned
    frame = pd.DataFrame(summary.rows)
    assert list(frame["name"]) == [row.name for row in summary.rows]
    with pytest.raises(KeyError, match="no coefficient 'shoe size'"):
        summary["shoe size"]


def test_predictions_come_with_the_deviation_of_their_errors(
    model: PrivateRegressor, table: tuple[pd.DataFrame, Vector]
) -> None:
    rows = table[0][:50]
    predictions, std = model.predict(rows, return_std=True)
    np.testing.assert_array_equal(predictions, model.predict(rows))
    known = model.result_.get_uncertainty()
    base = replace(model.result_, uncertainty=None).model
    public, private = model._encode(rows)
    changes = [
        replace(base, parameters=base.parameters + direction * np.sqrt(variance)).compute_scores(public, private)
        - base.compute_scores(public, private)
        for direction, variance in zip(known.matrix.T, known.error_variance, strict=True)
    ]
    np.testing.assert_allclose(std, 40 * np.linalg.norm(changes, axis=0), rtol=1e-6)


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize("head", [Linear(), Wide(width=20)], ids=repr)
def test_prediction_intervals_cover_labels_of_other_records(epsilon: float, head: Any) -> None:
    rng = np.random.default_rng(1)
    records, _, _ = make_records(rng, 3000)
    result = fit(CondNewton(), records, epsilon, 0, head=head)
    fresh, _, labels = make_records(rng, 4000)
    for level in (0.5, 0.95):
        low, high = estimate_intervals(result, fresh.public, level=level).T
        covered = np.mean((low <= labels) & (labels <= high))
        # With much noise, the size of the residuals is overestimated rather than underestimated.
        assert level - 0.03 < covered < level + (0.05 if epsilon == 3.0 else 0.12)


def test_what_is_not_known_is_said(table: tuple[pd.DataFrame, Vector]) -> None:
    frame, label = table
    public = frame[["age", "income"]]

    def train(**settings: Any) -> PrivateRegressor:
        return PrivateRegressor(1.0, label_bounds=(0, 40), random_state=0, **settings).fit(public, label)

    curves = train(head="additive")
    with pytest.raises(AttributeError, match="an additive model, and only linear models have coefficients. curves_"):
        curves.coef_interval()
    assert not hasattr(curves, "coef_std_") and curves.predict_interval(public[:3]).shape == (3, 2)
    with pytest.raises(AttributeError, match="only linear models have coefficients with intervals. curves_"):
        curves.predict(public, return_std=True)
    descent = train(algorithm="cond-dp", head="linear")
    assert not hasattr(descent, "coef_std_")
    with pytest.raises(ValueError, match="only intervals of='data'"):
        descent.coef_interval()
    assert descent.coef_interval(of="data").shape == (2, 2)
    summary = descent.summary()
    assert summary.of == "data" and len(summary.remarks) == 2 and "clipping gradients" in str(summary)
    with pytest.raises(AttributeError, match="did not release the size of its residuals"):
        descent.predict_interval(public)
    for algorithm in (CondDP(optimizer="adam"), CondDP(batch_size=100, optimizer="sgd"), "rr-on-bins"):
        with pytest.raises(AttributeError, match="its algorithm does not give it"):
            train(algorithm=algorithm, head="linear").summary()
    with pytest.raises(AttributeError, match="a neural network"):
        train(algorithm=CondDP(num_steps=3), head=MLP(hidden=(3,))).result_.get_uncertainty()
    with pytest.raises(ValueError, match="of must be one of"):
        descent.coef_interval(of="everyone")  # type: ignore[arg-type]


def test_several_labels_have_intervals_each(table: tuple[pd.DataFrame, Vector]) -> None:
    frame, label = table
    labels = pd.DataFrame({"one": label, "two": label / 2})
    public = frame[["age", "income"]]
    model = PrivateRegressor(2.0, label_bounds=(0, 40), head="linear", random_state=0).fit(public, labels)
    assert model.coef_interval().shape == (2, 2, 2) and model.coef_std_.shape == (2, 2)
    assert [each.label for each in model.summary()] == ["one", "two"]
    predictions, std = model.predict(public[:5], return_std=True)
    assert predictions.shape == std.shape == (5, 2)
    assert model.predict_interval(public[:5]).shape == (5, 2, 2)


@pytest.mark.parametrize("algorithm", [CondNewton(), OneShot(), CondDP()], ids=lambda each: type(each).__name__)
def test_a_loaded_model_is_as_uncertain_as_before(algorithm: Algorithm, tmp_path: Path) -> None:
    records, _, _ = make_records(np.random.default_rng(0), 300)
    result = fit(algorithm, records, 1.0, 0)
    loaded = load_model(save_model(tmp_path / "model", result))
    assert str(Summary.of_result(loaded)) == str(Summary.of_result(result))
    for name, array in result.get_uncertainty().get_arrays().items():
        np.testing.assert_array_equal(loaded.get_uncertainty().get_arrays()[name], array)
    before, after = (estimate_deviations(each, records.public) for each in (result, loaded))
    np.testing.assert_array_equal(before, after)


def test_a_folder_of_the_format_before_is_loaded_and_saved_again_without_uncertainty(tmp_path: Path) -> None:
    records, _, _ = make_records(np.random.default_rng(0), 300)
    folder = save_model(tmp_path / "model", fit(CondNewton(), records, 1.0, 0))
    record = json.loads((folder / "model.json").read_text())
    before = {name: value for name, value in record.items() if name not in ("digest", "uncertainty")}
    (folder / "model.json").write_bytes(sign_record({**before, "conddp_model": 6}))
    (folder / "uncertainty.safetensors").unlink()
    loaded = load_model(folder)
    np.testing.assert_array_equal(
        load_model(save_model(tmp_path / "again", loaded)).predict(records.public), (loaded.predict(records.public))
    )
    with pytest.raises(AttributeError, match="did not store it"):
        loaded.get_uncertainty()
    (folder / "model.json").write_bytes(sign_record({**record, "conddp_model": 6}))
    with pytest.raises(ModelFileError, match="does not have the fields of format 6"):
        load_model(folder)


@pytest.mark.parametrize("kind", ["units", "weights", "no intercept"])
@pytest.mark.parametrize("algorithm", [CondNewton(), OneShot(), CondDP()], ids=lambda each: type(each).__name__)
def test_intervals_cover_with_units_weights_and_without_an_intercept(algorithm: Algorithm, kind: str) -> None:
    """Of 240 intervals, three of each of 80 fits, the fraction that covers has a standard deviation of 0.015."""
    rng, n, hits = np.random.default_rng(1), 1000, []
    for seed in range(80):
        X = rng.normal(size=(n, 3)) + (kind == "no intercept")
        label = np.clip(X @ TRUTH[:3] + rng.normal(size=n), -10, 10)
        units = Units(rng.integers(0, n // 2, n)) if kind == "units" else None
        weights = rng.uniform(0.2, 1.0, n) if kind == "weights" else None
        records = Records(PublicFeatures(X), None, Labels(label, Bounds(-10, 10)), units=units, weights=weights)
        result = fit(algorithm, records, 3.0, seed, fit_intercept=kind != "no intercept")
        roots = np.sqrt(np.ones(n) if weights is None else weights)[:, None]
        columns = X if kind == "no intercept" else np.column_stack([X, np.ones(n)])
        target = np.linalg.lstsq(columns * roots, label * roots[:, 0], rcond=None)[0]
        low, high = result.estimate_coefficients()[1].compute_intervals(0.95, "data").T
        hits.append(((low < target) & (target < high))[:3])
    assert 0.88 < np.mean(hits) < 0.995


def test_models_of_earlier_versions_say_that_no_uncertainty_is_stored() -> None:
    loaded = PrivateRegressor.load(SAVED / "format_4_first_linear")
    assert len(loaded.coef_) and not hasattr(loaded, "coef_std_")
    with pytest.raises(AttributeError, match="saved by an earlier version of conddp, which did not store it"):
        loaded.summary()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"bound": -1.0}, "negative"),
        ({"bound": None}, "must be a number"),
        ({"counts_clamping": 1}, "must be true or false"),
        ({"matrix": [[1.0]]}, "place for arrays"),
        ({"digest": "sha256:0"}, "does not belong to its model.json"),
        (None, "is damaged"),
    ],
)
def test_a_damaged_uncertainty_is_refused(changes: Any, problem: str, tmp_path: Path) -> None:
    records, _, _ = make_records(np.random.default_rng(0), 300)
    folder = save_model(tmp_path / "model", fit(CondNewton(), records, 1.0, 0))
    record = json.loads((folder / "model.json").read_text())
    record["uncertainty"] = 3 if changes is None else {**record["uncertainty"], **changes}
    (folder / "model.json").write_bytes(sign_record(record))
    with pytest.raises(ModelFileError, match=problem):
        load_model(folder)


@pytest.mark.parametrize("name", ["origin", "matrix", "noise_variance"])
def test_arrays_of_an_uncertainty_must_fit_together(name: str) -> None:
    whole = make_uncertainty()
    whole.check(2)
    with pytest.raises(ValueError, match="uncertainty"):
        change: Any = {name: whole.get_arrays()[name][:1]}
        replace(whole, **change).check(2)
    with pytest.raises(ValueError, match="not of a usual size"):
        replace(whole, estimate=np.array([1e200, 0.0])).check(2)
    with pytest.raises(ValueError, match="a variance is negative"):
        replace(whole, bias_variance=np.array([-1.0, 0.0])).check(2)


@pytest.mark.parametrize("algorithm", [CondNewton(), OneShot(), CondDP()], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("private", [0, 1])
def test_deviations_of_columns_follow_from_the_directions(algorithm: Algorithm, private: int) -> None:
    if private and not isinstance(algorithm, CondNewton):
        pytest.skip("no uncertainty with private columns")
    records, _, _ = make_records(np.random.default_rng(0), 2000, private=private)
    scales = np.array([1e6, 1e-4, 1.0, 1.0])[: 4 - private]
    X = records.public.values * scales + 3 * scales
    other = Records(PublicFeatures(X), records.private, records.label)
    known = fit(algorithm, other, 2.0, 0).get_uncertainty()
    np.testing.assert_allclose(
        known.compute_deviations(4 - private)[: 4 - private], X.std(axis=0), rtol=0.05 if private else 1e-4
    )


def test_columns_too_small_for_squares_have_no_uncertainty() -> None:
    X = 1e-160 * np.random.default_rng(0).normal(size=(300, 3))
    records = Records(PublicFeatures(X), None, Labels(np.zeros(300), Bounds(-4, 4)))
    assert fit(CondNewton(), records, 2.0, 0).uncertainty is None
