"""Rows that are kept in float32: the rounded rows are the rows of every sum, norm and sensitivity, in float64."""

import math
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from conddp._fused import load_kernels
from conddp.algorithms import CondNewton
from conddp.data import BLOCK_SIZE, PublicFeatures, Units
from conddp.features import grouped_rows
from conddp.features.rounded_rows import RoundedRows
from conddp.features.row_weights import RowWeights
from conddp.features.whitening import WhitenedRows
from conddp.losses import Squared
from conddp.newton.joint_run import can_join, sum_jointly
from conddp.newton.release import ResidualQuery
from conddp.newton.run import ResidualQuestion
from conddp.privacy import Neighbouring, PrivacyBudget, RandomSource
from conddp.privacy.accounting import calibrate_gaussian_mu
from tests.privacy.replay import fit_both, longest_row, make_records, replace_private_part
from tests.privacy.test_sensitivity import ask
from tests.privacy.test_whole_fits import CHANGES, compute_parameter, measure_moves

BUDGET = PrivacyBudget(2.0, 1e-4)

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")


@pytest.fixture(params=["0", pytest.param("1", marks=needs_numba)], ids=["numpy", "kernel"], autouse=True)
def fast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without kernels."""
    monkeypatch.setenv("CONDDP_FAST", request.param)
    assert load_kernels(math.inf) == (request.param == "1")


@pytest.fixture
def rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round the rows of small tables too."""
    monkeypatch.setattr(grouped_rows, "FEWEST_ROUNDED", 1)


def make_query(rng: np.random.Generator, k: int) -> ResidualQuery:
    return ResidualQuery(0.3, rng.dirichlet(np.ones(k)), 0.1, 0.4, 0.5)


def test_rows_are_those_in_float64_rounded_to_the_nearest(rng: np.random.Generator) -> None:
    public = PublicFeatures(rng.normal(size=(1200, 5)) @ rng.normal(size=(5, 5)) + 100.0)
    rows, whole = RoundedRows.of(public), WhitenedRows.of(public)
    assert rows.values.dtype == np.float32
    assert np.array_equal(rows.values, whole.values.astype(np.float32))
    assert np.array_equal(rows.matrix, whole.matrix)
    theta = rng.normal(size=6)
    assert rows.predict(theta) == pytest.approx(rows.values.astype(float) @ theta, rel=1e-13)
    assert rows.predict_slopes(theta[1:]) == pytest.approx(rows.values[:, 1:].astype(float) @ theta[1:], rel=1e-13)
    assert rows.compute_squared_norms() == pytest.approx((rows.values.astype(float) ** 2).sum(axis=1), rel=1e-13)
    assert rows.compute_mean() == pytest.approx(rows.values.astype(float).mean(axis=0), rel=1e-9, abs=1e-12)


def test_the_number_of_cells_and_weights_decide_whether_rows_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    X[0] = 0.0
    public = PublicFeatures(X)
    assert isinstance(grouped_rows.whiten(public), WhitenedRows)
    monkeypatch.setattr(grouped_rows, "FEWEST_ROUNDED", 100)
    assert isinstance(grouped_rows.whiten(public), RoundedRows)
    monkeypatch.setattr(grouped_rows, "FEWEST_ROUNDED", 101)
    assert isinstance(grouped_rows.whiten(public), WhitenedRows)
    monkeypatch.setattr(grouped_rows, "FEWEST_ROUNDED", 1)
    tiny = np.full(50, 1e-90)
    tiny[0] = 1.0
    weighted = grouped_rows.whiten(public, constant=False, weights=RowWeights.give(tiny))
    assert isinstance(weighted, WhitenedRows)
    assert np.abs(weighted.values).max() > np.finfo(np.float32).max  # so they could not be rounded


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize("k", [1, 3, 24, 70])
def test_float32_is_for_storage_only(k: int, neighbouring: Neighbouring, rng: np.random.Generator) -> None:
    # With arithmetic in float32, numbers would differ by a few parts in ten million.
    n = 1500
    values = (rng.normal(size=(n, k)) * 10.0 ** rng.uniform(-3, 3, size=(n, 1))).astype(np.float32)
    options: Any = {"has_constant": False}
    rows = RoundedRows(values, np.ones(k), np.eye(k), **options)
    wide = WhitenedRows(values.astype(np.float64), np.ones(k), np.eye(k), **options)
    query, label, theta = make_query(rng, k), rng.uniform(-0.5, 0.5, size=n), rng.normal(size=k) / 10
    sums, sensitivity, _ = ask(rows, label, theta, query, neighbouring=neighbouring)
    expected, other, _ = ask(wide, label, theta, query, neighbouring=neighbouring)
    assert np.abs(sums - expected).max() <= 1e-13 * n * query.clip_norm
    assert sensitivity == pytest.approx(other, rel=1e-14)


