"""Sparse public features give the same results as dense ones, and are never expanded as a whole when they are large."""

import hashlib
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from conddp.algorithms import ALGORITHMS, DPSGD, CondDP, CondNewton, OneShot, RROnBins, SwitchCondDP, Tuned, WeightedLLP
from conddp.algorithms.algorithm import Algorithm
from conddp.algorithms.identity import list_public
from conddp.bounds import Bounds
from conddp.data import BLOCK_SIZE, Labels, PrivateFeatures, PublicFeatures, Records, Units
from conddp.errors import SchemaError
from conddp.features import ConditioningMatrix, GroupedRows, RandomFeatures, Spectrum, Standardization, WhitenedRows
from conddp.features.conditioned_rows import ConditionedRows
from conddp.features.grouped_rows import whiten
from conddp.features.row_weights import RowWeights
from conddp.features.scaled_rows import ScaledRows
from conddp.heads import MLP, FactorizationMachine, Head, Linear, Wide
from conddp.labels.simulation import FAMILIES, simulate
from conddp.planning.comparison import compare_algorithms
from conddp.privacy import PrivacyBudget, PrivacyLedger
from conddp.privacy.digest import update_digest
from conddp.privacy.fingerprint import Fingerprint
from conddp.privacy.randomness import RandomSource
from conddp.theory.design import Design

BUDGET = PrivacyBudget(6.0, 1e-6)

# Labels have a range of 12. A column with a mean of 20,000 and a deviation of 9 makes the singular values of raw
# columns span seven orders of magnitude. CondNewton works on standardised columns and is compared to 1e-8.
TOLERANCE = 1e-6


