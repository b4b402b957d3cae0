"""Public rows that are never formed: sensitivities by neighbours, and rounding errors against long arithmetic."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from conddp.algorithms import DPSGD, CondDP, CondNewton, SwitchCondDP
from conddp.algorithms.algorithm import Algorithm
from conddp.data import BLOCK_SIZE, PublicFeatures, Records, Units
from conddp.features import ConditioningMatrix, GroupedRows, Spectrum
from conddp.features.conditioned_rows import ConditionedRows
from conddp.features.row_weights import RowWeights
from conddp.heads import MLP, FactorizationMachine, Head, Linear
from conddp.losses import Squared
from conddp.newton.release import ResidualQuery, release_residuals
from conddp.privacy import Neighbouring, PrivacyBudget
from conddp.privacy.accounting import calibrate_gaussian_mu
from tests.privacy.replay import fit_both, longest_row, make_records, replace_private_part
from tests.privacy.test_sensitivity import OpenCurator
from tests.privacy.test_whole_fits import CHANGES, compute_parameter, measure_moves

BUDGET = PrivacyBudget(2.0, 1e-4)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat all public features as too large for memory."""
    monkeypatch.setattr("conddp.features.standardization.LARGEST_IN_MEMORY", 0)
    monkeypatch.setattr("conddp.data.parts.LARGEST_DENSE", 0)


def get_columns(rows: ConditionedRows) -> Any:
    """All shifted columns as an array."""
    return rows.columns.toarray() if isinstance(rows.columns, sp.csr_array) else rows.columns - rows.shift  # type: ignore[operator]  # an array, not a stored column


def form(rows: ConditionedRows, dtype: Any = np.float64) -> Any:
    """All rows, formed in the precision asked for."""
    return get_columns(rows).astype(dtype) @ rows.matrix.astype(dtype) + rows.offset.astype(dtype)


def make_public(rng: np.random.Generator, n: int, d: int) -> PublicFeatures:
    """Sparse or dense columns with all kinds of leverage, some of them far from zero."""
    X = rng.standard_t(1.5, size=(n, d)) * (rng.random((n, d)) < 0.5)
    X[:, 0] = rng.choice([0.0, 1000.0]) + rng.normal(size=n)
    return PublicFeatures(sp.csr_array(X) if rng.random() < 0.7 else X)


def draw_query(rng: np.random.Generator, rows: GroupedRows) -> ResidualQuery:
    of_groups = rng.dirichlet(np.ones(len(rows.starts))) * (rng.random(len(rows.starts)) < 0.8)
    return ResidualQuery(
        clip_norm=10.0 ** rng.uniform(-3, 1),
        direction_weights=rows.spread(of_groups / rows.sizes),
        residual_std=0.1,
        square_limit=10.0 ** rng.uniform(-2, 0),
        square_weight=float(rng.choice([0.0, 0.35, 1.0])),
    )


def ask(
    rows: GroupedRows, label: Any, theta: Any, query: ResidualQuery, neighbouring: Neighbouring
) -> tuple[Any, float]:
    """The sums that a release adds noise to, in the coordinates of the noise, and their sensitivity."""
    curator = OpenCurator()
    release_residuals(
        rows, label, (-0.5, 0.5), theta, query, mu=0.7, neighbouring=neighbouring, curator=curator, loss=Squared()
    )
    ((bounded, noise_std),) = curator.asked
    assert noise_std == pytest.approx(bounded.sensitivity / 0.7)
    return bounded.value, bounded.sensitivity


def sum_formed(values: Any, label: Any, theta: Any, query: ResidualQuery, weights: Any) -> Any:
    """The same sums from rows that are formed."""
    norms = np.sqrt(values**2 @ query.direction_weights)
    limits = query.clip_norm / np.maximum(norms, 1e-12)
    residuals = label - values @ theta
    clamped = np.clip(residuals, -limits, limits) * weights
    squares = np.minimum(residuals**2, query.square_limit**2) * weights
    return np.append(np.sqrt(query.direction_weights) * (clamped @ values), query.square_unit * squares.sum())


