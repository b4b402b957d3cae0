"""Curves of additive models: sums, standard deviations, coverage, original units and storage."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.exceptions import NotFittedError

from conddp import CondNewton, PrivacyBudget, PrivateRegressor
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.records import Records
from conddp.errors import SchemaError
from conddp.features.additive_terms import AdditiveTerms
from conddp.features.column_scales import ColumnScales
from conddp.features.dictionary import Dictionary
from conddp.features.feature_families import Families, Relevance
from conddp.heads import Additive
from conddp.models.curves import Curves
from conddp.models.diagnostics import Diagnostics
from conddp.models.effects import Effect, Effects, PairEffect
from conddp.models.result import FitResult
from conddp.models.saving import ModelFileError, sign_record
from conddp.newton.effects import Refit, estimate_effects
from conddp.newton.measurements import FunctionPosterior, Measurements, Overlap
from conddp.newton.parameter_posterior import FACTORS, PROBABILITIES, ParameterPosterior
from conddp.privacy.randomness import RandomSource
from conddp.report import render_markdown, report_fit

Vector = NDArray[np.float64]

BOUNDS = Bounds(-5.0, 5.0)
BAND = 1.96


def make_table(n: int = 1500) -> tuple[pd.DataFrame, Vector]:
    """Columns of all kinds with few values each, and labels that depend on most of them."""
    rng = np.random.default_rng(0)
    age = rng.choice([20.0, 30.0, 45.0, 60.0, 80.0], n)
    age[rng.uniform(size=n) < 0.1] = np.nan
    table = pd.DataFrame(
        {
            "age": age,
            "rooms": rng.integers(1, 9, n),
            "city": rng.choice(["Bonn", "Oslo", "Rome"], n, p=[0.5, 0.3, 0.2]),
            "new": rng.uniform(size=n) < 0.3,
            "sold": pd.Timestamp("2024-01-01") + pd.to_timedelta(7.0 * rng.integers(0, 16, n), unit="D"),
        }
    )
    label = np.where(np.isnan(age), 2.0, (age - 40) / 20) + np.sin(table.rooms) + table.new * table.rooms / 4
    label = label + table.city.map({"Bonn": 0.0, "Oslo": 1.0, "Rome": -1.0}) - 0.5
    return table, (label + 0.3 * rng.normal(size=n)).to_numpy()


@pytest.fixture(scope="module")
def fitted() -> tuple[PrivateRegressor, pd.DataFrame]:
    table, label = make_table()
    model = PrivateRegressor(8.0, label_bounds=(-5, 5), head=Additive(width=200, pairs=6), random_state=0)
    return model.fit(table, label), table


def find_places(curves: Curves, name: str, table: pd.DataFrame, values: Any) -> NDArray[np.intp]:
    """Places of the cells of a table among the values of a curve."""
    if name.endswith("is missing"):
        cells: Any = table[name.removesuffix(" is missing")].isna()
    else:
        cells = table[name]
        if name == "age":
            cells = cells.fillna(cells.median())
    found = {value: place for place, value in enumerate(np.asarray(values).tolist())}
    return np.array([found[cell] for cell in np.asarray(cells, dtype=np.asarray(values).dtype).tolist()])


def add_up(curves: Curves, table: pd.DataFrame) -> Vector:
    total = np.full(len(table), curves.constant)
    for curve in curves:
        total += curve.effect[find_places(curves, curve.name, table, curve.values)]
    for surface in curves.pairs:
        first, second = (
            find_places(curves, name, table, values) for name, values in zip(surface.names, surface.values, strict=True)
        )
        total += surface.effect[first, second]
    return total


def test_the_constant_the_curves_and_the_surfaces_add_up_to_predictions() -> None:
    table, label = make_table()
    table = table[["age", "rooms", "city", "new"]]
    model = PrivateRegressor(8.0, label_bounds=(-5, 5), head=Additive(width=200, pairs=6), random_state=0)
    curves, expected = model.fit(table, label).curves_, model.predict(table)
    assert isinstance(curves, Curves) and len(curves.pairs) > 2
    inside = np.abs(expected) < 4.9  # predictions are clamped
    assert inside.mean() > 0.9
    np.testing.assert_allclose(add_up(curves, table)[inside], expected[inside], atol=1e-5)


def test_curves_have_mean_zero_and_their_importance_is_their_deviation(
    fitted: tuple[PrivateRegressor, pd.DataFrame],
) -> None:
    model, table = fitted
    curves = model.curves_
    for curve in curves:
        if not curve.name.startswith("sold"):
            effect = curve.effect[find_places(curves, curve.name, table, curve.values)]
            assert effect.mean() == pytest.approx(0.0, abs=1e-6)
            assert effect.std() == pytest.approx(curve.importance, rel=1e-6)
    importances = [curve.importance for curve in curves]
    assert importances == sorted(importances, reverse=True)
    assert curves.constant == pytest.approx(model.predict(table).mean(), abs=0.02)
    rooms = curves["rooms"]
    np.testing.assert_allclose(rooms.effect - rooms.effect.mean(), np.sin(rooms.values), atol=0.8)


def test_values_are_those_of_the_columns(fitted: tuple[PrivateRegressor, pd.DataFrame]) -> None:
    curves = fitted[0].curves_
    names = {curve.name for curve in curves}
    assert names == {"age", "age is missing", "rooms", "city", "new", "sold"}
    assert curves["age"].values.tolist() == [20.0, 30.0, 45.0, 60.0, 80.0]
    assert curves["age is missing"].column == "age"
    assert curves["age is missing"].values.tolist() == curves["new"].values.tolist() == [False, True]
    assert curves["city"].values.tolist() == ["Bonn", "Oslo", "Rome"] and curves["city"].is_category
    assert curves["sold"].values[[0, -1]].tolist() == [
        pd.Timestamp("2024-01-01").date(),
        pd.Timestamp("2024-04-15").date(),
    ]
    assert curves[0].name in repr(curves[0]) and "constant" in repr(curves) and "and" in repr(curves.pairs[0])
    with pytest.raises(KeyError, match="there is no curve 'size'. Curves: .*rooms"):
        curves["size"]


def test_dates_have_curves_for_the_trend_the_year_the_weekday_and_the_time_of_day() -> None:
    rng = np.random.default_rng(0)
    days = pd.to_timedelta(rng.uniform(0, 1000, 800), unit="D")
    table = pd.DataFrame({"sold": pd.Timestamp("2020-02-01") + days})
    table.loc[:80, "sold"] = pd.NaT
    label = (table.sold.dt.day_of_week > 4).to_numpy().astype(float)
    model = PrivateRegressor(20.0, label_bounds=(-5, 5), head=Additive(width=100), random_state=0).fit(table, label)
    curves = model.curves_
    kinds = {curve.name: (curve.unit, curve.values) for curve in curves}
    assert set(kinds) == {"sold", "sold: year", "sold: weekday", "sold: time of day", "sold is missing"}
    assert kinds["sold: year"][0] == "day of the year" and kinds["sold: time of day"][0] == "hour"
    year, hours = kinds["sold: year"][1], kinds["sold: time of day"][1]
    assert np.isnan(year[-1]) and 0 <= year[0] < year[-2] < 366  # gaps come last
    assert 0 <= hours[0] < hours[-2] <= 24
    assert kinds["sold: weekday"][1][:2].tolist() == ["Monday", "Tuesday"]
    assert kinds["sold: weekday"][1][-1] == "no date"
    assert kinds["sold"][1].dtype.kind == "M"
    weekday = curves["sold: weekday"].effect
    assert weekday[5:7].min() > weekday[:5].max() + 0.4


def test_heavy_tailed_columns_return_to_their_units_and_rare_levels_have_names() -> None:
    rng = np.random.default_rng(0)
    income = np.exp(2.5 * rng.normal(size=3000))
    shop = np.where(rng.uniform(size=3000) < 0.2, rng.integers(0, 300, 3000), -1).astype(str)
    table = pd.DataFrame({"income": income, "shop": shop})
    model = PrivateRegressor(1.0, label_bounds=(-5, 5), head=Additive(width=50), random_state=0)
    model.fit(table, np.log(income).clip(-5, 5))
    curve, levels = model.curves_["income"], model.curves_["shop"].values
    assert model.encoding_.features[0] == "arsinh(income)"
    np.testing.assert_allclose(curve.values[[0, -1]], [income.min(), income.max()], rtol=1e-5, atol=1e-8)
    assert np.all(np.diff(curve.values) > 0)
    assert "-1" in levels.tolist() and any(str(level).startswith("rare, group ") for level in levels)


N = 250


def make_posterior(*, pairs: int) -> tuple[Vector, Dictionary, FunctionPosterior, Vector, Vector, Vector]:
    """A posterior given some measurements, and how these were made: directions, values and noise variances."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(N, 3))
    rows[:, 2] = np.round(rows[:, 2])
    relevance = Relevance(np.ones(3), np.eye(3) / 3)
    families = Families(40, interactions=False, pairs=pairs)
    dictionary = families.make(ColumnScales.of(PublicFeatures(rows)), rows, relevance, seed=0)
    mixed = np.tanh(rows @ rng.normal(size=(3, 15)) + rng.normal(size=15))
    directions = mixed @ np.linalg.inv(np.linalg.cholesky(mixed.T @ mixed / N)).T
    variance = rng.uniform(0.001, 0.01, size=15)
    label = np.sin(2 * rows[:, 0]) + 0.3 * rows[:, 2] + 0.1 * rng.normal(size=N)
    values = directions.T @ label / N + np.sqrt(variance) * rng.normal(size=15)
    measurements = Measurements(directions, values, variance)
    overlap = Overlap.of(dictionary, rows, measurements, None)
    posterior = FunctionPosterior.of(overlap, measurements, signal_variance=0.5, sampling_variance=0.02 / N)
    return rows, dictionary, posterior, directions, values, variance


