"""Coordinates of columns, dictionaries of features, and which features they hold."""

import math
import warnings
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures
from conddp.features import dictionary as dictionaries
from conddp.features.column_scales import FARTHEST, NUM_KNOTS, ColumnScales
from conddp.features.dictionary import Component, Dictionary
from conddp.features.feature_families import LEAST_RELEVANT, MOST_FREQUENCY, SMOOTHNESS, Families, Relevance
from conddp.features.row_sample import draw_rows

Vector = NDArray[np.float64]


def make_rows(n: int = 400, seed: int = 0) -> Vector:
    """Columns of very different kinds: normal, exponential, with three values, with two, and constant."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=n), 50 * rng.exponential(size=n), rng.integers(3, size=n), rng.random(n) < 0.3, np.ones(n)
    return np.column_stack(columns).astype(float)


def make_dictionary(X: Vector, rng: np.random.Generator) -> Dictionary:
    d = X.shape[1]
    places, frequencies = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 2], [1, 2, 0]]), [[1, 0, 0], [3, 0, 0], [1, 2, 1]]
    hinges = rng.normal(size=(3, 2 * d))
    parts = [
        Component("hinges", 0.1, np.ones(3), projections=hinges, phases=rng.uniform(size=3), hinged=True),
        Component("waves", 0.2, np.ones(5), projections=rng.normal(size=(5, 2 * d)), phases=rng.uniform(size=5)),
        Component("linear", 0.5, np.ones(d), axes=np.eye(d)),
        Component(
            "products", 0.3, rng.uniform(1, 2, 4), places=places, frequencies=np.array([*frequencies, [1, 1, 0]])
        ),
    ]
    return Dictionary.of(ColumnScales.of(PublicFeatures(X)), parts, X)


def test_ranks_do_not_depend_on_the_units_of_a_column_or_on_its_tails() -> None:
    X = make_rows()
    ranks = ColumnScales.of(PublicFeatures(X)).compute_ranks(X)
    bent = np.column_stack([X[:, 0] ** 3, np.log(X[:, 1]), 7 - 2 * X[:, 2]])
    others = ColumnScales.of(PublicFeatures(bent)).compute_ranks(bent)
    np.testing.assert_allclose(others[:, :2], ranks[:, :2], atol=1 / (NUM_KNOTS - 1))
    np.testing.assert_allclose(others[:, 2], 1 - ranks[:, 2], atol=1e-12)
    assert 0 <= ranks.min() and ranks.max() <= 1
    assert ranks[np.argmax(X[:, 1]), 1] == 1


def test_ranks_of_new_values_are_clamped_and_standardised_values_too() -> None:
    X = make_rows()
    scales = ColumnScales.of(PublicFeatures(X))
    far = np.array([[-1e30, 1e30, 99.0, 5.0, 1e30]])
    np.testing.assert_array_equal(scales.compute_ranks(far)[0, :2], [0.0, 1.0])
    assert np.abs(scales.standardize(far)).max() <= FARTHEST
    assert scales.standardize(far)[0, 4] == 0.0  # a constant column says nothing
    np.testing.assert_array_equal(scales.count_values()[2:], [3, 2, 1])


def test_indicators_of_a_category_share_a_scale() -> None:
    levels = np.random.default_rng(0).choice(4, size=500, p=[0.7, 0.2, 0.08, 0.02])
    X = np.eye(4)[levels]
    scales = ColumnScales.of(PublicFeatures(X, groups=np.zeros(4, dtype=np.intp)))
    assert len(set(scales.factor.tolist())) == 1
    assert scales.factor[0] == pytest.approx(X.var(axis=0).sum() ** -0.5)


def test_features_are_what_the_formulas_say() -> None:
    X, rng = make_rows(), np.random.default_rng(1)
    made = make_dictionary(X, rng)
    z, u = made.scales.standardize(X), made.scales.compute_ranks(X)
    raw = [z[:, place] for place in range(4)]  # the constant column is dropped
    for places, frequencies in zip(made.places, made.frequencies, strict=True):
        raw.append(np.prod([np.cos(math.pi * k * u[:, c]) for c, k in zip(places, frequencies, strict=True)], axis=0))
    both = np.column_stack([z, math.sqrt(12) * (u - 0.5)])
    projected = [both @ p + b for p, b in zip(made.projections, made.phases, strict=True)]
    raw += [*map(np.cos, projected[:5]), *(np.maximum(each, 0) for each in projected[5:])]
    assert made.num_hinges == 3
    expected = np.array([gain * (each - each.mean()) for gain, each in zip(made.gains, raw, strict=True)])
    np.testing.assert_allclose(made.evaluate(X), expected, atol=1e-5)


def test_features_are_centred_and_every_component_varies_by_one() -> None:
    X = make_rows()
    made = make_dictionary(X, np.random.default_rng(1))
    features = made.evaluate(X)
    np.testing.assert_allclose(features.mean(axis=1), 0.0, atol=1e-6)
    np.testing.assert_allclose(np.bincount(made.component, features.var(axis=1)), 1.0, rtol=1e-5)
    assert made.names == ("hinges", "waves", "linear", "products")
    np.testing.assert_allclose(made.fractions, np.array([0.1, 0.2, 0.5, 0.3]) / 1.1)


def test_gradients_are_those_of_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionaries, "PRECISION", np.float64)
    grid = (np.arange(1025) / 1024)[:, None]  # the ranks of such columns are their values, between knots too
    X = np.hstack([grid, np.roll(grid, 300), np.roll(grid, 700)])
    rng = np.random.default_rng(2)
    made = make_dictionary(X, rng)
    weights = rng.normal(size=made.num_features)
    at, step = rng.uniform(0.1, 0.9, size=(50, 3)), 1e-6
    gradients = made.compute_gradients(np.vstack([X, at]), weights)[len(X) :]  # slopes are those of all rows
    for column in range(3):
        moved = step * np.eye(3)[column]
        slopes = (made.predict(at + moved, weights) - made.predict(at - moved, weights)) / (2 * step)
        np.testing.assert_allclose(gradients[:, column], slopes / math.sqrt(12), rtol=2e-3, atol=2e-3)


def test_a_general_dictionary_has_features_of_every_family_and_none_of_columns_that_cannot_show_them() -> None:
    X = make_rows()
    made = Families(300).make(ColumnScales.of(PublicFeatures(X)), X, Relevance(np.ones(5)), seed=0)
    assert set(made.names) == {
        "linear",
        "curves",
        "pairs",
        "triples",
        "waves of values",
        "waves of ranks",
        "short waves",
    }
    single = (made.frequencies > 0).sum(axis=1) == 1
    assert set(made.places[single, 0]) == {0, 1, 2}  # a function of a column with two values is linear
    limits = made.scales.count_values() - 1
    assert (made.frequencies <= np.where(made.frequencies > 0, limits[made.places], 0)).all()
    assert 300 <= made.num_features <= 600


def test_products_are_those_of_largest_prior_variance() -> None:
    X = np.random.default_rng(0).normal(size=(300, 6))
    relevance = Relevance(np.array([1.0, 0.9, 0.5, 0.3, 0.15, 0.1]), np.eye(6) / 6)
    made = Families(120).make(ColumnScales.of(PublicFeatures(X)), X, relevance, seed=0)
    number = list(made.names).index("pairs")
    products = slice(made.axes.shape[1], made.axes.shape[1] + len(made.places))
    of_pairs = made.component[products] == number
    chosen = {
        (tuple(c[:2]), tuple(k[:2])) for c, k in zip(made.places[of_pairs], made.frequencies[of_pairs], strict=True)
    }
    every = range(1, MOST_FREQUENCY + 1)
    sizes = {
        (pair, rates): math.prod(relevance.columns[list(pair)]) * math.prod(rates) ** -SMOOTHNESS
        for pair in combinations(range(6), 2)
        for rates in product(every, repeat=2)
        if math.prod(rates) <= MOST_FREQUENCY
    }
    least = min(sizes[each] for each in chosen)
    assert len(chosen) == 40
    assert all(each in chosen for each, size in sizes.items() if size > 1.11 * least)  # ties are broken at random


def test_relevance_follows_the_gradients_and_the_same_seed_gives_the_same_features() -> None:
    gradients = np.array([[2.0, 0.0, 0.1], [-2.0, 0.0, 0.1]])
    relevance = Relevance.of(gradients)
    np.testing.assert_allclose(relevance.columns, LEAST_RELEVANT + (1 - LEAST_RELEVANT) * np.array([1, 0, 0.05]))
    assert relevance.outer is not None and np.trace(relevance.outer) == pytest.approx(1)
    assert Relevance.of(np.zeros((4, 3))).outer is None
    X = make_rows()
    scales = ColumnScales.of(PublicFeatures(X))
    for other, same in ((0, True), (1, False)):
        made = [Families(90).make(scales, X, Relevance(np.ones(5)), seed=seed) for seed in (0, other)]
        assert np.array_equal(made[0].projections, made[1].projections) is same


def test_additive_families_have_no_interactions_but_those_of_relevant_pairs() -> None:
    X = np.random.default_rng(0).normal(size=(300, 6))
    scales = ColumnScales.of(PublicFeatures(X))
    relevance = Relevance(np.array([1.0, 0.9, 0.5, 0.3, 0.15, 0.1]), np.eye(6) / 6)
    for pairs, expected in ((0, set[int]()), (1, {0, 1}), (3, {0, 1, 2})):
        made = Families(120, interactions=False, pairs=pairs).make(scales, X, relevance, seed=0)
        together = made.places[(made.frequencies > 0).sum(axis=1) == 2][:, :2]
        assert set(together.ravel().tolist()) == expected
        assert not len(made.phases)


def test_later_dictionaries_have_hinges_in_tails_that_have_rows_and_along_the_index() -> None:
    X = make_rows(1000)
    scales = ColumnScales.of(PublicFeatures(X))
    index = np.array([1.0, 2.0, 0.0, 0.0, 0.0])
    made = Families(200).make(scales, X, Relevance(np.ones(5), np.eye(5) / 5, index), seed=0)
    z = scales.standardize(X)
    hinges = made.projections[-made.num_hinges :, :5]
    values = np.maximum(z @ hinges.T + made.phases[-made.num_hinges :], 0)
    assert ((values > 0).sum(axis=0) >= 1).all()
    single = (hinges != 0).sum(axis=1) == 1
    assert set(hinges[single].sum(axis=1).tolist()) == {-1.0, 1.0}
    np.testing.assert_array_less(9, (values[:, single] > 0).sum(axis=0))  # rows beyond every hinge of a column
    along = hinges[~single]
    np.testing.assert_allclose(along, np.tile(index / (z @ index).std(), (len(along), 1)))
    assert {"tails", "bends of the index"} <= set(made.names)
    first = Families(200).make(scales, X, Relevance(np.ones(5)), seed=0)
    assert first.num_hinges == 0


def test_boldness_is_the_factor_of_what_nonlinear_features_are_expected_to_explain() -> None:
    X = make_rows()
    scales = ColumnScales.of(PublicFeatures(X))
    bold, shy = (
        Families(200).make(scales, X, Relevance(np.ones(5)), seed=0, boldness=boldness) for boldness in (1.0, 0.1)
    )
    for made, expected in ((bold, 1.0), (shy, 0.1)):
        is_linear = np.array([name == "linear" for name in made.names])
        rate = made.fractions[~is_linear].sum() / made.fractions[is_linear].sum()
        reference = bold.fractions[~is_linear].sum() / bold.fractions[is_linear].sum()
        assert rate == pytest.approx(expected * reference)


def test_rounding_features_does_not_matter_for_columns_far_from_zero_or_almost_constant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n, rng = 20_000, np.random.default_rng(0)
    flag = np.zeros(n)
    flag[rng.choice(n, 5, replace=False)] = 1.0
    nanoseconds = 1.5e18 + 1e9 * rng.integers(0, 3 * 10**7, n)
    X = np.column_stack([flag, nanoseconds, 1e9 + 0.01 * rng.normal(size=n), rng.standard_cauchy(n) ** 3])
    scales = ColumnScales.of(PublicFeatures(X))
    outer = np.eye(4) / 4
    dictionary = Families(200).make(scales, X, Relevance(np.ones(4), outer, np.ones(4)), seed=0)
    rounded = dictionary.evaluate(X)
    monkeypatch.setattr(dictionaries, "PRECISION", np.float64)
    exact = replace(dictionary).evaluate(X)  # without what was kept in float32
    assert rounded.itemsize < exact.itemsize
    spread = exact.std(axis=1)
    errors = np.abs(rounded - exact).max(axis=1)
    assert (errors / spread).max() < 1e-3  # of features that hardly vary; they have small weights
    weights = rng.normal(size=len(exact))
    predicted = weights @ exact
    assert np.abs(weights @ rounded - predicted).max() < 1e-5 * predicted.std()


@pytest.mark.parametrize("period", [2, 3, 4])
def test_a_sample_has_rows_of_all_kinds_that_take_turns(period: int) -> None:
    n = 60_000
    for weights in (None, np.ones(n)):
        counts = np.bincount(np.arange(n)[draw_rows(n, 20_000, weights)] % period)
        assert counts.min() > 0.9 * 20_000 / period
    column = np.column_stack([np.arange(200_000) % period, np.zeros(200_000)])
    assert ColumnScales.of(PublicFeatures(column)).factor[0] == pytest.approx(1 / np.arange(period).std(), rel=0.01)


def test_a_weighted_sample_has_the_means_of_the_rows_with_their_weights() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=5000), rng.gamma(0.5, size=5000)
    sampled = values[draw_rows(5000, 5000, weights)]
    assert sampled.mean() == pytest.approx(np.average(values, weights=weights), abs=0.02)


def test_a_column_too_small_to_be_scaled_counts_as_constant() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ColumnScales.of(PublicFeatures(np.array([[0.0], [1e-310]]))).factor[0] == 0.0


def test_kinds_of_interactions_that_explain_more_get_more_features() -> None:
    X = np.random.default_rng(0).normal(size=(400, 6))
    scales, gradients = ColumnScales.of(PublicFeatures(X)), np.random.default_rng(1).normal(size=(50, 6))
    numbers = {}
    for kind in ("pairs", "waves of ranks"):
        relevance = Relevance.of(gradients, None, {"linear": 5.0, kind: 0.3})
        made = Families(300).make(scales, X, relevance, seed=0)
        counts = np.bincount(made.component, minlength=len(made.names))
        numbers[kind] = {name: counts[made.names.index(name)] for name in ("pairs", "waves of ranks", "short waves")}
    for kind, other in (("pairs", "waves of ranks"), ("waves of ranks", "pairs")):
        assert numbers[kind][kind] > 250 and numbers[other][kind] < 30
        assert numbers[kind]["short waves"] >= 4  # none is given up
