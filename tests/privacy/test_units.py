"""All private values of one unit are replaced at once: bounds against brute force, and every algorithm as a whole."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conddp.algorithms import (
    DPSGD,
    CondDP,
    CondNewton,
    OneShot,
    PrivateMean,
    RandomizedLabels,
    RROnBins,
    SwitchCondDP,
)
from conddp.algorithms.algorithm import Algorithm
from conddp.auditing import Question
from conddp.data import BLOCK_SIZE, Labels, PrivateFeatures, PrivateSpan, PublicFeatures, Records, Units
from conddp.features.row_weights import RowWeights
from conddp.features.unit_moves import bound_largest_move, bound_moves, find_long_sums
from conddp.features.whitening import WhitenedRows
from conddp.heads import MLP, Additive, FactorizationMachine, Head, Learned, Linear, Wide
from conddp.losses import Squared
from conddp.newton.private_columns import PrivateRows, release_moments
from conddp.newton.release import ResidualQuery, release_residuals
from conddp.privacy import Curator, Neighbouring, PrivacyBudget
from conddp.privacy.accounting import calibrate_gaussian_mu
from tests.privacy.replay import LABEL_BOUNDS, fit_both, make_records

BUDGET = PrivacyBudget(2.0, 1e-4)
ROUNDING = 1 + 1e-9


def make_units(sizes: list[int]) -> Units:
    return Units(np.repeat(np.arange(len(sizes)), sizes))


def longest_sum(vectors: Any) -> float:
    """Largest length of a sum of the vectors with any signs, by trying all of them."""
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(vectors))))
    return float(np.linalg.norm(signs @ vectors, axis=1).max())


# --- how far a unit can move a sum


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 6))
def test_bounds_hold_for_every_sign_pattern_and_are_never_above_the_sum_of_lengths(seed: int, k: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_t(2, size=(k, d)) * rng.choice([0.0, 1.0, 10.0], size=(k, 1))
    exact, bound = longest_sum(vectors), float(bound_moves(vectors, make_units([k]))[0])
    assert exact <= bound * ROUNDING
    assert bound <= np.linalg.norm(vectors, axis=1).sum() * ROUNDING
    assert np.linalg.norm(find_long_sums(vectors, make_units([k]))[0]) <= exact * ROUNDING


def test_the_bound_is_exact_for_one_and_two_records_and_for_parallel_and_orthogonal_ones() -> None:
    rng = np.random.default_rng(0)
    pair, line, axes = (
        rng.normal(size=(2, 4)),
        np.outer(rng.normal(size=5), rng.normal(size=4)),
        np.diag([3, 1, 2.0, 5]),
    )
    for vectors in (pair[:1], pair, line, axes):
        bound = bound_moves(vectors, make_units([len(vectors)]))[0]
        assert bound == pytest.approx(longest_sum(vectors), rel=1e-12)


def test_the_bound_is_tight_for_many_records_in_few_directions() -> None:
    vectors = np.random.default_rng(0).normal(size=(200, 2))
    # In the plane the best signs are those of a half-plane, so all of them can be tried.
    angles = np.linspace(0, np.pi, 2000, endpoint=False)
    exact = np.abs(vectors @ np.stack([np.cos(angles), np.sin(angles)])).sum(axis=0).max()
    bound = bound_moves(vectors, make_units([200]))[0]
    assert exact <= bound * ROUNDING
    assert bound < 1.15 * exact
    assert bound < 0.85 * np.linalg.norm(vectors, axis=1).sum()


def test_the_largest_move_is_the_maximum_of_both_parts_over_units() -> None:
    rng = np.random.default_rng(1)
    for sizes in ([1, 1, 2, 3], [1] * 5 + [9] * 40 + [70, 90], [2, 500], [4]):
        units = make_units(sizes)
        vectors, beside = rng.normal(size=(len(units), 3)), rng.uniform(0, 3, size=len(sizes))
        largest = bound_largest_move(vectors, units, beside=beside)
        assert largest == pytest.approx(np.hypot(bound_moves(vectors, units), beside).max(), rel=1e-12)
    assert math.isnan(bound_largest_move(np.full((3, 2), np.nan), make_units([1, 2]), beside=np.zeros(2)))


def test_records_that_are_not_arranged_are_refused() -> None:
    for codes in ([0, 1, 0], [0, 0, 1]):
        with pytest.raises(ValueError, match="not arranged"):
            bound_moves(np.ones((3, 1)), Units(np.array(codes)))


# --- the releases of Newton steps


def release(rows: Any, label: Any, query: ResidualQuery, coefficients: Any, neighbouring: Neighbouring) -> Any:
    """What is released before noise, and its sensitivity."""
    seen = []

    class Watching(Curator):
        def release_gaussian(self, bounded: Any, **settings: Any) -> Any:
            seen.append(bounded)
            return super().release_gaussian(bounded, **settings)

    curator = Watching(np.random.default_rng(0), num_records=len(label))
    release_residuals(
        rows,
        label,
        (-0.5, 0.5),
        coefficients,
        query,
        mu=1.0,
        neighbouring=neighbouring,
        curator=curator,
        loss=Squared(),
    )
    return np.array(seen[0].value), seen[0].sensitivity


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(Neighbouring)))
def test_no_labels_of_a_unit_move_a_newton_step_further_than_its_sensitivity(seed: int, relation: Neighbouring) -> None:
    rng = np.random.default_rng(seed)
    sizes = sorted(rng.integers(1, 6, size=12).tolist())
    units = make_units(sizes)
    n, d = len(units), int(rng.integers(1, 5))
    X = rng.standard_t(2, size=(n, d))
    if rng.random() < 0.5:
        X = X[np.searchsorted(units.codes, units.codes)]  # all rows of a unit are the same
    of_units = rng.uniform(0.1, 1.0, size=len(sizes))
    weights = RowWeights(units, of_units / of_units.max(), units.sizes.astype(float))
    rows = WhitenedRows.of(PublicFeatures(X), weights=weights)
    gram = (rows.values * weights.values[:, None]).T @ rows.values / weights.total
    assert np.allclose(gram, np.eye(rows.num_directions))
    k = rows.num_directions
    asked = rng.dirichlet(np.ones(k)) * (rng.random(k) < 0.8)
    asked = asked / asked.sum() if asked.sum() else np.eye(k)[0]
    query = ResidualQuery(
        float(rng.uniform(0.02, 0.7)), asked, 0.2, float(rng.uniform(0.2, 1)), float(rng.choice([0, 0.35]))
    )
    coefficients = rng.normal(size=k) * 0.2
    label = rng.uniform(-0.5, 0.5, size=n)
    base, sensitivity = release(rows, label, query, coefficients, relation)
    for unit in range(len(sizes)):
        members = np.flatnonzero(units.codes == unit)
        trials = [np.array(each) for each in itertools.product((-0.5, 0.5), repeat=len(members))]
        trials += [rng.uniform(-0.5, 0.5, size=len(members)) for _ in range(4)]
        values = []
        for trial in trials:
            changed = label.copy()
            changed[members] = trial
            value, same = release(rows, changed, query, coefficients, relation)
            assert same == sensitivity
            values.append(value)
        sums = np.array(values)
        if relation is Neighbouring.REPLACE:
            farthest = np.linalg.norm(sums[:, None] - sums[None], axis=2).max()
        else:  # against the sums without the unit
            kept = np.setdiff1d(np.arange(n), members)
            predicted = rows.values @ coefficients
            norms = np.sqrt(rows.values**2 @ asked)
            limits = query.clip_norm / np.maximum(norms, 1e-12)
            clamped = np.clip(label - predicted, -limits, limits) * weights.values
            squares = np.minimum((label - predicted) ** 2, query.square_limit**2) * weights.values
            null = np.append(
                np.sqrt(asked) * (clamped[kept] @ rows.values[kept]), query.square_unit * squares[kept].sum()
            )
            farthest = np.linalg.norm(sums - null, axis=1).max()
        assert farthest <= sensitivity * ROUNDING


@pytest.mark.parametrize("relation", Neighbouring)
def test_private_rows_of_a_unit_move_a_newton_step_by_at_most_the_clip_norm_times_their_weights(
    relation: Neighbouring,
) -> None:
    rng = np.random.default_rng(0)
    units = make_units([1, 1, 2, 3, 4])
    weights = RowWeights(units, np.array([1, 1, 0.9, 0.7, 0.6]), units.sizes.astype(float))
    n, found = len(units), 0.0
    query = ResidualQuery(0.05, np.full(3, 1 / 3), 0.2, 0.6, 0.35)
    for _ in range(300):
        values, label = rng.standard_t(2, size=(n, 3)), rng.uniform(-0.5, 0.5, size=n)
        other_values, other_label = values.copy(), label.copy()
        unit = int(rng.integers(units.num_units))
        members = units.codes == unit
        direction = rng.normal(size=3)
        values[members], label[members] = direction, 0.5
        other_values[members], other_label[members] = direction if rng.random() < 0.5 else -direction, -0.5
        sums = [
            release(PrivateRows(v, np.ones(3), np.eye(3), False, weights), y, query, np.zeros(3), relation)
            for v, y in ((values, label), (other_values, other_label))
        ]
        assert sums[0][1] == sums[1][1]
        # Under ZERO_OUT two data sets differ by at most two moves to the null.
        allowed = sums[0][1] * (1 if relation is Neighbouring.REPLACE else 2)
        moved = float(np.linalg.norm(sums[0][0] - sums[1][0])) / allowed
        assert moved <= ROUNDING
        found = max(found, moved)
    assert found > 0.9


@pytest.mark.parametrize("relation", Neighbouring)
def test_private_columns_of_a_unit_move_the_second_moments_by_at_most_their_sensitivity(relation: Neighbouring) -> None:
    rng = np.random.default_rng(0)
    units = make_units([1, 2, 2, 4, 5])
    weights = RowWeights(units, np.array([1, 1, 1, 0.5, 0.4]), units.sizes.astype(float))
    n = len(units)
    X = np.repeat(rng.normal(size=(units.num_units, 2)), units.sizes, axis=0)
    public = WhitenedRows.of(PublicFeatures(X), weights=weights)
    found = 0.0
    for trial in range(300):
        private = rng.uniform(-1, 1, size=(n, 2))
        other = private.copy()
        members = units.codes == trial % units.num_units
        private[members] = rng.choice([-1.0, 1.0], size=2)
        other[members] = -private[members] if trial % 2 else rng.uniform(-1, 1, size=(members.sum(), 2))
        sums = []
        for each in (private, other):
            seen: list[Any] = []

            class Watching(Curator):
                def release_gaussian(self, bounded: Any, **settings: Any) -> Any:
                    seen.append(bounded)  # noqa: B023  # called in the same round
                    return super().release_gaussian(bounded, **settings)

            curator = Watching(np.random.default_rng(0), num_records=n)
            span = PrivateSpan(2, np.sqrt(2), 2 * np.sqrt(2))
            release_moments(public, each, span, mu=1.0, neighbouring=relation, curator=curator)
            sums.append(seen[0])
        allowed = sums[0].sensitivity * (1 if relation is Neighbouring.REPLACE else 2)
        found = max(found, float(np.linalg.norm(sums[0].value - sums[1].value)) / allowed)
        assert found <= ROUNDING
    assert found > (0.8 if relation is Neighbouring.REPLACE else 0.5)


# --- every algorithm as a whole

CASES: dict[str, tuple[Algorithm, Head, bool]] = {
    "cond-newton": (CondNewton(), Linear(), False),
    "cond-newton with private columns": (CondNewton(), Linear(), True),
    "cond-newton wide": (CondNewton(), Wide(width=12), False),
    "cond-newton mlp": (CondNewton(width=30), MLP(hidden=(4,)), False),
    "cond-newton learned": (CondNewton(), Learned(width=20), False),
    "cond-newton additive with private columns": (CondNewton(), Additive(width=20), True),
    "cond-dp": (CondDP(num_steps=8, clip_norm=0.02), Linear(), False),
    "cond-dp with private columns": (CondDP(num_steps=8, clip_norm=0.02), Linear(), True),
    "cond-dp mlp with private columns": (CondDP(num_steps=8, clip_norm=0.02), MLP(hidden=(4,)), True),
    "cond-dp sampled": (CondDP(num_steps=6, clip_norm=0.02, batch_size=20), Linear(), True),
    "switch-cond-dp": (SwitchCondDP(num_steps=8, clip_norm=0.02), Linear(), True),
    "dpsgd": (DPSGD(num_steps=8, clip_norm=0.02), FactorizationMachine(rank=2), True),
    "one-shot": (OneShot(), Linear(), False),
    "one-shot spherical": (OneShot(noise="spherical"), Linear(), False),
    "mean": (PrivateMean(), Linear(), True),
    "rr-on-bins": (RROnBins(), Linear(), False),
    "unbiased-rr": (RandomizedLabels(randomizer="unbiased", grid_size=9), Linear(), False),
    "binary-rr": (RandomizedLabels(randomizer="binary"), Linear(), False),
    "laplace": (RandomizedLabels(randomizer="laplace"), Linear(), False),
    "staircase": (RandomizedLabels(randomizer="staircase"), Linear(), False),
}


def make_unit_records(n: int, *, private: bool, max_rows: int | None = None) -> Records:
    """Records of units of one to six records, scattered over the table; some units have equal public rows."""
    rng = np.random.default_rng(3)
    records = make_records(n, private=private)
    codes = np.repeat(np.arange(n), rng.integers(1, 7, size=n))[:n]
    X = records.public.values.copy()
    for code in range(0, codes.max() + 1, 2):
        X[codes == code] = X[codes == code][0]
    shuffled = rng.permutation(n)
    return Records(
        PublicFeatures(X[shuffled]), records.private, records.label, Units(codes[shuffled], "person", max_rows)
    )


def replace_unit(records: Records, unit: int, label: Any, hidden: Any = None) -> Records:
    """A neighbour: all records of one unit have other labels and private columns."""
    assert records.units is not None
    members = records.units.codes == unit
    labels = records.label.values.copy()
    labels[members] = label
    private = records.private
    if private is not None:
        values = private.values.copy()
        values[members] = hidden
        private = PrivateFeatures(values, private.domains, private.names)
    return Records(records.public, private, Labels(labels, records.label.bounds), records.units)


def measure_unit_moves(questions: list[Question], others: list[Question]) -> list[float]:
    """How far each question moved, over what its sensitivity allows for all records of a unit."""
    moves = []
    for question, other in zip(questions, others, strict=True):
        difference = np.abs(question.private - other.private)
        per_unit = question.public.get("per_unit", 1)
        if question.method == "release_gaussian":
            moves.append(float(np.linalg.norm(difference)) / question.sensitivity)
        elif question.method == "release_integers":
            moves.append(float(difference.sum()) / question.sensitivity)
        elif question.method == "release_response":
            moves.append(np.count_nonzero(difference) / per_unit)
        else:  # values of different records: those of the unit may move, each by the range
            assert difference.max() <= question.sensitivity * ROUNDING
            moves.append(np.count_nonzero(difference) / per_unit)
    return moves


def list_changes(size: int, rng: np.random.Generator) -> list[tuple[Any, Any, Any, Any]]:
    """Labels and private columns of a unit before and after, at the ends of their bounds and far beyond them."""
    low, high = np.full(size, -4.0), np.full(size, 6.0)
    signs = rng.random(size) < 0.5
    return [
        (low, (-1.0, 0.0), high, (2.0, 1.0)),
        (np.where(signs, low, high), (-1.0, 0.0), np.where(signs, high, low), (2.0, 1.0)),
        (np.full(size, -1e7), (-1e7, 1e7), np.full(size, 1e7), (1e7, -1e7)),
        (
            rng.uniform(-4, 6, size),
            rng.uniform(0, 1, (size, 2)),
            rng.uniform(-4, 6, size),
            rng.uniform(0, 1, (size, 2)),
        ),
    ]


@pytest.mark.parametrize("case", CASES)
def test_a_neighbour_that_differs_in_a_whole_unit_moves_no_release_beyond_its_sensitivity(case: str) -> None:
    algorithm, head, private = CASES[case]
    records = make_unit_records(140, private=private)
    assert records.units is not None
    sizes, rng, found = records.units.sizes, np.random.default_rng(0), 0.0
    slow = "mlp" in case and "newton" in case
    largest = np.flatnonzero(sizes == sizes.max())[: 1 if slow else 6]
    for unit in (*largest, *(() if slow else (0, 1, int(np.argmin(sizes))))):
        for label, hidden, other_label, other_hidden in list_changes(int(sizes[unit]), rng)[:: 2 if slow else 1]:
            one = replace_unit(records, unit, label, hidden)
            other = replace_unit(records, unit, other_label, other_hidden)
            questions, others = fit_both(algorithm, one, other, BUDGET, head=head)
            moves = measure_unit_moves(questions, others)
            assert max(moves) <= ROUNDING
            found = max(found, *moves)
            if questions[0].method == "release_gaussian" and "sampled" not in case:
                distance = math.sqrt(
                    sum(
                        (float(np.linalg.norm(a.private - b.private)) / a.noise_std) ** 2
                        for a, b in zip(questions, others, strict=True)
                    )
                )
                assert distance <= calibrate_gaussian_mu(2.0, 1e-4) * (1 + 1e-12)
    assert found > (0.5 if "private columns" in case and "newton" in case else 0.8)


@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize("case", ["cond-newton", "cond-newton with private columns", "cond-dp", "one-shot"])
def test_the_same_without_an_intercept(case: str, relation: Neighbouring) -> None:
    algorithm, head, private = CASES[case]
    records = make_unit_records(140, private=private)
    assert records.units is not None
    rng = np.random.default_rng(0)
    for unit in (int(np.argmax(records.units.sizes)), 0):
        for label, hidden, other_label, other_hidden in list_changes(int(records.units.sizes[unit]), rng):
            one = replace_unit(records, unit, label, hidden)
            other = replace_unit(records, unit, other_label, other_hidden)
            fit_settings = {"head": head, "fit_intercept": False, "neighbouring": relation}
            moves = measure_unit_moves(*fit_both(algorithm, one, other, BUDGET, **fit_settings))
            assert max(moves) <= (1 if relation is Neighbouring.REPLACE else 2) * ROUNDING


def test_the_steps_of_a_newton_run_come_close_to_their_sensitivity() -> None:
    # Not only the opening, which asks for the mean: all labels of a unit with equal rows change from end to end.
    records, found = make_unit_records(140, private=False), 0.0
    assert records.units is not None
    for unit in range(records.units.num_units):
        size = int(records.units.sizes[unit])
        one = replace_unit(records, unit, np.full(size, -4.0))
        other = replace_unit(records, unit, np.full(size, 6.0))
        found = max(found, *measure_unit_moves(*fit_both(CondNewton(), one, other, BUDGET))[2:])
    assert 0.8 < found <= ROUNDING


@pytest.mark.parametrize("algorithm", [CondNewton(), OneShot(), PrivateMean(), CondDP(num_steps=4, clip_norm=0.05)])
def test_records_of_a_unit_in_different_blocks_and_units_larger_than_a_block_count_together(
    algorithm: Algorithm,
) -> None:
    n = 2 * BLOCK_SIZE + 500
    rng = np.random.default_rng(0)
    codes = np.arange(n)
    codes[[3, BLOCK_SIZE + 3, 2 * BLOCK_SIZE + 3]] = 0  # one in each block
    codes[rng.choice(np.arange(10, n), BLOCK_SIZE + 100, replace=False)] = 1
    X = rng.normal(size=(n, 2))
    records = Records(PublicFeatures(X), None, Labels(rng.uniform(-4, 6, size=n), LABEL_BOUNDS), Units(codes))
    assert records.units is not None
    found = 0.0
    for unit in (int(records.units.codes[3]), int(np.argmax(records.units.sizes))):
        size = int(records.units.sizes[unit])
        one, other = replace_unit(records, unit, np.full(size, -4.0)), replace_unit(records, unit, np.full(size, 6.0))
        moves = measure_unit_moves(*fit_both(algorithm, one, other, BUDGET))
        assert max(moves) <= ROUNDING
        found = max(found, *moves)
    assert found > 0.4


@pytest.mark.parametrize("case", ["rr-on-bins", "laplace", "staircase", "cond-newton", "mean"])
def test_records_beyond_the_declared_maximum_have_no_influence(case: str) -> None:
    algorithm, head, private = CASES[case]
    records = make_unit_records(140, private=private, max_rows=2)
    assert records.units is not None
    unit = int(np.argmax(records.units.sizes))
    beyond = np.flatnonzero(records.units.codes == unit)[2:]
    assert len(beyond) > 1
    labels = records.label.values.copy()
    labels[beyond] = 6.0 - labels[beyond]
    other = Records(records.public, records.private, Labels(labels, records.label.bounds), records.units)
    questions, others = fit_both(algorithm, records, other, BUDGET, head=head)
    assert max(measure_unit_moves(questions, others)) == 0.0
    if questions[-1].method != "release_gaussian":
        assert questions[-1].public["per_unit"] == 2