@pytest.mark.parametrize("neighbouring", Neighbouring)
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_one_label_moves_a_release_by_at_most_its_sensitivity(neighbouring: Neighbouring, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 30))
    rows = GroupedRows.of(make_public(rng, n, int(rng.integers(1, 60))), constant=bool(rng.random() < 0.5))
    theta = rng.normal(scale=10.0 ** rng.uniform(-3, 1), size=rows.num_directions)
    query, label, values = draw_query(rng, rows), rng.uniform(-0.5, 0.5, size=n), form(rows.rows)
    record = int(rng.integers(n))
    label[record] = rng.choice([-0.5, 0.5, rng.uniform(-0.5, 0.5)])
    before, sensitivity = ask(rows, label, theta, query, neighbouring)
    assert before == pytest.approx(sum_formed(values, label, theta, query, np.ones(n)), abs=1e-7 * query.clip_norm * n)
    if neighbouring is Neighbouring.REPLACE:
        changed = label.copy()
        changed[record] = rng.choice([-0.5, 0.5, rng.uniform(-0.5, 0.5)])
        after, same = ask(rows, changed, theta, query, neighbouring)
        assert same == sensitivity
    else:
        others = np.delete(np.arange(n), record)
        after = sum_formed(values[others], label[others], theta, query, np.ones(n - 1))
    assert np.linalg.norm(after - before) <= sensitivity * (1 + 1e-9)


def test_the_sensitivity_of_a_release_is_attained(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr("conddp.features.conditioned_rows.DIRECTIONS_AT_ONCE", 2)  # fewer than there are in a group
    X = rng.normal(size=(400, 130)) * (rng.random((400, 130)) < 0.1)
    rows = GroupedRows.of(PublicFeatures(sp.csr_array(X)))
    assert rows.sizes.max() > 4
    values = form(rows.rows)
    assert np.sqrt(rows.compute_squared_norms()) == pytest.approx(np.linalg.norm(values, axis=1), rel=1e-9)
    for clip_norm in (0.02, 5.0):
        query = ResidualQuery(clip_norm, rows.spread(1 / rows.sizes / len(rows.sizes)), 0.1, 0.4, 0.0)
        norms = np.sqrt(values**2 @ query.direction_weights)
        record = int(np.argmax(norms))
        sums = []
        for value in (-0.5, 0.5):
            label = np.zeros(len(values))
            label[record] = value
            total, sensitivity = ask(rows, label, np.zeros(rows.num_directions), query, Neighbouring.REPLACE)
            sums.append(total)
        moved = np.linalg.norm(sums[1] - sums[0]) / sensitivity
        assert moved == pytest.approx(1.0 if clip_norm == 0.02 else min(1.0, norms[record] / clip_norm), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(Neighbouring)))
def test_no_labels_of_a_unit_move_a_release_further_than_its_sensitivity(seed: int, relation: Neighbouring) -> None:
    rng = np.random.default_rng(seed)
    sizes = sorted(rng.integers(1, 6, size=10).tolist())
    units = Units(np.repeat(np.arange(len(sizes)), sizes))
    of_units = rng.uniform(0.1, 1.0, size=len(sizes))
    weights = RowWeights(units, of_units / of_units.max(), units.sizes.astype(float))
    n = len(units)
    X = rng.standard_t(2, size=(n, int(rng.integers(1, 30)))) * (rng.random((n, 1)) < 0.8)
    if rng.random() < 0.5:
        X = X[np.searchsorted(units.codes, units.codes)]  # all rows of a unit are the same: the bound is attained
    rows = GroupedRows.of(PublicFeatures(sp.csr_array(X)), weights=weights)
    theta, query, values = rng.normal(size=rows.num_directions) * 0.2, draw_query(rng, rows), form(rows.rows)
    label = rng.uniform(-0.5, 0.5, size=n)
    base, sensitivity = ask(rows, label, theta, query, relation)
    assert base == pytest.approx(
        sum_formed(values, label, theta, query, weights.values), abs=1e-7 * query.clip_norm * n
    )
    for unit in range(len(sizes)):
        members = np.flatnonzero(units.codes == unit)
        sums = []
        for trial in itertools.product((-0.5, 0.5), repeat=len(members)):
            changed = label.copy()
            changed[members] = trial
            sums.append(sum_formed(values, changed, theta, query, weights.values))
        if relation is Neighbouring.REPLACE:
            farthest = max(np.linalg.norm(one - other) for one in sums for other in sums)
        else:
            kept = np.setdiff1d(np.arange(n), members)
            null = sum_formed(values[kept], label[kept], theta, query, weights.values[kept])
            farthest = max(np.linalg.norm(one - null) for one in sums)
        assert farthest <= sensitivity * (1 + 1e-9)


