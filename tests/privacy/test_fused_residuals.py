"""The compiled kernel of Newton steps: the numbers of NumPy, its bound on rounding, and the attacks on whole fits."""

import math
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf

import conddp._fused
from conddp._fused import load_kernels
from conddp.algorithms import CondNewton
from conddp.bounds import Bounds
from conddp.data import BLOCK_SIZE, Labels, PublicFeatures, Records, Units
from conddp.data.passes import count_additions
from conddp.features.row_weights import RowWeights
from conddp.features.whitening import WhitenedRows
from conddp.heads import Head, Linear, Wide
from conddp.losses import Squared
from conddp.newton.fused_residuals import ERROR_FUNCTION, LARGEST, PER_UNIT, SUM_RESIDUALS
from conddp.newton.private_columns import PrivateRows
from conddp.newton.release import ResidualQuery, Rows, StepEstimate, release_residuals
from conddp.privacy import Neighbouring, PrivacyBudget, RandomSource
from conddp.privacy.accounting import calibrate_gaussian_mu
from tests.privacy.replay import fit_both, longest_row, make_records, replace_private_part
from tests.privacy.test_sensitivity import OpenCurator
from tests.privacy.test_whole_fits import CHANGES, compute_parameter, measure_moves

BUDGET = PrivacyBudget(2.0, 1e-4)

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")


@pytest.fixture(params=["0", pytest.param("1", marks=needs_numba)], ids=["numpy", "kernel"])
def fast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With and without kernels."""
    monkeypatch.setenv("CONDDP_FAST", request.param)
    assert load_kernels(math.inf) == (request.param == "1")
    return bool(request.param == "1")


def ask(
    fast: bool, rows: Rows, label: Any, theta: Any, query: ResidualQuery, neighbouring: Neighbouring
) -> tuple[Any, float, StepEstimate]:
    """The sums that noise would be added to, their sensitivity, and the answer without noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONDDP_FAST", str(int(fast)))
        assert load_kernels(math.inf) == fast
        assert (SUM_RESIDUALS.get() is not None) == fast
        curator = OpenCurator()
        settings: dict[str, Any] = {"mu": 1.0, "neighbouring": neighbouring, "curator": curator, "loss": Squared()}
        answer = release_residuals(rows, label, (-0.5, 0.5), theta, query, **settings)
    ((bounded, _),) = curator.asked
    return bounded.value, bounded.sensitivity, answer


