"""Closed-form gradients against per-example automatic differentiation (torch.func)."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.func import grad, vmap

from conddp import Bounds, CondDP, Labels, PrivacyBudget, PrivacyError, PrivacyLedger, PublicFeatures, Records
from conddp.heads import Trace, check_head
from conddp.heads.embeddings import Embeddings
from conddp.heads.factorization import FactorizationMachine
from conddp.heads.head import Head, Inputs
from conddp.heads.jacobian import compute_jacobian
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.heads.wide import Wide
from conddp.training.clipping import Workspace, compute_clipped_sum
from tests.contracts import CODED_HEADS
from tests.contracts import HEADS as PLAIN_HEADS

HEADS = {**PLAIN_HEADS, **CODED_HEADS}
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}  # of the largest entry
CLIP_NORMS = np.array([0.3, 2.0, 1e6])  # most, some and no records are clipped


def problem(head: Head, rng: np.random.Generator, num_private: int, dtype: str = "float64") -> dict[str, Any]:
    layout = head.layout(4, num_private)
    K, n = len(CLIP_NORMS), 30
    start = np.stack([head.initialize(layout, rng) for _ in range(K)])
    return {
        "head": head,
        "layout": layout,
        "parameters": (start + 0.4 * rng.normal(size=start.shape)).astype(dtype),
        "public": rng.normal(size=(n, 4)).astype(dtype),
        "private": rng.normal(size=(n, num_private)).astype(dtype) if num_private else None,
        "label": rng.normal(size=n).astype(dtype),
        "clip_norm": CLIP_NORMS.astype(dtype),
    }


def closed_form(p: dict[str, Any], engine: str) -> NDArray[Any]:
    def to(array: Any) -> Any:
        return array if engine == "numpy" or array is None else torch.from_numpy(array)

    clipped = compute_clipped_sum(
        Workspace.of(p["head"], p["layout"], to(p["parameters"])),
        Inputs.of(to(p["public"]), to(p["private"])),
        to(p["label"]),
        clip_norm=to(p["clip_norm"]),
    )
    return np.asarray(clipped)


def per_example_gradients(p: dict[str, Any], configuration: int) -> NDArray[Any]:
    """Gradients of half the squared residual, shape (n, P), in float64, from a model written anew in plain torch."""
    head = p["head"]
    has_private = p["private"] is not None

    def predict(weights: dict[str, torch.Tensor], x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        if isinstance(head, Embeddings):
            return predict_from_bins(head, weights, x, q)
        u = weights["public"] @ x + (weights["private"] @ q if has_private else 0.0)
        if isinstance(head, Linear):
            return u[0]
        if isinstance(head, FactorizationMachine):
            signs = torch.tensor([(-1.0) ** k for k in range(head.rank)], dtype=u.dtype)
            return u[0] + 0.5 * (signs * u[1:] ** 2).sum()
        if isinstance(head, Wide):
            return u[0] + (weights["output"] * torch.tanh(u[1:])).sum()
        if not isinstance(head, MLP):  # a head without a plain version: its own predictions, differentiated by torch
            q_row = q[None] if has_private else None
            return head.predict({name: each[None] for name, each in weights.items()}, x[None], q_row)[0, 0]
        act = torch.relu if head.activation == "relu" else torch.tanh
        hidden = u if head.embedding is not None else act(u)
        last = len(head.hidden) + (head.embedding is not None)
        for number in range(1, last + 1):
            hidden = weights[f"weight_{number}"] @ hidden + weights[f"bias_{number}"]
            hidden = act(hidden) if number < last else hidden
        return hidden[0]

    def predict_from_bins(
        head: Embeddings, weights: dict[str, torch.Tensor], x: torch.Tensor, q: torch.Tensor
    ) -> torch.Tensor:
        bins = x[: head.num_codes].floor().clamp(0, head.num_bins - 1).long()
        u = weights["public"] @ x[head.num_codes :] + (weights["private"] @ q if has_private else 0.0)
        if head.num_codes:
            u = u + weights["embedded"] @ weights["table"][bins].flatten()
        act = torch.relu if head.activation == "relu" else torch.tanh
        for number in range(1, len(head.hidden) + 1):
            u = weights[f"weight_{number}"] @ act(u) + weights[f"bias_{number}"]
        return u[0]

    def loss(flat: torch.Tensor, x: torch.Tensor, q: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weights, start = {}, 0
        for name, shape in p["layout"].shapes.items():
            stop = start + int(np.prod(shape))
            weights[name] = flat[start:stop].reshape(shape)
            start = stop
        return 0.5 * (predict(weights, x, q) - y) ** 2

    def to(array: Any) -> torch.Tensor:
        return torch.from_numpy(np.asarray(array, dtype=np.float64))

    private = np.zeros((len(p["label"]), 1)) if p["private"] is None else p["private"]
    gradients = vmap(grad(loss), (None, 0, 0, 0))(
        to(p["parameters"][configuration]), to(p["public"]), to(private), to(p["label"])
    )
    return np.asarray(gradients)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("engine", ["numpy", "torch"])
@pytest.mark.parametrize("num_private", [0, 3])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_clipped_sums_equal_automatic_differentiation(
    rng: np.random.Generator, head: Head, num_private: int, engine: str, dtype: str
) -> None:
    p = problem(head, rng, num_private, dtype)
    found = closed_form(p, engine)
    for k, clip_norm in enumerate(CLIP_NORMS):
        gradients = per_example_gradients(p, k)
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        expected = (gradients * np.minimum(1.0, clip_norm / norms)).sum(axis=0)
        assert np.abs(found[k] - expected).max() <= TOLERANCE[dtype] * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("engine", ["numpy", "torch"])
@pytest.mark.parametrize("num_private", [0, 3])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_norms_equal_automatic_differentiation(
    rng: np.random.Generator, head: Head, num_private: int, engine: str, dtype: str
) -> None:
    p = problem(head, rng, num_private, dtype)

    def to(array: Any) -> Any:
        return array if engine == "numpy" or array is None else torch.from_numpy(array)

    trace = head.forward(p["layout"].views(to(p["parameters"])), Inputs.of(to(p["public"]), to(p["private"])))
    residuals = np.asarray(trace.predictions) - p["label"]
    found = np.abs(residuals) * np.broadcast_to(np.asarray(trace.jacobian_norms), residuals.shape)
    for k in range(len(CLIP_NORMS)):
        expected = np.linalg.norm(per_example_gradients(p, k), axis=1)
        assert np.abs(found[k] - expected).max() <= TOLERANCE[dtype] * max(1.0, expected.max())


@pytest.mark.parametrize("num_private", [0, 3])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_many_configurations_equal_one_at_a_time(rng: np.random.Generator, head: Head, num_private: int) -> None:
    p = problem(head, rng, num_private)
    together = closed_form(p, "numpy")
    for k in range(len(CLIP_NORMS)):
        alone = {**p, "parameters": p["parameters"][k : k + 1], "clip_norm": p["clip_norm"][k : k + 1]}
        assert np.allclose(closed_form(alone, "numpy")[0], together[k], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_no_records_give_a_zero_sum(rng: np.random.Generator, head: Head) -> None:
    p = problem(head, rng, 3)
    empty = {**p, "public": p["public"][:0], "private": p["private"][:0], "label": p["label"][:0]}
    assert not closed_form(empty, "numpy").any()


@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_views_share_memory_with_the_parameters(head: Head) -> None:
    layout = head.layout(4, 2)
    parameters = np.zeros((3, layout.size))
    for number, view in enumerate(layout.views(parameters).values(), start=1):
        view[...] = number
    assert (parameters > 0).all()


def test_a_head_with_no_hidden_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one layer width"):
        MLP(hidden=())
    with pytest.raises(ValueError, match="activation must be one of 'relu', 'tanh'"):
        MLP(activation="sigmoid")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("num_private", [0, 3])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_a_jacobian_has_the_gradient_of_each_prediction(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, head: Head, num_private: int
) -> None:
    monkeypatch.setattr("conddp.heads.jacobian.JACOBIANS_AT_ONCE", 8)  # the records do not fill the last part
    p = problem(head, rng, num_private)
    inputs = Inputs.of(p["public"], p["private"])
    predictions = head.predict(p["layout"].views(p["parameters"][:1]), p["public"], p["private"])[0]
    jacobian = compute_jacobian(head, p["layout"], p["parameters"][0], inputs)
    expected = per_example_gradients(p, 0)
    assert np.abs((predictions - p["label"])[:, None] * jacobian - expected).max() < 1e-10 * np.abs(expected).max()


@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_heads_pass_the_check_that_own_heads_must_pass(head: Head) -> None:
    check_head(head)


class SmallNorms(Linear):
    def forward(self, weights: Any, inputs: Inputs) -> Trace:
        trace = super().forward(weights, inputs)
        return Trace(trace.predictions, 1e-3 * trace.jacobian_norms, trace.layers)


class WrongSums(Linear):
    def vjp(self, weights: Any, inputs: Inputs, trace: Trace, coefficients: Any, out: Any) -> None:
        super().vjp(weights, inputs, trace, 2 * coefficients, out)


class OtherPredictions(Linear):
    def predict(self, weights: Any, public: Any, private: Any) -> Any:
        return super().predict(weights, public, private) + (0.0 if public.flags["F_CONTIGUOUS"] else 1.0)

    def forward(self, weights: Any, inputs: Inputs) -> Trace:
        trace = super().forward(weights, inputs)
        return Trace(trace.predictions + 1.0, trace.jacobian_norms, [])


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (SmallNorms(), "too small"),
        (WrongSums(), "vjp of the head WrongSums"),
        (OtherPredictions(), "different predictions"),
    ],
)
def test_an_own_head_with_wrong_gradients_is_refused_before_anything_is_spent(head: Head, message: str) -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    records = Records(PublicFeatures(np.eye(3)), None, Labels(np.ones(3), Bounds(0, 2)))
    with pytest.raises(PrivacyError, match=message):
        CondDP(num_steps=2).fit(records, PrivacyBudget(1.0, 1e-6), head=head, ledger=ledger)
    assert not ledger.entries
