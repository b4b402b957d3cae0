"""What leaves a fit, watched from outside."""

import io
import json
import logging
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conddp import CondDP, Neighbouring, PrivacyBudget, PrivacyLedger, PrivateRegressor
from conddp.algorithms import ALGORITHMS, Algorithm, CondNewton, PrivateMean, Task, WeightedLLP
from conddp.auditing import Recorder
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.records import Records
from conddp.data.scaling import PrivateSpan
from conddp.data.schema import Schema
from conddp.errors import BudgetExceeded, CondDPError, PrivacyError, SchemaError
from conddp.features import WhitenedRows
from conddp.files import load_records
from conddp.models.result import FitResult
from conddp.newton import release_moments
from conddp.privacy.accounting import GaussianEvent, calibrate_gaussian_mu, calibrate_noise_multiplier
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.composition import compute_delta
from conddp.privacy.events import check_event, make_gaussian_event, make_pure_event, make_run_event
from conddp.privacy.ledger import LedgerEntry, Receipt
from conddp.privacy.locked import Locked
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.privacy.transcript import (
    GaussianRelease,
    PureRelease,
    Release,
    Transcript,
    UnprotectedRelease,
    WeightedSumRelease,
)
from conddp.training.sampling import PoissonSampler

SECRET = 73512.0625  # exact in binary, so that it would be found as text and as bytes


def make_data() -> Records:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    return Records(PublicFeatures(X), None, Labels(X.sum(axis=1), Bounds(-4, 4)))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_ledger_is_on_disk_before_private_records_are_handed_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    seen: list[dict[str, Any]] = []

    def watch(locked: Locked[Any], receipt: Any) -> Any:
        seen.append(json.loads(path.read_text().splitlines()[-1]))
        return original(locked, receipt)

    original = Locked.open
    monkeypatch.setattr(Locked, "open", watch)
    algorithm, budget = ALGORITHMS[name], PrivacyBudget(4.0, 1e-4)
    cost = algorithm.cost(budget)
    algorithm.fit(make_data(), budget, ledger=PrivacyLedger(cost, path=path))
    assert [entry["cost"] for entry in seen] == [{"epsilon": cost.epsilon, "delta": cost.delta}]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_was_released_is_in_the_transcript_and_costs_what_the_ledger_says(name: str) -> None:
    algorithm, budget = ALGORITHMS[name], PrivacyBudget(4.0, 1e-4)
    result = algorithm.fit(make_data(), budget)
    spent = result.ledger.spent
    assert spent == algorithm.cost(budget) == result.guarantee.budget
    if name == "non-private":
        assert isinstance(result.transcript.releases[0], UnprotectedRelease)
        return
    assert compute_delta(result.transcript, spent.epsilon, Neighbouring.REPLACE) <= spent.delta * (1 + 1e-9)
    # And nothing is given away: with a little less epsilon the same releases would not be covered.
    less = compute_delta(result.transcript, 0.98 * spent.epsilon, Neighbouring.REPLACE)
    assert less > spent.delta or name in ("weighted-llp", "unbiased-rr", "binary-rr", "rr-on-bins", "auto")


@pytest.mark.parametrize("sampling", [None, 40])
def test_the_transcript_of_descent_has_its_steps_noise_and_sample(sampling: int | None) -> None:
    algorithm = CondDP(num_steps=7, clip_norm=0.3, batch_size=sampling)
    result = algorithm.fit(make_data(), PrivacyBudget(1.0, 1e-5))
    (release,) = result.transcript
    probability = 1.0 if sampling is None else sampling / 120
    multiplier = calibrate_noise_multiplier(1.0, 1e-5, num_steps=7, sampling_probability=probability)
    assert isinstance(release, GaussianRelease)
    assert (release.count, release.sensitivity, release.sampling_probability) == (7, 0.6, probability)
    assert release.noise_std == pytest.approx(0.3 * multiplier)
    assert release.noise_std > 0.3 * multiplier  # rounding is covered


