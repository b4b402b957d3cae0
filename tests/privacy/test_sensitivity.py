"""One record's label and private features are moved through their bounds, and the released sum is watched."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conddp.bounds import Bounds
from conddp.categories import Categories
from conddp.data.parts import PrivateFeatures, PublicFeatures
from conddp.data.scaling import PrivateSpan, scale_private
from conddp.errors import SchemaError
from conddp.features.whitening import WhitenedRows
from conddp.heads.head import Head, Inputs
from conddp.heads.mlp import MLP
from conddp.losses import Squared
from conddp.newton.private_columns import PrivateRows, bound_moments, release_moments
from conddp.newton.release import ResidualQuery, Rows, release_residuals
from conddp.newton.run import run_newton
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator
from conddp.training.clipping import Workspace, compute_clipped_sum
from tests.contracts import CODED_HEADS
from tests.contracts import HEADS as PLAIN_HEADS

HEADS = {**PLAIN_HEADS, **CODED_HEADS}
ROUNDING = {"float64": 1e-9, "float32": 1e-4}  # of the clip norm; n sums of float32 differ by rounding alone


def clipped_sum(head: Head, parameters: Any, public: Any, private: Any, label: Any, clip_norm: float) -> Any:
    layout = head.layout(public.shape[1], private.shape[1])
    clip_norms = np.array([clip_norm], dtype=parameters.dtype)
    workspace = Workspace.of(head, layout, parameters)
    return compute_clipped_sum(workspace, Inputs.of(public, private), label, clip_norm=clip_norms).copy()


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
    moved = np.linalg.norm(before.astype(np.float64) - after)
    assert moved <= Neighbouring.REPLACE.sensitivity(clip_norm) + slack
    nulled = np.linalg.norm(before.astype(np.float64) - without)
    assert nulled <= Neighbouring.ZERO_OUT.sensitivity(clip_norm) + slack


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
    moved = np.linalg.norm(one - other)
    assert moved == pytest.approx(Neighbouring.REPLACE.sensitivity(clip_norm), rel=1e-6)
    without = clipped_sum(head, parameters, public[1:], private[1:], label[1:], clip_norm)
    assert np.linalg.norm(one - without) == pytest.approx(clip_norm, rel=1e-6)


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
    assert np.isfinite(clipped).all()
    assert np.linalg.norm(clipped.astype(np.float64)) <= 5 * (1 + 1e-4)


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
    assert np.isfinite(both).all()
    assert np.array_equal(both, second)


@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_float32_norms_too_small_to_square_are_clipped_all_the_same(head: Head) -> None:
    public, private = np.full((1, 3), 1e-24, dtype=np.float32), np.zeros((1, 2), dtype=np.float32)
    parameters = np.zeros((1, head.layout(3, 2).size), dtype=np.float32)
    label = np.array([0.5], dtype=np.float32)
    for clip_norm in (1e-20, 1e-25):
        value = clipped_sum(head, parameters, public, private, label, clip_norm)
        assert np.linalg.norm(value.astype(np.float64)) <= clip_norm * (1 + 1e-6)


def test_features_large_enough_to_overflow_are_refused() -> None:
    with pytest.raises(SchemaError, match="Scale the column down"):
        Inputs.of(np.array([[1e80]]))


def test_the_text_of_a_sum_shows_no_value() -> None:
    assert "73512" not in repr(BoundedSum(np.full(2, 73512.0), 1.0, "a sum"))


class OpenCurator(Curator):
    """Releases everything without noise and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(0), num_records=1)
        self.asked: list[tuple[BoundedSum, float]] = []

    def release_gaussian(self, bounded: BoundedSum, *, noise_std: Any, sampling_probability: float = 1.0) -> Any:
        self.asked.append((bounded, float(noise_std)))
        return bounded.value


def ask(rows: Rows, label: Any, coefficients: Any, query: ResidualQuery, **settings: Any) -> tuple[Any, float, float]:
    """The sums that a release adds noise to, in the coordinates of the noise; their sensitivity; the noise."""
    curator = OpenCurator()
    release_residuals(
        rows, label, (-0.5, 0.5), coefficients, query, curator=curator, loss=Squared(), **{"mu": 0.7, **settings}
    )
    ((bounded, noise_std),) = curator.asked
    return bounded.value, bounded.sensitivity, noise_std