def test_sums_of_long_blocks_are_exact_up_to_the_bound(rng: np.random.Generator) -> None:
    n, k = BLOCK_SIZE + 77, 30
    values = rng.normal(size=(n, k)).astype(np.float32)
    label = np.round(rng.uniform(-0.5, 0.5, size=n) * 2**20) / 2**20
    weights = np.full(k, 1 / k)
    rows = RoundedRows(values, np.ones(k), np.eye(k), has_constant=False)
    sums, _, _ = ask(
        rows, label, np.zeros(k), ResidualQuery(1e9, weights, 0.1, 1.0, 1.0), neighbouring=Neighbouring.REPLACE
    )
    for place in (0, k - 1):
        terms = label * values[:, place].astype(float)
        assert abs(sums[place] * math.sqrt(k) - math.fsum(terms)) <= 1e-13 * np.abs(terms).sum()


@pytest.mark.parametrize("change", CHANGES)
def test_a_neighbour_moves_no_release_of_a_fit_by_more_than_its_sensitivity(rounded: None, change: str) -> None:
    records = make_records(140, private=False)
    label, _, other_label, _ = CHANGES[change]
    for position in (longest_row(records), 5):
        one = replace_private_part(records, position, label)
        other = replace_private_part(records, position, other_label)
        questions, others = fit_both(CondNewton(), one, other, BUDGET)
        assert max(measure_moves(questions, others)) <= 1 + 1e-9
        assert compute_parameter(questions, others) <= calibrate_gaussian_mu(2.0, 1e-4) * (1 + 1e-12)


def test_a_seeded_fit_hardly_changes(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    records = make_records(400, private=False)
    whole = CondNewton().fit(records, BUDGET, random_source=RandomSource.of(1))
    monkeypatch.setattr(grouped_rows, "FEWEST_ROUNDED", 1)
    rounded = CondNewton().fit(records, BUDGET, random_source=RandomSource.of(1))
    different = np.ravel(rounded.model.parameters) - np.ravel(whole.model.parameters)
    assert 0 < np.abs(different).max() < 1e-5


def test_units_of_several_records_are_whitened_in_float64(rounded: None, rng: np.random.Generator) -> None:
    records = replace(make_records(300, private=False), units=Units(rng.integers(0, 90, size=300)))
    rounded_fit = CondNewton().fit(records, BUDGET, random_source=RandomSource.of(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouped_rows, "FEWEST_ROUNDED", 10**9)
        whole = CondNewton().fit(records, BUDGET, random_source=RandomSource.of(1))
    assert np.ravel(rounded_fit.model.parameters) == pytest.approx(np.ravel(whole.model.parameters), rel=1e-4, abs=1e-4)


def test_several_runs_are_summed_together(rng: np.random.Generator) -> None:
    n, k = 900, 4
    rows = RoundedRows(rng.normal(size=(n, k)).astype(np.float32), np.ones(k), np.eye(k), has_constant=False)
    assert can_join(rows)
    label, theta, query = rng.uniform(-0.5, 0.5, size=n), rng.normal(size=k) / 10, make_query(rng, k)
    question = ResidualQuestion(rows, theta, query, 1.0)
    options: Any = {"neighbouring": Neighbouring.REPLACE, "loss": Squared()}
    (summed,) = sum_jointly([question], [label], (-0.5, 0.5), **options)
    alone, _, _ = ask(rows, label, theta, query, neighbouring=Neighbouring.REPLACE)
    assert np.sqrt(query.direction_weights) * summed.total == pytest.approx(alone[:k], rel=1e-10)