def make_nearly_collinear(rng: np.random.Generator, n: int = 3000) -> PublicFeatures:
    """Columns whose whitening matrix has entries of hundreds of thousands, so that sums of columns cancel."""
    base = rng.normal(size=(n, 2))
    return PublicFeatures(sp.csr_array(np.column_stack([base, base @ [1.0, 2.0] + 3e-5 * rng.normal(size=n)])))


@pytest.mark.parametrize("constant", [True, False])
def test_rounding_errors_are_within_their_bound(rng: np.random.Generator, constant: bool) -> None:
    for public in (make_nearly_collinear(rng), make_public(rng, 2 * BLOCK_SIZE + 10, 30)):
        rows = GroupedRows.of(public, constant=constant).rows
        exact = form(rows, np.longdouble)
        factors = rng.uniform(-1, 1, size=len(rows))
        magnitudes = np.abs(get_columns(rows)).T @ np.abs(factors)
        bound = rows.bound_rounding(np.append(magnitudes, np.abs(factors).sum()))
        error = np.abs((factors[None] @ rows)[0] - factors.astype(np.longdouble) @ exact)
        assert (error <= bound).all()
        norms = np.sqrt((exact**2).sum(axis=1))
        apart = np.abs(np.sqrt(rows.compute_squared_norms([0])[:, 0]) - norms)
        assert (np.abs(factors) * apart <= np.linalg.norm(bound)).all()


def test_rounding_errors_are_added_to_the_sensitivity(rng: np.random.Generator) -> None:
    rows = GroupedRows.of(make_nearly_collinear(rng), constant=False)
    k, n = rows.num_directions, rows.num_records
    assert k == 3
    values, weights = form(rows.rows), np.array([0.2, 0.3, 0.5])
    query = ResidualQuery(0.1, weights, 0.1, 0.4, 0.35)
    _, sensitivity = ask(rows, np.zeros(n), np.zeros(k), query, Neighbouring.REPLACE)
    limits = np.minimum(0.5, 0.1 / np.sqrt(values**2 @ weights))  # the ends of all residuals are 0.5 away
    magnitudes = np.abs(get_columns(rows.rows)).T @ limits @ np.abs(rows.rows.matrix)
    magnitudes += limits.sum() * np.abs(rows.rows.offset)
    added = 4 * np.linalg.norm(np.sqrt(weights) * magnitudes) * (n + 1 + 3 + 16) * 2.0**-52
    assert sensitivity == pytest.approx(np.hypot(0.2, 0.035) + added, rel=1e-12)
    assert 1e-7 < added < 1e-2  # noticeable here, where nothing else would cover it


