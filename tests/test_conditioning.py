from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from conddp.algorithms import NonPrivate
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.errors import PrivateDataLeak, SchemaError
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.heads.folding import move_parameters
from conddp.privacy.budget import PrivacyBudget
from tests.contracts import HEADS


def mixed_features(rng: np.random.Generator, n: int = 400, d: int = 6) -> NDArray[Any]:
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3 * rng.normal(size=d)


def second_moment(C: ConditioningMatrix, X: NDArray[Any]) -> NDArray[Any]:
    Z = C.transform(PublicFeatures(X))
    return Z.T @ Z / len(X)


@pytest.mark.parametrize("constant", [True, False])
def test_singular_values_equal_those_of_numpy(rng: np.random.Generator, constant: bool) -> None:
    X = mixed_features(rng)
    spectrum = Spectrum.of(PublicFeatures(X), constant=constant)
    full = np.column_stack([X, np.ones(len(X))]) if constant else X
    _, singular, Vt = np.linalg.svd(full, full_matrices=False)
    assert spectrum.singular_values == pytest.approx(singular, rel=1e-9)
    assert np.abs(np.sum(spectrum.right_vectors * Vt.T, axis=0)) == pytest.approx(np.ones(full.shape[1]), rel=1e-9)
    assert spectrum.condition_number == pytest.approx(singular[0] / singular[-1], rel=1e-9)


