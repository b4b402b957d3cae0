"""Compiled kernels give what NumPy gives, protect as much, and can be turned off."""

import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mpmath import mp
from scipy.sparse import random_array

from conddp import _fused
from conddp.features.row_weights import RowWeights
from conddp.features.scaled_rows import ScaledRows
from conddp.heads import fused as fused_module
from conddp.heads.embeddings import Embeddings
from conddp.heads.fused import ClippedRecords
from conddp.heads.head import Head, Inputs
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.privacy.bounded_sum import bound_rounding
from conddp.privacy.fused_noise import FILL_NORMALS, make_quantile_table
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.noise import LARGEST_MULTIPLE, SMALLEST_TAIL, NoiseStream, _Draws, compute_grid, gaussian, laplace
from conddp.privacy.release import Curator
from conddp.training.clipping import Workspace, compute_clipped_sum, fuse_clipped_sum
from conddp.training.loop import LARGEST_PARAMETER, TrainingPlan, train
from conddp.training.optimizers import Adam
from tests.seeded_fits import compute_case, list_cases
from tests.test_heads import CLIP_NORMS, per_example_gradients, problem
from tests.test_noise import invert
from tests.test_seeded_fits import EXPECTED, TOLERANCE

HEADS: dict[str, Head] = {
    "linear": Linear(),
    "mlp": MLP(hidden=(5, 4)),
    "mlp-one-layer": MLP(hidden=(6,)),
    "mlp-embedding": MLP(hidden=(5, 4), embedding=3),
}


def fused_sum(
    head: Head,
    parameters: Any,
    public: Any,
    private: Any,
    label: Any,
    *,
    clip_norm: float = 1.0,
    weights: Any = None,
    positions: Any = None,
) -> Any:
    """The sum by kernels; fails if there is none."""
    layout = head.layout(public.shape[1], 0 if private is None else private.shape[1])
    workspace = Workspace.of(head, layout, parameters)
    fused = fuse_clipped_sum(
        workspace,
        Inputs.of(public, private),
        label,
        clip_norm=np.array([clip_norm]),
        weights=weights,
        are_sampled=positions is not None,
    )
    assert fused is not None
    workspace.total[...] = np.nan
    fused(positions)
    return workspace.total[0].copy()


def make_sparse(rng: np.random.Generator, n: int = 60, *, constant: bool = True) -> ScaledRows:
    columns: Any = random_array((n, 9), density=0.3, format="csr", rng=rng, data_sampler=rng.standard_normal)
    return ScaledRows.of(columns, np.ones(9 + constant), has_constant=constant)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("num_private", [0, 3])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_sums_equal_automatic_differentiation(
    rng: np.random.Generator, head: Head, num_private: int, order: Any
) -> None:
    p = problem(head, rng, num_private)
    public = np.asarray(p["public"], order=order)
    for k, clip_norm in enumerate(CLIP_NORMS):
        gradients = per_example_gradients(p, k)
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        expected = (gradients * np.minimum(1.0, clip_norm / norms)).sum(axis=0)
        parameters = p["parameters"][k : k + 1].copy()
        found = fused_sum(head, parameters, public, p["private"], p["label"], clip_norm=clip_norm)
        assert np.abs(found - expected).max() <= 1e-10 * max(1.0, np.abs(expected).max())


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [1, 2, 5, 131, 1031])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_sums_over_samples_equal_those_of_numpy(rng: np.random.Generator, head: Head, n: int, weighted: bool) -> None:
    public, private, label = rng.normal(size=(n, 7)), rng.normal(size=(n, 2)), rng.normal(size=n)
    layout = head.layout(7, 2)
    parameters = head.initialize(layout, rng)[None] + 0.3 * rng.normal(size=(1, layout.size))
    weights = rng.uniform(size=n) if weighted else None
    for positions in (np.arange(n), np.flatnonzero(rng.uniform(size=n) < 0.5), np.arange(0)):
        found = fused_sum(head, parameters, public, private, label, weights=weights, positions=positions)
        expected = compute_clipped_sum(
            Workspace.of(head, layout, parameters),
            Inputs.of(public, private).take(positions),
            label[positions],
            clip_norm=np.ones(1),
            weights=None if weights is None else weights[positions],
        )
        np.testing.assert_allclose(found, expected[0], rtol=1e-10, atol=1e-11)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 13])
