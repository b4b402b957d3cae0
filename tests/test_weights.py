"""Public weights of records: weighted least squares, repeated rows, scale, zeros, and who refuses them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
from scipy.sparse import csr_array

from conddp.algorithms import (
    ALGORITHMS,
    DPSGD,
    Auto,
    CondDP,
    CondNewton,
    NonPrivate,
    OneShot,
    PrivateMean,
    RandomizedLabels,
    RROnBins,
    SwitchCondDP,
    Tuned,
    WeightedLLP,
)
from conddp.algorithms.algorithm import Algorithm
from conddp.bounds import Bounds
from conddp.data import Labels, PrivateFeatures, PublicFeatures, Records, Units
from conddp.errors import SchemaError
from conddp.features.row_weights import LIKENESS, RowWeights
from conddp.features.spectrum import Spectrum
from conddp.heads import MLP, Linear
from conddp.models import load_model, save_model
from conddp.privacy import LedgerEntry, PrivacyBudget, PrivacyLedger
from conddp.privacy.randomness import RandomSource

HUGE = PrivacyBudget(1e10, 1e-6)
BUDGET = PrivacyBudget(1.0, 1e-6)
WEIGHING = {name: each for name, each in ALGORITHMS.items() if each.weighs_records}


def make_records(n: int = 600, *, seed: int = 0, private: bool = False, units: bool = False) -> Records:
    """Records on a curve, so that the best line depends on the weights."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    label = X[:, 0] ** 2 + 0.5 * X[:, 1] + rng.normal(0, 0.05, size=n)
    hidden = PrivateFeatures(rng.uniform(0, 1, size=(n, 1)), (Bounds(0.0, 1.0),), ("secret",)) if private else None
    of_units = Units(np.sort(rng.integers(0, n // 3, size=n)), "person") if units else None
    weights = np.exp(1.5 * X[:, 0]) * rng.uniform(0.2, 1.0, size=n)
    return Records(PublicFeatures(X), hidden, Labels(label, Bounds(-2.0, 3.0)), of_units, weights=weights)


def fit(algorithm: Algorithm, records: Records, budget: PrivacyBudget = BUDGET, seed: int = 7, **settings: Any) -> Any:
    return algorithm.fit(records, budget, random_source=RandomSource.of(seed), **settings)


def get_parameters(algorithm: Algorithm, records: Records, budget: PrivacyBudget = BUDGET, **settings: Any) -> Any:
    return fit(algorithm, records, budget, **settings).model.parameters


def solve_weighted(records: Records) -> Any:
    """Weighted least squares by statsmodels: slopes, then the intercept."""
    X = np.column_stack([records.public.values, np.ones(records.num_records)])
    return sm.WLS(records.label.values, X, weights=records.weights).fit().params


def get_line(algorithm: Algorithm, records: Records, budget: PrivacyBudget = HUGE) -> Any:
    """Slopes and intercept of a linear fit, from its predictions."""
    model = fit(algorithm, records, budget).model
    corners = PublicFeatures(np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1]]))
    origin, first, second = model.predict(corners)
    return np.array([(first - origin) / 0.1, (second - origin) / 0.1, origin])


# --- what is estimated

LINEAR: dict[str, tuple[Algorithm, float]] = {
    "cond-newton": (CondNewton(), 2e-3),  # its posterior shrinks a little
    "one-shot": (OneShot(), 1e-4),
    "cond-dp": (CondDP(clip_norm=3.0, num_steps=64, averaging=0.0), 1e-4),
    "dpsgd": (DPSGD(clip_norm=3.0, num_steps=200, optimizer="sgd", learning_rate=0.25, averaging=0.0), 1e-3),
    "switch-cond-dp": (SwitchCondDP(clip_norm=3.0, num_steps=400, learning_rate=0.05, averaging=0.0), 2e-3),
    "laplace": (RandomizedLabels(randomizer="laplace", recalibrate=False), 1e-3),
    "non-private": (NonPrivate(), 1e-10),
    "auto": (Auto(), 2e-3),
}