@pytest.mark.parametrize("pairs", [0, 3])
def test_variances_are_those_of_the_partial_dependence_under_the_dense_posterior(pairs: int) -> None:
    rows, dictionary, posterior, directions, values, variance = make_posterior(pairs=pairs)
    features = dictionary.evaluate(rows).astype(float)
    A = directions.T / N
    noise = np.diag(variance) + 0.02 / N * np.eye(15)
    prior = np.diag(posterior.variances[dictionary.component])
    B = A @ features.T
    gain = prior @ B.T @ np.linalg.inv(noise + B @ prior @ B.T)
    covariance = prior - gain @ B @ prior
    terms, parameters = AdditiveTerms(dictionary, PublicFeatures(rows), rows), ParameterPosterior.of(posterior)
    single = (dictionary.frequencies > 0).sum(axis=1) == 1
    for column in range(3):
        grid = terms.make_grid(column)
        functional = terms.express(column, grid.rows)

        def depend(value: float, column: int = column) -> Vector:
            """Average of the features over the rows if a column has one value everywhere."""
            changed = rows.copy()
            changed[:, column] = value
            return np.asarray(dictionary.evaluate(changed).astype(float).mean(axis=1))

        center = np.mean([depend(value) for value in rows[:, column]], axis=0)
        G = np.array([depend(value) - center for value in grid.rows[:, 0]])
        scaled = posterior.weights * dictionary.gains
        number = dictionary.axes.shape[1]
        effect = functional.evaluate(dictionary.axes @ scaled[:number], scaled[number:])
        np.testing.assert_allclose(effect, G @ posterior.weights, atol=1e-4)
        plain = ((G @ covariance) * G).sum(axis=1)
        np.testing.assert_allclose(parameters.compute_variance(functional, allowing=False), plain, atol=1e-4)

        # The mixture: more prior variance of the terms of this column alone.
        z = dictionary.scales.standardize(rows)[:, column]
        axes = dictionary.axes[column] * dictionary.gains[:number]
        linear = axes**2 @ np.diag(prior)[:number]
        own = number + np.flatnonzero(single & (dictionary.places[:, 0] == column))
        added = features[own].T * np.sqrt(np.diag(prior)[own])
        added = np.column_stack([np.sqrt(linear) * (z - z.mean()), added])
        at_grid = np.column_stack(
            [
                np.sqrt(linear) * (dictionary.scales.standardize(grid.rows.repeat(3, axis=1))[:, column] - z.mean()),
                G[:, own] * np.sqrt(np.diag(prior)[own]),
            ]
        )
        expected, evidence = [], []
        for factor in FACTORS:
            C = A @ added * np.sqrt(factor - 1)
            S = noise + B @ prior @ B.T + C @ C.T
            along = G @ prior @ B.T + at_grid @ C.T * np.sqrt(factor - 1)
            moved = along @ np.linalg.solve(S, values) - G @ posterior.weights
            own_variance = ((G @ prior) * G).sum(axis=1) + (factor - 1) * (at_grid**2).sum(axis=1)
            expected.append(own_variance - (along @ np.linalg.inv(S) * along).sum(axis=1) + moved**2)
            evidence.append(multivariate_normal(np.zeros(15), S).logpdf(values))
        mixed = softmax(np.array(evidence) + np.log(PROBABILITIES)) @ np.array(expected)
        np.testing.assert_allclose(parameters.compute_variance(functional), mixed, rtol=2e-2, atol=2e-4)
        assert (mixed >= plain - 1e-6).all()


