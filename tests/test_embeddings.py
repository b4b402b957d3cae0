"""The head that looks up bins of categories: inputs, exact norms with repeated bins, precision, start and storage."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import array_api_compat
import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch.func import grad, vmap

from conddp import PrivacyError, PrivateRegressor
from conddp.algorithms import DPSGD, CondDP, NonPrivate, RROnBins, SwitchCondDP
from conddp.algorithms.auto import Auto
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.public_table import PublicTable
from conddp.data.records import Records
from conddp.errors import SchemaError
from conddp.features.bin_encoding import hash_level
from conddp.features.code_spectrum import compute_spectral_table, expand_codes
from conddp.features.encoding import Encoding
from conddp.heads.embeddings import CodedInputs, Embeddings
from conddp.heads.head import Inputs
from conddp.heads.kernels import RECORDS_PER_SUM, bound_sum_rounding, sum_products
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.training import backends
from conddp.training.clipping import Workspace, compute_clipped_sum
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import SGD, Adam

BUDGET = PrivacyBudget(4.0, 1e-6)
HASHES = [1780, 1333, 4]
HEAD = Embeddings(num_bins=6, width=3, hidden=(5, 4), num_categories=4)
BINS = np.array(
    [[0, 1, 2, 3], [1, 1, 2, 3], [2, 5, 2, 2], [4, 4, 4, 4], [0, 5, 5, 0], [3, 0, 3, 1]]
)  # none to all equal


def make_rows(rng: np.random.Generator, bins: NDArray[Any] = BINS) -> NDArray[np.float64]:
    return np.column_stack([bins, rng.normal(size=(len(bins), 2)), np.ones(len(bins))])


def compute_gradients(head: Embeddings, parameters: NDArray[Any], X: NDArray[Any], label: NDArray[Any]) -> NDArray[Any]:
    """Gradients of half the squared residual by automatic differentiation of a plain network; shape (n, P)."""
    layout = head.layout(X.shape[1], 0)

    def loss(flat: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weights = {name: flat[span].reshape(layout.shapes[name]) for name, span in layout.spans.items()}
        embedded = weights["table"][x[: head.num_codes].long()].flatten()
        u = weights["embedded"] @ embedded + weights["public"] @ x[head.num_codes :]
        for number in range(1, len(head.hidden) + 1):
            u = weights[f"weight_{number}"] @ torch.relu(u) + weights[f"bias_{number}"]
        return 0.5 * (u[0] - y) ** 2

    tensors = (torch.from_numpy(np.asarray(each, dtype=np.float64)) for each in (parameters, X, label))
    return np.asarray(vmap(grad(loss), (None, 0, 0))(*tensors))


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_norms_are_exact_with_two_three_and_four_equal_bins(rng: np.random.Generator, engine: str) -> None:
    X, layout = make_rows(rng), HEAD.layout(7, 0)
    label = np.full(len(X), 50.0)  # far from the predictions, so that every gradient is clipped
    parameters = HEAD.initialize(layout, rng) + 0.5 * rng.normal(size=layout.size)
    to: Any = torch.from_numpy if engine == "torch" else np.asarray
    trace = HEAD.forward(layout.views(to(parameters[None])), HEAD.prepare(to(X), None))
    gradients = compute_gradients(HEAD, parameters, X, label)
    residuals = np.abs(np.asarray(trace.predictions[0]) - label)
    expected = np.linalg.norm(gradients, axis=1)
    assert np.allclose(residuals * np.asarray(trace.jacobian_norms[0]), expected, rtol=1e-10)
    workspace = Workspace.of(HEAD, layout, to(parameters[None]))
    found = compute_clipped_sum(workspace, HEAD.prepare(to(X), None), to(label), clip_norm=to(np.array([0.3])))
    clipped = (gradients * (0.3 / expected)[:, None]).sum(axis=0)
    assert np.abs(np.asarray(found)[0] - clipped).max() < 1e-10
    # Without the products of equal bins the norms would be wrong, and too small for some record.
    wrong = HEAD.forward(
        layout.views(to(parameters[None])), replace(HEAD.prepare(to(X), None), has_repeats=to(np.zeros(6, bool)))
    )
    assert (np.asarray(wrong.jacobian_norms[0]) < np.asarray(trace.jacobian_norms[0]) * 0.999).any()


def make_mixed(seed: int, n: int, scale: float, engine: str) -> tuple[Embeddings, Any, Any, Any, Any]:
    """Float32 inputs, float64 labels and parameters, as in a fit."""
    rng = np.random.default_rng(seed)
    head = Embeddings(num_bins=40, width=4, hidden=(16, 8), num_categories=5)
    X = np.column_stack([rng.integers(0, 40, size=(n, 5)), scale * rng.normal(size=(n, 2)), np.ones(n)])
    layout = head.layout(8, 0)
    parameters = (head.initialize(layout, rng) + scale * 0.3 * rng.normal(size=layout.size))[None]
    to: Any = torch.from_numpy if engine == "torch" else np.asarray
    return (
        head,
        layout,
        to(parameters),
        head.prepare(to(X.astype(np.float32)), None),
        to(rng.uniform(-0.5, 0.5, size=n)),
    )


@pytest.mark.parametrize("engine", ["numpy", "torch"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("n", [1, 127, 300, 4500])
def test_a_changed_label_moves_a_mixed_precision_sum_by_at_most_what_is_added(
    n: int, scale: float, engine: str
) -> None:
    head, layout, parameters, inputs, label = make_mixed(n, n, scale, engine)
    assert isinstance(inputs, CodedInputs) and inputs.public.dtype != parameters.dtype
    clip_norm = inputs.xp.ones_like(parameters[:, 0]) * 0.01

    def compute(place: int, value: float) -> NDArray[np.float64]:
        changed = inputs.xp.asarray(label, copy=True)
        changed[place] = value
        workspace = Workspace.of(head, layout, parameters)
        return np.asarray(compute_clipped_sum(workspace, inputs, changed, clip_norm=clip_norm))[0]

    sensitivity = Neighbouring.REPLACE.sensitivity(0.01) * (1 + inputs.bound_rounding(1, parameters.dtype))
    for place in {0, n // 2, n - 1}:
        moved = np.linalg.norm(compute(place, -1e30) - compute(place, 1e30))
        assert 0.99 * 0.02 < moved <= sensitivity
        # All other blocks are the same bit for bit, so the error is that of one block and not of n records.
        assert moved <= 0.02 * (1 + 1e-4)


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_the_norm_of_a_contribution_as_summed_is_at_most_the_clip_norm(engine: str) -> None:
    for seed in range(20):
        head, layout, parameters, inputs, label = make_mixed(seed, 1, 10.0 ** (seed % 5 - 2), engine)
        clip_norm = inputs.xp.ones_like(parameters[:, 0]) * 0.01
        workspace = Workspace.of(head, layout, parameters)
        value = np.asarray(compute_clipped_sum(workspace, inputs, label * 0 + 1e30, clip_norm=clip_norm))
        assert np.linalg.norm(value) <= 0.01  # the margin is larger than all rounding errors of one record


def test_the_bound_on_blocks_covers_the_worst_case_that_rounding_can_do() -> None:
    # The same small number is lost in every addition to a large one: errors of one sign, as large as they can be.
    b = RECORDS_PER_SUM
    left, right = np.full((b, 1), np.float32(1 + 2.0**-13)), np.full((b, 1), np.float32(1 - 2.0**-12))
    exact = (left.astype(np.float64).T @ right.astype(np.float64))[0, 0]
    found = sum_products(array_api_compat.array_namespace(left), left, right, np.float64)[0, 0]
    largest = float(left[0, 0]) * float(right[0, 0])
    assert abs(found - exact) <= bound_sum_rounding(np, np.float32, per_unit=1) / 2 * largest
    assert bound_sum_rounding(np, np.float32, per_unit=1) < 2.1e-3
    assert bound_sum_rounding(np, np.float32, per_unit=300) == pytest.approx(4 * 1.9534e-3, rel=1e-3)


def test_vectors_of_equal_bins_that_cancel_are_limited() -> None:
    # Two categories in one bin with opposite vectors: the gradient of the table vanishes, but long vectors are added.
    head = Embeddings(num_bins=3, width=2, hidden=(4,), num_categories=2)
    layout = head.layout(3, 0)
    parameters = np.full((1, layout.size), 0.5)
    weights = layout.views(parameters)
    weights["embedded"][...] = 1e6 * np.array([1.0, 2.0, -1.0, -2.0])
    weights["table"][...], weights["public"][...] = 0.0, 1.0
    inputs = head.prepare(np.array([[1.0, 1.0, 1.0]]), None)
    trace = head.forward(weights, inputs)
    vectors = np.asarray(trace.layers[1][0].deltas[-1])
    assert np.linalg.norm(vectors) > 1e6
    assert trace.jacobian_norms[0, 0] ** 2 >= 1e-3 * np.linalg.norm(vectors) ** 2
    distinct = head.prepare(np.array([[1.0, 2.0, 1.0]]), None)
    assert distinct.bound_rounding(1, np.float64) == 0.0
    assert 0.0 < inputs.bound_rounding(1, np.float64) < 1e-12


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_float32_products_are_summed_in_blocks_of_fixed_size(engine: str) -> None:
    # Ones after a large number vanish in float32, but only those of its own block.
    left = np.ones((1000, 1), dtype=np.float32)
    left[0] = 2.0**26
    to: Any = torch.from_numpy if engine == "torch" else np.asarray
    wide: Any = torch.float64 if engine == "torch" else np.float64
    found = float(
        sum_products(array_api_compat.array_namespace(to(left)), to(left), to(np.ones_like(left)), wide)[0, 0]
    )
    assert 2.0**26 + 1000 - 1 >= found >= 2.0**26 + 1000 - RECORDS_PER_SUM


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_noise_and_sensitivity_are_enlarged_by_the_bound_unless_there_is_no_guarantee(dtype: Any) -> None:
    head, layout, parameters, inputs, label = make_mixed(0, 50, 1.0, "numpy")
    parameters, label = parameters.astype(dtype), label.astype(dtype)
    asked: list[Any] = []

    class Watching(Curator):
        def release_gaussian(self, bounded: Any, *, noise_std: Any, sampling_probability: float = 1.0) -> Any:
            asked.append((float(bounded.sensitivity), float(noise_std)))
            return super().release_gaussian(bounded, noise_std=noise_std, sampling_probability=sampling_probability)

    curator = Watching(np.random.default_rng(0), num_records=50, float32_without_guarantee=True)
    plan = TrainingPlan(1, 0.5, 3.0)
    train(
        plan, head, layout, inputs, label, parameters, optimizer=SGD(0.1), curator=curator, rng=np.random.default_rng(0)
    )
    factor = 1 + inputs.bound_rounding(1, parameters.dtype) if dtype == np.float64 else 1.0
    assert dtype == np.float32 or factor > 1 + bound_sum_rounding(np, np.float32, per_unit=1)
    assert asked[0] == pytest.approx((2 * 0.5 * factor, 3 * 0.5 * factor))


def test_blocks_of_records_give_the_sum_of_all(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    head, layout, parameters, inputs, label = make_mixed(1, 300, 1.0, "numpy")
    clip_norm, weights = np.array([0.2]), rng.uniform(size=300)
    workspace = Workspace.of(head, layout, parameters)
    whole = compute_clipped_sum(workspace, inputs, label, clip_norm=clip_norm, weights=weights).copy()
    monkeypatch.setattr(Embeddings, "records_at_once", 128)
    parts = compute_clipped_sum(workspace, inputs, label, clip_norm=clip_norm, weights=weights)
    # Activations are in float32, and BLAS may add up products of blocks of another size in another order.
    np.testing.assert_allclose(whole, parts, rtol=0, atol=64 * np.finfo(np.float32).eps * np.abs(whole).max())


def test_a_record_that_overflows_float32_contributes_zero() -> None:
    head, layout, parameters, inputs, label = make_mixed(2, 4, 1.0, "numpy")
    inputs.public[0] = 3e37
    clip_norm = np.array([1.0])
    with np.errstate(all="ignore"):
        every = compute_clipped_sum(Workspace.of(head, layout, parameters), inputs, label, clip_norm=clip_norm).copy()
        rest = compute_clipped_sum(
            Workspace.of(head, layout, parameters), inputs.take(slice(1, 4)), label[1:], clip_norm=clip_norm
        )
    assert np.isfinite(every).all()
    np.testing.assert_allclose(every, rest, rtol=0, atol=64 * np.finfo(np.float32).eps * np.abs(rest).max())


def make_table(n: int = 3000) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    street, city, x = rng.integers(0, 60, size=n), rng.integers(0, 8, size=n), rng.normal(size=n)
    effects = rng.normal(size=60)
    y = effects[street] + 0.3 * city * np.sign(x) + 0.1 * rng.normal(size=n)
    streets = [f"street {each}" for each in street]
    return pd.DataFrame({"x": x, "street": streets, "city": pd.Categorical(city.astype(str))}), np.clip(y, -4, 4)


SMALL = Embeddings(num_bins=200, width=3, hidden=(8,))


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_table_is_fitted_saved_and_predicted_by_name(tmp_path: Path, backend: Any) -> None:
    X, y = make_table()
    algorithm = SwitchCondDP(num_steps=60, backend=backend)
    model = PrivateRegressor(4.0, label_bounds=(-4, 4), algorithm=algorithm, head=SMALL, random_state=0).fit(X, y)
    assert model.encoding_.features == ("street in bins", "city in bins", "x")
    assert model.model_.head == replace(SMALL, num_categories=2)
    assert model.model_.parameters.dtype == np.float64
    predictions = model.predict(X)
    assert np.mean((predictions - y) ** 2) < 0.8 * np.var(y)
    model.save(tmp_path / "model")
    same = PrivateRegressor.load(tmp_path / "model")
    assert np.array_equal(same.predict(X[["city", "x", "street"]]), predictions)
    new = X[:3].assign(street=pd.Series(["never seen", None, "street 1"], dtype=object))
    assert np.isfinite(same.predict(new)).all()


def test_an_array_holds_bins_in_its_first_columns() -> None:
    X, y = make_table()
    bins = np.column_stack([X["street"].str[7:].astype(int), X["city"].astype(int), X["x"]])
    head = replace(SMALL, num_categories=2)
    settings: dict[str, Any] = {"label_bounds": (-4, 4), "algorithm": DPSGD(num_steps=5), "random_state": 0}
    model = PrivateRegressor(4.0, head=head, **settings).fit(bins, y)
    assert model.encoding_.features == ("x0", "x1", "x2")
    assert model.predict(bins[:5]).shape == (5,)
    bins[0, 1] = 200.0
    with pytest.raises(SchemaError, match="'x1' must hold bins, integers from 0 to 199"):
        PrivateRegressor(4.0, head=head, **settings).fit(bins, y)
    with pytest.raises(SchemaError, match="num_categories=1, but the public columns have 2 categories"):
        PrivateRegressor(4.0, head=replace(SMALL, num_categories=1), **settings).fit(X[["street", "city", "x"]], y)


def make_records(rng: np.random.Generator, n: int = 400) -> Records:
    bins = rng.integers(0, 6, size=(n, 4))
    X = np.column_stack([bins, rng.normal(size=(n, 2))])
    return Records(PublicFeatures(X), None, Labels(np.tanh(bins[:, 0] - 3.0 + X[:, 4]), Bounds(-1, 1)))


@pytest.mark.parametrize("algorithm", [DPSGD(num_steps=4), SwitchCondDP(num_steps=4), RROnBins(), NonPrivate(), Auto()])
def test_algorithms_fit_bins(rng: np.random.Generator, algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.training.released.NUM_STEPS", 20)
    records = make_records(rng)
    result = algorithm.fit(records, BUDGET, head=HEAD, random_source=RandomSource.of(0))
    assert result.model.predict(records.public).shape == (400,)
    again = algorithm.fit(records, BUDGET, head=HEAD, random_source=RandomSource.of(0))
    assert np.array_equal(again.model.parameters, result.model.parameters)


def test_algorithms_that_multiply_rows_refuse_bins_before_anything_is_spent(rng: np.random.Generator) -> None:
    ledger = PrivacyLedger(BUDGET)
    with pytest.raises(ValueError, match="CondDP multiplies public columns by a matrix, but 4 of them hold bins"):
        CondDP().fit(make_records(rng), BUDGET, head=HEAD, ledger=ledger)
    assert not ledger.entries


def test_only_the_start_differs_between_dpsgd_and_the_switch(rng: np.random.Generator) -> None:
    records = make_records(rng)
    layout = HEAD.layout(7, 0)
    plain, spectral = (
        HEAD.initialize_on(records.public, layout, np.random.default_rng(0), conditioned=each) for each in (False, True)
    )
    names = [name for name, span in layout.spans.items() if not np.array_equal(plain[span], spectral[span])]
    assert names == ["table"]
    forced = replace(HEAD, initialization="spectral").initialize_on(
        records.public, layout, np.random.default_rng(0), conditioned=False
    )
    assert np.array_equal(forced, spectral)
    table = layout.views(spectral[None])["table"][0]
    used = table[records.public.values[:, :4].astype(int)]
    assert np.sqrt(np.mean(used**2)) == pytest.approx(HEAD.initial_scale)
    # With the same start there is no difference: all steps of the switch are those of DP-SGD.
    same = replace(HEAD, initialization="random")
    fits = [
        algorithm.fit(records, BUDGET, head=same, random_source=RandomSource.for_neighbours(1)).model.parameters
        for algorithm in (SwitchCondDP(num_steps=3), DPSGD(num_steps=3))
    ]
    assert np.array_equal(fits[0], fits[1])


@pytest.mark.parametrize("num_bins", [30, 700])  # all singular vectors, or the leading ones by iteration
def test_a_spectral_table_is_that_of_a_dense_decomposition(rng: np.random.Generator, num_bins: int) -> None:
    codes = rng.integers(0, rng.integers(2, num_bins, size=5), size=(900, 5))
    X = np.zeros((900, num_bins))
    np.add.at(X, (np.arange(900)[:, None], codes), 1.0)
    _, S, Vt = np.linalg.svd(X, full_matrices=False)
    table = compute_spectral_table(codes, num_bins=num_bins, width=4)
    expected = np.sqrt(900) * Vt[:4].T / S[:4]
    assert np.allclose(np.abs(table), np.abs(expected), atol=1e-7 * np.abs(expected).max())
    sums = table[codes].sum(axis=1)
    assert np.allclose(sums.T @ sums / 900, np.eye(4), atol=1e-9)


def test_bins_expand_to_counts(rng: np.random.Generator) -> None:
    public = PublicFeatures(np.array([[0.0, 2.0, 7.5], [2.0, 2.0, -1.0]]))
    assert expand_codes(public, 2, num_bins=9).values.tolist() == [[1.0, 1.0, 7.5], [0.0, 2.0, -1.0]]


def test_hashes_are_the_same_everywhere() -> None:
    assert [hash_level("street", "a", 4000), hash_level("city", "a", 4000), hash_level("street", "", 7)] == HASHES
    table = PublicTable.of(pd.DataFrame({"a": ["1", "1.0", None, "2"]}))
    bins = Encoding.of(table, num_bins=4000).transform(table).values[:, 0]
    assert bins[0] == bins[1] == hash_level("a", "1", 4000)
    assert len(set(bins.tolist())) == 3


def test_torch_gives_what_numpy_gives_and_resumes_from_a_state() -> None:
    found = {}

    def run(num_steps: int, problem: Any, **more: Any) -> Any:
        plan = TrainingPlan(num_steps, 0.1, 1e-3, averaging=0.5)
        head, layout, parameters, inputs, label = problem
        rng = np.random.default_rng(5)
        return train(plan, head, layout, inputs, label, parameters, optimizer=Adam(0.01), rng=rng, **more)

    for engine in ("numpy", "torch"):
        problem = make_mixed(3, 200, 1.0, engine)
        states: list[dict[str, Any]] = []
        found[engine] = np.asarray(
            run(6, problem, curator=None, save=lambda get_state, kept=states: kept.append(deepcopy(get_state())))
        )
        resumed = np.asarray(run(6, problem, curator=None, state=states[3]))
        assert np.array_equal(resumed, found[engine])
        noisy = run(2, problem, curator=Curator(np.random.default_rng(4), num_records=200))
        assert isinstance(noisy, type(problem[2]))
    assert np.allclose(found["numpy"], found["torch"], rtol=1e-4, atol=1e-5)


def test_a_missing_or_imprecise_torch_is_refused_before_anything_is_spent(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = PrivacyLedger(BUDGET)
    algorithm = DPSGD(num_steps=2, backend="torch")
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(PrivacyError, match="lower precision"):
            algorithm.fit(make_records(rng), BUDGET, head=HEAD, ledger=ledger)
    finally:
        torch.set_float32_matmul_precision("highest")

    def fail(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(backends, "import_module", fail)
    with pytest.raises(ImportError, match=r"conddp\[torch\]"):
        algorithm.fit(make_records(rng), BUDGET, head=HEAD, ledger=ledger)
    assert not [entry for entry in ledger.entries if entry.cost.epsilon]
    with pytest.raises(ValueError, match="backend must be one of 'numpy', 'torch'"):
        DPSGD(backend="jax")  # type: ignore[arg-type]  # wrong on purpose


def test_the_backend_counts_in_the_identity_of_a_fit_only_if_it_is_not_the_default() -> None:
    from conddp.algorithms.identity import list_settings

    assert b"backend" not in list_settings(DPSGD())[0]
    assert b"torch" in list_settings(DPSGD(backend="torch"))[0]


def test_plain_inputs_are_prepared_on_the_way(rng: np.random.Generator) -> None:
    X, layout = make_rows(rng), HEAD.layout(7, 0)
    weights = layout.views(rng.normal(size=(2, layout.size)))
    by_hand, prepared = HEAD.forward(weights, Inputs.of(X)), HEAD.forward(weights, HEAD.prepare(X, None))
    assert np.array_equal(by_hand.jacobian_norms, prepared.jacobian_norms)
    assert np.allclose(by_hand.predictions, HEAD.predict(weights, X, None))