def public_rows(values: Any) -> WhitenedRows:
    return WhitenedRows(values, np.ones(values.shape[1]), np.eye(values.shape[1]), has_constant=False)


def private_rows(values: Any) -> PrivateRows:
    return PrivateRows(values, np.ones(values.shape[1]), np.eye(values.shape[1]), has_constant=False)


def draw_query(data: st.DataObject, weights: Any) -> ResidualQuery:
    return ResidualQuery(
        clip_norm=10.0 ** data.draw(st.floats(-3, 1)),
        direction_weights=weights,
        residual_std=0.1,
        square_limit=10.0 ** data.draw(st.floats(-2, 0)),
        square_weight=data.draw(st.sampled_from([0.0, 0.5, 1.0])),
    )


@pytest.mark.parametrize("neighbouring", Neighbouring)
@settings(max_examples=300)
@given(data=st.data())
def test_one_label_moves_a_newton_release_by_at_most_its_sensitivity(
    neighbouring: Neighbouring, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, k = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    values = rng.normal(size=(n, k)) * 10.0 ** rng.uniform(-3, 3, size=(n, 1))  # all kinds of leverage
    theta = rng.normal(scale=10.0 ** data.draw(st.floats(-3, 2)), size=k)
    query = draw_query(data, rng.dirichlet(np.ones(k)) * (rng.random(k) < 0.8))
    label = rng.uniform(-0.5, 0.5, size=n)
    label[0] = data.draw(st.floats(-0.5, 0.5))
    changed = label.copy()
    changed[0] = data.draw(st.floats(-0.5, 0.5))
    before, sensitivity, noise_std = ask(public_rows(values), label, theta, query, neighbouring=neighbouring)
    if neighbouring is Neighbouring.REPLACE:
        after, _, _ = ask(public_rows(values), changed, theta, query, neighbouring=neighbouring)
    elif n == 1:
        after = np.zeros(k + 1)
    else:
        after, _, _ = ask(public_rows(values[1:]), label[1:], theta, query, neighbouring=neighbouring)
    assert np.linalg.norm(after - before) <= sensitivity * (1 + 1e-9)
    assert noise_std == pytest.approx(sensitivity / 0.7)


def test_a_row_too_long_to_square_does_not_hide_the_others() -> None:
    rows = public_rows(np.array([[1.0, 0.0], [1.0, 1e160]]))
    query = ResidualQuery(0.2, np.array([0.5, 0.5]), 0.1, 0.4, 0.0)
    assert ask(rows, np.zeros(2), np.zeros(2), query, neighbouring=Neighbouring.REPLACE)[1] == 0.4


def test_the_sensitivity_of_a_newton_release_is_attained() -> None:
    query = ResidualQuery(0.2, np.ones(1), 0.1, 0.4, 0.0)
    sums = []
    for value in (-0.5, 0.5):
        label = np.array([value, 0.1, -0.1])
        total, sensitivity, _ = ask(
            public_rows(np.ones((3, 1))), label, np.zeros(1), query, neighbouring=Neighbouring.REPLACE
        )
        sums.append(total)
    assert np.linalg.norm(sums[1] - sums[0]) == pytest.approx(sensitivity) == pytest.approx(0.4)


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize("mu", [2.0, 100.0])
@pytest.mark.parametrize("seed", range(5))
def test_all_releases_of_a_newton_run_compose_to_its_budget(
    monkeypatch: pytest.MonkeyPatch, neighbouring: Neighbouring, mu: float, seed: int
) -> None:
    # At every release, with all that was released before, the neighbour's sums are computed beside the true ones.
    rng = np.random.default_rng(seed)
    rows = WhitenedRows.of(PublicFeatures(rng.standard_t(2, size=(60, 3))))
    label = rng.uniform(-0.5, 0.5, size=60)
    record = int(np.argmax((rows.values**2).sum(axis=1)))  # the one with the most leverage
    label[record] = 0.5
    calls: list[Any] = []

    def record_and_release(*arguments: Any, **settings: Any) -> Any:
        calls.append((arguments, settings["mu"]))
        return release_residuals(*arguments, **settings)

    monkeypatch.setattr("conddp.newton.run.release_residuals", record_and_release)
    run = run_newton(
        rows,
        label,
        (-0.5, 0.5),
        np.zeros(4),
        mu=mu,
        neighbouring=neighbouring,
        curator=Curator(rng, num_records=60),
    )
    assert mu < 10 or max(run.clip_norms) > 0.5  # with little noise, hardly any residual is clipped
    spent = []
    for (asked_rows, labels, _, theta, query), own in calls:
        before, _, noise_std = ask(asked_rows, labels, theta, query, mu=own, neighbouring=neighbouring)
        neighbour = labels.copy()
        neighbour[record] = -0.5
        if neighbouring is Neighbouring.REPLACE:
            after, _, _ = ask(asked_rows, neighbour, theta, query, mu=own, neighbouring=neighbouring)
        else:
            others = np.delete(np.arange(60), record)
            without = public_rows(asked_rows.values[others])
            after, _, _ = ask(without, labels[others], theta, query, mu=own, neighbouring=neighbouring)
        spent.append(np.linalg.norm(after - before) / noise_std)
    assert len(spent) == 14
    assert np.linalg.norm(spent) <= mu * (1 + 1e-9)
    assert np.linalg.norm(spent) > 0.25 * mu  # and the record that matters most is not far from what is allowed


@pytest.mark.parametrize("neighbouring", Neighbouring)
@settings(max_examples=200)
@given(data=st.data())
def test_one_record_moves_a_newton_release_on_private_rows_by_at_most_its_sensitivity(
    neighbouring: Neighbouring, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, k = data.draw(st.integers(2, 8)), data.draw(st.integers(1, 4))
    values = rng.normal(size=(n, k)) * 10.0 ** rng.uniform(-3, 3, size=(n, 1))
    changed_values = values.copy()
    changed_values[0] = rng.normal(size=k) * 10.0 ** rng.uniform(-3, 3)
    theta = rng.normal(size=k)
    label, changed = rng.uniform(-0.5, 0.5, size=n), rng.uniform(-0.5, 0.5, size=n)
    changed[1:] = label[1:]
    query = draw_query(data, rng.dirichlet(np.ones(k)))
    before, sensitivity, noise_std = ask(private_rows(values), label, theta, query, neighbouring=neighbouring)
    if neighbouring is Neighbouring.REPLACE:
        after, same, also = ask(private_rows(changed_values), changed, theta, query, neighbouring=neighbouring)
        assert (same, also) == (sensitivity, noise_std)  # nothing else may depend on the rows
    else:
        after, _, _ = ask(private_rows(values[1:]), label[1:], theta, query, neighbouring=neighbouring)
    assert np.linalg.norm(after - before) <= sensitivity * (1 + 1e-9)


def test_sums_of_a_newton_release_are_those_of_exact_arithmetic(rng: np.random.Generator) -> None:
    # Rounding is covered by a bound for float64; sums in float32 would be off by a millionth.
    n, k = 20_000, 3
    values, theta = rng.normal(size=(n, k)), rng.normal(scale=0.1, size=k)
    label = rng.uniform(-0.5, 0.5, size=n)
    query = ResidualQuery(0.3, np.array([0.5, 0.3, 0.2]), 0.1, 0.4, 0.5)
    sums, _, _ = ask(public_rows(values), label, theta, query, neighbouring=Neighbouring.REPLACE)
    norms = np.sqrt(values**2 @ query.direction_weights)
    residuals = label - values @ theta
    clamped = np.clip(residuals, -0.3 / norms, 0.3 / norms)
    weighted = np.sqrt(query.direction_weights) * clamped[:, None] * values
    exact = [*map(math.fsum, weighted.T), 0.5 * 0.3 / 0.4**2 * math.fsum(np.minimum(residuals**2, 0.4**2))]
    assert np.abs(sums - exact).max() < n * 1e-15


def ask_moments(public: WhitenedRows, private: Any, span: PrivateSpan, neighbouring: Neighbouring) -> tuple[Any, float]:
    """The second moments that noise is added to, and their sensitivity."""
    curator = OpenCurator()
    release_moments(public, private, span, mu=1.0, neighbouring=neighbouring, curator=curator)
    ((bounded, noise_std),) = curator.asked
    assert noise_std == pytest.approx(bounded.sensitivity)
    return bounded.value, bounded.sensitivity


@pytest.mark.parametrize("neighbouring", Neighbouring)
@settings(max_examples=100)
@given(data=st.data())
def test_one_record_moves_the_moments_of_private_columns_by_at_most_their_sensitivity(
    neighbouring: Neighbouring, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, center = 6, data.draw(st.booleans())
    public = WhitenedRows.of(PublicFeatures(rng.standard_t(1.5, size=(n, 2))))
    domains = data.draw(st.lists(st.sampled_from(DOMAINS), min_size=1, max_size=3))
    span = PrivateSpan.of(domains, center=center)

    def draw() -> list[float]:
        return [
            data.draw(st.integers(-1, len(each) - 1))
            if isinstance(each, Categories)
            else data.draw(st.sampled_from([each.low, each.high, each.midpoint, 0.3 * each.low + 0.7 * each.high]))
            for each in domains
        ]

    rows = [draw() for _ in range(n)]
    private = scale_private(PrivateFeatures(np.array(rows), tuple(domains)), center=center)
    changed = private.copy()
    if neighbouring is Neighbouring.REPLACE:
        changed[0] = scale_private(PrivateFeatures(np.array([draw()]), tuple(domains)), center=center)[0]
    before, sensitivity = ask_moments(public, private, span, neighbouring)
    if neighbouring is Neighbouring.ZERO_OUT:
        changed[0] = 0.0
    after, _ = ask_moments(public, changed, span, neighbouring)
    assert np.linalg.norm(after - before) <= sensitivity * (1 + 1e-9)


DOMAINS: list[Any] = [
    Bounds(-1, 2),
    Bounds(10, 11),
    *(Categories(tuple(map(str, range(number)))) for number in (2, 3, 7)),
]


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("num_public", [0, 1, 30, 60])
def test_the_sensitivity_of_moments_is_attained(rng: np.random.Generator, p: int, num_public: int) -> None:
    # Two vectors as long as the bounds allow, at the worst angle, beside a public row as long as it may be.
    n = 40
    X = rng.normal(size=(n, num_public))
    X[0] *= 100
    public = WhitenedRows.of(PublicFeatures(X))
    private_length, row_length = np.sqrt(3 * p), np.sqrt(min(public.num_directions, 32))
    cosine = max(-1.0, -(row_length**2) / (2 * private_length**2)) if p > 1 else -1.0
    first = np.zeros(p)
    first[0] = private_length
    second = private_length * cosine * np.eye(p)[0]
    if p > 1:
        second[1] = private_length * np.sqrt(1 - cosine**2)
    found = []
    for value in (first, second):  # of the largest length, though outside the box: the bound is that of the ball
        private = np.zeros((n, p))
        private[0] = value
        moments, sensitivity = ask_moments(public, private, PrivateSpan.of([Bounds(0, 1)] * p), Neighbouring.REPLACE)
        found.append(moments)
    moved = np.linalg.norm(found[1] - found[0]) / sensitivity
    assert moved <= 1 + 1e-9
    if p > 1 or row_length**2 >= 2 * private_length**2:
        assert moved == pytest.approx(1.0)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("number", [2, 3, 8])
def test_one_changed_level_moves_the_moments_by_exactly_their_sensitivity(
    rng: np.random.Generator, number: int, center: bool
) -> None:
    X = rng.normal(size=(40, 3))
    X[0] *= 100  # so that the row is clipped to the length that the sensitivity assumes
    public = WhitenedRows.of(PublicFeatures(X))
    categories = Categories(tuple(map(str, range(number))))
    levels, found = rng.integers(number, size=(40, 1)).astype(float), []
    for level in range(-1, number):
        levels[0] = level
        private = scale_private(PrivateFeatures(levels, (categories,)), center=center)
        moments, sensitivity = ask_moments(
            public, private, PrivateSpan.of([categories], center=center), Neighbouring.REPLACE
        )
        found.append(moments)
    for place, one in enumerate(found):
        for other in found[place + 1 :]:
            moved = float(np.linalg.norm(one - other)) / sensitivity
            if one is found[0]:  # to none of the declared categories
                assert moved < 1
            else:
                assert moved == pytest.approx(1.0)


def move_moments(q: Any, other: Any, row_length: float) -> float:
    """How far the second moments of a record move beside a public row of this length."""
    within = np.outer(q, q) - np.outer(other, other)
    return float(np.sqrt(row_length**2 * ((q - other) ** 2).sum() + (within**2).sum()))


@pytest.mark.parametrize("row_length", [0.0, 0.3, 1.0, 2.0, 10.0])
@pytest.mark.parametrize("diameter", [0.2, 0.6, 2 / 3, 0.9, 1.5, 2.0, 5.0])
def test_the_bound_on_moments_is_the_maximum_over_a_ball_with_a_diameter(row_length: float, diameter: float) -> None:
    # Two vectors span a plane. They are turned and scaled over a fine grid, and only pairs within the diameter count.
    bound = bound_moments(row_length, 1.0, diameter, Neighbouring.REPLACE)
    lengths = np.linspace(0, 1, 101)
    a, b, angle = np.meshgrid(lengths, lengths, np.linspace(0, np.pi, 721), indexing="ij", sparse=True)
    inner = a * b * np.cos(angle)
    squared = np.maximum(a**2 + b**2 - 2 * inner, 0.0)
    moves = np.sqrt(row_length**2 * squared + np.maximum(a**4 + b**4 - 2 * inner**2, 0.0))
    largest = moves[squared <= diameter**2 * (1 + 1e-9)].max()
    assert largest <= bound * (1 + 1e-9)
    assert largest >= 0.98 * bound
    # In more dimensions there is nothing beyond.
    rng = np.random.default_rng(0)
    pairs = rng.normal(size=(2000, 2, 3))
    pairs /= np.maximum(np.linalg.norm(pairs, axis=2, keepdims=True), 1e-12)
    pairs *= rng.uniform(size=(2000, 2, 1)) ** 0.2
    for q, other in pairs:
        if np.linalg.norm(q - other) <= diameter:
            assert move_moments(q, other, row_length) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("row_length", [0.5, 1.5, 5.0])
def test_no_pair_of_private_values_exceeds_the_bound_on_moments(row_length: float, center: bool) -> None:
    # All pairs of corners: ends of ranges, levels, and none of the levels. A maximum over boxes is at corners or
    # inside the range of numbers, where a grid is tried.
    for domains in itertools.combinations_with_replacement(DOMAINS, 2):
        ends = [
            range(-1, len(each)) if isinstance(each, Categories) else np.linspace(each.low, each.high, 5)
            for each in domains
        ]
        values = np.array(list(itertools.product(*ends)), dtype=float)
        features = scale_private(PrivateFeatures(values, domains), center=center)
        span = PrivateSpan.of(domains, center=center)
        inner = features @ features.T
        squares = np.diag(inner)
        distances = np.maximum(squares[:, None] + squares - 2 * inner, 0.0)
        assert np.sqrt(squares.max()) == pytest.approx(span.length)
        assert np.sqrt(distances.max()) <= span.diameter * (1 + 1e-12)
        if center:
            assert np.sqrt(distances.max()) == pytest.approx(span.diameter)
        moves = row_length**2 * distances + squares[:, None] ** 2 + squares**2 - 2 * inner**2
        bound = bound_moments(row_length, span.length, span.diameter, Neighbouring.REPLACE)
        assert np.sqrt(moves.max()) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("row_length", [0.1, 1.0, 1.4, 3.0])
def test_without_a_smaller_diameter_the_bound_on_moments_is_that_of_a_ball(row_length: float) -> None:
    cosine = max(-1.0, -(row_length**2) / 2)
    expected = np.sqrt(2 * row_length**2 * (1 - cosine) + 2 * (1 - cosine**2))
    assert bound_moments(row_length, 1.0, 2.0, Neighbouring.REPLACE) == pytest.approx(expected)
    assert bound_moments(2 * row_length, 2.0, 99.0, Neighbouring.REPLACE) == pytest.approx(4 * expected)