def test_surfaces_are_what_is_left_of_products() -> None:
    rows, dictionary, posterior, *_ = make_posterior(pairs=3)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, N)
    for given in (None, weights):
        terms = AdditiveTerms(dictionary, PublicFeatures(rows), rows, given)
        scaled, number = posterior.weights * dictionary.gains, dictionary.axes.shape[1]
        linear, products = dictionary.axes @ scaled[:number], scaled[number:]
        singles = [terms.express(group, rows[:, [group]]).evaluate(linear, products) for group in range(3)]
        pairs = []
        for first, second in terms.pairs:
            functional = terms.express_pair((first, second), rows[:, [first]], rows[:, [second]])
            pairs.append(np.diag(functional.evaluate(linear, products).reshape(N, N)))
        constant = terms.compute_mean(linear, products) - dictionary.means @ scaled
        assert len(pairs) == 3
        total = constant + np.sum(singles, axis=0) + np.sum(pairs, axis=0)
        np.testing.assert_allclose(total, dictionary.predict(rows, posterior.weights), atol=1e-5)
        averages = [np.average(each, weights=given) for each in (*singles, *pairs)]
        np.testing.assert_allclose(averages, 0.0, atol=1e-12)
        stds = np.concatenate(terms.measure_deviations(linear, products))
        expected = [np.sqrt(np.average(each**2, weights=given)) for each in (*singles, *pairs)]
        np.testing.assert_allclose(stds, expected, rtol=1e-9)