@pytest.mark.parametrize("name", LINEAR)
def test_without_much_noise_a_fit_is_weighted_least_squares(name: str) -> None:
    algorithm, tolerance = LINEAR[name]
    records = make_records()
    expected = solve_weighted(records)
    plain = solve_weighted(replace(records, weights=np.ones(records.num_records)))
    assert np.abs(expected - plain).max() > 0.1  # otherwise the test shows nothing
    if name == "laplace":  # one value per label, of which epsilon is limited
        expected = np.mean([get_line(algorithm, make_records(20_000, seed=seed)) for seed in range(2)], axis=0)
        reference = np.mean([solve_weighted(make_records(20_000, seed=seed)) for seed in range(2)], axis=0)
        assert np.abs(expected - reference).max() < 0.02
        return
    assert np.abs(get_line(algorithm, records) - expected).max() < tolerance


def test_the_mean_is_the_weighted_mean() -> None:
    records = make_records()
    predicted = fit(PrivateMean(), records, HUGE).model.predict(records.public[:1])
    assert predicted[0] == pytest.approx(np.average(records.label.values, weights=records.weights), abs=1e-5)


def test_weighted_least_squares_with_private_columns() -> None:
    records = make_records(4000, private=True)
    assert records.private is not None
    rows = np.column_stack([records.public.values, records.private.values, np.ones(4000)])
    coefficients = sm.WLS(records.label.values, rows, weights=records.weights).fit().params
    for algorithm in (CondNewton(), NonPrivate()):
        model = fit(algorithm, records, HUGE).model
        predicted = model.predict(records.public, records.private)
        assert np.abs(predicted - rows @ coefficients).max() < (0.02 if isinstance(algorithm, CondNewton) else 1e-9)


@pytest.mark.parametrize("name", ["cond-newton", "one-shot", "cond-dp", "mean", "non-private"])
def test_whole_weights_are_repeated_rows(name: str) -> None:
    algorithm = PrivateMean() if name == "mean" else LINEAR[name][0]
    records = make_records()
    counts = np.random.default_rng(1).integers(0, 5, size=records.num_records)
    repeated = replace(records, weights=None).take(np.repeat(np.arange(records.num_records), counts))
    found = get_line(algorithm, replace(records, weights=counts.astype(float)))
    assert np.abs(found - get_line(algorithm, repeated)).max() < 2e-3


def test_a_network_learns_from_weighted_records() -> None:
    # Two groups of records disagree, and the weights decide between them.
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(-1, 1, size=(400, 1)), 2, axis=0)
    label = np.tile([0.0, 1.0], 400)
    weights = np.tile([1.0, 9.0], 400)
    records = Records(PublicFeatures(X), None, Labels(label, Bounds(-1.0, 2.0)), weights=weights)
    for algorithm in (CondNewton(width=30), NonPrivate(), CondDP(num_steps=200, clip_norm=3.0)):
        predicted = fit(algorithm, records, HUGE, head=MLP(hidden=(4,))).model.predict(records.public)
        assert np.mean(predicted) == pytest.approx(0.9, abs=0.05)


def test_zero_weights_are_records_that_are_not_there() -> None:
    records = make_records(units=True)
    assert records.weights is not None
    weights = np.where(np.arange(records.num_records) % 3 == 0, 0.0, records.weights)
    kept = replace(records, weights=weights).take(np.flatnonzero(weights))
    for name, algorithm in WEIGHING.items():
        found = fit(algorithm, replace(records, weights=weights))
        assert np.array_equal(found.model.parameters, get_parameters(algorithm, kept)), name
        assert found.guarantee.num_records == len(np.flatnonzero(weights))


@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_equal_weights_are_no_weights_to_the_last_bit(name: str, units: bool) -> None:
    algorithm, records = ALGORITHMS[name], make_records(units=units and name != "weighted-llp")
    budget = PrivacyBudget(8.0, 1e-6)
    plain = replace(records, weights=None)
    expected = get_parameters(algorithm, plain, budget)
    for weight in (1.0, 0.3, 1e-12):
        found = fit(algorithm, replace(records, weights=np.full(600, weight)), budget)
        assert np.array_equal(found.model.parameters, expected)
        assert not found.guarantee.weighted