def test_rounding_of_sums_of_gradients_is_bounded_over_all_blocks(rng: np.random.Generator) -> None:
    public = make_public(rng, 2 * BLOCK_SIZE + 10, 5)
    public = PublicFeatures(sp.csr_array(public.values))
    C = ConditioningMatrix.from_spectrum(Spectrum.of(public))
    rows = ConditionedRows.of(public, C.matrix[:-1], C.matrix[-1])
    values = form(rows)
    limits = 1 / np.linalg.norm(values, axis=1)
    magnitudes = np.abs(get_columns(rows)).T @ limits @ np.abs(rows.matrix) + limits.sum() * np.abs(rows.offset)
    expected = 4 * np.linalg.norm(magnitudes) * (BLOCK_SIZE + 3 + 5 + 16) * 2.0**-52
    assert rows.rounding == pytest.approx(expected, rel=1e-6)
    assert rows.rounding < 1e-3


# A small clip norm, so that records are clipped on both sides and the bound is attained.
CASES: dict[str, tuple[Algorithm, Head, bool]] = {
    "cond-newton": (CondNewton(), Linear(), False),
    "cond-dp": (CondDP(num_steps=8, clip_norm=0.02), Linear(), False),
    "cond-dp with private columns": (CondDP(num_steps=8, clip_norm=0.02), Linear(), True),
    "cond-dp mlp": (CondDP(num_steps=8, clip_norm=0.02), MLP(hidden=(4,)), True),
    "cond-dp sampled": (CondDP(num_steps=6, clip_norm=0.02, batch_size=30), Linear(), True),
    "switch-cond-dp": (SwitchCondDP(num_steps=8, clip_norm=0.02), Linear(), True),
    "dpsgd": (DPSGD(num_steps=8, clip_norm=0.02), FactorizationMachine(rank=2), True),
}


def make_sparse_records(*, private: bool) -> Records:
    """Records of the other attacks, with columns that are often zero added to theirs, stored as sparse."""
    records = make_records(140, private=private)
    rng = np.random.default_rng(3)
    X = np.hstack([records.public.values, rng.normal(size=(140, 6)) * (rng.random((140, 6)) < 0.2)])
    return Records(PublicFeatures(sp.csr_array(X)), records.private, records.label)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", CASES)
def test_a_neighbour_differs_by_no_more_than_the_sensitivity(case: str, change: str) -> None:
    algorithm, head, private = CASES[case]
    records = make_sparse_records(private=private)
    label, hidden, other_label, other_hidden = CHANGES[change]
    longest = longest_row(make_records(140, private=private))
    for position in (longest, 5):
        one = replace_private_part(records, position, label, hidden)
        other = replace_private_part(records, position, other_label, other_hidden)
        questions, others = fit_both(algorithm, one, other, BUDGET, head=head)
        assert max(measure_moves(questions, others)) <= 1 + 1e-9
        if "sampled" not in case:
            assert compute_parameter(questions, others) <= calibrate_gaussian_mu(2.0, 1e-4) * (1 + 1e-12)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("case", CASES)
def test_some_neighbour_comes_close_to_the_sensitivity(case: str) -> None:
    algorithm, head, private = CASES[case]
    records = make_sparse_records(private=private)
    found = 0.0
    for position in (longest_row(make_records(140, private=private)), *range(0, 140, 10)):
        one = replace_private_part(records, position, -4.0, (-1.0, 0.0))
        other = replace_private_part(records, position, 6.0, (2.0, 1.0))
        found = max(found, *measure_moves(*fit_both(algorithm, one, other, BUDGET, head=head)))
    assert found > 0.85


@pytest.mark.usefixtures("large")
def test_noise_of_descent_covers_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    records = make_sparse_records(private=False)
    algorithm = CondDP(num_steps=3, clip_norm=0.02)
    plain = fit_both(algorithm, records, records, BUDGET)[0]
    assert plain[0].sensitivity == pytest.approx(0.04, rel=1e-6) and plain[0].sensitivity > 0.04
    monkeypatch.setattr(ConditionedRows, "rounding", 0.5)
    wider = fit_both(algorithm, records, records, BUDGET)[0]
    assert wider[0].sensitivity == pytest.approx(0.06)
    assert wider[0].noise_std == pytest.approx(1.5 * plain[0].noise_std, rel=1e-6)