@pytest.fixture(params=["in memory", "by products"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Below the limit on the number of cells, or above it."""
    if request.param == "by products":
        make_large(monkeypatch)
    return str(request.param)


def make_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat all features as large: whitened rows are not kept, and sparse ones must not be expanded."""
    monkeypatch.setattr("conddp.features.standardization.LARGEST_IN_MEMORY", 0)
    monkeypatch.setattr("conddp.data.parts.LARGEST_DENSE", 0)


def make_matrix(n: int = 600, *, seed: int = 0) -> Any:
    """Two groups of levels, a number that is often zero, a number far from zero and a constant column."""
    rng = np.random.default_rng(seed)
    parts = [np.eye(levels)[rng.choice(levels, size=n, p=rng.dirichlet(np.ones(levels)))] for levels in (7, 4)]
    numbers = np.column_stack(
        [rng.normal(size=n) * (rng.random(n) < 0.3), 20_000 + 30 * rng.random(n), np.full(n, 3.0)]
    )
    return np.hstack([*parts, numbers])


def make_records(*, units: bool = False, private: bool = False) -> tuple[Records, Records]:
    """The same records with dense and with sparse public features."""
    X, rng = make_matrix(), np.random.default_rng(1)
    n = len(X)
    label = X[:, :11] @ rng.normal(size=11) + 0.02 * (X[:, 12] - 20_000) + rng.normal(size=n)
    rest = (
        PrivateFeatures(rng.uniform(size=(n, 2)), (Bounds(0, 1), Bounds(0, 1))) if private else None,
        Labels(label, Bounds(-6.0, 6.0)),
        Units(rng.integers(0, n // 3, size=n)) if units else None,
    )
    return Records(PublicFeatures(X), *rest), Records(PublicFeatures(sp.csr_matrix(X)), *rest)


def fit_alike(algorithm: Algorithm, records: Records, **settings: Any) -> Any:
    """Fit with noise that does not depend on how the features are stored."""
    return algorithm.fit(records, BUDGET, random_source=RandomSource.for_neighbours(7), **settings).model


FITS: dict[str, tuple[Algorithm, Head]] = {
    "cond-newton": (CondNewton(), Linear()),
    "cond-dp": (CondDP(num_steps=12), Linear()),
    "cond-dp sampled": (CondDP(num_steps=12, batch_size=100), Linear()),
    "cond-dp mlp": (CondDP(num_steps=12), MLP(hidden=(3,))),
    "cond-dp fm sampled": (CondDP(num_steps=12, batch_size=100), FactorizationMachine(rank=2)),
    "dpsgd": (DPSGD(num_steps=12), Linear()),
    "switch-cond-dp": (SwitchCondDP(num_steps=12), Linear()),
    "rr-on-bins": (RROnBins(), Linear()),
    "non-private": (ALGORITHMS["non-private"], Linear()),
    "mean": (ALGORITHMS["mean"], Linear()),
    "auto": (ALGORITHMS["auto"], Linear()),
}
ONLY_IN_MEMORY: dict[str, tuple[Algorithm, Head]] = {
    "one-shot": (OneShot(), Linear()),
    "weighted-llp": (WeightedLLP(), Linear()),
    "cond-newton wide": (CondNewton(), Wide(width=12)),
    "cond-newton mlp": (CondNewton(width=30), MLP(hidden=(3,))),
    "rr-on-bins mlp": (RROnBins(), MLP(hidden=(3,))),
    "laplace fm": (ALGORITHMS["laplace"], FactorizationMachine(rank=2)),
    "tuned": (Tuned(candidates=(CondNewton(), OneShot())), Linear()),
}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("case", FITS)
def test_a_fit_on_sparse_features_is_that_on_dense_ones(case: str, size: str, fit_intercept: bool) -> None:
    algorithm, head = FITS[case]
    if case == "mean" and not fit_intercept:
        pytest.skip("a mean is an intercept")
    models = [fit_alike(algorithm, each, head=head, fit_intercept=fit_intercept) for each in make_records()]
    dense, sparse = make_records()
    expected = models[0].predict(dense.public)
    assert expected.std() > 0.1 or case == "mean"
    assert models[1].predict(dense.public) == pytest.approx(expected, abs=TOLERANCE)
    assert models[1].predict(sparse.public) == pytest.approx(expected, abs=TOLERANCE)
    if size == "in memory":
        assert np.array_equal(models[1].parameters, models[0].parameters)
    if case.startswith("cond-newton") or case == "auto":
        for first, second in zip(*(model.compute_linear_coefficients() for model in models), strict=True):
            precision = 1e-8 if fit_intercept else 1e-7  # columns are not centred without an intercept
            assert second == pytest.approx(first, abs=precision, rel=precision)


@pytest.mark.parametrize("case", ["cond-newton", "cond-dp", "cond-dp sampled", "rr-on-bins"])
def test_the_same_with_units(case: str, size: str) -> None:
    algorithm, head = FITS[case]
    models = [fit_alike(algorithm, each, head=head) for each in make_records(units=True)]
    public = make_records()[0].public
    assert models[1].predict(public) == pytest.approx(models[0].predict(public), abs=TOLERANCE)


@pytest.mark.parametrize("case", ["cond-dp", "cond-dp sampled", "cond-dp mlp", "non-private"])
def test_the_same_with_private_columns(case: str, size: str) -> None:
    algorithm, head = FITS[case]
    dense, sparse = make_records(private=True)
    models = [fit_alike(algorithm, each, head=head) for each in (dense, sparse)]
    expected = models[0].predict(dense.public, dense.private)
    assert models[1].predict(sparse.public, sparse.private) == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("case", ONLY_IN_MEMORY)
def test_other_fits_expand_sparse_features_that_are_not_too_large(case: str) -> None:
    algorithm, head = ONLY_IN_MEMORY[case]
    dense, sparse = make_records()
    budget = PrivacyBudget(8.0, 1e-2)
    models = [
        algorithm.fit(each, budget, head=head, random_source=RandomSource.for_neighbours(7)).model
        for each in (dense, sparse)
    ]
    assert np.array_equal(models[0].parameters, models[1].parameters)
    assert models[1].predict(sparse.public) == pytest.approx(models[0].predict(dense.public), abs=1e-10)


@pytest.mark.parametrize("case", [*ONLY_IN_MEMORY, "cond-newton with private columns"])
def test_and_refuse_larger_ones_before_anything_is_spent(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    private = case not in ONLY_IN_MEMORY
    algorithm, head = (CondNewton(), Linear()) if private else ONLY_IN_MEMORY[case]
    records = make_records(private=private)[1]
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-2))
    with pytest.raises(SchemaError, match=r"sparse matrix of 600 x 14, .* Use a linear head with CondNewton"):
        algorithm.fit(records, PrivacyBudget(1.0, 1e-2), head=head, ledger=ledger)
    assert not ledger.entries


class ForeignHead(Linear):
    """Not one of ours: it may do anything with its inputs."""


def test_a_head_of_the_user_gets_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, sparse = make_records()
    models = [fit_alike(CondDP(num_steps=3), each, head=ForeignHead()) for each in (dense, sparse)]
    assert np.array_equal(models[0].parameters, models[1].parameters)
    make_large(monkeypatch)
    with pytest.raises(SchemaError, match="linear head"):
        CondDP().fit(sparse, BUDGET, head=ForeignHead())


def test_the_limits_are_those_that_the_documentation_states() -> None:
    from conddp.data.parts import LARGEST_DENSE
    from conddp.features.standardization import LARGEST_IN_MEMORY, is_large

    assert (LARGEST_IN_MEMORY, LARGEST_DENSE) == (2**27, 2**28)
    for shape, large in (((2**20, 2**7), False), ((2**20, 2**7 + 1), True)):
        assert is_large(PublicFeatures(sp.csr_array(shape))) is large
    public = PublicFeatures(sp.csr_array((2**20, 2**8 + 1)))
    with pytest.raises(SchemaError, match=r"1,048,576 x 257, .* 2 GB, where 2.1 GB are allowed"):
        _ = public.values
    assert len(public) == 2**20 and public[:5].values.shape == (5, 257)


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_array", "coo_array", "lil_array", "dok_matrix", "bsr_array"])
def test_any_sparse_format_is_taken_and_left_alone(kind: str) -> None:
    X = make_matrix(40).astype(np.float32)
    given = getattr(sp, kind)(X)
    public = PublicFeatures(given)
    assert isinstance(public.sparse, sp.csr_array) and public.sparse.dtype == np.float64
    assert np.array_equal(public.values, X) and public.shape == X.shape
    assert (given.toarray() == X).all() and given.dtype == np.float32
    assert np.array_equal(public[[3, 1]].values, X[[3, 1]]) and public[5:9].sparse is not None
    assert np.array_equal(public[np.arange(40) % 2 == 0].values, X[::2])


def test_a_sparse_matrix_is_put_into_canonical_form() -> None:
    messy = sp.csr_array(([1.0, 2.0, 3.0, 0.0, -0.0], [2, 0, 2, 1, 0], [0, 3, 5]), shape=(2, 3))
    public = PublicFeatures(messy)
    assert public.sparse is not None
    assert public.sparse.indices.tolist() == [0, 2] and public.sparse.data.tolist() == [2.0, 4.0]
    assert messy.data.tolist() == [1.0, 2.0, 3.0, 0.0, -0.0] and messy.indices.tolist() == [2, 0, 2, 1, 0]
    tidy = Records(PublicFeatures(sp.csc_matrix(messy.toarray())), None, Labels(np.zeros(2), Bounds(0, 1)))
    same = Records(public, None, Labels(np.zeros(2), Bounds(0, 1)))
    digests = [update_digest(hashlib.sha256(), list_public(each)).hexdigest() for each in (tidy, same)]
    assert digests[0] == digests[1]
    other = Records(PublicFeatures(sp.csr_array(2 * messy.toarray())), None, Labels(np.zeros(2), Bounds(0, 1)))
    assert list(list_public(tidy)) != list(list_public(other))


def test_bad_sparse_features_are_refused_by_name() -> None:
    X = sp.csr_array(np.array([[1.0, 0.0], [0.0, np.inf]]))
    with pytest.raises(SchemaError, match="public column 'b' contains NaN or infinity"):
        PublicFeatures(X, ["a", "b"])
    with pytest.raises(SchemaError, match="one name for each of 2"):
        PublicFeatures(X, ["a"])
    with pytest.raises(SchemaError, match="no records"):
        PublicFeatures(sp.csr_array((0, 3)))
    with pytest.raises(SchemaError, match="Complex"):
        PublicFeatures(X.astype(np.complex128))


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_by_sparse_products_are_those_of_dense_columns(
    monkeypatch: pytest.MonkeyPatch, constant: bool, weighted: bool
) -> None:
    monkeypatch.setattr("conddp.features.standardization.SPARSE_ROWS_AT_ONCE", 100)
    X = make_matrix()
    weights = np.random.default_rng(2).uniform(size=len(X)) if weighted else None
    X[150:160, 13] = 0.0  # a column that has implicit zeros in some chunks only
    settings: dict[str, Any] = {"constant": constant, "function": "a test", "weights": weights}
    dense = Standardization.of(PublicFeatures(X), **settings)
    make_large(monkeypatch)
    public = PublicFeatures(sp.csr_array(X))
    for sparse in (
        Standardization.of(public, **settings),
        Standardization.of((public[start : start + 200] for start in range(0, 600, 200)), **settings),
    ):
        for name in ("center", "variance", "scale", "gram", "varies", "total_weight"):
            assert getattr(sparse, name) == pytest.approx(getattr(dense, name), rel=1e-9, abs=1e-9)


def test_columns_far_from_zero_keep_their_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([1e9 + rng.normal(size=500), rng.normal(size=500) * (rng.random(500) < 0.1)])
    exact = np.cov((X - [1e9, 0.0]).T, bias=True)
    make_large(monkeypatch)
    moments = Standardization.of(PublicFeatures(sp.csr_array(X)), constant=True, function="a test")
    assert moments.variance == pytest.approx(np.diag(exact), rel=1e-6)
    assert moments.gram[0, 1] / 500 == pytest.approx(exact[0, 1] / np.sqrt(exact[0, 0] * exact[1, 1]), abs=1e-6)
    rows = whiten(PublicFeatures(sp.csr_array(X)))
    expected = WhitenedRows.of(PublicFeatures(X - [1e9, 0.0])).values
    assert rows.compute_squared_norms() == pytest.approx((expected**2).sum(axis=1), rel=1e-5)


@pytest.mark.parametrize("constant", [True, False])
def test_spectrum_and_conditioned_features_are_the_same(size: str, constant: bool) -> None:
    X = make_matrix(2 * BLOCK_SIZE + 5)
    dense, sparse = PublicFeatures(X), PublicFeatures(sp.csr_array(X))
    spectra = [Spectrum.of(each, constant=constant) for each in (dense, sparse)]
    assert spectra[1].singular_values == pytest.approx(spectra[0].singular_values, rel=1e-7)
    C = ConditioningMatrix.from_spectrum(spectra[0])
    Z, applied = C.transform(dense), C.apply(sparse)
    assert isinstance(applied, ConditionedRows if size == "by products" else np.ndarray)
    rng = np.random.default_rng(0)
    factors, weights = rng.normal(size=(3, len(X))), rng.normal(size=(3, Z.shape[1]))
    assert factors @ applied == pytest.approx(factors @ Z, abs=1e-6)
    assert weights @ applied.T == pytest.approx(weights @ Z.T, abs=1e-6)
    index = rng.integers(0, len(X), size=50)
    assert weights @ applied[index].T == pytest.approx(weights @ Z[index].T, abs=1e-6)
    assert factors[:, :50] @ applied[index] == pytest.approx(factors[:, :50] @ Z[index], abs=1e-6)
    assert factors[:, :0] @ applied[index[:0]] == pytest.approx(np.zeros((3, Z.shape[1])))
    assert C.compute_norms(sparse) == pytest.approx(np.linalg.norm(Z, axis=1), abs=1e-7)
    with pytest.raises(SchemaError, match="public columns, got 13"):
        C.apply(PublicFeatures(sp.csr_array(X[:, :13])))


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("make", [ConditioningMatrix.column_scaling, ConditioningMatrix.identity])
def test_scaled_rows_are_scaled_columns(make: Any, constant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    X = make_matrix()
    D = make(Spectrum.of(PublicFeatures(X), constant=constant))
    Z = D.transform(PublicFeatures(X))
    make_large(monkeypatch)
    sparse = PublicFeatures(sp.csr_array(X))
    rows = D.apply(sparse)
    assert isinstance(rows, ScaledRows)
    assert rows.shape == Z.shape and rows.rounding == 0.0
    rng = np.random.default_rng(0)
    factors, weights, index = rng.normal(size=(3, len(X))), rng.normal(size=(3, Z.shape[1])), rng.integers(0, 600, 50)
    assert factors @ rows == pytest.approx(factors @ Z, rel=1e-12, abs=1e-9)
    assert weights @ rows.T == pytest.approx(weights @ Z.T, rel=1e-12, abs=1e-9)
    assert factors[:, :50] @ rows[index] == pytest.approx(factors[:, :50] @ Z[index], rel=1e-12, abs=1e-9)
    assert (weights @ rows[10:20].T).shape == (3, 10)
    assert D.compute_norms(sparse) == pytest.approx(np.linalg.norm(Z, axis=1), rel=1e-14)
    assert np.array_equal(sparse.get_block(slice(None)), X)  # scaling does not write to the user's matrix


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("constant", [True, False])
def test_grouped_rows_are_whitened_rows(storage: Any, constant: bool, rng: np.random.Generator) -> None:
    X = make_matrix(BLOCK_SIZE + 100)
    units = Units(np.repeat(np.arange(len(X) // 2), 2))
    weights = RowWeights(units, rng.uniform(0.2, 1.0, size=units.num_units), np.full(units.num_units, 2.0))
    for row_weights in (None, weights):
        whole = WhitenedRows.of(PublicFeatures(X), constant=constant, weights=row_weights)
        rows = GroupedRows.of(PublicFeatures(storage(X)), constant=constant, weights=row_weights)
        k = whole.num_directions
        assert rows.num_directions == k and rows.num_records == len(X) and rows.total_weight == whole.total_weight
        theta, factors = rng.normal(size=k), rng.normal(size=len(X))
        group_weights = rng.dirichlet(np.ones(len(rows.starts)))
        direction_weights = rows.spread(group_weights / rows.sizes)
        assert direction_weights.sum() == pytest.approx(1.0)
        one, other = (each.start_pass(theta, direction_weights) for each in (whole, rows))
        spans = [slice(0, BLOCK_SIZE), slice(BLOCK_SIZE, len(X))]
        for span in spans:
            assert other.blocks[span].predict() == pytest.approx(one.blocks[span].predict(), abs=1e-7)
            assert other.blocks[span].measure() == pytest.approx(one.blocks[span].measure(), abs=1e-8)
        first, last = spans
        sums = [
            each.finish_rows(each.blocks[first].sum_rows(factors[first]) + each.blocks[last].sum_rows(factors[last]))
            for each in (one, other)
        ]
        assert sums[1] == pytest.approx(sums[0], abs=1e-5)
        squares = [
            each.finish_squares(
                each.blocks[first].sum_squares(factors[first]) + each.blocks[last].sum_squares(factors[last])
            )
            for each in (one, other)
        ]
        assert squares[1] == pytest.approx(rows.pool(squares[0]), abs=1e-6)
        assert rows.predict(theta) == pytest.approx(whole.predict(theta), abs=1e-7)
        assert rows.predict_slopes(theta[constant:]) == pytest.approx(whole.predict_slopes(theta[constant:]), abs=1e-7)
        assert rows.compute_mean() == pytest.approx(whole.compute_mean(), abs=1e-8)
        assert rows.compute_squared_norms() == pytest.approx(whole.compute_squared_norms(), abs=1e-7)
        assert rows.pool(rows.variances).sum() == pytest.approx(rows.variances.sum())


def test_unequal_weights_within_a_group_are_refused(rng: np.random.Generator) -> None:
    rows = GroupedRows.of(PublicFeatures(rng.normal(size=(200, 100))))
    assert 17 <= len(rows.starts) <= 32 and rows.sizes.max() > 1 and rows.sizes[0] == 1
    weights = rows.spread(np.ones(len(rows.starts)))
    weights[rows.starts[np.argmax(rows.sizes)]] = 2.0
    with pytest.raises(ValueError, match="equal weights"):
        rows.start_pass(np.zeros(101), weights)


def test_groups_of_few_or_no_directions(rng: np.random.Generator) -> None:
    for X, k in ((np.ones((10, 2)), 1), (np.empty((10, 0)), 1), (rng.normal(size=(10, 1)), 2), (np.eye(10), 10)):
        rows = GroupedRows.of(PublicFeatures(X))
        assert rows.num_directions == k and rows.squared_norms.shape == (10, len(rows.starts))
        assert rows.compute_squared_norms() == pytest.approx(np.full(10, k) if k != 2 else 1 + rows.squared_norms[:, 1])


def test_hidden_units_and_simulated_labels_are_the_same(size: str) -> None:
    X = make_matrix()
    dense, sparse = PublicFeatures(X), PublicFeatures(sp.csr_array(X))
    units = [RandomFeatures.of(each, 8) for each in (dense, sparse)]
    assert units[1].weights == pytest.approx(units[0].weights, rel=1e-7)
    assert units[1].compute_hidden(sparse) == pytest.approx(units[0].compute_hidden(dense), abs=1e-7)
    for family in FAMILIES[:5]:
        one, other = (simulate(each, family, np.random.default_rng(3)) for each in (dense, sparse))
        assert other.signal == pytest.approx(one.signal, abs=1e-6)
        assert other.records.public is sparse


def test_a_design_is_the_same(size: str) -> None:
    X = make_matrix()
    one, other = (Design.of(PublicFeatures(each)) for each in (X, sp.csr_array(X)))
    assert (other.rank, other.heavy_tailed, other.columns) == (one.rank, one.heavy_tailed, one.columns)
    for name in ("singular_values", "scaled_singular_values", "deviations", "plain_cost", "scaled_cost"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-6, abs=1e-9)
    assert other.conditioned_cost == pytest.approx(one.conditioned_cost, rel=1e-6)
    assert other.largest_leverage == pytest.approx(one.largest_leverage, rel=1e-6)
    assert other.improvement.exact_best == pytest.approx(one.improvement.exact_best, rel=1e-5)


def test_a_fingerprint_does_not_depend_on_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.privacy.fingerprint.SPARSE_ROWS", 50)
    X = make_matrix()
    X[:, 0] = 0.0
    X[3, 1] = -0.0
    assert Fingerprint.of(sp.csr_array(X)) == Fingerprint.of(X)
    assert Fingerprint.of(PublicFeatures(sp.csr_array(X)).matrix) == Fingerprint.of(X)
    assert len(Fingerprint.of(X).columns) > 5
    assert Fingerprint.of(sp.csr_array(X[:, :1])).columns == ()


def test_algorithms_are_compared_on_sparse_features() -> None:
    X = make_matrix(300)
    one, other = (
        compare_algorithms(PublicFeatures(each), algorithms=("cond-newton", "mean"), epsilons=(1.0,), delta=1e-4)
        for each in (X, sp.csr_array(X))
    )
    assert (other.num_records, other.num_public) == (one.num_records, one.num_public) == (300, 14)
    assert other.errors["mean"][0] == pytest.approx(one.errors["mean"][0], rel=0.2)


def test_seeded_fits_of_sparse_features_repeat_and_differ_between_tables() -> None:
    sparse = make_records()[1]
    first, again = (CondNewton().fit(sparse, BUDGET, random_source=RandomSource.of(5)).model for _ in range(2))
    assert np.array_equal(first.parameters, again.parameters)
    moved = Records(PublicFeatures(sp.csr_array(make_matrix(seed=8))), None, sparse.label)
    other = CondNewton().fit(moved, BUDGET, random_source=RandomSource.of(5))
    assert not np.allclose(first.parameters, other.model.parameters)