@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("name", WEIGHING)
def test_the_scale_of_the_weights_makes_no_difference(name: str, units: bool) -> None:
    records = make_records(units=units)
    weights = np.random.default_rng(0).integers(1, 50, size=600).astype(float)
    expected = get_parameters(WEIGHING[name], replace(records, weights=weights))
    for scale in (3.0, 1000.0, 2.0**-40):  # for which the products are exact
        assert np.array_equal(get_parameters(WEIGHING[name], replace(records, weights=scale * weights)), expected)
    assert not np.array_equal(get_parameters(WEIGHING[name], replace(records, weights=None)), expected)


def test_units_of_one_record_keep_the_weights_of_the_user() -> None:
    records = make_records()
    single = replace(records, units=Units(np.arange(600)[::-1].copy(), "person"))
    for algorithm in (CondNewton(), OneShot(), CondDP()):
        found, expected = fit(algorithm, single), fit(algorithm, records)
        assert found.settings["total_weight"] == expected.settings["total_weight"]
        assert found.settings["smallest_weight"] == expected.settings["smallest_weight"]


def test_with_little_noise_units_keep_the_weights_of_the_user_too() -> None:
    records = make_records(units=True)
    for algorithm, tolerance in ((OneShot(), 1e-5), (CondNewton(), 5e-3)):  # the latter shrinks a little
        assert np.abs(get_line(algorithm, records) - solve_weighted(records)).max() < tolerance
    assert fit(CondNewton(), records, PrivacyBudget(0.05, 1e-6)).settings["smallest_weight"] < 0.9 * float(
        np.min(records.arrange().weights)  # type: ignore[arg-type]  # there are weights
    )


# --- the weights themselves


def test_weights_of_units_and_of_records_are_multiplied() -> None:
    units, given = Units(np.array([0, 1, 2, 2, 3, 3, 3])), np.array([0.5, 1, 1, 0.1, 0.2, 0.3, 1.0])
    weights = RowWeights(units, np.array([1.0, 1.0, 0.5, 0.4]), np.ones(4), given)
    expected = np.array([0.5, 1, 0.5, 0.05, 0.08, 0.12, 0.4])
    assert np.allclose(weights.values, expected)
    assert np.allclose(weights.unit_totals, [0.5, 1, 0.55, 0.6])
    assert weights.total == pytest.approx(expected.sum())
    assert weights.largest_total == pytest.approx(1.0)
    within = sum(expected[units.codes == unit].sum() ** 2 for unit in range(4))
    variance = (1 - LIKENESS) * (expected**2).sum() + LIKENESS * within
    assert weights.sampling_records == pytest.approx(expected.sum() ** 2 / variance)


def test_ones_for_records_change_nothing() -> None:
    units = Units(np.repeat(np.arange(5), [1, 1, 2, 3, 7]))
    moves = np.sqrt(units.sizes)
    for noise_std in (1e-3, 1.0, 100.0):
        plain = RowWeights.choose(units, moves, num_directions=3, noise_std=noise_std)
        ones = RowWeights.choose(units, moves, num_directions=3, noise_std=noise_std, of_records=np.ones(14))
        for name in ("of_units", "values", "unit_totals", "total", "noise_records", "sampling_records"):
            assert np.allclose(getattr(plain, name), getattr(ones, name), rtol=1e-12, atol=0), name


def test_heavy_single_records_keep_their_weight_and_large_units_do_not() -> None:
    sizes = np.array([1] * 50 + [1] * 50 + [40])
    units = Units(np.repeat(np.arange(101), sizes))
    given = np.concatenate([np.full(50, 0.01), np.ones(50), np.full(40, 0.5)])
    weights = RowWeights.choose(units, units.add_up(given), num_directions=5, noise_std=1e3, of_records=given)
    assert np.array_equal(weights.values[:100], given[:100])
    assert weights.largest_total == pytest.approx(1.0)
    tiny = np.where(given == 1, 1.0, 1e-200)
    assert np.isfinite(
        RowWeights.choose(units, units.add_up(tiny), num_directions=5, noise_std=1.0, of_records=tiny).total
    )