class Careless(Algorithm):
    """A recipe with a defect."""

    def __init__(self, defect: str) -> None:
        self.defect = defect

    def run(self, task: Task) -> FitResult:
        if self.defect == "opens without paying":
            task.locked_records.open(Receipt(LedgerEntry("me", task.cost), task.ledger))
        if self.defect == "opens with a free entry":
            entry = LedgerEntry("me", PrivacyBudget(0.0, 0.0))
            task.locked_records.open(task.ledger.spend(entry))
        if self.defect == "opens with a foreign ledger":
            task.locked_records.open(PrivacyLedger(task.cost).spend(LedgerEntry("me", task.cost)))
        event = None
        if self.defect.startswith("states"):
            event = {
                "states less Gaussian noise than it uses": make_gaussian_event(calibrate_gaussian_mu(0.9, 1e-6)),
                "states a pure event": make_pure_event(1.0),
                "states a sampled run": make_run_event(GaussianEvent(20.0, 10, 0.1)),
                "states nothing": Transcript(),
                "states more than it pays for": make_gaussian_event(calibrate_gaussian_mu(1.1, 1e-6)),
            }[self.defect]
        records = task.spend("a sum", {}, event=event)
        if self.defect == "opens with an old entry":
            task.locked_records.open(Receipt(task.ledger.entries[-1], task.ledger))
        noise_std = 8.0 / calibrate_gaussian_mu(1.0, 1e-6)
        if self.defect == "finishes a task of its own":
            another = Curator(np.random.default_rng(0), num_records=120)
            another.release_gaussian(BoundedSum(np.zeros(1), 8.0, "a sum"), noise_std=1e-3)
            task.curator._releases, task.curator._counts = another._releases, another._counts
            return replace(task, cost=PrivacyBudget(np.inf, 0.0)).finish(task.make_model(np.zeros(3)), {})
        if self.defect == "releases after it has finished":
            sums = BoundedSum(np.zeros(1), 8.0, "a sum")
            task.curator.release_gaussian(sums, noise_std=2 * noise_std)
            result = task.finish(task.make_model(np.zeros(3)), {})
            task.curator.release_gaussian(sums, noise_std=2 * noise_std)
            return result
        if self.defect == "an array of sensitivities":
            sums = BoundedSum(np.zeros(3), np.full(3, 8.0), "sums")
            task.curator.release_gaussian(sums, noise_std=np.full(3, noise_std))
        total = np.array([records.label.values.sum()])
        if self.defect == "spends twice":
            task.spend("again", {})
        if self.defect == "too little noise":
            task.curator.release_gaussian(BoundedSum(total, 8.0, "a sum"), noise_std=8.0)
        if self.defect.startswith("states"):
            task.curator.release_gaussian(BoundedSum(total, 8.0, "a sum"), noise_std=noise_std)
        if self.defect == "one release too many":
            for _ in range(2):
                task.curator.release_gaussian(BoundedSum(total, 8.0, "a sum"), noise_std=noise_std)
        if self.defect == "adds Gaussian noise for delta = 0":
            task.curator.release_gaussian(BoundedSum(total, 8.0, "a sum"), noise_std=1e3)
        if self.defect == "no noise":
            task.curator.release_gaussian(BoundedSum(total, 8.0, "a sum"), noise_std=0.0)
        return task.finish(task.make_model(np.zeros(3)), {})


@pytest.mark.parametrize(
    ("defect", "message"),
    {
        "opens without paying": "unused receipt of their own ledger",
        "opens with a foreign ledger": "unused receipt of their own ledger",
        "opens with an old entry": "unused receipt of their own ledger",
        "finishes a task of its own": "more than the recorded",
        "releases after it has finished": "does not belong to its own releases",
        "adds Gaussian noise for delta = 0": "would cost more",
        "opens with a free entry": "but the ledger entry covers",
        "spends twice": "one more full-batch fit could have",
        "too little noise": "would cost more than the recorded",
        "one release too many": "would cost more than the recorded",
        "states less Gaussian noise than it uses": "would cost more than the recorded",
        "states a pure event": "would cost more than the recorded",
        "states a sampled run": "would cost more than the recorded",
        "states nothing": "it is empty or costs more",
        "states more than it pays for": "it is empty or costs more",
        "an array of sensitivities": "one sensitivity",
        "no noise": "positive, finite",
        "releases nothing through the curator": "nothing was released through the curator",
    }.items(),
)
def test_a_careless_recipe_fails_instead_of_leaking(defect: str, message: str) -> None:
    pure = PrivacyBudget(1.0, 0.0 if "delta = 0" in defect else 1e-6)
    with pytest.raises(PrivacyError, match=message):
        Careless(defect).fit(make_data(), pure, ledger=PrivacyLedger(pure))


