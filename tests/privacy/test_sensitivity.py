"""One record's label and private features are moved through their bounds, and the released sum is watched."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conddp.clipping import ClippedSum, Workspace, compute_clipped_sum
from conddp.errors import SchemaError
from conddp.models import MLP, Head, Inputs
from conddp.neighbouring import Neighbouring
from tests.contracts import HEADS

ROUNDING = {"float64": 1e-9, "float32": 1e-4}  # of the clip norm; n sums of float32 differ by rounding alone


def clipped_sum(head: Head, parameters: Any, public: Any, private: Any, label: Any, clip_norm: float) -> ClippedSum:
    layout = head.layout(public.shape[1], private.shape[1])
    clip_norms = np.array([clip_norm], dtype=parameters.dtype)
    workspace = Workspace.of(head, layout, parameters)
    return compute_clipped_sum(workspace, Inputs.of(public, private), label, clip_norm=clip_norms)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
@settings(max_examples=150)
@given(data=st.data())
def test_replacing_a_record_moves_the_sum_by_at_most_the_sensitivity(
    head: Head, dtype: str, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    scale = 10.0 ** data.draw(st.floats(-3, 3))  # of parameters and public features: from flat to exploding
    clip_norm = 10.0 ** data.draw(st.floats(-3, 2))
    n, d = 8, 3
    public = (scale * rng.normal(size=(n, d))).astype(dtype)
    private = rng.uniform(-1, 1, size=(n, 2)).astype(dtype)
    label = rng.uniform(-0.5, 0.5, size=n).astype(dtype)
    parameters = (scale * rng.normal(size=(1, head.layout(d, 2).size))).astype(dtype)
    changed_private, changed_label = private.copy(), label.copy()
    changed_private[0] = data.draw(st.tuples(st.floats(-1, 1), st.floats(-1, 1)))
    changed_label[0] = data.draw(st.floats(-0.5, 0.5))

    before = clipped_sum(head, parameters, public, private, label, clip_norm)
    after = clipped_sum(head, parameters, public, changed_private, changed_label, clip_norm)
    without = clipped_sum(head, parameters, public[1:], private[1:], label[1:], clip_norm)

    slack = ROUNDING[dtype] * clip_norm * n
    moved = np.linalg.norm(before.value.astype(np.float64) - after.value)
    assert moved <= before.sensitivity(Neighbouring.REPLACE)[0] + slack
    nulled = np.linalg.norm(before.value.astype(np.float64) - without.value)
    assert nulled <= before.sensitivity(Neighbouring.ZERO_OUT)[0] + slack


@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_the_sensitivity_is_nearly_attained(head: Head, rng: np.random.Generator) -> None:
    # A residual of either sign, clipped on both sides: the two gradients are opposite ends of the ball.
    public, private = rng.normal(size=(6, 3)), rng.uniform(-1, 1, size=(6, 2))
    label = rng.uniform(-0.5, 0.5, size=6)
    parameters = 0.2 * rng.normal(size=(1, head.layout(3, 2).size))
    low, high = label.copy(), label.copy()
    low[0], high[0] = -50.0, 50.0
    clip_norm = 0.01
    one = clipped_sum(head, parameters, public, private, low, clip_norm)
    other = clipped_sum(head, parameters, public, private, high, clip_norm)
    moved = np.linalg.norm(one.value - other.value)
    assert moved == pytest.approx(one.sensitivity(Neighbouring.REPLACE)[0], rel=1e-6)
    without = clipped_sum(head, parameters, public[1:], private[1:], label[1:], clip_norm)
    assert np.linalg.norm(one.value - without.value) == pytest.approx(clip_norm, rel=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
def test_exploded_parameters_give_a_finite_sum(head: Head, dtype: str, rng: np.random.Generator) -> None:
    from conddp.training import LARGEST_PARAMETER

    public, private = (1e6 * rng.normal(size=(5, 3))).astype(dtype), rng.uniform(-1, 1, size=(5, 2)).astype(dtype)
    public[0] = 0.0
    signs = rng.choice([-1.0, 1.0], size=(1, head.layout(3, 2).size))
    parameters = (LARGEST_PARAMETER * signs).astype(dtype)
    label = rng.uniform(-0.5, 0.5, size=5).astype(dtype)
    clipped = clipped_sum(head, parameters, public, private, label, 1.0)
    assert np.isfinite(clipped.value).all()
    assert np.linalg.norm(clipped.value.astype(np.float64)) <= 5 * (1 + 1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
def test_a_record_that_overflows_a_deep_net_contributes_zero(dtype: str) -> None:
    # Weights of a million in 60 layers: the first record overflows in all of them, the second is zero throughout.
    head = MLP(hidden=(2,) * 60)
    parameters = np.full((1, head.layout(1, 1).size), 1e6, dtype=dtype)
    for name, view in head.layout(1, 1).views(parameters).items():
        if name.startswith("bias"):
            view[...] = 0.0
    public, label = np.array([[1.0], [-1.0]], dtype=dtype), np.array([0.1, 0.2], dtype=dtype)
    private = np.array([[0.5], [0.5]], dtype=dtype)
    both = clipped_sum(head, parameters, public, private, label, 1.0)
    second = clipped_sum(head, parameters, public[1:], private[1:], label[1:], 1.0)
    assert np.isfinite(both.value).all()
    assert np.array_equal(both.value, second.value)


@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_float32_norms_too_small_to_square_are_clipped_all_the_same(head: Head) -> None:
    public, private = np.full((1, 3), 1e-24, dtype=np.float32), np.zeros((1, 2), dtype=np.float32)
    parameters = np.zeros((1, head.layout(3, 2).size), dtype=np.float32)
    label = np.array([0.5], dtype=np.float32)
    for clip_norm in (1e-20, 1e-25):
        value = clipped_sum(head, parameters, public, private, label, clip_norm).value
        assert np.linalg.norm(value.astype(np.float64)) <= clip_norm * (1 + 1e-6)


def test_features_large_enough_to_overflow_are_refused() -> None:
    with pytest.raises(SchemaError, match="Scale the column down"):
        Inputs.of(np.array([[1e80]]))


def test_the_text_of_a_clipped_sum_shows_no_value() -> None:
    assert "73512" not in repr(ClippedSum(np.full((1, 2), 73512.0), np.ones(1)))