@needs_numba
@settings(max_examples=100)
@given(data=st.data())
def test_the_kernel_gives_the_numbers_of_numpy(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, k = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 19))
    values = rng.normal(size=(n, k)) * 10.0 ** rng.uniform(-3, 3, size=(n, 1))
    if data.draw(st.booleans()):
        values[rng.integers(n)] = 0.0  # a row of norm zero
    weights = None
    kind = data.draw(st.sampled_from(["alone", "weights", "units", "private"]))
    if kind == "weights":
        weights = RowWeights.give(rng.uniform(0.01, 1.0, size=n))
    elif kind == "units":
        sizes = np.sort(np.bincount(rng.integers(0, 1 + n // 2, size=n)))
        sizes = sizes[sizes > 0]
        units = Units(np.repeat(np.arange(len(sizes)), sizes))
        of_units = rng.uniform(0.1, 1.0, size=units.num_units)
        weights = RowWeights(units, of_units / of_units.max(), units.sizes.astype(float))
    make: Any = PrivateRows if kind == "private" else WhitenedRows
    rows = make(values, np.ones(k), np.eye(k), has_constant=False, weights=weights)
    theta = rng.normal(scale=10.0 ** data.draw(st.floats(-3, 1)), size=k)
    label = rng.uniform(-0.7, 0.7, size=n)  # beyond the ends too
    asked = rng.dirichlet(np.ones(k)) * (rng.random(k) < 0.8)
    query = ResidualQuery(
        clip_norm=10.0 ** data.draw(st.floats(-3, 1)),
        direction_weights=asked,
        residual_std=10.0 ** data.draw(st.floats(-3, 0)),
        square_limit=10.0 ** data.draw(st.floats(-2, 0)),
        square_weight=data.draw(st.sampled_from([0.0, 0.5])),
    )
    neighbouring = data.draw(st.sampled_from(list(Neighbouring)))
    sums, sensitivity, answer = ask(True, rows, label, theta, query, neighbouring)
    others, expected, other = ask(False, rows, label, theta, query, neighbouring)
    assert np.abs(sums - others).max() <= 1e-12 * n * query.clip_norm
    assert sensitivity == pytest.approx(expected, rel=1e-12)
    assert answer.curvature == pytest.approx(other.curvature, rel=1e-8)  # NumPy subtracts 1 from numbers near 1
    assert answer.noise_variance == pytest.approx(other.noise_variance, rel=1e-12)


def test_the_error_function_of_the_kernel_is_exact_up_to_rounding(rng: np.random.Generator) -> None:
    x = np.append(rng.uniform(0, LARGEST, size=10_000), [0.0, np.nextafter(LARGEST, 0)])
    places = (x * PER_UNIT).astype(int)
    values = [
        np.polyval(ERROR_FUNCTION[place], each)
        for place, each in zip(places, x - (places + 0.5) / PER_UNIT, strict=True)
    ]
    assert np.abs(values - erf(x)).max() < 1e-15
    assert erf(LARGEST) == 1.0


@pytest.mark.parametrize("k", [1, 3, 200])
def test_sums_are_off_by_no_more_than_the_bound(fast: bool, k: int, rng: np.random.Generator) -> None:
    # Labels and rows have so few digits that their products are exact, and math.fsum adds these without error.
    n = BLOCK_SIZE + 600
    values = (rng.normal(size=(n, k)) * 10.0 ** rng.uniform(-2, 2, size=(n, 1))).astype(np.float32).astype(np.float64)
    label = np.round(rng.uniform(-0.5, 0.5, size=n) * 2**20) / 2**20
    rows = WhitenedRows(values, np.ones(k), np.eye(k), has_constant=False)
    direction_weights = np.zeros(k)
    direction_weights[0] = 1.0
    query = ResidualQuery(1e9, direction_weights, 0.1, 1.0, 1.0)  # nothing is clamped
    sums, _, _ = ask(fast, rows, label, np.zeros(k), query, Neighbouring.REPLACE)
    terms = label * values[:, 0]
    bound = count_additions(n) * 2.0**-53 * np.abs(terms).sum()
    assert abs(sums[0] - math.fsum(terms)) <= bound
    in_float32 = np.float32(0.0)
    for term in terms.astype(np.float32):
        in_float32 += term
    assert abs(float(in_float32) - math.fsum(terms)) > bound  # so the bound is not idle


@needs_numba
@pytest.mark.parametrize(
    ("head", "options"),
    [
        (Linear(), {}),
        (Linear(), {"fit_intercept": False}),
        (Linear(), {"neighbouring": Neighbouring.ZERO_OUT}),
        (Linear(), {"private": True}),
        (Linear(), {"weights": True}),
        (Linear(), {"units": True}),
        (Wide(width=12), {}),
    ],
    ids=str,
)
def test_a_seeded_fit_is_the_same_with_the_kernel(
    head: Head, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    options = dict(options)
    records = make_records(300, private=options.pop("private", False))
    if options.pop("weights", False):
        records = replace(records, weights=rng.uniform(0.1, 2.0, size=300))
    if options.pop("units", False):
        records = replace(records, units=Units(rng.integers(0, 90, size=300)))
    fitted = []
    for setting in ("0", "1"):
        monkeypatch.setenv("CONDDP_FAST", setting)
        result = CondNewton().fit(records, BUDGET, head=head, random_source=RandomSource.of(3), **options)
        fitted.append(np.ravel(result.model.parameters))
    assert fitted[0] == pytest.approx(fitted[1], rel=1e-9, abs=1e-9)


@needs_numba
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("private", [False, True])
def test_a_neighbour_moves_the_sums_of_the_kernel_by_no_more_than_their_sensitivity(
    private: bool, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDDP_FAST", "1")
    records = make_records(140, private=private)
    label, hidden, other_label, other_hidden = CHANGES[change]
    for position in (longest_row(records), 5):
        one = replace_private_part(records, position, label, hidden)
        other = replace_private_part(records, position, other_label, other_hidden)
        questions, others = fit_both(CondNewton(), one, other, BUDGET, head=Linear())
        assert max(measure_moves(questions, others)) <= 1 + 1e-9
        assert compute_parameter(questions, others) <= calibrate_gaussian_mu(2.0, 1e-4) * (1 + 1e-12)


@needs_numba
@pytest.mark.parametrize("neighbouring", Neighbouring)
def test_the_sensitivity_of_the_kernel_is_attained(neighbouring: Neighbouring) -> None:
    query, rows = ResidualQuery(0.2, np.ones(1), 0.1, 0.4, 0.0), np.ones((3, 1))
    whitened = WhitenedRows(rows, np.ones(1), np.eye(1), has_constant=False)
    sums = [
        ask(True, whitened, np.array([value, 0.1, -0.1]), np.zeros(1), query, neighbouring) for value in (-0.5, 0.5)
    ]
    moved, null = float(sums[1][0][0] - sums[0][0][0]), 0.2
    assert sums[0][1] == pytest.approx(moved if neighbouring is Neighbouring.REPLACE else null)
    assert moved == pytest.approx(0.4)


@needs_numba
def test_a_row_too_long_to_square_does_not_hide_the_others_from_the_kernel() -> None:
    rows = WhitenedRows(np.array([[0.1, 0.0], [1.0, 1e160], [0.1, 0.0]]), np.ones(2), np.eye(2), has_constant=False)
    query = ResidualQuery(0.2, np.array([0.5, 0.5]), 0.1, 0.4, 0.0)
    assert ask(True, rows, np.zeros(3), np.zeros(2), query, Neighbouring.REPLACE)[1] == 0.4


@pytest.mark.parametrize("weighted", [False, True])
def test_the_number_of_threads_does_not_change_a_bit(
    fast: bool, weighted: bool, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    n = 3 * BLOCK_SIZE + 5
    X = rng.normal(size=(n, 3)) + [0.0, 1e6, 3.0]
    weights = rng.uniform(0.1, 1.0, size=n) if weighted else None
    records = Records(PublicFeatures(X), None, Labels(X[:, 0], Bounds(-3, 3)), weights=weights)
    fitted = []
    monkeypatch.setattr("conddp.data.passes.CELLS_FOR_THREADS", 1)
    for number in (1, 2, 3):
        monkeypatch.setattr("conddp.data.threads.count_threads", lambda number=number: number)
        result = CondNewton().fit(records, BUDGET, random_source=RandomSource.of(0))
        fitted.append(result.model.parameters)
    assert np.array_equal(fitted[0], fitted[1])
    assert np.array_equal(fitted[0], fitted[2])


def test_without_numba_fits_are_made_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDDP_FAST", "1")
    monkeypatch.setitem(sys.modules, "numba", None)
    for name, value in {"_numba": None, "_is_missing": False, "_are_used": False}.items():
        monkeypatch.setattr(conddp._fused, name, value)
    assert not load_kernels(math.inf)
    assert SUM_RESIDUALS.get() is None
    result = CondNewton().fit(make_records(50, private=False), BUDGET, random_source=RandomSource.of(0))
    assert np.isfinite(result.model.parameters).all()