def test_sums_over_any_number_of_columns_equal_those_of_numpy(rng: np.random.Generator, d: int, weighted: bool) -> None:
    rows, label = np.asfortranarray(rng.normal(size=(1031, d))), rng.normal(size=1031)
    parameters, weights = rng.normal(size=(1, d)), rng.uniform(size=1031) if weighted else None
    found = fused_sum(Linear(), parameters, rows, None, label, weights=weights)
    limits = 1 / np.linalg.norm(rows, axis=1)
    clamped = np.clip(label - rows @ parameters[0], -limits, limits) * (1.0 if weights is None else weights)
    np.testing.assert_allclose(found, -clamped @ rows, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_sums_over_sparse_rows_equal_those_over_an_array(
    rng: np.random.Generator, weighted: bool, constant: bool
) -> None:
    rows, label = make_sparse(rng, constant=constant), rng.normal(size=60)
    dense = np.hstack([rows.columns.toarray(), np.ones((60, int(constant)))])
    weights = rng.uniform(size=60) if weighted else None
    parameters = rng.normal(size=(1, 9 + constant))
    for positions in (None, np.flatnonzero(rng.uniform(size=60) < 0.3)):
        found = fused_sum(Linear(), parameters, rows, None, label, weights=weights, positions=positions)
        chosen = slice(None) if positions is None else positions
        residuals = label[chosen] - dense[chosen] @ parameters[0]
        limits = 1 / np.maximum(np.linalg.norm(dense[chosen], axis=1), 1e-15)  # an empty row has none
        clamped = np.clip(residuals, -limits, limits) * (1.0 if weights is None else weights[chosen])
        np.testing.assert_allclose(found, -clamped @ dense[chosen], rtol=1e-11, atol=1e-12)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_replacing_a_record_moves_the_sum_by_at_most_the_sensitivity(head: Head, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    scale, clip_norm = 10.0 ** data.draw(st.floats(-3, 3)), 10.0 ** data.draw(st.floats(-3, 2))
    n = 8
    public, private = scale * rng.normal(size=(n, 3)), rng.uniform(-1, 1, size=(n, 2))
    label = rng.uniform(-0.5, 0.5, size=n)
    parameters = scale * rng.normal(size=(1, head.layout(3, 2).size))
    changed_private, changed_label = private.copy(), label.copy()
    changed_private[0] = data.draw(st.tuples(st.floats(-1, 1), st.floats(-1, 1)))
    changed_label[0] = data.draw(st.floats(-0.5, 0.5))
    before = fused_sum(head, parameters, public, private, label, clip_norm=clip_norm)
    after = fused_sum(head, parameters, public, changed_private, changed_label, clip_norm=clip_norm)
    without = fused_sum(head, parameters, public[1:], private[1:], label[1:], clip_norm=clip_norm)
    slack = 1e-9 * clip_norm * n
    assert np.linalg.norm(before - after) <= Neighbouring.REPLACE.sensitivity(clip_norm) + slack
    assert np.linalg.norm(before - without) <= Neighbouring.ZERO_OUT.sensitivity(clip_norm) + slack


@pytest.mark.usefixtures("kernels")
def test_the_sensitivity_is_nearly_attained(rng: np.random.Generator) -> None:
    for head in HEADS.values():
        public, private = rng.normal(size=(6, 3)), rng.uniform(-1, 1, size=(6, 2))
        parameters = 0.2 * rng.normal(size=(1, head.layout(3, 2).size))
        low, high = np.zeros(6), np.zeros(6)
        low[0], high[0] = -50.0, 50.0
        one = fused_sum(head, parameters, public, private, low, clip_norm=0.01)
        other = fused_sum(head, parameters, public, private, high, clip_norm=0.01)
        assert np.linalg.norm(one - other) == pytest.approx(0.02, rel=1e-6)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["few columns", "columns", "rows", "sparse"])
def test_rounding_errors_of_sums_are_within_their_bound(rng: np.random.Generator, kind: str) -> None:
    # All residuals are clamped, so that every record contributes a vector of norm 1. One that is not 1 in the first
    # place would have a clamped residual that is not exact; the exact sum is that of the vectors as they are.
    n = 3000
    if kind == "sparse":
        rows: Any = make_sparse(rng, n)
        dense = np.hstack([rows.columns.toarray(), np.ones((n, 1))])
    else:
        dense = np.abs(rng.normal(size=(n, 9 if kind == "columns" else 5)))
        rows = np.asarray(dense, order="C" if kind == "rows" else "F")
    label = np.where(np.arange(n) < n // 2, 1e9, -1e9) * rng.uniform(1, 2, size=n)
    found = fused_sum(Linear(), np.zeros((1, dense.shape[1])), rows, None, label)
    clamped = np.sign(label) / Inputs.of(rows).row_norms
    error = 0.0
    for j in range(dense.shape[1]):
        exact = sum((Fraction(c) * Fraction(x) for c, x in zip(clamped, dense[:, j], strict=True)), Fraction(0))
        error += float(exact + Fraction(found[j])) ** 2
    assert 0 < error**0.5 <= n * (n + 1) / 2 * 2.0**-53
    assert 2 * error**0.5 <= Neighbouring.REPLACE.sensitivity(1.0) * (bound_rounding(n) - 1e-9)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_rounded_rows_are_the_rows_that_are_clipped(
    rng: np.random.Generator, head: Head, sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_module, "ROUNDED_FROM", 0)
    # Norms of rows that rounding makes longer would leave a gradient longer than the clip norm by some 1e-8.
    public, label = np.asfortranarray(rng.normal(size=(40, 11))), rng.normal(size=40)
    rounded = public.astype(np.float32).astype(np.float64)
    assert np.abs(np.linalg.norm(rounded, axis=1) / np.linalg.norm(public, axis=1) - 1).max() > 5e-9
    parameters = 0.3 * rng.normal(size=(1, head.layout(11, 0).size))
    for i in range(40):
        one = fused_sum(
            head, parameters, public[[i]], None, np.array([1e6]), positions=np.arange(1) if sampled else None
        )
        assert np.linalg.norm(one) == pytest.approx(1.0, abs=1e-9)
    workspace = Workspace.of(head, head.layout(11, 0), parameters)
    found = fused_sum(head, parameters, public, None, label, positions=np.arange(40) if sampled else None)
    is_rounded = sampled or isinstance(head, Linear)
    expected = compute_clipped_sum(workspace, Inputs.of(rounded if is_rounded else public), label, clip_norm=np.ones(1))
    np.testing.assert_allclose(found, expected[0], rtol=1e-11, atol=1e-12)


def test_rows_are_rounded_only_if_little_is_lost_and_all_columns_are_public(rng: np.random.Generator) -> None:
    n = 20_000
    public = np.hstack([rng.normal(size=(n, 9)), np.full((n, 1), 0.1)])

    def round_rows(public: Any, private: Any = None) -> Any:
        inputs = Inputs.of(public, private)
        records = ClippedRecords(public, private, inputs.row_norms, np.zeros(n), None, 1.0, 1e-9, False)
        return records.round_rows().public.dtype

    assert round_rows(public) == np.float32
    assert round_rows(public, rng.normal(size=(n, 1))) == np.float64
    assert round_rows(public[:, :3]) == np.float64  # few
    far, small, large = public.copy(), public.copy(), public.copy()
    far[:, 2], small[:, 2], large[:, 2] = 1e9 + rng.integers(0, 2, size=n), 1e-44 * public[:, 2], 1e39 * public[:, 2]
    assert [round_rows(each) for each in (far, small, large)] == [np.float64] * 3


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_what_is_not_finite_contributes_nothing_and_is_not_reported(head: Head, rng: np.random.Generator) -> None:
    public, private = 1e6 * rng.normal(size=(9, 3)), rng.uniform(-1, 1, size=(9, 2))
    signs = rng.choice([-1.0, 1.0], size=(1, head.layout(3, 2).size))
    label = rng.uniform(-0.5, 0.5, size=9)
    with np.errstate(all="raise"):
        found = fused_sum(head, LARGEST_PARAMETER * signs, public, private, label)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found) <= 9 * (1 + 1e-9)
    # A label that is not a number cannot come from a fit. It would still not reach the others.
    label[4] = np.nan
    kept = np.delete(np.arange(9), 4)
    parameters = 0.1 * signs
    found = fused_sum(head, parameters, public / 1e6, private, label)
    expected = fused_sum(head, parameters, public[kept] / 1e6, private[kept], label[kept])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.usefixtures("kernels")
def test_a_record_that_overflows_a_deep_net_contributes_zero() -> None:
    # As in tests/privacy/test_sensitivity.py: the first record overflows in all layers, the second is zero throughout.
    head = MLP(hidden=(2,) * 60)
    parameters = np.full((1, head.layout(1, 1).size), 1e6)
    for name, view in head.layout(1, 1).views(parameters).items():
        if name.startswith("bias"):
            view[...] = 0.0
    public, private, label = np.array([[1.0], [-1.0]]), np.array([[0.5], [0.5]]), np.array([0.1, 0.2])
    both = fused_sum(head, parameters, public, private, label)
    assert np.isfinite(both).all()
    np.testing.assert_array_equal(both, fused_sum(head, parameters, public[1:], private[1:], label[1:]))
    assert np.linalg.norm(both) > 0


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("probability", [1.0, 0.2])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_a_run_is_that_of_numpy(
    rng: np.random.Generator, head: Head, probability: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    public, private, label = rng.normal(size=(90, 3)), rng.uniform(-1, 1, size=(90, 2)), rng.uniform(size=90)
    weights = RowWeights.give(rng.uniform(0.2, 1, size=90))
    start = 0.3 * rng.normal(size=(1, head.layout(3, 2).size))

    def run() -> tuple[Any, Any]:
        curator = Curator(np.random.default_rng(1), num_records=90)
        trained = train(
            TrainingPlan(40, 0.5, 1.0, probability, 0.5),
            head,
            head.layout(3, 2),
            Inputs.of(public, private),
            label,
            start,
            optimizer=Adam(0.05),
            curator=curator,
            rng=np.random.default_rng(2),
            weights=weights,
        )
        return trained, curator.transcript

    fused = run()
    monkeypatch.setenv("CONDDP_FAST", "0")
    plain = run()
    np.testing.assert_allclose(fused[0], plain[0], rtol=1e-9, atol=1e-9)
    assert fused[1] == plain[1]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", ["dpsgd linear", "cond-dp linear private", "cond-dp sampled", "switch carry"])
def test_seeded_fits_are_those_of_numpy(name: str) -> None:
    assert np.allclose(compute_case(list_cases()[name]), EXPECTED[name], rtol=0, atol=TOLERANCE)


@pytest.mark.usefixtures("kernels")
def test_kernels_are_for_float64_and_known_heads_only(rng: np.random.Generator) -> None:
    head: Head
    for head, K, dtype in (
        (Linear(), 1, "float32"),
        (MLP(hidden=(4,)), 2, "float64"),
        (MLP(hidden=(4,), activation="tanh"), 1, "float64"),
        (MLP(hidden=(200,)), 1, "float64"),
    ):
        layout = head.layout(3, 0)
        workspace = Workspace.of(head, layout, np.zeros((K, layout.size), dtype=dtype))
        inputs = Inputs.of(rng.normal(size=(5, 3)).astype(dtype))
        assert fuse_clipped_sum(workspace, inputs, np.zeros(5, dtype=dtype), clip_norm=np.ones(K)) is None


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("own_labels", [False, True])
def test_sums_of_several_configurations_are_those_of_numpy(rng: np.random.Generator, own_labels: bool) -> None:
    rows, K = np.asfortranarray(rng.normal(size=(300, 5))), 3
    label, clip_norm = rng.normal(size=(K, 300) if own_labels else 300), np.array([0.1, 1.0, 5.0])
    workspace = Workspace.of(Linear(), Linear().layout(5, 0), rng.normal(size=(K, 5)))
    expected = compute_clipped_sum(workspace, Inputs.of(rows), label, clip_norm=clip_norm).copy()
    fused = fuse_clipped_sum(workspace, Inputs.of(rows), label, clip_norm=clip_norm)
    assert fused is not None
    workspace.total[...] = np.nan
    fused(None)
    np.testing.assert_allclose(workspace.total, expected, rtol=1e-11, atol=1e-11)
    wide = Workspace.of(Linear(), Linear().layout(9, 0), np.zeros((K, 9)))  # for which products with BLAS are faster
    assert fuse_clipped_sum(wide, Inputs.of(rng.normal(size=(300, 9))), label, clip_norm=clip_norm) is None


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("which", "sparse"),
    [(which, sparse) for which in ("rows", "label", "weights") for sparse in (False, True)]
    + [("indices", True), ("indptr", True)],
)
def test_arrays_that_are_read_only_are_summed_without_kernels(
    rng: np.random.Generator, which: str, sparse: bool
) -> None:
    head = Linear()
    X: Any = make_sparse(rng) if sparse else rng.normal(size=(60, 5))
    inputs, label, weights = head.prepare(X, None), rng.normal(size=60), np.ones(60)
    parameters = np.zeros((1, X.shape[1]))
    workspace = Workspace.of(head, head.layout(X.shape[1], 0), parameters)
    arrays = {"label": label, "weights": weights, "rows": X.columns.data if sparse else X}
    if sparse:
        arrays |= {"indices": X.columns.indices, "indptr": X.columns.indptr}
    arrays[which].flags.writeable = False
    clip_norm = np.ones(1)
    for are_sampled in (False, True):
        assert (
            fuse_clipped_sum(workspace, inputs, label, clip_norm=clip_norm, weights=weights, are_sampled=are_sampled)
            is None
        )
    value = np.ones(3)
    value.flags.writeable = False
    released = [NoiseStream(gaussian(), np.random.default_rng(0)).add(each, 1.0) for each in (value, value.copy())]
    assert np.array_equal(released[0], released[1])


@pytest.mark.usefixtures("kernels")
def test_a_subclass_is_summed_without_kernels(rng: np.random.Generator) -> None:
    class Shifted(Linear):
        def predict(self, weights: Any, public: Any, private: Any) -> Any:
            return super().predict(weights, public, private) - 7

    head, inputs = Shifted(), Inputs.of(rng.normal(size=(9, 2)))
    workspace = Workspace.of(head, head.layout(2, 0), np.zeros((1, 2)))
    assert fuse_clipped_sum(workspace, inputs, np.zeros(9), clip_norm=np.ones(1)) is None


@pytest.mark.usefixtures("kernels")
def test_labels_of_one_configuration_may_have_an_axis_for_it(rng: np.random.Generator) -> None:
    inputs, label = Inputs.of(rng.normal(size=(9, 2))), rng.normal(size=9)
    sums = []
    for labels in (label, label[None]):
        workspace = Workspace.of(Linear(), Linear().layout(2, 0), np.zeros((1, 2)))
        fused = fuse_clipped_sum(workspace, inputs, labels, clip_norm=np.ones(1), are_sampled=True)
        assert fused is not None
        fused(None)
        sums.append(workspace.total)
    assert np.array_equal(sums[0], sums[1])


def test_numba_that_does_not_compile_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not _fused.load_kernels()


@pytest.mark.usefixtures("kernels")
def test_interpolated_quantiles_are_far_more_accurate_than_their_tolerance() -> None:
    # At both ends of intervals of all sizes, and in between: 63 random bits each, with the sign as the last bit.
    rng = np.random.default_rng(4)
    edges = (2.0 ** -np.array([1, 2, 5, 9, 20])[:, None] * (1 + np.array([0, 1, 31]) / 32)).ravel()
    tails = np.concatenate([edges, np.nextafter(edges, 1), rng.uniform(size=20), [1.0, 1 - 2.0**-53, SMALLEST_TAIL]])
    tails = np.clip(tails, SMALLEST_TAIL, 1.0)
    bits = (np.minimum(tails * 2.0**63, 2.0**63 - 1024).astype(np.uint64)) << np.uint64(1)
    kernel = FILL_NORMALS.get()
    assert kernel is not None
    found, mirrored = np.empty(len(bits)), np.empty(len(bits))
    kernel(bits, make_quantile_table(), found)
    kernel(bits | np.uint64(1), make_quantile_table(), mirrored)
    np.testing.assert_array_equal(mirrored, -found)
    exact = (bits >> np.uint64(1)) * 2.0**-63
    errors = [abs(float(invert(gaussian(), v, t) - mp.mpf(t))) for v, t in zip(exact, found, strict=True)]
    assert max(errors) < gaussian().tolerance / 8
    for few in (np.uint64(0), np.uint64((1 << 44) - 1)):  # too few bits that are not zero: decided elsewhere
        kernel(np.array([few]), make_quantile_table(), found[:1])
        assert np.isnan(found[0])
    kernel(np.array([np.uint64(1 << 44), np.uint64(2**64 - 2)]), make_quantile_table(), found[:2])
    assert found[0] == pytest.approx(4.90096, abs=1e-4) and found[1] == 0.0


@pytest.mark.parametrize("make_shape", [gaussian, laplace])
@pytest.mark.parametrize("tolerance", [None, 1e-9])
def test_releases_with_kernels_are_those_without_bit_for_bit(
    make_shape: Any, tolerance: float | None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[tuple[int, float, float]] = []
    decide = _Draws.decide

    def note(draws: _Draws, *question: Any) -> int:
        decided.append(question)
        return decide(draws, *question)

    monkeypatch.setattr(_Draws, "decide", note)
    # With a large tolerance, one draw in 500 is decided in multiple precision.
    shape = make_shape() if tolerance is None else replace(make_shape(), tolerance=tolerance)
    sizes, stds = [1, 5, 70, 3000, 3, 9000], [0.3, 5.0, 1e-7, 2.0, 1e6, 1.0]
    values = [np.random.default_rng(size).normal(size=size) for size in sizes]
    values[2][:4] = np.inf, -np.inf, np.nan, 1e300
    values[2][4:6] = np.array([1.5, -1.5]) * LARGEST_MULTIPLE * compute_grid(stds[2])  # a little beyond the largest

    def release() -> list[Any]:
        stream = NoiseStream(shape, np.random.default_rng(3))
        with np.errstate(over="ignore"):  # as in a fit
            return [stream.add(each, std) for each, std in zip(values, stds, strict=True)]

    plain, by_numpy = release(), len(decided)
    request.getfixturevalue("kernels")
    for one, other, std in zip(release(), plain, stds, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.isfinite(one).all()
        assert (np.fmod(one, compute_grid(std)) == 0).all()
    asked = [[offset for _, offset, _ in each] for each in (decided[:by_numpy], decided[by_numpy:])]
    assert asked[0] == asked[1] and (tolerance is None or by_numpy > 10)  # the same ones are in doubt


def test_adam_with_a_kernel_takes_the_same_steps_bit_for_bit(
    rng: np.random.Generator, request: pytest.FixtureRequest
) -> None:
    gradients = rng.normal(size=(20, 1, 37)) * 10.0 ** rng.integers(-9, 9, size=(20, 1, 37))

    def run() -> Any:
        optimizer, parameters = Adam(0.05), np.zeros((1, 37))
        for gradient in gradients:
            optimizer.update(parameters, gradient)
        return parameters

    plain = run()
    request.getfixturevalue("kernels")
    np.testing.assert_array_equal(run(), plain)


def test_numba_is_loaded_only_for_long_runs_and_can_be_turned_off() -> None:
    program = """
import os, sys
import numpy as np
import conddp
from conddp import DPSGD, PrivateRegressor
from conddp._fused import PAYS_OFF, load_kernels
rng = np.random.default_rng(0)
X, y = rng.normal(size=(60, 2)), rng.uniform(size=60)
PrivateRegressor(epsilon=1.0, label_bounds=(0, 1), algorithm=DPSGD(num_steps=3), random_state=0).fit(X, y)
print("numba" in sys.modules, load_kernels(PAYS_OFF), "numba" in sys.modules, load_kernels())
os.environ["CONDDP_FAST"] = "0"
print(load_kernels(PAYS_OFF))
"""
    environment = {name: each for name, each in os.environ.items() if name != "CONDDP_FAST"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.split() == ["False", "True", "True", "True", "False"]


def test_without_numba_everything_is_computed_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise ImportError(name)

    for name, value in (("_numba", None), ("_is_missing", False), ("_are_used", False), ("import_module", refuse)):
        monkeypatch.setattr(_fused, name, value)
    assert not _fused.load_kernels(1e99)
    assert _fused.Kernel(abs, ["float64(float64)"], examples=list).get() is None


@pytest.mark.parametrize("engine", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_by_bin_and_of_blocks_are_those_without_kernels(
    rng: np.random.Generator, dtype: str, engine: str, request: pytest.FixtureRequest
) -> None:
    head = Embeddings(num_bins=7, width=3, hidden=(5, 4), num_categories=3)
    n = 400  # more than one block of records whose products are summed in float32
    public = np.hstack([rng.integers(0, 7, size=(n, 3)), rng.normal(size=(n, 2))]).astype(dtype)
    layout = head.layout(5, 0)
    parameters, label = head.initialize(layout, rng)[None], rng.normal(size=n)
    to: Any = torch.from_numpy if engine == "torch" else np.asarray

    def compute() -> Any:
        workspace = Workspace.of(head, layout, to(parameters))
        inputs = head.prepare(to(public), None)
        return np.asarray(compute_clipped_sum(workspace, inputs, to(label), clip_norm=to(np.ones(1)))).copy()

    plain = compute()
    request.getfixturevalue("kernels")
    np.testing.assert_allclose(compute(), plain, rtol=1e-11, atol=1e-11)
