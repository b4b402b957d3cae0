"""One record's label and private features are moved through their bounds, and the released sum is watched."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import conddp.newton.run
from conddp.data.parts import PublicFeatures
from conddp.errors import SchemaError
from conddp.features.whitening import Directions
from conddp.heads.head import Head, Inputs
from conddp.heads.mlp import MLP
from conddp.newton.private_columns import release_moments
from conddp.privacy.neighbouring import Neighbouring
from conddp.training.clipping import ClippedSum, Workspace, compute_clipped_sum
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
    from conddp.training.loop import LARGEST_PARAMETER

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


class NoNoise:
    """A generator whose noise is zero."""

    def standard_normal(self, size: int) -> Any:
        return np.zeros(size)


def newton_sums(
    rows: Any, label: Any, label_range: Any, predictions: Any, *, generator: Any = None, **settings: Any
) -> tuple[Any, conddp.newton.release.Release]:
    """The sums that a release adds noise to, in the coordinates of the noise, and the release itself."""
    quiet: Any = NoNoise()
    answer = conddp.newton.release.release(rows, label, label_range, predictions, **settings, generator=quiet)
    first = answer.step * np.sqrt(settings["gains"]) * len(label)
    second = 0.0
    if settings["scale_weight"]:
        unit = settings["scale_weight"] * settings["window"] / settings["scale_window"] ** 2
        second = answer.mean_square * len(label) * unit
    return np.append(first, second), answer


@pytest.mark.parametrize("neighbouring", Neighbouring)
@settings(max_examples=300)
@given(data=st.data())
def test_one_label_moves_a_newton_release_by_at_most_its_sensitivity(
    neighbouring: Neighbouring, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, k = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    rows = rng.normal(size=(n, k)) * 10.0 ** rng.uniform(-3, 3, size=(n, 1))  # all kinds of leverage
    gains = rng.dirichlet(np.ones(k)) * (rng.random(k) < 0.8)
    predicted = rng.normal(scale=10.0 ** data.draw(st.floats(-2, 2)), size=n)
    asked = {
        "window": 10.0 ** data.draw(st.floats(-3, 1)),
        "gains": gains,
        "scale": 0.1,
        "scale_window": 10.0 ** data.draw(st.floats(-2, 0)),
        "scale_weight": data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        "mu": 0.7,
        "neighbouring": neighbouring,
    }
    label = rng.uniform(-0.5, 0.5, size=n)
    label[0] = data.draw(st.floats(-0.5, 0.5))
    changed = label.copy()
    changed[0] = data.draw(st.floats(-0.5, 0.5))
    before, answer = newton_sums(rows, label, (-0.5, 0.5), lambda part: predicted[part], **asked)
    if neighbouring is Neighbouring.REPLACE:
        after, _ = newton_sums(rows, changed, (-0.5, 0.5), lambda part: predicted[part], **asked)
    elif n == 1:
        after = np.zeros(k + 1)
    else:
        after, _ = newton_sums(rows[1:], label[1:], (-0.5, 0.5), lambda part: predicted[1:][part], **asked)
    assert np.linalg.norm(after - before) <= answer.sensitivity * (1 + 1e-9)
    assert answer.deviation == pytest.approx(answer.sensitivity / 0.7)


def test_a_row_too_long_to_square_does_not_hide_the_others() -> None:
    rows = np.array([[1.0, 0.0], [1.0, 1e160]])
    answer = newton_sums(
        rows,
        np.zeros(2),
        (-0.5, 0.5),
        lambda part: np.zeros(2)[part],
        window=0.2,
        gains=np.array([0.5, 0.5]),
        scale=0.1,
        scale_window=0.4,
        scale_weight=0.0,
        mu=1.0,
        neighbouring=Neighbouring.REPLACE,
    )[1]
    assert answer.sensitivity == 0.4


def test_the_sensitivity_of_a_newton_release_is_attained() -> None:
    rows, gains = np.ones((3, 1)), np.ones(1)
    asked = {"window": 0.2, "gains": gains, "scale": 0.1, "scale_window": 0.4, "scale_weight": 0.0, "mu": 1.0}
    sums = []
    for value in (-0.5, 0.5):
        label = np.array([value, 0.1, -0.1])
        total, answer = newton_sums(
            rows, label, (-0.5, 0.5), lambda part: np.zeros(3)[part], **asked, neighbouring=Neighbouring.REPLACE
        )
        sums.append(total)
    assert np.linalg.norm(sums[1] - sums[0]) == pytest.approx(answer.sensitivity) == pytest.approx(0.4)


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wider", [False, True])
def test_all_releases_of_a_newton_run_compose_to_its_budget(
    monkeypatch: pytest.MonkeyPatch, neighbouring: Neighbouring, seed: int, wider: bool
) -> None:
    # At every release, with all that was released before, the neighbour's sums are computed beside the true ones.
    rng = np.random.default_rng(seed)
    directions = Directions.of(PublicFeatures(rng.standard_t(2, size=(60, 3))))
    more = rng.standard_t(2, size=(60, 5))
    label = rng.uniform(-0.5, 0.5, size=60)
    record = int(np.argmax((directions.rows**2).sum(axis=1)))  # the one with the most leverage
    label[record] = 0.5
    original, spent = conddp.newton.release.release, []

    def watched(rows: Any, label: Any, label_range: Any, predictions: Any, **settings: Any) -> Any:
        before, answer = newton_sums(rows, label, label_range, predictions, **settings)
        neighbour = label.copy()
        neighbour[record] = -0.5
        if neighbouring is Neighbouring.REPLACE:
            after, _ = newton_sums(rows, neighbour, label_range, predictions, **settings)
        else:
            others = np.delete(np.arange(60), record)
            predicted = predictions(slice(0, 60))[others]
            after, _ = newton_sums(rows[others], label[others], label_range, lambda part: predicted[part], **settings)
        spent.append(np.linalg.norm(after - before) / answer.deviation)
        return original(rows, label, label_range, predictions, **settings)

    calls: list[Any] = []

    def record_and_release(*arguments: Any, **settings: Any) -> Any:
        calls.append((arguments, settings))
        return original(*arguments, **settings)

    monkeypatch.setattr(conddp.newton.run, "release", record_and_release)
    conddp.newton.run.run_newton(
        directions,
        label,
        (-0.5, 0.5),
        np.zeros(4),
        mu=2.0,
        neighbouring=neighbouring,
        generator=rng,
        widen=(lambda _: directions.complement(lambda part: more[part], at_most=9)) if wider else None,
    )
    assert calls[-1][0][0].shape == (60, 9 if wider else 4)
    monkeypatch.setattr(conddp.newton.run, "release", original)
    for arguments, settings_ in calls:
        watched(*arguments, **settings_)
    assert len(spent) == 14
    assert np.linalg.norm(spent) <= 2.0 * (1 + 1e-9)
    assert np.linalg.norm(spent) > 0.5  # and the record that matters most is not far from what is allowed


@pytest.mark.parametrize("neighbouring", Neighbouring)
@settings(max_examples=200)
@given(data=st.data())
def test_one_record_moves_a_newton_release_on_private_rows_by_at_most_its_sensitivity(
    neighbouring: Neighbouring, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, k = data.draw(st.integers(2, 8)), data.draw(st.integers(1, 4))
    rows = rng.normal(size=(n, k)) * 10.0 ** rng.uniform(-3, 3, size=(n, 1))
    changed_rows = rows.copy()
    changed_rows[0] = rng.normal(size=k) * 10.0 ** rng.uniform(-3, 3)
    theta = rng.normal(size=k)
    label, changed = rng.uniform(-0.5, 0.5, size=n), rng.uniform(-0.5, 0.5, size=n)
    changed[1:] = label[1:]
    asked = {
        "window": 10.0 ** data.draw(st.floats(-3, 1)),
        "gains": rng.dirichlet(np.ones(k)),
        "scale": 0.1,
        "scale_window": 10.0 ** data.draw(st.floats(-2, 0)),
        "scale_weight": data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        "mu": 0.7,
        "neighbouring": neighbouring,
        "rows_are_public": False,
    }
    before, answer = newton_sums(rows, label, (-0.5, 0.5), lambda part: rows[part] @ theta, **asked)
    if neighbouring is Neighbouring.REPLACE:
        after, other = newton_sums(changed_rows, changed, (-0.5, 0.5), lambda part: changed_rows[part] @ theta, **asked)
        assert np.array_equal(other.curvature, answer.curvature)  # nothing else may depend on the rows
        assert other.deviation == answer.deviation
    else:
        after, _ = newton_sums(rows[1:], label[1:], (-0.5, 0.5), lambda part: rows[1:][part] @ theta, **asked)
    assert np.linalg.norm(after - before) <= answer.sensitivity * (1 + 1e-9)


class Constant:
    """A generator whose noise is the same number everywhere: it tells how large the noise is."""

    def __init__(self, value: float) -> None:
        self.value = value

    def standard_normal(self, size: Any) -> Any:
        return np.full(size, self.value)


@pytest.mark.parametrize("neighbouring", Neighbouring)
@settings(max_examples=100)
@given(data=st.data())
def test_one_record_moves_the_moments_of_private_columns_by_at_most_their_sensitivity(
    neighbouring: Neighbouring, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, p = 6, data.draw(st.integers(1, 3))
    public = Directions.of(PublicFeatures(rng.standard_t(1.5, size=(n, 2))))
    largest = 10.0 ** rng.uniform(-1, 1, size=p)
    private = rng.uniform(-1, 1, size=(n, p)) * largest
    private[0] = largest * data.draw(st.sampled_from([1.0, 0.7]))
    changed = private.copy()
    changed[0] = largest * rng.choice([-1.0, 1.0], size=p) * rng.choice([1.0, rng.random()])
    if neighbouring is Neighbouring.ZERO_OUT:
        changed[0] = 0.0
    sums = []
    for values, noise in ((private, 0.0), (changed, 0.0), (private, 1.0)):
        generator: Any = Constant(noise)
        moments = release_moments(public, values, largest, mu=1.0, neighbouring=neighbouring, generator=generator)
        sums.append(np.concatenate([moments.cross.ravel(), moments.within.ravel()]) * n)
    deviation = float(np.max(sums[2] - sums[0]))
    assert np.linalg.norm(sums[1] - sums[0]) <= deviation * (1 + 1e-9)
    assert moments.deviation * n == pytest.approx(deviation)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("num_public", [0, 1, 30])
def test_the_sensitivity_of_moments_is_attained(rng: np.random.Generator, p: int, num_public: int) -> None:
    # Two vectors as long as the bounds allow, at the worst angle, beside a public row as long as it may be.
    n = 40
    X = rng.normal(size=(n, num_public))
    X[0] *= 100
    public = Directions.of(PublicFeatures(X))
    k = public.num_directions
    largest = np.full(p, np.sqrt(3))
    quiet: Any = NoNoise()
    found = []
    reach, length = np.sqrt(3 * p), np.sqrt(k)
    cosine = max(-1.0, -(length**2) / (2 * reach**2)) if p > 1 else -1.0
    first = np.zeros(p)
    first[0] = reach
    second = reach * cosine * np.eye(p)[0]
    if p > 1:
        second[1] = reach * np.sqrt(1 - cosine**2)
    for value in (first, second):  # of the largest length, though outside the box: the bound is that of the ball
        private = np.zeros((n, p))
        private[0] = value
        moments = release_moments(public, private, largest, mu=1.0, neighbouring=Neighbouring.REPLACE, generator=quiet)
        found.append(np.concatenate([moments.cross.ravel(), moments.within.ravel()]))
    moved = np.linalg.norm(found[1] - found[0]) / moments.deviation
    assert moved <= 1 + 1e-9
    if p > 1 or length**2 >= 2 * reach**2:
        assert moved == pytest.approx(1.0)