@pytest.mark.parametrize(
    ("event", "made"),
    [
        (make_gaussian_event(0.5), [GaussianRelease("a", 1, 0.51, 1.0)]),
        (make_gaussian_event(0.5), [GaussianRelease("a", 2, 0.36, 1.0)]),
        (make_gaussian_event(5.0), [PureRelease("a", 1, "laplace", 0.1, 1.0)]),
        (make_pure_event(1.0), [PureRelease("a", 3, "laplace", 0.34, 1.0)]),
        (make_pure_event(9.0), [GaussianRelease("a", 1, 0.01, 1.0)]),
        (make_run_event(GaussianEvent(2.0, 10, 0.1)), [GaussianRelease("a", 11, 1.0, 1.0, 0.1)]),
        (make_run_event(GaussianEvent(2.0, 10, 0.1)), [GaussianRelease("a", 10, 1.0, 1.0, 0.11)]),
        (make_run_event(GaussianEvent(2.0, 10, 0.1)), [GaussianRelease("a", 10, 1.0, 0.99, 0.1)]),
        (make_run_event(GaussianEvent(2.0, 10, 0.1)), [GaussianRelease("a", 1, 1.0, 1.0)]),
        (make_gaussian_event(9.0), [UnprotectedRelease("a")]),
        (make_gaussian_event(9.0), [WeightedSumRelease("a", 1, 50, 25, 1.0, 0.5, 0.6)]),
    ],
)
def test_releases_beyond_the_recorded_event_are_refused(event: Transcript, made: list[Release]) -> None:
    with pytest.raises(PrivacyError, match="more than the event"):
        check_event(Transcript(tuple(made)), event)
    check_event(Transcript(tuple(made)), None)  # then only (epsilon, delta) counts


def test_releases_within_the_recorded_event_pass() -> None:
    check_event(Transcript((GaussianRelease("a", 4, 0.25, 1.0),)), make_gaussian_event(0.5))
    check_event(Transcript((PureRelease("a", 4, "laplace", 0.25, 1.0),)), make_pure_event(0.25, 0.75))
    run = make_run_event(GaussianEvent(2.0, 10, 0.1))
    steps = (GaussianRelease("a", 4, 1.0, 1.0, 0.1), GaussianRelease("a", 6, 1.0, 2.0, 0.05))
    check_event(Transcript(steps), run)
    with pytest.raises(PrivacyError):
        check_event(Transcript((*steps, GaussianRelease("a", 1, 1.0, 9.0, 0.05))), run)
    check_event(Transcript((UnprotectedRelease("a"),)), Transcript((UnprotectedRelease("a"),)))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "weighted-llp"])
def test_every_algorithm_states_an_event_that_its_releases_fill(name: str) -> None:
    algorithm, budget = ALGORITHMS[name], PrivacyBudget(4.0, 1e-4)
    result = algorithm.fit(make_data(), budget)
    event = result.ledger.entries[-1].event
    assert event is not None
    assert result.transcript.mu == pytest.approx(event.mu, rel=1e-6)
    assert result.transcript.pure_epsilon == pytest.approx(event.pure_epsilon, rel=1e-6)
    assert name == "non-private" or event.mu or event.pure_epsilon


def test_a_sampled_run_states_its_steps() -> None:
    result = CondDP(num_steps=7, batch_size=40).fit(make_data(), PrivacyBudget(1.0, 1e-5))
    (step,) = result.transcript.sampled
    assert (stated := result.ledger.entries[-1].event) is not None
    assert (stated.sampled[0].count, stated.sampled[0].sampling_probability) == (7, 40 / 120)
    assert stated.sampled[0].sensitivity / stated.sampled[0].noise_std == pytest.approx(
        step.sensitivity / step.noise_std, rel=1e-6
    )