def test_conditioning_is_the_papers_matrix_times_root_n(rng: np.random.Generator) -> None:
    X = mixed_features(rng)
    C = ConditioningMatrix.from_spectrum(Spectrum.of(PublicFeatures(X), constant=False))
    _, singular, Vt = np.linalg.svd(X, full_matrices=False)
    assert np.allclose(C.matrix, np.sqrt(len(X)) * Vt.T @ np.diag(1 / singular) @ Vt, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_conditioned_features_have_unit_second_moment_in_any_units(rng: np.random.Generator, scale: float) -> None:
    X = mixed_features(rng)
    X[:, 2] *= scale
    C = ConditioningMatrix.from_spectrum(Spectrum.of(PublicFeatures(X)))
    assert C.num_parameters == 7
    assert np.allclose(second_moment(C, X), np.eye(7), atol=1e-6)


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_chunks_give_the_same_spectrum_as_the_whole(num_chunks: int, seed: int) -> None:
    X = mixed_features(np.random.default_rng(seed), n=90)

    def chunks() -> Iterator[PublicFeatures]:
        for part in np.array_split(X, num_chunks):
            yield PublicFeatures(part)

    whole, streamed = Spectrum.of(PublicFeatures(X)), Spectrum.of(chunks())
    assert streamed.num_records == 90
    assert streamed.singular_values == pytest.approx(whole.singular_values, rel=1e-10)
    one, other = (ConditioningMatrix.from_spectrum(spectrum).matrix for spectrum in (whole, streamed))
    assert np.allclose(one, other, rtol=0, atol=1e-10 * np.abs(one).max())


def deficient(kind: str, rng: np.random.Generator) -> tuple[NDArray[Any], int]:
    """Features and their rank with the constant column."""
    X = mixed_features(rng, n=60, d=5)
    if kind == "duplicate":
        return np.column_stack([X, X[:, 0]]), 6
    if kind == "scaled duplicate":
        return np.column_stack([X, -1e6 * X[:, 0]]), 6
    if kind == "constant":
        return np.column_stack([X, np.full(60, 7.0)]), 6
    if kind == "zero":
        return np.column_stack([X, np.zeros(60)]), 6
    return mixed_features(rng, n=8, d=20), 8  # more columns than records


@pytest.mark.parametrize("kind", ["duplicate", "scaled duplicate", "constant", "zero", "d > n"])
def test_directions_without_information_get_no_parameter(rng: np.random.Generator, kind: str) -> None:
    X, rank = deficient(kind, rng)
    spectrum = Spectrum.of(PublicFeatures(X))
    C = ConditioningMatrix.from_spectrum(spectrum)
    assert spectrum.rank == C.num_parameters == rank
    assert np.allclose(second_moment(C, X), np.eye(rank), atol=1e-6)
    full = np.column_stack([X, np.ones(len(X))])
    singular = np.linalg.svd(full, compute_uv=False)[:rank]
    assert spectrum.singular_values == pytest.approx(singular, rel=1e-5)


@pytest.mark.parametrize("kind", ["duplicate", "scaled duplicate", "constant", "zero", "d > n"])
def test_rank_deficient_matrices_span_the_rows_only(rng: np.random.Generator, kind: str) -> None:
    X, _ = deficient(kind, rng)
    C = ConditioningMatrix.from_spectrum(Spectrum.of(PublicFeatures(X))).matrix
    full = np.column_stack([X, np.ones(len(X))])
    projected = full.T @ np.linalg.lstsq(full.T, C, rcond=1e-10)[0]
    assert np.allclose(projected, C, atol=1e-5 * np.abs(C).max())


@pytest.mark.parametrize(("exponent", "damping"), [(1.0, 0.0), (0.5, 0.0), (0.0, 0.0), (1.0, 0.3), (0.7, 0.01)])
def test_exponent_and_damping_give_the_stated_matrix(rng: np.random.Generator, exponent: float, damping: float) -> None:
    X = mixed_features(rng)
    spectrum = Spectrum.of(PublicFeatures(X), constant=False)
    C = ConditioningMatrix.from_spectrum(spectrum, exponent=exponent, damping=damping)
    _, singular, Vt = np.linalg.svd(X, full_matrices=False)
    moments = singular**2 / len(X)
    raw = Vt.T @ np.diag((moments + damping * moments.mean()) ** (-exponent / 2)) @ Vt
    scale = np.trace(C.matrix) / np.trace(raw)
    assert np.allclose(C.matrix, scale * raw, atol=1e-7 * np.abs(C.matrix).max())
    assert np.trace(second_moment(C, X)) == pytest.approx(X.shape[1])


@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
@pytest.mark.parametrize("rank_deficient", [False, True])
def test_folding_changes_no_prediction(rng: np.random.Generator, head: Any, rank_deficient: bool) -> None:
    X = mixed_features(rng)
    X = np.column_stack([X, X[:, 0] + X[:, 1]]) if rank_deficient else X
    Q = rng.normal(size=(len(X), 2))
    public = PublicFeatures(X)
    spectrum = Spectrum.of(public)
    C, D = ConditioningMatrix.from_spectrum(spectrum), ConditioningMatrix.column_scaling(spectrum)
    layout = head.layout(C.num_parameters, 2)
    parameters = rng.normal(size=(2, layout.size))
    before = head.predict(layout.views(parameters), C.transform(public), Q)

    folded = move_parameters(head, parameters, num_private=2, source=C)
    full = np.column_stack([X, np.ones(len(X))])
    after = head.predict(head.layout(full.shape[1], 2).views(folded), full, Q)
    assert np.allclose(before, after, rtol=1e-8, atol=1e-8)

    moved = move_parameters(head, parameters, num_private=2, source=C, target=D)
    switched = head.predict(head.layout(D.num_parameters, 2).views(moved), D.transform(public), Q)
    assert np.allclose(before, switched, rtol=1e-8, atol=1e-8)

    if not rank_deficient:
        assert np.allclose(C.unfold(C.fold(parameters[:, :7])), parameters[:, :7], rtol=1e-9)


def test_what_must_be_free_cannot_see_a_label(rng: np.random.Generator) -> None:
    public = PublicFeatures(rng.normal(size=(5, 2)))
    label = Labels(rng.random(5), Bounds(0, 1))
    dataset = Records(public, None, label)
    with pytest.raises(PrivateDataLeak, match="got Records. Pass its attribute .public."):
        Spectrum.of(dataset)  # type: ignore[arg-type]  # wrong on purpose
    for wrong in (label, rng.normal(size=(5, 2)), [label]):
        with pytest.raises(PrivateDataLeak):
            Spectrum.of(wrong)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(PrivateDataLeak):
        ConditioningMatrix.from_spectrum(Spectrum.of(public)).transform(dataset)  # type: ignore[arg-type]  # wrong on purpose


def test_nothing_to_learn_from_is_an_error() -> None:
    with pytest.raises(SchemaError, match="every public column is zero"):
        Spectrum.of(PublicFeatures(np.zeros((4, 2))), constant=False)
    with pytest.raises(SchemaError, match="no public column and no intercept"):
        Spectrum.of(PublicFeatures(np.empty((4, 0))), constant=False)
    with pytest.raises(SchemaError, match="the iterator of chunks is empty"):
        Spectrum.of([])
    with pytest.raises(SchemaError, match="too large to be squared"):
        Spectrum.of(PublicFeatures(np.full((4, 2), 1e160)))
    with pytest.raises(SchemaError, match="same columns"):
        Spectrum.of([PublicFeatures(np.ones((2, 2))), PublicFeatures(np.ones((2, 3)))])


def test_float32_features_give_a_float64_spectrum(rng: np.random.Generator) -> None:
    X = mixed_features(rng).astype(np.float32)
    assert Spectrum.of(PublicFeatures(X)).singular_values.dtype == np.float64
    C = ConditioningMatrix.from_spectrum(Spectrum.of(PublicFeatures(X)))
    assert C.transform(PublicFeatures(X), dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize(("offset", "unit"), [(0.0, 1.0), (1.7e9, 1.0), (1.7e12, 1e3), (1.7e15, 1e6)])
def test_columns_far_from_zero_keep_their_digits(rng: np.random.Generator, offset: float, unit: float) -> None:
    """Dates as seconds or microseconds that all lie within an hour."""
    X = np.column_stack([offset + unit * np.round(rng.uniform(0, 3600, size=400)), rng.normal(size=400)])
    public = PublicFeatures(X)
    spectrum = Spectrum.of(public)
    assert spectrum.rank == 3
    chunked = Spectrum.of(PublicFeatures(part) for part in np.array_split(X, 7))
    np.testing.assert_allclose(chunked.singular_values, spectrum.singular_values, rtol=1e-6 if offset < 1e12 else 0.1)
    np.testing.assert_allclose(spectrum.column_scales, [*np.sqrt((X**2).mean(axis=0)), 1.0], rtol=1e-12)
    C = ConditioningMatrix.from_spectrum(spectrum)
    np.testing.assert_allclose(second_moment(C, X), np.eye(3), atol=1e-5)
    np.testing.assert_allclose(C.inverse @ C.matrix, np.eye(3), atol=1e-5)
    y = (X[:, 0] - offset) / (3600 * unit) + X[:, 1]
    label = Labels(y, Bounds(-5, 5))
    model = NonPrivate().fit(Records(public, None, label), PrivacyBudget(1.0, 1e-6)).model
    np.testing.assert_allclose(model.predict(public), y, atol=1e-5)
