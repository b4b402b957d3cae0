"""Several fits to simulated labels together: each gives the numbers that it gives alone."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from conddp.algorithms import ALGORITHMS, Auto, CondNewton
from conddp.algorithms.algorithm import Algorithm
from conddp.algorithms.trial import Shared, Trial
from conddp.bounds import Bounds
from conddp.data.parts import PublicFeatures
from conddp.data.records import Records
from conddp.data.units import Units
from conddp.errors import PrivacyError
from conddp.features.row_weights import RowWeights
from conddp.features.whitening import WhitenedRows
from conddp.heads import MLP, FactorizationMachine, Head, Linear, Wide
from conddp.heads.head import Inputs
from conddp.labels.simulation import FAMILIES, simulate
from conddp.losses import Squared
from conddp.newton.joint_run import can_join, sum_jointly
from conddp.newton.release import ResidualQuery, _sum_residuals
from conddp.newton.run import ResidualQuestion
from conddp.planning.comparison import _Setting
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.training import distillation
from conddp.training.clipping import Workspace, compute_clipped_sum
from conddp.training.distillation import Student, learn_together
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import make_optimizer

N = 120
BUDGETS = (PrivacyBudget(0.5, 1e-4), PrivacyBudget(8.0, 1e-4))
SOURCE = RandomSource.for_neighbours(3)


def make_records(*, private: bool = False, units: bool = False, weights: bool = False, sparse: bool = False) -> Records:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(N, 3)) * [1.0, 20.0, 0.1]
    public = PublicFeatures(csr_array(np.where(np.abs(X) > 0.5, X, 0.0)) if sparse else X)
    who = Units.of(rng.integers(40, size=N), name="who") if units else None
    bounds = {"age": Bounds(0, 100)} if private else None
    records = simulate(public, FAMILIES[4], rng, private=bounds, units=who).records
    return replace(records, weights=rng.uniform(0.2, 1.0, size=N)) if weights else records


@pytest.fixture(autouse=True)
def short_lessons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "SCHEDULE", ((20, 0.01), (10, 0.003)))


def predict(fitted: Sequence[object], records: Records) -> np.ndarray:
    return np.stack([each.model.predict(records.public, records.private) for each in fitted])  # type: ignore[attr-defined]


def check_equal(algorithm: Algorithm, trials: Sequence[Trial], *, tolerance: float = 1e-9, **settings: object) -> None:
    """Compare fits together with fits one by one: models, and everything else that a fit states."""
    together = algorithm.fit_trials(trials, **settings)  # type: ignore[arg-type]
    alone = [
        algorithm.fit(each.records, each.budget, random_source=each.random_source, **settings)  # type: ignore[arg-type]
        for each in trials
    ]
    records = trials[0].records
    assert np.allclose(predict(together, records), predict(alone, records), rtol=0, atol=tolerance)
    for one, other in zip(together, alone, strict=True):
        assert one.guarantee == other.guarantee
        assert one.settings == other.settings
        assert len(one.transcript) == len(other.transcript)
        paid = [[(each.what, each.cost, each.details) for each in fit.ledger.entries] for fit in (one, other)]
        assert paid[0] == paid[1]
        assert one.diagnostics.steps == other.diagnostics.steps


@pytest.mark.parametrize(
    "name", ["auto", "cond-newton", "cond-dp", "dpsgd", "mean", "non-private", "one-shot", "rr-on-bins"]
)
def test_every_algorithm_fits_trials_as_it_fits_alone(name: str) -> None:
    check_equal(ALGORITHMS[name], [Trial(make_records(), budget, SOURCE) for budget in BUDGETS])


@pytest.mark.parametrize(
    "head", [Linear(), Wide(width=20), MLP(hidden=(5, 3)), MLP(hidden=(4,), embedding=2), FactorizationMachine(rank=2)]
)
@pytest.mark.parametrize("options", [{}, {"weights": True}, {"units": True}, {"sparse": True}], ids=str)
def test_heads_units_weights_and_sparse_columns(head: Head, options: dict[str, bool]) -> None:
    trials = [Trial(make_records(**options), budget, SOURCE) for budget in BUDGETS]
    check_equal(Auto(), trials, head=head, tolerance=1e-4 if isinstance(head, (MLP, FactorizationMachine)) else 1e-9)


@pytest.mark.parametrize("head", [Linear(), Wide(width=20)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_private_columns(head: Head, fit_intercept: bool) -> None:
    trials = [Trial(make_records(private=True), budget, SOURCE) for budget in BUDGETS]
    check_equal(CondNewton(), trials, head=head, fit_intercept=fit_intercept)


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_relations_and_models_without_an_intercept(neighbouring: Neighbouring, fit_intercept: bool) -> None:
    trials = [Trial(make_records(), budget, SOURCE) for budget in BUDGETS]
    check_equal(CondNewton(), trials, neighbouring=neighbouring, fit_intercept=fit_intercept)


@pytest.mark.parametrize("head", [Linear(), MLP(hidden=(4,))])
def test_different_labels_and_different_noise(head: Head) -> None:
    records, rng = make_records(), np.random.default_rng(1)
    drawn = [simulate(records.public, family, rng).records for family in FAMILIES[:3]]
    sources = [SOURCE, RandomSource.of(5), SOURCE]  # the second is bound to its fit, and learns alone
    trials = [Trial(each, BUDGETS[1], source) for each, source in zip(drawn, sources, strict=True)]
    check_equal(Auto(), trials, head=head, tolerance=1e-4)


def test_one_trial_and_two_records() -> None:
    check_equal(Auto(), [Trial(make_records(), BUDGETS[0], SOURCE)])
    few = make_records().take(np.arange(2))
    check_equal(Auto(), [Trial(few, budget, SOURCE) for budget in BUDGETS])


def test_without_a_seed_no_two_trials_have_the_same_noise() -> None:
    trials = [Trial(make_records(), BUDGETS[1], RandomSource.of(None))] * 2
    for head in (Linear(), MLP(hidden=(4,))):
        first, second = predict(Auto().fit_trials(trials, head=head), make_records())
        assert not np.allclose(first, second, atol=1e-6)


def test_public_rows_are_whitened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    whiten: Callable[..., WhitenedRows] = WhitenedRows.of

    def count(public: PublicFeatures, **settings: object) -> WhitenedRows:
        made.append(public.shape[1])
        return whiten(public, **settings)

    monkeypatch.setattr(WhitenedRows, "of", count)
    shared, records = Shared(), make_records()
    made.clear()  # of the simulation
    for _ in range(2):
        trials = [Trial(records, budget, SOURCE) for budget in BUDGETS]
        CondNewton().fit_trials(trials, head=Wide(width=20), shared=shared)
    assert made == [23]
    CondNewton().fit_trials(trials, head=Wide(width=20))
    assert made == [23, 23]


@pytest.mark.parametrize("neighbouring", Neighbouring)
def test_joint_sums_and_their_bounds_are_those_of_single_passes(
    neighbouring: Neighbouring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conddp.newton.joint_run.FEWEST_ROWS", 7)
    monkeypatch.setattr("conddp.newton.joint_run.CELLS_AT_ONCE", 1)  # many blocks, the last of which is not full
    rng = np.random.default_rng(0)
    rows = WhitenedRows.of(PublicFeatures(rng.normal(size=(50, 4))))
    labels = [rng.uniform(-0.7, 0.7, size=50) for _ in range(3)]  # some are out of range, and are clamped
    questions = [
        ResidualQuestion(
            rows,
            rng.normal(scale=0.3, size=5),
            ResidualQuery(clip_norm, rng.dirichlet(np.ones(5)), 0.1 + clip_norm, 0.4, 0.35),
            1.0,
        )
        for clip_norm in (0.05, 0.3, 2.0)
    ]
    joint = sum_jointly(questions, labels, (-0.5, 0.5), neighbouring=neighbouring, loss=Squared())
    for found, asked, label in zip(joint, questions, labels, strict=True):
        expected = _sum_residuals(rows, label, (-0.5, 0.5), asked.coefficients, asked.query, neighbouring, Squared())
        assert np.allclose(found.total, expected.total, rtol=1e-12, atol=1e-13)
        assert np.allclose(found.curvature, expected.curvature, rtol=1e-12)
        assert found.square == pytest.approx(expected.square, rel=1e-12)
        assert found.farthest == pytest.approx(expected.farthest, rel=1e-12)
        # By hand: no label of a record moves the weighted sum farther.
        moved = []
        for row in rows.values:
            norm = math.sqrt(row**2 @ asked.query.direction_weights)
            ends = np.clip(
                np.array([-0.5, 0.5]) - row @ asked.coefficients, *(np.array([-1, 1]) * asked.query.clip_norm / norm)
            )
            moved.append(norm * (ends[1] - ends[0] if neighbouring is Neighbouring.REPLACE else np.abs(ends).max()))
        assert found.farthest == pytest.approx(max(moved))
    assert repr(joint[0]) == "<sums of clamped residuals>"  # they are private


def test_moves_that_are_not_numbers_count_as_the_largest_possible() -> None:
    rows = WhitenedRows.of(PublicFeatures(np.random.default_rng(0).normal(size=(50, 4))))
    query = ResidualQuery(0.3, np.full(5, 0.2), 0.1, 0.4, 0.35)
    asked = [ResidualQuestion(rows, coefficients, query, 1.0) for coefficients in (np.full(5, np.nan), np.zeros(5))]
    unknown, known = sum_jointly(
        asked, [np.zeros(50)] * 2, (-0.5, 0.5), neighbouring=Neighbouring.REPLACE, loss=Squared()
    )
    assert unknown.farthest == 0.6 >= known.farthest


def test_rows_with_weights_are_summed_one_by_one() -> None:
    rows = WhitenedRows.of(PublicFeatures(np.random.default_rng(0).normal(size=(9, 2))))
    assert can_join(rows)
    assert not can_join(replace(rows, weights=RowWeights.give(np.linspace(0.1, 1.0, 9))))


HEADS = [
    Linear(),
    Wide(width=6),
    MLP(hidden=(5, 3)),
    MLP(hidden=(4,), activation="tanh", embedding=3),
    FactorizationMachine(),
]


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_without_clipping_are_those_of_a_huge_clip_norm(
    head: Head, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conddp.heads.mlp.CELLS_AT_ONCE", 250)  # a few configurations at a time
    rng = np.random.default_rng(2)
    inputs, layout = Inputs.of(rng.normal(size=(30, 4)), rng.normal(size=(30, 2))), head.layout(4, 2)
    parameters, label = rng.normal(size=(5, layout.size)), rng.normal(size=(5, 30))
    weights = rng.uniform(size=30) if weighted else None
    workspace = Workspace.of(head, layout, parameters)
    sums = [
        compute_clipped_sum(workspace, inputs, label, clip_norm=np.full(5, clip_norm), weights=weights).copy()
        for clip_norm in (math.inf, 1e15)
    ]
    assert np.allclose(sums[0], sums[1], rtol=1e-10, atol=1e-10)


def test_records_that_overflow_contribute_nothing_without_clipping_too() -> None:
    head, rng = MLP(hidden=(3, 2)), np.random.default_rng(0)
    X, layout = rng.normal(size=(6, 2)), head.layout(2, 0)
    parameters, label = rng.normal(size=(1, layout.size)) * 1e60, rng.normal(size=6)
    X[0] *= 1e60
    with np.errstate(all="ignore"):
        workspace = Workspace.of(head, layout, parameters)
        total = compute_clipped_sum(workspace, Inputs.of(X), label, clip_norm=np.array([math.inf]))
    assert np.isfinite(total).all()


def test_what_is_not_clipped_cannot_be_released() -> None:
    head, rng = Linear(), np.random.default_rng(0)
    layout, inputs = head.layout(2, 0), Inputs.of(rng.normal(size=(9, 2)))
    plan = TrainingPlan(3, None, 1.0)
    with pytest.raises(PrivacyError, match="not clipped"):
        train(
            plan,
            head,
            layout,
            inputs,
            np.zeros(9),
            np.zeros((1, layout.size)),
            optimizer=make_optimizer("sgd", 0.1),
            curator=Curator(rng, num_records=9),
            rng=rng,
        )


@pytest.mark.parametrize("head", [MLP(hidden=(4, 3)), FactorizationMachine(rank=2)], ids=str)
def test_students_learn_together_as_each_would_alone(head: Head) -> None:
    rng = np.random.default_rng(4)
    public, predictions = PublicFeatures(rng.normal(size=(2500, 3))), rng.normal(size=(3, 2500))
    blank = Student.of(head, public, constant=True)
    together, alone = [[replace(blank) for _ in range(3)] for _ in range(2)]
    shared = np.random.default_rng(7)
    generators = [np.random.default_rng(7) for _ in range(3)]
    learn_together(together, list(predictions), shared)
    for student, targets, generator in zip(alone, predictions, generators, strict=True):
        student.learn(targets, generator)
    for one, other in zip(together, alone, strict=True):
        assert np.allclose(one.export(), other.export(), atol=1e-3)
        assert one.export().dtype == np.float64
    assert shared.random() == generators[0].random()
    assert not np.allclose(together[0].export(), together[1].export(), atol=1e-2)


@pytest.mark.parametrize("briefly", [False, True])
def test_brief_lessons_take_an_eighth_of_the_steps_and_give_up_the_worse_start(
    briefly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, int]] = []

    def count(
        plan: TrainingPlan, head: Head, layout: Any, inputs: Any, label: Any, parameters: Any, **rest: Any
    ) -> Any:
        made.append((plan.num_steps, len(parameters)))
        return train(plan, head, layout, inputs, label, parameters, **rest)

    monkeypatch.setattr(distillation, "train", count)
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 3))
    student = Student.of(MLP(hidden=(8,)), PublicFeatures(X), constant=True)
    students, targets = [replace(student) for _ in range(2)], [0.1 * X[:, 0], np.maximum(X[:, 1], 0.0)]
    monkeypatch.setattr(distillation, "SCHEDULE", ((1600, 0.01), (800, 0.003)))
    learn_together(students, targets, rng, briefly=briefly)
    assert made == ([(200, 4), (100, 2)] if briefly else [(1600, 4), (800, 4)])
    for each, wanted in zip(students, targets, strict=True):
        assert each.parameters is not None
        found = each.head.predict(each.layout.views(each.parameters[None]), each.inputs.public, None)[0]
        assert np.mean((found - wanted) ** 2) < 0.1 * wanted.var()


def test_of_several_starts_the_best_is_kept() -> None:
    head, rng = Linear(), np.random.default_rng(4)
    student = Student.of(head, PublicFeatures(rng.normal(size=(40, 2))), constant=True)
    parameters = rng.normal(size=(6, student.layout.size))
    made = head.predict(student.layout.views(parameters), student.inputs.public, None)
    targets = made[[1, 2, 5]] + 0.01
    assert np.array_equal(distillation._keep_best(student, parameters, targets), parameters[[1, 2, 5]])


def test_plans_use_brief_lessons() -> None:
    assert not Shared().briefly
    records = make_records()
    setting = _Setting(records.public, {}, ("auto",), "mlp", (1.0,), 1e-6, Neighbouring.REPLACE)
    assert setting.shared.briefly
    trial = Trial(records, BUDGETS[1], SOURCE)
    models = [
        Auto().fit_trials([trial], head=MLP(hidden=(4,)), shared=shared)[0] for shared in (Shared(), setting.shared)
    ]
    full, brief = predict(models, records)
    assert not np.allclose(full, brief, atol=1e-6)