def test_columns_of_the_same_name_are_refused() -> None:
    # They would be one column in the schema, and bounds would be missing in the sensitivity.
    with pytest.raises(SchemaError, match="different names"):
        PrivateFeatures(np.zeros((3, 2)), (Bounds(0, 1), Bounds(0, 1)), ("a", "a"))
    with pytest.raises(ValueError, match="the span of as many"):
        rows = WhitenedRows.of(PublicFeatures(np.eye(3)))
        curator = Curator(np.random.default_rng(0), num_records=3)
        release_moments(
            rows,
            np.zeros((3, 2)),
            PrivateSpan.of([Bounds(0, 1)]),
            mu=1.0,
            neighbouring=Neighbouring.REPLACE,
            curator=curator,
        )


@pytest.mark.parametrize("algorithm", [CondDP(num_steps=4), CondNewton()])
def test_what_a_callback_does_to_the_parameters_does_not_reach_the_records(algorithm: Algorithm) -> None:
    def vandal(progress: Any) -> None:
        progress.parameters[...] = np.inf

    spoiled, clean = (
        algorithm.fit(make_data(), PrivacyBudget(1.0, 1e-6), random_source=RandomSource.of(0), callback=callback)
        for callback in (vandal, None)
    )
    assert np.array_equal(spoiled.model.parameters, clean.model.parameters)


def test_samples_and_weights_differ_between_fits_without_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    draw = PoissonSampler.draw

    def record(sampler: PoissonSampler) -> Any:
        sample = draw(sampler)
        drawn.append(sample.tolist())
        return sample

    monkeypatch.setattr(PoissonSampler, "draw", record)
    for _ in range(2):
        CondDP(num_steps=2, batch_size=40).fit(make_data(), PrivacyBudget(1.0, 1e-5))
    assert drawn[:2] != drawn[2:]
    weights = []
    for _ in range(2):
        recorder = Recorder()
        WeightedLLP().fit(make_data(), PrivacyBudget(4.0, 1e-4), curator_class=recorder.make_class())
        weights.append(recorder.questions[0].public["argument 0"])
    assert not np.array_equal(weights[0], weights[1])


def test_a_task_shows_nothing_private_and_cannot_be_copied() -> None:
    seen: list[Task] = []

    class Peeping(PrivateMean):
        def run(self, task: Task) -> FitResult:
            seen.append(task)
            return super().run(task)

    data = Records(PublicFeatures(np.eye(3)), None, Labels(np.full(3, SECRET), Bounds(0, 1e5)))
    Peeping().fit(data, PrivacyBudget(1.0, 1e-6))
    assert "73512" not in repr(seen[0]) and "73512" not in repr(vars(seen[0]))
    with pytest.raises(PrivacyError):
        pickle.dumps(seen[0].locked_records)
    ledger = PrivacyLedger(PrivacyBudget(2.0, 1e-5))
    locked = Locked(data, price=PrivacyBudget(1.0, 1e-6), ledger=ledger)
    entry = LedgerEntry("a fit", PrivacyBudget(1.0, 1e-6))
    assert locked.open(ledger.spend(entry)) is data
    with pytest.raises(PrivacyError, match="once"):
        locked.open(ledger.spend(entry))


def test_a_crash_in_training_over_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> Any:
        raise RuntimeError("power cut")

    monkeypatch.setattr("conddp.algorithms.descent.train", crash)
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-5))
    data = Records(PublicFeatures(np.eye(3)), None, Labels(np.ones(3), Bounds(0, 2)))
    with pytest.raises(RuntimeError):
        CondDP(num_steps=2).fit(data, PrivacyBudget(0.5, 1e-6), ledger=ledger)
    assert ledger.plain_sum.epsilon == 0.5


class Untouchable:
    """A label that fails the test when anything looks at it."""

    name = None

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the label was read")

    def __len__(self) -> int:
        raise AssertionError("the label was read")


def test_a_refused_fit_reads_nothing() -> None:
    ledger = PrivacyLedger(PrivacyBudget(0.1, 1e-6))
    with pytest.raises(BudgetExceeded):
        PrivateRegressor(epsilon=1.0, label_bounds=(0, 1), ledger=ledger).fit(np.eye(3), Untouchable())