def test_products_of_three_columns_and_projections_are_refused() -> None:
    rows = np.random.default_rng(0).normal(size=(100, 3))
    scales, public = ColumnScales.of(PublicFeatures(rows)), PublicFeatures(rows)
    dictionary = Families(40).make(scales, rows, Relevance(np.ones(3)), seed=0)
    with pytest.raises(ValueError, match="projections are not sums of functions"):
        AdditiveTerms(dictionary, public, rows)


def simulate(seed: int, n: int, correlation: float) -> tuple[Vector, Vector]:
    """Correlated columns with tails, jumps and few values, and what each of them adds to the label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8)) * np.sqrt(1 - correlation) + np.sqrt(correlation) * rng.normal(size=(n, 1))
    X[:, 1], X[:, 2], X[:, 3] = np.exp(X[:, 1]), X[:, 2] > 0.3, np.round(2 * X[:, 3])
    effects = np.zeros((n, 8))
    effects[:, 0], effects[:, 1], effects[:, 2] = np.sin(2 * X[:, 0]), 0.5 * np.minimum(X[:, 1], 3), 0.8 * X[:, 2]
    effects[:, 3], effects[:, 4], effects[:, 5] = 0.2 * X[:, 3], 0.6 * np.abs(X[:, 4]), 0.5 * (X[:, 5] > 0)
    return X, effects - effects.mean(axis=0)


def measure_coverage(seed: int, n: int, correlation: float, epsilon: float, noise_std: float, private: bool) -> float:
    """Fraction of the records, on average over columns, whose true effect is within the band."""
    X, effects = simulate(seed, n, correlation)
    label = effects.sum(axis=1) + noise_std * np.random.default_rng(seed + 100).normal(size=n)
    model = PrivateRegressor(epsilon, label_bounds=(-5, 5), head="additive", random_state=seed)
    model.set_params(private_columns={7: (-3, 3)} if private else None)
    curves = model.fit(X, label + private * 0.5 * X[:, 7]).curves_
    within = []
    for column in range(7):
        curve = curves[f"x{column}"]
        inside, std = (np.interp(X[:, column], curve.values.astype(float), each) for each in (curve.effect, curve.std))
        within.append(np.mean(np.abs(inside - effects[:, column]) < BAND * std))
    return float(np.mean(within))


@pytest.mark.parametrize(
    ("n", "correlation", "epsilon", "noise_std", "private"),
    [
        (2000, 0.0, 1.0, 0.5, False),
        (3000, 0.3, 0.25, 1.0, False),
        (4000, 0.5, 4.0, 0.5, False),
        (3000, 0.3, 2.0, 0.5, True),
    ],
)
def test_bands_contain_the_true_curves_about_as_often_as_they_should(
    n: int, correlation: float, epsilon: float, noise_std: float, private: bool
) -> None:
    # Over 20 seeds, single fits had 0.96 on average in each setting but the second, where it was 0.935 with a standard
    # deviation of 0.056. The mean of four would be below 0.85 about once in a thousand times; these seeds are fixed.
    coverage = [measure_coverage(seed, n, correlation, epsilon, noise_std, private) for seed in range(4)]
    assert 0.85 < np.mean(coverage) < 0.995


def test_a_refit_scales_effects_and_adds_its_own_variance() -> None:
    rows, dictionary, posterior, *_ = make_posterior(pairs=3)
    terms, parameters = AdditiveTerms(dictionary, PublicFeatures(rows), rows), ParameterPosterior.of(posterior)
    scaled, number = posterior.weights * dictionary.gains, dictionary.axes.shape[1]
    linear, products = dictionary.axes @ scaled[:number], scaled[number:]

    def estimate(*coefficients: Vector, refit: Refit | None = None) -> Effects:
        return estimate_effects(terms, parameters, *coefficients, constant=1.0, width=1.0, refit=refit)

    plain = estimate(linear, products)
    root = np.zeros((4, 2))
    doubled = estimate(2 * linear, 2 * products, refit=Refit(linear, products, 2.0, root))
    both: list[tuple[Effect | PairEffect, Effect | PairEffect]] = [
        *zip(plain.singles, doubled.singles, strict=True),
        *zip(plain.pairs, doubled.pairs, strict=True),
    ]
    for before, after in both:
        np.testing.assert_allclose(after.effect, 2 * np.array(before.effect))
        np.testing.assert_allclose(after.std, 2 * np.array(before.std))
    root[1, 0], root[3, 1] = 0.3, 0.1  # of the coefficients of column 1 and of the predictions
    spread = estimate(2 * linear, 2 * products, refit=Refit(linear, products, 2.0, root))
    grid = terms.make_grid(1).rows
    z = dictionary.scales.standardize(np.repeat(grid, 3, axis=1))[:, 1] - terms.z_means[1]
    expected = np.array(doubled.singles[1].std) ** 2 + (0.3 * z) ** 2 + (0.1 * np.array(plain.singles[1].effect)) ** 2
    np.testing.assert_allclose(np.array(spread.singles[1].std) ** 2, expected)
    assert plain.constant == pytest.approx(1.0 + terms.compute_mean(linear, products))


def test_with_private_columns_curves_add_up_to_predictions_at_their_midpoints() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 9, 2000), rng.integers(0, 5, 2000)]).astype(float)
    hidden = PrivateFeatures(rng.uniform(-1, 1, size=(2000, 1)), (Bounds(-1.0, 1.0),), ("hidden",))
    label = np.sin(X[:, 0]) + 0.3 * X[:, 1] + hidden.values[:, 0] + 0.2 * rng.normal(size=2000)
    records = Records(PublicFeatures(X), hidden, Labels(label, BOUNDS))
    head = Additive(width=100, pairs=1)
    result = CondNewton().fit(records, PrivacyBudget(4.0, 1e-6), head=head, random_source=RandomSource.of(0))
    curves = result.make_curves()
    table = pd.DataFrame(X, columns=["x0", "x1"])
    middle = PrivateFeatures(np.zeros((2000, 1)), hidden.domains, hidden.names)
    np.testing.assert_allclose(add_up(curves, table), result.model.predict(records.public, middle), atol=1e-5)
    np.testing.assert_allclose(curves["x1"].effect, 0.3 * (curves["x1"].values - X[:, 1].mean()), atol=0.2)


def test_coefficients_of_private_columns_are_slopes_of_predictions() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"x": rng.normal(size=1500), "pay": rng.uniform(10, 30, 1500), "job": rng.choice(list("abc"), 1500)}
    )
    label = np.abs(table.x) + 0.1 * (table.pay - 20) + (table.job == "b")
    declared = {"pay": (10, 30), "job": ["a", "b", "c"]}
    for head in (Additive(width=50), "learned", "linear"):
        model = PrivateRegressor(8.0, label_bounds=(-5, 5), head=head, private_columns=declared, random_state=0)
        model.fit(table, label)
        found = dict(model.result_.list_private_coefficients())
        rows = pd.DataFrame({"x": 0.0, "pay": [15.0, 16.0, 15.0, 15.0], "job": ["a", "a", "b", "c"]})
        first, more, second, third = model.predict(rows)
        assert found["pay"] == pytest.approx(more - first)
        assert found["job=b"] - found["job=a"] == pytest.approx(second - first)
        assert found["job=c"] - found["job=a"] == pytest.approx(third - first)
        assert found["pay"] == pytest.approx(0.1, abs=0.03)
        if head == "linear":
            coefficients = dict(zip(model.coef_names_, model.coef_, strict=True))
            assert found == {name: pytest.approx(coefficients[name]) for name in found}
        else:
            text = render_markdown(report_fit(model.result_))
            assert f"| pay | {found['pay']:.4g} |" in text and "| job=b |" in text
        if isinstance(head, Additive):
            assert "linear terms of private columns listed above" in text


def test_printed_curves_are_a_table(fitted: tuple[PrivateRegressor, pd.DataFrame]) -> None:
    curves = fitted[0].curves_
    first, heads, *rows = str(curves).splitlines()
    assert first == f"A prediction is {curves.constant:.4g} plus the effects of:"
    assert heads.split() == ["name", "kind", "spread", "band"]
    assert len(rows) == len(curves) + len(curves.pairs) + 2
    kinds = {"rooms": "number", "city": "category", "new": "flag", "sold": "date"}
    for name, kind in kinds.items():
        (line,) = [row for row in rows if row.split()[:2] == [name, kind]]
        assert line.split()[2] == f"{curves[name].importance:.3g}"
        assert line.split()[-1] == f"{1.96 * np.median(curves[name].std):.3g}"
    assert any(row.split()[1:4:2] == ["×", "pair"] for row in rows)


def test_groups_of_columns_without_an_encoding_share_a_curve() -> None:
    rng = np.random.default_rng(0)
    level = rng.integers(0, 4, 1000)
    X = np.column_stack([np.eye(4)[level][:, :3], rng.normal(size=1000), np.zeros(1000)])
    public = PublicFeatures(X, ["a", "b", "c", "x", "same"], np.array([0, 0, 0, 1, 2]))
    records = Records(public, None, Labels(level / 2 - 1 + 0.1 * rng.normal(size=1000), BOUNDS))
    result = CondNewton().fit(
        records, PrivacyBudget(8.0, 1e-6), head=Additive(width=50), random_source=RandomSource.of(0)
    )
    curves = result.make_curves()
    assert {curve.name for curve in curves} == {"a to c", "x"}  # a constant column has none
    assert curves["a to c"].values.tolist() == ["a", "b", "c", "other levels"]
    np.testing.assert_allclose(curves["a to c"].effect, np.arange(4) / 2 - level.mean() / 2, atol=0.25)


def test_curves_of_a_loaded_model_are_the_same(fitted: tuple[PrivateRegressor, pd.DataFrame], tmp_path: Path) -> None:
    model = fitted[0]
    again = PrivateRegressor.load(model.save(tmp_path / "model"))
    assert again.diagnostics_ == model.diagnostics_
    for first, second in zip(model.curves_, again.curves_, strict=True):
        assert (first.name, first.importance, first.unit) == (second.name, second.importance, second.unit)
        for name in ("values", "effect", "std"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def change_record(folder: Path, change: Any) -> None:
    record = json.loads((folder / "model.json").read_text())
    change(record["diagnostics"])
    del record["digest"]
    (folder / "model.json").write_bytes(sign_record(record))


def test_a_model_that_was_saved_without_curves_can_be_loaded(
    fitted: tuple[PrivateRegressor, pd.DataFrame], tmp_path: Path
) -> None:
    folder = fitted[0].save(tmp_path / "model")
    change_record(folder, lambda diagnostics: diagnostics.pop("effects"))
    again = PrivateRegressor.load(folder)
    np.testing.assert_array_equal(again.predict(fitted[1]), fitted[0].predict(fitted[1]))
    with pytest.raises(AttributeError, match="no curves_: .* saved by an earlier version"):
        _ = again.curves_


SINGLE, OTHER = (Effect((place,), False, (1.0, 2.0), (0.1, -0.1), (0.1, 0.1), 0.1) for place in (0, 1))


@pytest.mark.parametrize(
    ("effects", "problem"),
    [
        ((Effect((9_999,), False, (1.0,), (0.1,), (0.1,), 0.1),), "not of public features"),
        ((Effect((), False, (), (), (), 0.1),), "not of public features"),
        ((Effect((0,), False, (1.0, 2.0), (0.1,), (0.1,), 0.1),), "a standard deviation for every value"),
        ((Effect((0,), False, (1.0,), (0.1,), (-0.1,), 0.1),), "is negative"),
        ((Effect((0, 1), True, (2.0,), (0.1,), (0.1,), 0.1),), "levels that it does not have"),
        ((SINGLE, PairEffect(0, 1, (1.0,), (1.0,), (0.1,), (0.1,), 0.1)), "unknown columns"),
        ((SINGLE, OTHER, PairEffect(0, 1, (1.0,), (1.0,), (0.1, 0.2), (0.1, 0.1), 0.1)), "for every pair of values"),
    ],
)
def test_damaged_curves_are_refused(
    fitted: tuple[PrivateRegressor, pd.DataFrame], tmp_path: Path, effects: tuple[Any, ...], problem: str
) -> None:
    folder = fitted[0].save(tmp_path / "model")
    singles = tuple(each for each in effects if isinstance(each, Effect))
    pairs = tuple(each for each in effects if isinstance(each, PairEffect))
    stored = json.loads(json.dumps(Effects(0.0, singles, pairs).to_json()))
    change_record(folder, lambda diagnostics: diagnostics.update(effects=stored))
    with pytest.raises(ModelFileError, match=problem):
        PrivateRegressor.load(folder)


def test_effects_that_are_not_finite_are_not_stored() -> None:
    effects = Effects(0.0, (Effect((0,), False, (1.0,), (np.inf,), (0.1,), 0.1),))
    assert "effects" not in Diagnostics(effects=effects).to_json()
    assert "effects" in Diagnostics(effects=Effects(0.0, (SINGLE,))).to_json()


def test_only_fitted_additive_models_have_curves() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    for head in ("linear", "learned"):
        model = PrivateRegressor(1.0, label_bounds=(-5, 5), head=head, random_state=0).fit(X, X[:, 0])
        assert not hasattr(model, "curves_")
        with pytest.raises(AttributeError, match="only additive models have curves. .*fit with head='additive'"):
            _ = model.curves_
    with pytest.raises(NotFittedError):
        _ = PrivateRegressor(head="additive").curves_


def test_several_labels_have_curves_each() -> None:
    X = np.random.default_rng(0).normal(size=(600, 2))
    model = PrivateRegressor(8.0, label_bounds=(-5, 5), head=Additive(width=30), random_state=0)
    curves = model.fit(X, np.column_stack([2 * X[:, 0], np.abs(X[:, 1])])).curves_
    assert isinstance(curves, tuple) and [each[0].name for each in curves] == ["x0", "x1"]
    assert all(isinstance(each, FitResult) for each in model.results_)


def test_a_fit_that_was_stopped_has_curves_with_wide_bands() -> None:
    X = np.random.default_rng(0).normal(size=(400, 2))
    records = Records(PublicFeatures(X), None, Labels(X[:, 0], BOUNDS))
    settings: dict[str, Any] = {"head": Additive(width=30), "random_source": RandomSource.of(0)}
    stopped = CondNewton().fit(records, PrivacyBudget(1.0, 1e-6), callback=lambda _: True, **settings)
    whole = CondNewton().fit(records, PrivacyBudget(1.0, 1e-6), **settings)
    first, second = (each.make_curves()["x0"] for each in (stopped, whole))
    np.testing.assert_array_equal(first.effect, 0.0)
    assert first.std.mean() > second.std.mean()


def test_curves_that_do_not_belong_to_the_columns_are_refused() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"level": np.array(["a", "b", "c"])[rng.integers(0, 3, 600)], "x": rng.normal(size=600)})
    model = PrivateRegressor(5.0, label_bounds=(-3, 3), head=Additive(width=60), random_state=0)
    result = model.fit(table, table["x"].clip(-3, 3).to_numpy()).result_
    foreign = Effect((2, 40), True, (0.0, 1.0), (0.0, 0.0), (0.0, 0.0), 0.0)
    broken = replace(result, diagnostics=replace(result.diagnostics, effects=Effects(0.0, (foreign,))))
    with pytest.raises(SchemaError, match="do not belong to the columns"):
        broken.make_curves()