def test_a_weighted_spectrum_is_that_of_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    X, counts = rng.normal(size=(50, 3)) + 5, rng.integers(1, 5, size=50)
    weighted = Spectrum.of(PublicFeatures(X), weights=counts.astype(float))
    repeated = Spectrum.of(PublicFeatures(np.repeat(X, counts, axis=0)))
    ratio = np.sqrt(50 / counts.sum())  # the sum of relative weights is the number of records
    assert np.allclose(weighted.singular_values, repeated.singular_values * ratio)
    assert np.allclose(weighted.column_scales, repeated.column_scales)


def test_taking_splitting_and_arranging_keep_the_weights() -> None:
    records = make_records(units=True)
    assert records.weights is not None
    taken = records.take(np.array([5, 3]))
    assert taken.weights is not None and taken.weights.tolist() == records.weights[[5, 3]].tolist()
    train, test = records.split()
    for part in (train, test, records.arrange()):
        assert part.weights is not None
        scale = 1 if part.weights.max() != 1.0 else records.weights.max()
        pairs = dict(zip(map(tuple, records.public.values.tolist()), records.weights, strict=True))
        found = [pairs[tuple(row)] for row in part.public.values.tolist()]
        assert np.allclose(part.weights * scale, found, rtol=1e-12)


def test_records_of_weight_zero_do_not_count_towards_the_declared_maximum_of_a_unit() -> None:
    units = Units(np.zeros(5, dtype=int), "person", max_rows=2)
    records = Records(
        PublicFeatures(np.arange(5.0)[:, None]),
        None,
        Labels(np.zeros(5), Bounds(0, 1)),
        units,
        weights=np.array([0, 1.0, 0, 2, 8]),
    )
    used = records.arrange()
    assert used.public.values[:, 0].tolist() == [1.0, 3.0]
    assert used.weights is not None and used.weights.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("make", [list, np.asarray, pd.Series, pl.Series, tuple])
