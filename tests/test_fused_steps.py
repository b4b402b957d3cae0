"""Many steps in one compiled call release what single steps release, to the last bit, and are paid for in advance."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conddp.algorithms import DPSGD
from conddp.auditing import Recorder
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.data.units import Units
from conddp.errors import PrivacyError
from conddp.features.row_weights import RowWeights
from conddp.heads import fused
from conddp.heads.head import Head
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.bounded_sum import BoundedSum, bound_rounding
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.noise import NoiseStream, _Draws, gaussian
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.privacy.transcript import GaussianRelease
from conddp.training import fused_steps
from conddp.training.batches import Batches
from conddp.training.fused_steps import STEPS, FusedSteps
from conddp.training.loop import Progress, StepCounter, TrainingPlan, train
from conddp.training.optimizers import SGD, Adam, Optimizer
from tests.test_fused import make_sparse

pytestmark = pytest.mark.usefixtures("kernels")

RULES: dict[str, Callable[[], Optimizer]] = {"sgd": lambda: SGD(0.3), "adam": lambda: Adam(0.05)}


@dataclass(frozen=True)
class Case:
    """Records and a head for them."""

    head: Head
    public: Any
    private: Any
    label: Any

    @property
    def size(self) -> int:
        return int(self.head.layout(*self.num_columns).size)

    @property
    def num_columns(self) -> tuple[int, int]:
        return self.public.shape[1], 0 if self.private is None else self.private.shape[1]


def make_case(kind: str) -> Case:
    rng, n = np.random.default_rng(3), 60
    label = rng.normal(size=n)
    if kind == "sparse":
        return Case(Linear(), make_sparse(rng, n), None, label)
    head = MLP(hidden=(5, 4), embedding=3 if kind == "embedding" else None) if kind[-1] in "gk" else Linear()
    private = rng.uniform(-1, 1, size=(n, 2)) if kind in ("network", "columns") else None
    public = rng.normal(size=(n, 5 if kind == "few columns" else 11))
    return Case(head, np.asfortranarray(public) if "columns" in kind else public, private, label)


STEPS_BY_NAME = {name: each for name, each in vars(fused_steps).items() if name.startswith("STEPS_")}
KINDS = ("few columns", "columns", "rows", "sparse", "network", "embedding")


@dataclass
class Outcome:
    """What came of a run."""

    parameters: Any
    curator: Curator
    states: Any  # of both generators
    num_advances: int = 0


def run(
    case: Case,
    plan: TrainingPlan,
    optimizer: Optimizer,
    *,
    callback: Any = None,
    weights: RowWeights | None = None,
    budget: PrivacyBudget | None = None,
    curator: Curator | None = None,
) -> Outcome:
    noise, samples = np.random.default_rng(1), np.random.default_rng(2)
    curator = curator or Curator(noise, num_records=60, budget=budget)
    advances: list[int] = []
    advance = FusedSteps.advance

    def count(self: FusedSteps, *arguments: Any, **settings: Any) -> tuple[int, int]:
        advances.append(1)
        return advance(self, *arguments, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FusedSteps, "advance", count)
        trained = train(
            plan,
            case.head,
            case.head.layout(*case.num_columns),
            case.head.prepare(case.public, case.private),
            case.label,
            0.3 * np.random.default_rng(4).normal(size=(1, case.size)),
            optimizer=optimizer,
            curator=curator,
            rng=samples,
            callback=callback,
            weights=weights,
        )
    return Outcome(trained, curator, (noise.bit_generator.state, samples.bit_generator.state), len(advances))


def see_every_step(progress: Progress) -> None:
    """A callback for which steps are taken one by one."""


def check_alike(together: Outcome, alone: Outcome) -> None:
    assert together.num_advances > 0 == alone.num_advances
    np.testing.assert_array_equal(together.parameters, alone.parameters)
    assert together.curator.transcript == alone.curator.transcript
    assert together.states == alone.states  # nothing else was drawn


def test_every_kernel_of_a_sum_has_one_of_steps() -> None:
    sums = {name for name in vars(fused) if name.startswith("SUM_")}
    assert {vars(fused)[name] for name in sums} == set(STEPS) and len(sums) == 5


@pytest.mark.parametrize("name", STEPS_BY_NAME)
def test_examples_take_the_code_for_every_type_through_both_rules(name: str) -> None:
    numba, kernel = pytest.importorskip("numba"), STEPS_BY_NAME[name]
    compiled: Any = kernel.get()
    found = set()
    for arguments in kernel.make_examples():
        named = dict(zip(signature(fused_steps._take_steps).parameters, arguments, strict=True))
        found.add((numba.typeof(named["known"]), "adam" if len(named["first"]) else "sgd"))
    assert found == set(product([types[-1] for types in compiled.overloads], RULES))


@pytest.mark.parametrize(("kind", "rule", "probability"), list(product(KINDS, RULES, (1.0, 0.2))))
def test_steps_together_are_those_one_by_one_bit_for_bit(kind: str, rule: str, probability: float) -> None:
    case = make_case(kind)
    plan = TrainingPlan(70, 0.5, 1.0, probability)
    together, alone = (run(case, plan, RULES[rule](), callback=each) for each in (None, see_every_step))
    check_alike(together, alone)
    assert len(together.curator.transcript) == 70


@pytest.mark.parametrize("kind", ["columns", "rows", "network"])
def test_rows_in_float32_too(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "ROUNDED_FROM", 0)
    case = replace(make_case(kind), private=None)
    plan = TrainingPlan(40, 0.5, 1.0, 1.0 if kind == "columns" else 0.3)
    together, alone = (run(case, plan, Adam(0.05), callback=each) for each in (None, see_every_step))
    check_alike(together, alone)


@pytest.mark.parametrize("averaging", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("probability", [1.0, 0.2])
def test_averages_and_weights_too(averaging: float, probability: float, rng: np.random.Generator) -> None:
    case, weights = make_case("network"), RowWeights.give(rng.uniform(0.2, 1, size=60))
    plan = TrainingPlan(41, 0.5, 1.0, probability, averaging)
    together, alone = (run(case, plan, Adam(0.05), callback=each, weights=weights) for each in (None, see_every_step))
    check_alike(together, alone)


@pytest.mark.parametrize("probability", [1.0, 0.2])
@pytest.mark.parametrize("kind", KINDS)
def test_units_of_several_records_too(kind: str, probability: float) -> None:
    units = Units(np.repeat(np.arange(15), 4))
    weights = RowWeights(units, np.linspace(0.3, 1, 15), np.full(15, 4.0))
    together, alone = (
        run(make_case(kind), TrainingPlan(20, 0.5, 1.0, probability), SGD(0.3), callback=each, weights=weights)
        for each in (None, see_every_step)
    )
    check_alike(together, alone)


@pytest.mark.parametrize("kind", ["few columns", "network"])
def test_a_diverging_run_is_clamped_alike(kind: str) -> None:
    together, alone = (
        run(make_case(kind), TrainingPlan(50, 10.0, 1.0), SGD(1e8), callback=each) for each in (None, see_every_step)
    )
    check_alike(together, alone)
    assert np.abs(together.parameters).max() == 1e6


@pytest.mark.parametrize("kind", ["few columns", "network"])
@pytest.mark.parametrize("rule", RULES)
def test_doubtful_numbers_are_decided_alike(kind: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # With this tolerance, one number in ten is in doubt: some steps have none, others several.
    monkeypatch.setattr("conddp.privacy.release.gaussian", lambda: replace(gaussian(), tolerance=3e-8))
    decided: list[tuple[float, float]] = []
    decide = _Draws.decide

    def note(draws: _Draws, place: int, offset: float, ratio: float) -> int:
        decided.append((float(draws.values[place]), offset))
        return decide(draws, place, offset, ratio)

    monkeypatch.setattr(_Draws, "decide", note)
    case, plan = make_case(kind), TrainingPlan(60, 0.5, 1.0, 0.5)
    together = run(case, plan, RULES[rule]())
    asked = list(decided)
    alone = run(case, plan, RULES[rule](), callback=see_every_step)
    check_alike(together, alone)
    assert asked == decided[len(asked) :] and len(asked) > 10
    assert together.num_advances > 10


def test_a_far_tail_is_decided_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    # Noise of which 63 bits may be too few is NaN until it is decided.
    make = _Draws.of.__func__  # type: ignore[attr-defined]  # the function below the class method

    def make_tails(cls: Any, size: int, shape: Any, generator: Any) -> _Draws:
        draws: _Draws = make(cls, size, shape, generator)
        draws.bits[3::7] >>= np.uint64(30)
        draws.values[3::7] = np.nan
        return draws

    monkeypatch.setattr(_Draws, "of", classmethod(make_tails))
    together, alone = (
        run(make_case("few columns"), TrainingPlan(30, 0.5, 1.0), Adam(0.05), callback=each)
        for each in (None, see_every_step)
    )
    check_alike(together, alone)
    assert np.isfinite(together.parameters).all()


def test_the_noise_is_that_of_the_stream_with_the_recorded_standard_deviation() -> None:
    # Without any record in a sample, what moves the parameters is the noise of every step.
    case, num_steps = make_case("few columns"), 12
    found = run(case, TrainingPlan(num_steps, 0.7, 3.0, 1e-9), SGD(1e-9))
    stream, expected = NoiseStream(gaussian(), np.random.default_rng(1)), 0.3 * np.random.default_rng(4).normal(size=5)
    (release,) = found.curator.transcript
    assert release == GaussianRelease("clipped gradients", 12, 1.4, 3.0 * 0.7 * (1 + bound_rounding(60)), 1e-9)
    for _ in range(num_steps):
        noisy = stream.add(np.zeros(5), release.noise_std)
        assert np.abs(noisy).min() > 0
        expected -= 1e-9 * (noisy / (60 * 1e-9))
    np.testing.assert_array_equal(found.parameters[0], expected)


def test_later_releases_do_not_use_the_noise_again() -> None:
    case, plan = make_case("few columns"), TrainingPlan(21, 0.5, 1.0)
    later = []
    for callback in (None, see_every_step):
        curator = run(case, plan, SGD(0.1), callback=callback).curator
        later.append(curator.release_gaussian(BoundedSum(np.zeros(5), 1.0, "a sum"), noise_std=1.0))
        assert [(each.what, each.count) for each in curator.transcript] == [("clipped gradients", 21), ("a sum", 1)]
    np.testing.assert_array_equal(later[0], later[1])
    fresh = Curator(np.random.default_rng(1), num_records=60)
    assert not np.isin(later[0], fresh.release_gaussian(BoundedSum(np.zeros(5), 1.0, "a sum"), noise_std=1.0)).any()


def afford(num_steps: float, **plan: Any) -> tuple[TrainingPlan, PrivacyBudget]:
    """A plan of ten steps, and a budget that covers so many of them."""
    noise_multiplier = 2.0 * np.sqrt(num_steps) / calibrate_gaussian_mu(1.0, 1e-6)
    return TrainingPlan(10, 0.5, noise_multiplier, **plan), PrivacyBudget(1.0, 1e-6)


def test_a_budget_that_does_not_cover_all_steps_releases_none() -> None:
    plan, budget = afford(9)
    noise = np.random.default_rng(1)
    curator, before = Curator(noise, num_records=60, budget=budget), noise.bit_generator.state
    seen: list[int] = []
    counter = StepCounter(lambda step, _: seen.append(step))
    with pytest.MonkeyPatch.context() as patch:
        for method in ("prepare", "advance"):  # which read labels or draw samples
            patch.setattr(FusedSteps, method, lambda *_, **__: pytest.fail("a step was taken"))
        with pytest.raises(PrivacyError, match="would cost more"):
            run(make_case("few columns"), plan, SGD(0.1), curator=curator, callback=counter)
    assert noise.bit_generator.state == before
    assert len(curator.transcript) == 0 and seen == []


def test_steps_are_charged_as_single_ones_are() -> None:
    plan, budget = afford(11)
    curator = run(make_case("few columns"), plan, SGD(0.1), budget=budget).curator
    one_more = BoundedSum(np.zeros(5), 1.0, "clipped gradients")  # sensitivity 2 c, with the same c
    curator.release_gaussian(one_more, noise_std=float(plan.noise_multiplier) * 0.5)
    assert [each.count for each in curator.transcript] == [11]
    for what in ("clipped gradients", "another sum"):
        with pytest.raises(PrivacyError, match="would cost more"):
            curator.release_gaussian(replace(one_more, what=what), noise_std=float(plan.noise_multiplier) * 0.5)


def test_an_interrupted_run_has_recorded_at_least_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_steps, "WORK_AT_ONCE", 60.0 * 5 * 8)
    curator = Curator(np.random.default_rng(1), num_records=60)

    def interrupt(step: int, _: int) -> None:
        if step == 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            make_case("few columns"),
            TrainingPlan(80, 0.5, 1.0),
            SGD(0.1),
            curator=curator,
            callback=StepCounter(interrupt),
        )
    assert len(curator.transcript) == 24


def test_long_steps_are_taken_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    case, plan, seen = make_case("few columns"), TrainingPlan(30, 0.5, 1.0, averaging=0.5), []
    expected = run(case, plan, Adam(0.1))
    monkeypatch.setattr(fused_steps, "WORK_AT_ONCE", 60.0 * 5 * 4)
    found = run(case, plan, Adam(0.1), callback=StepCounter(lambda step, total: seen.append((step, total))))
    assert seen == [(step, 30) for step in (4, 8, 12, 16, 20, 24, 28, 30)]
    check_alike(found, replace(expected, num_advances=0))


def test_samples_that_are_drawn_ahead_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    # Drawing them takes longer than a step on one column, and must not fill the memory.
    n, head, most = 200_000, Linear(), []
    draw_several = Batches.draw_several

    def note(self: Batches, num_batches: int) -> Any:
        positions, spans = draw_several(self, num_batches)
        assert positions is not None
        most.append(len(positions))
        return positions, spans

    monkeypatch.setattr(Batches, "draw_several", note)
    case = Case(head, np.ones((n, 1)), None, np.zeros(n))
    run(case, TrainingPlan(400, 0.5, 1.0, 0.05), SGD(0.1), curator=Curator(np.random.default_rng(1), num_records=n))
    assert 100_000 < max(most) < 1_000_000


class _Now_and_then:  # noqa: N801  (a callback)
    unseen_steps = 6

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, progress: Progress) -> bool:
        self.seen.append(progress.step)
        return progress.step >= 14


def test_a_callback_that_need_not_see_every_step_can_stop_the_run() -> None:
    callback = _Now_and_then()
    found = run(make_case("few columns"), TrainingPlan(30, 0.5, 1.0, averaging=0.5), SGD(0.1), callback=callback)
    assert callback.seen == [7, 14] and len(found.curator.transcript) == 14

    def stop(progress: Progress) -> bool:
        return progress.step == 14

    check_alike(
        found, run(make_case("few columns"), TrainingPlan(30, 0.5, 1.0, averaging=0.5), SGD(0.1), callback=stop)
    )


def test_a_callback_with_a_negative_number_sees_every_step() -> None:
    callback = _Now_and_then()
    callback.unseen_steps = -1
    found = run(make_case("few columns"), TrainingPlan(30, 0.5, 1.0), SGD(0.1), callback=callback)
    assert callback.seen == list(range(1, 15)) and found.num_advances == 0


def test_curators_that_handle_single_releases_get_them() -> None:
    class Watching(Curator):
        """Might do something with every release."""

    generators = [np.random.default_rng(seed) for seed in (1, 2)]
    recorder = Recorder()
    for curator in (Watching(generators[0], num_records=60), recorder.make_class()(generators[0], num_records=60)):
        assert not curator.takes_steps
        assert run(make_case("few columns"), TrainingPlan(5, 0.5, 1.0), SGD(0.1), curator=curator).num_advances == 0
    assert len(recorder.questions) == 5
    assert not Curator(generators, num_records=60).takes_steps
    assert Curator(generators[0], num_records=60).takes_steps


def test_a_subclass_of_a_rule_takes_its_own_steps() -> None:
    class Slower(SGD):
        def update(self, parameters: Any, gradient: Any) -> None:
            super().update(parameters, 0.5 * gradient)

    case, plan = make_case("few columns"), TrainingPlan(5, 0.5, 1.0)
    found = run(case, plan, Slower(0.2))
    assert found.num_advances == 0
    np.testing.assert_allclose(found.parameters, run(case, plan, SGD(0.1)).parameters, rtol=1e-12)


@dataclass
class _Idle:
    """Steps of which only the memory matters."""

    sums: Any
    noisy: Any = None
    doubtful: Any = None

    def prepare(self, num_steps: int) -> None:
        pytest.fail("a step was prepared")

    def advance(self, noise: Any, rule: Any, *, is_decided: bool) -> tuple[int, int]:
        pytest.fail("a step was taken")


@pytest.mark.parametrize(
    ("sums", "noise_std", "num_steps", "several"),
    [("others", 1.0, 3, False), ("own", 0.0, 3, False), ("own", np.nan, 3, False), ("own", 1.0, 3, True)]
    + [("own", 1.0, 0, False)],
)
def test_steps_without_noise_or_with_other_sums_are_refused(
    sums: str, noise_std: float, num_steps: int, several: bool
) -> None:
    generators = [np.random.default_rng(seed) for seed in range(1 + several)]
    curator, steps = Curator(generators, num_records=10), _Idle(np.zeros(3))
    bounded = BoundedSum(steps.sums if sums == "own" else np.zeros(3), 1.0, "sums")
    with pytest.raises((PrivacyError, ValueError)):
        curator.release_steps(steps, bounded, noise_std=noise_std, sampling_probability=1.0, num_steps=num_steps)
    assert len(curator.transcript) == 0


@pytest.mark.parametrize("batch_size", [None, 30])
def test_a_fit_keeps_the_same_iterates_and_ends_with_the_same_model(batch_size: int | None, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    records = Records(PublicFeatures(X), None, Labels(X[:, 0], Bounds(-3, 3)))
    algorithm, budget = DPSGD(num_steps=130, batch_size=batch_size), PrivacyBudget(1.0, 1e-6)
    taken: list[int] = []
    seen: list[int] = []
    release_steps = Curator.release_steps

    def count(self: Curator, *arguments: Any, num_steps: int, **settings: Any) -> None:
        taken.append(num_steps)
        release_steps(self, *arguments, num_steps=num_steps, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Curator, "release_steps", count)
        fits = [
            algorithm.fit(records, budget, random_source=RandomSource.of(1), **settings)
            for settings in (
                {},
                {"callback": StepCounter(lambda step, _: seen.append(step))},
                {"callback": see_every_step},
                {"checkpoint": tmp_path / "going"},
            )
        ]
    assert taken == 2 * ([4] * 32 + [2])  # by neither of the last two
    assert seen == [*range(4, 129, 4), 130]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.model.parameters, fits[0].model.parameters)
        assert fit.diagnostics == fits[0].diagnostics
        assert fit.transcript == fits[0].transcript