BAD_PRIVATE_INPUT: dict[str, Any] = {
    "text label": lambda X, y: (X, ["alpha-secret", *y[1:]]),
    "text label in a series": lambda X, y: (X, pd.Series(["alpha-secret", *y[1:]])),
    "label with NaN": lambda X, y: (X, [y[0], float("nan"), *y[2:]]),
    "complex label": lambda X, y: (X, np.asarray(y, dtype=complex)),
    "label of three dimensions": lambda X, y: (X, np.stack([[y, y]] * 2)),
    "label too short": lambda X, y: (X, y[1:]),
    "object label": lambda X, y: (X, np.array([{"alpha-secret": SECRET}, *y[1:]], dtype=object)),
    "ragged label": lambda X, y: (X, [[SECRET], *y[1:]]),
    "text private column": lambda X, y: (pd.DataFrame(X).astype(object).replace(SECRET, "alpha-secret"), y),
    "text in an object array": lambda X, y: (np.where(X == SECRET, "alpha-secret", X.astype(object)), y),
    "NaN in a private column": lambda X, y: (np.where(X == 2.0, np.nan, X), y),
    "one row instead of a table": lambda X, y: (X[:, 1], y),
    "text in one row": lambda X, y: (np.array(["alpha-secret"] * 6), y),
    "string array": lambda X, y: (np.array([["1", "alpha-secret"]] * 6, dtype=np.dtypes.StringDType()), y),
    "complex table": lambda X, y: (X.astype(complex), y),
    "series instead of a table": lambda X, y: (pd.Series(X[:, 1]), y),
    "categories": lambda X, y: (
        pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(["alpha-secret"] * 6, ordered=True)}),
        y,
    ),
    "date in a private column": lambda X, y: (pd.DataFrame(X).assign(**{"c": pd.Timestamp("1973-05-12")}), y),
}


@pytest.mark.parametrize("case", BAD_PRIVATE_INPUT)
def test_messages_about_bad_input_quote_no_private_value(case: str) -> None:
    X = np.column_stack([np.arange(6.0), [SECRET, 1.0, 2.0, 3.0, 4.0, 5.0]])
    bad_X, bad_y = BAD_PRIVATE_INPUT[case](X, [SECRET, 1.0, 2.0, 3.0, 4.0, 5.0])
    model = PrivateRegressor(label_bounds=(0, 10), private_columns={1: (0, 10)})
    with pytest.raises((CondDPError, ValueError, TypeError)) as caught:
        model.fit(bad_X, bad_y)
    error: BaseException | None = caught.value
    while error is not None:  # the whole chain, suppressed or not
        assert "73512" not in str(error)
        assert "secret" not in str(error)
        assert "1973" not in str(error)
        error = error.__cause__ or error.__context__


def test_a_malformed_file_is_refused_without_quoting_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,y\n1,2,3\n1,alpha-secret\n")
    schema = Schema.of(label="y", label_bounds=(0, 1), public=["a"])
    with pytest.raises(CondDPError) as caught:
        load_records(path, schema)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_nothing_that_a_fit_leaves_behind_holds_a_private_value(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1e5, size=(50, 2))
    X[:, 1] = SECRET
    y = np.full(50, SECRET)
    text = io.StringIO()
    with caplog.at_level(logging.DEBUG):
        model = PrivateRegressor(label_bounds=(0, 1e5), private_columns={1: (0, 1e5)}).fit(X, y)
    print(model, vars(model), model.guarantee_, model.ledger_, model.ledger_.entries, file=text)
    assert "73512" not in text.getvalue() + caplog.text
    scaled = (SECRET - 5e4) / 1e5
    for value in (SECRET, scaled, scaled * np.sqrt(12)):
        assert np.float64(value).tobytes() not in pickle.dumps(model)


def test_clamping_is_not_reported_record_by_record(recwarn: pytest.WarningsRecorder) -> None:
    X = np.arange(20.0)[:, None]
    inside, outside = np.linspace(0, 1, 20), np.linspace(-50, 50, 20)
    messages = []
    for y in (inside, outside):
        ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))  # without one, the second fit would warn of the joint cost
        model = PrivateRegressor(label_bounds=(0, 1), random_state=0, ledger=ledger).fit(X, y)
        messages.append((str(model.guarantee_), len(recwarn)))
    assert messages[0] == messages[1]