def test_weights_may_be_any_column(make: Any) -> None:
    records = replace(make_records(3), weights=make([1, 2, 3]))
    assert isinstance(records.weights, np.ndarray) and records.weights.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], "same number of records"),
        ([1.0, -1.0, 1.0], "must not be negative"),
        ([1.0, np.nan, 1.0], "must be finite"),
        ([1.0, np.inf, 1.0], "must be finite"),
        ([1.0, None, 1.0], "must be finite"),
        (["a", "b", "c"], "must be numbers"),
        ([[1.0], [1.0], [1.0]], "must be one column"),
        (1.0, "must be one column"),
        (np.ma.array([1.0, 1.0, 1.0], mask=[False, True, False]), "have gaps"),
    ],
)
def test_bad_weights_are_refused(weights: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        replace(make_records(3), weights=weights)


def test_weights_that_are_all_zero_are_refused_before_anything_is_spent() -> None:
    ledger = PrivacyLedger(BUDGET)
    for name, algorithm in ALGORITHMS.items():
        with pytest.raises(SchemaError, match="all weights of records are zero"):
            fit(algorithm, replace(make_records(), weights=np.zeros(600)), ledger=ledger), name
    assert ledger.entries == ()


class Unweighted(CondNewton):
    """An algorithm of a user who has not thought of weights."""

    weighs_records = False


@pytest.mark.parametrize("algorithm", [WeightedLLP(), Unweighted(), Tuned(candidates=(OneShot(), Unweighted()))])
def test_algorithms_that_cannot_use_weights_refuse_them_before_anything_is_spent(algorithm: Algorithm) -> None:
    ledger = PrivacyLedger(PrivacyBudget(8.0, 1e-6))
    with pytest.raises(ValueError, match="gives all records the same weight"):
        fit(algorithm, make_records(), PrivacyBudget(8.0, 1e-6), ledger=ledger)
    assert ledger.entries == ()


def test_weights_are_refused_unless_an_algorithm_declares_that_it_uses_them() -> None:
    assert not Algorithm.weighs_records
    assert set(ALGORITHMS) - set(WEIGHING) == {"weighted-llp"}


# --- what is said and kept


def test_the_guarantee_says_that_weights_are_public_and_is_saved(tmp_path: Path) -> None:
    records = make_records()
    result = fit(CondNewton(), records)
    assert result.guarantee.weighted
    assert "the weights of the records, the number of records" in str(result.guarantee)
    assert "weights of the records" not in str(fit(CondNewton(), replace(records, weights=None)).guarantee)
    save_model(tmp_path / "model", result)
    assert load_model(tmp_path / "model").guarantee == result.guarantee


def test_other_weights_give_other_noise() -> None:
    records = make_records()
    assert records.weights is not None
    other = records.weights.copy()
    other[3] *= 1 + 1e-12
    first, second = (get_parameters(PrivateMean(), each) for each in (records, replace(records, weights=other)))
    assert abs(first[-1] - second[-1]) > 1e-6


def test_a_ledger_file_knows_the_table_whatever_its_weights(tmp_path: Path) -> None:
    records = make_records(units=True)
    ledger = PrivacyLedger(PrivacyBudget(9.0, 1e-6), path=tmp_path / "ledger.jsonl", unit="person")
    for weights in (None, records.weights, np.arange(600.0) % 3):
        fit(CondNewton(), replace(records, weights=weights), ledger=ledger)
    assert len([entry for entry in ledger.entries if entry.cost.epsilon]) == 3
    assert isinstance(ledger.entries[0], LedgerEntry)


def test_automatic_choice_by_simulation_takes_weights() -> None:
    records = make_records(200)
    assert fit(Auto(num_simulations=1), records).guarantee.weighted
    assert fit(RROnBins(), records, head=Linear()).guarantee.weighted


# --- rows that are never formed

UNFORMED = {
    "cond-newton": CondNewton(),
    "cond-dp": CondDP(clip_norm=3.0, num_steps=64, averaging=0.0),
    "rr-on-bins": RROnBins(),
    "laplace": RandomizedLabels(randomizer="laplace"),
    "non-private": NonPrivate(),
    "mean": PrivateMean(),
}


@pytest.fixture
def few_cells_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.features.standardization.LARGEST_IN_MEMORY", 0)
    monkeypatch.setattr("conddp.data.parts.LARGEST_DENSE", 0)


def make_sparse(records: Records) -> Records:
    return replace(records, public=PublicFeatures(csr_array(records.public.values), records.public.names))


@pytest.mark.parametrize("name", ["cond-newton", "cond-dp", "non-private"])
def test_weighted_least_squares_on_large_sparse_features(name: str, few_cells_fit: None) -> None:
    records = make_records()
    found = get_line(UNFORMED[name], make_sparse(records))
    assert np.abs(found - solve_weighted(records)).max() < (5e-3 if name == "cond-newton" else 1e-4)


@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("name", UNFORMED)
def test_equal_weights_and_the_scale_of_weights_on_large_sparse_features(
    name: str, units: bool, few_cells_fit: None
) -> None:
    records, algorithm = make_sparse(make_records(300, units=units)), UNFORMED[name]
    weights = np.random.default_rng(0).integers(1, 50, size=300).astype(float)
    one, other, plain = (
        get_parameters(algorithm, replace(records, weights=each)) for each in (weights, 3 * weights, None)
    )
    assert np.array_equal(one, other)
    assert not np.array_equal(one, plain)
    assert np.array_equal(get_parameters(algorithm, replace(records, weights=np.full(300, 0.3))), plain)


def test_a_weighted_reference_with_private_columns_on_large_sparse_features(few_cells_fit: None) -> None:
    records = make_records(private=True)
    assert records.private is not None
    rows = np.column_stack([records.public.values, records.private.values, np.ones(600)])
    coefficients = sm.WLS(records.label.values, rows, weights=records.weights).fit().params
    sparse = make_sparse(records)
    predicted = fit(NonPrivate(), sparse, HUGE).model.predict(sparse.public, sparse.private)
    assert np.abs(predicted - rows @ coefficients).max() < 1e-9
