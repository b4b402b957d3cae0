"""Fits that are killed and go on: same cost, no noise repeated, nothing resumed twice."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conddp import CondDP, CondNewton, PrivacyBudget, PrivacyLedger, PrivateRegressor, SwitchCondDP
from conddp.algorithms import DPSGD, OneShot, PrivateMean, RROnBins, Tuned, WeightedLLP
from conddp.algorithms.algorithm import Algorithm
from conddp.algorithms.identity import list_private
from conddp.bounds import Bounds
from conddp.data import Labels, PrivateFeatures, PublicFeatures, Records
from conddp.errors import CheckpointError, LedgerError, PrivacyError
from conddp.heads import MLP, Additive, Head, Learned, Linear
from conddp.models.result import FitResult
from conddp.privacy import Curator, LedgerEntry, Neighbouring, RandomSource
from conddp.privacy.checkpoint import Checkpoint
from conddp.privacy.digest import update_digest
from conddp.training.loop import StepCounter

BUDGET = PrivacyBudget(4.0, 1e-6)

CASES: dict[str, tuple[Algorithm, Head, bool]] = {
    "cond-newton": (CondNewton(), Linear(), False),
    "cond-newton with private columns": (CondNewton(), Linear(), True),
    "cond-newton mlp": (CondNewton(width=30), MLP(hidden=(3,)), False),
    "cond-dp": (CondDP(num_steps=12, optimizer="adam"), Linear(), True),
    "sampled": (CondDP(num_steps=12, batch_size=40), MLP(hidden=(3,)), False),
    "switch": (SwitchCondDP(num_steps=12, optimizer_state="carry"), MLP(hidden=(3,)), True),
    "rr-on-bins": (RROnBins(), Linear(), False),
}


class Killed(Exception):  # noqa: N818  (reads as what happened)
    """Takes the place of a kill at some release."""


def make_records(*, private: bool = False, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] + 0.5 * rng.normal(size=200)
    hidden = PrivateFeatures(rng.uniform(size=(200, 1)), (Bounds(0, 1),)) if private else None
    return Records(PublicFeatures(X), hidden, Labels(y, Bounds(-4, 4)))


def make_killer(after: int, drawn: list[Any]) -> type[Curator]:
    """A curator that keeps all noise that it draws, and dies when it has drawn it so many times."""

    class Killer(Curator):
        def _answer(self, draw: Any, shape: tuple[int, ...]) -> Any:
            def watched() -> Any:
                if len(drawn) == after:
                    raise Killed
                drawn.append(np.array(draw()))
                return drawn[-1].copy()

            return super()._answer(watched, shape)

    return Killer


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("eager", [True, False])
def test_a_killed_fit_goes_on_at_no_further_cost_and_repeats_no_noise(
    case: str, eager: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = Checkpoint.close

    def die(checkpoint: Checkpoint) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "write", lambda _: None)  # a process that is killed writes nothing any more
            close(checkpoint)

    monkeypatch.setattr(Checkpoint, "close", die)
    algorithm, head, private = CASES[case]
    records, file = make_records(private=private), tmp_path / "checkpoint"
    ledger = PrivacyLedger(BUDGET, path=tmp_path / "ledger.jsonl")
    drawn: list[Any] = []
    callback = (lambda progress: None) if eager else None  # with a callback, every release is on disk before it is seen

    def fit(after: int) -> FitResult:
        return algorithm.fit(
            records,
            BUDGET,
            head=head,
            ledger=PrivacyLedger.load(ledger.path),  # type: ignore[arg-type]  # has a path
            callback=callback,
            checkpoint=file,
            curator_class=make_killer(after, drawn),
        )

    kills = (1, 3, 5) if case != "rr-on-bins" else (1,)
    for number in kills:
        with pytest.raises(Killed):
            fit(len(drawn) + number)
    result = fit(10**9)
    assert not file.exists()
    entries = PrivacyLedger.load(ledger.path).entries  # type: ignore[arg-type]  # as above
    assert sum(entry.cost.epsilon for entry in entries) == BUDGET.epsilon
    assert [entry.details.get("generation") for entry in entries if "resumed" in entry.what] == [
        number + 1 for number in range(len(kills))
    ]
    assert result.guarantee.budget == algorithm.cost(BUDGET)
    noises = {noise.tobytes() for noise in drawn}
    assert len(noises) == len(drawn)
    if eager:  # nothing was asked for twice
        assert len(drawn) == len(result.transcript)


def test_a_resumed_fit_ends_with_the_model_of_the_releases_that_were_made(tmp_path: Path) -> None:
    # All releases are on disk; what follows from them must be what an uninterrupted fit makes of them.
    records, file, drawn = make_records(), tmp_path / "checkpoint", list[Any]()
    seen: list[Any] = []

    def look(progress: Any) -> None:
        seen.append(progress.parameters.copy())
        if len(seen) == 14:  # the last one: all has been released, and the model has not been returned
            raise Killed

    with pytest.raises(Killed):
        CondNewton().fit(records, BUDGET, callback=look, checkpoint=file, curator_class=make_killer(10**9, drawn))
    before = len(drawn)
    again = CondNewton().fit(
        records, BUDGET, callback=lambda _: None, checkpoint=file, curator_class=make_killer(before, drawn)
    )
    assert len(drawn) == before == 14
    assert again.diagnostics.distances[-1] == 0.0


def make_teller(answers: list[Any], drawn: list[Any], *, known: bool) -> type[Curator]:
    """A curator that keeps its answers, or gives the answers that another one kept."""

    class Teller(Curator):
        def _answer(self, draw: Any, shape: tuple[int, ...]) -> Any:
            def tell() -> Any:
                answer = np.array(answers[len(drawn)] if known else draw())
                drawn.append(answer)
                return answer.copy()

            return super()._answer(tell, shape)

    return Teller


@pytest.mark.parametrize("way", ["callback", "step", "work"])
@pytest.mark.parametrize(("head", "private"), [(Learned(width=12), False), (Additive(width=12), True)])
def test_a_fit_that_ends_with_an_error_anywhere_goes_on_with_all_its_answers(
    head: Head, private: bool, way: str, tmp_path: Path
) -> None:
    # By an error of a callback after a release, or in long computations between releases, where users interrupt fits.
    records, answers = make_records(private=private), list[Any]()
    whole = CondNewton().fit(records, BUDGET, head=head, curator_class=make_teller([], answers, known=False))
    number, drawn, stops, runs = len(answers), list[Any](), set[Any](), 0
    assert number == len(whole.transcript) >= 14

    def stop(*place: Any) -> None:
        if place not in stops:
            stops.add(place)
            raise KeyboardInterrupt

    def look(progress: Any) -> None:
        stop(progress.step)

    callback: Any = look
    if way != "callback":
        callback = StepCounter(lambda step, _: stop(step) if way == "step" else None)
    if way == "work":
        callback = StepCounter(lambda *_: None, lambda at, _, what: stop(int(at), what))
    file = tmp_path / "checkpoint"
    while True:
        runs += 1
        try:
            result = CondNewton().fit(
                records,
                BUDGET,
                head=head,
                callback=callback,
                checkpoint=file,
                curator_class=make_teller(answers, drawn, known=True),
            )
            break
        except KeyboardInterrupt:
            assert file.exists()
    assert len(drawn) == number  # nothing was asked for twice
    assert runs == 1 + len(stops) > 10
    np.testing.assert_array_equal(result.model.parameters, whole.model.parameters)
    assert result.transcript == whole.transcript and result.diagnostics == whole.diagnostics
    assert not file.exists()


def test_changed_data_settings_or_budget_are_refused(tmp_path: Path) -> None:
    records, file = make_records(private=True), tmp_path / "checkpoint"
    with pytest.raises(Killed):
        CondDP(num_steps=8).fit(
            records, BUDGET, checkpoint=file, callback=lambda _: None, curator_class=make_killer(3, [])
        )
    before = file.read_bytes()
    y, q = records.label.values.copy(), records.private
    assert q is not None
    y[7] += 0.1
    cells = q.values.copy()
    cells[3, 0] += 0.01
    X = records.public.values.copy()
    X[1, 1] += 1e-9
    label, public = records.label, records.public
    cases: list[tuple[Algorithm, Records, PrivacyBudget, str]] = [
        (CondDP(num_steps=8), Records(public, q, Labels(y, label.bounds)), BUDGET, "other private values"),
        (
            CondDP(num_steps=8),
            Records(public, PrivateFeatures(cells, q.domains), label),
            BUDGET,
            "other private values",
        ),
        (CondDP(num_steps=8), Records(PublicFeatures(X), q, label), BUDGET, "another fit"),
        (CondDP(num_steps=9), records, BUDGET, "another fit"),
        (DPSGD(num_steps=8), records, BUDGET, "another fit"),
        (CondDP(num_steps=8), records, PrivacyBudget(5.0, 1e-6), "another fit"),
    ]
    for algorithm, changed, budget, message in cases:
        with pytest.raises(CheckpointError, match=message):
            algorithm.fit(changed, budget, checkpoint=file)
    assert file.read_bytes() == before


def test_no_copy_of_a_checkpoint_can_be_resumed(tmp_path: Path) -> None:
    # Two continuations of one fit would release more than was paid for.
    records, file, copy = make_records(), tmp_path / "checkpoint", tmp_path / "copy"
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(BUDGET, path=path)

    def fit(file: Path, after: int) -> None:
        CondDP(num_steps=8).fit(
            records,
            BUDGET,
            ledger=PrivacyLedger.load(path),
            checkpoint=file,
            callback=lambda _: None,
            curator_class=make_killer(after, []),
        )

    with pytest.raises(Killed):
        fit(file, 3)
    shutil.copy(file, copy)
    with pytest.raises(Killed):
        fit(file, 2)
    with pytest.raises(CheckpointError, match="an older copy"):
        fit(copy, 10**9)
    shutil.copy(file, copy)
    fit(file, 10**9)
    with pytest.raises(CheckpointError, match="an older copy"):
        fit(copy, 10**9)


def test_the_ledger_refuses_copies_even_if_the_record_of_progress_is_forged(tmp_path: Path) -> None:
    ledger = PrivacyLedger(BUDGET, path=tmp_path / "ledger.jsonl")
    paid = LedgerEntry("a fit", PrivacyBudget(1.0, 1e-7), details={"fit": "f"})
    ledger.spend(paid)
    relation = Neighbouring.REPLACE
    assert ledger.resume("another", 1, neighbouring=relation) is None
    assert ledger.resume("f", 1, neighbouring=relation) is not None
    for generation in (0, 1):
        with pytest.raises(LedgerError, match="is a copy"):
            ledger.resume("f", generation, neighbouring=relation)
    with pytest.raises(LedgerError, match="resumed by another process"):
        ledger.note_end("f", 0)
    with pytest.raises(PrivacyError, match="different relations"):
        ledger.resume("f", 2, neighbouring=Neighbouring.ZERO_OUT)
    ledger.note_end("f", 1)
    with pytest.raises(LedgerError, match="is a copy"):
        ledger.resume("f", 2, neighbouring=relation)
    ledger.write_copy(tmp_path / "copy.jsonl")
    with pytest.raises(LedgerError, match="nothing can be spent"):
        PrivacyLedger.load(tmp_path / "copy.jsonl").resume("f", 3, neighbouring=relation)


def test_an_older_copy_of_the_same_resumption_is_refused(tmp_path: Path) -> None:
    records, file, copy = make_records(), tmp_path / "checkpoint", tmp_path / "copy"

    def watch(progress: Any) -> None:
        if progress.step == 2:
            shutil.copy(file, copy)
        if progress.step == 6:
            raise Killed

    with pytest.raises(Killed):
        CondDP(num_steps=8).fit(records, BUDGET, checkpoint=file, callback=watch)
    shutil.copy(copy, file)
    with pytest.raises(CheckpointError, match="an older copy"):
        CondDP(num_steps=8).fit(records, BUDGET, checkpoint=file)


@pytest.mark.parametrize("algorithm", [PrivateMean(), OneShot(), CondNewton(), CondDP(num_steps=8), RROnBins()])
def test_a_fit_that_dies_while_it_delivers_delivers_the_same_model_again(algorithm: Algorithm, tmp_path: Path) -> None:
    ledger = PrivacyLedger(BUDGET, path=tmp_path / "ledger.jsonl")
    seen: list[Any] = []

    def deliver(result: FitResult) -> None:
        seen.append(result.model.parameters.copy())
        if len(seen) < 4:
            raise Killed

    for _ in range(4):
        try:
            algorithm.fit(make_records(), BUDGET, ledger=ledger, checkpoint=tmp_path / "checkpoint", deliver=deliver)
        except Killed:
            continue
    assert len(seen) == 4
    assert all(np.array_equal(each, seen[0]) for each in seen)


def test_a_fit_that_is_running_is_not_started_again(tmp_path: Path) -> None:
    records, file = make_records(), tmp_path / "checkpoint"

    def start_again(progress: Any) -> None:
        with pytest.raises(CheckpointError, match="still running"):
            CondDP(num_steps=4).fit(records, BUDGET, checkpoint=file)

    CondDP(num_steps=4).fit(records, BUDGET, checkpoint=file, callback=start_again)


def test_choices_among_runs_keep_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot keep a checkpoint"):
        Tuned(candidates=(OneShot(),)).fit(make_records(), BUDGET, checkpoint=tmp_path / "checkpoint")


def test_a_checkpoint_goes_on_with_the_ledger_that_paid(tmp_path: Path) -> None:
    records, file = make_records(), tmp_path / "checkpoint"
    ledger = PrivacyLedger(BUDGET, path=tmp_path / "ledger.jsonl")
    with pytest.raises(Killed):
        CondNewton().fit(records, BUDGET, ledger=ledger, checkpoint=file, curator_class=make_killer(3, []))
    with pytest.raises(CheckpointError, match="charged to another ledger"):
        CondNewton().fit(records, BUDGET, checkpoint=file)


def test_seeded_fits_repeat_no_noise_after_they_were_resumed(tmp_path: Path) -> None:
    # Two separately paid fits with one seed and the same records have the same noise until they are killed.
    noises: list[list[float]] = [[], []]

    def make_listener(after: int, heard: list[float]) -> type[Curator]:
        class Listener(Curator):
            def _add_normal(self, value: Any, noise_std: Any) -> Any:
                if len(heard) == after:
                    raise Killed
                noisy = super()._add_normal(value, noise_std)
                heard.append(float((noisy - value)[0, 0]) / float(np.ravel(noise_std)[0]))
                return noisy

        return Listener

    for number, after in enumerate((3, 6)):
        for stop in (after, 10**9):
            try:
                CondDP(num_steps=8).fit(
                    make_records(),
                    BUDGET,
                    checkpoint=tmp_path / str(number),
                    random_source=RandomSource.of(5),
                    callback=lambda _: None,
                    curator_class=make_listener(stop, noises[number]),
                )
            except Killed:
                continue
    one, other = noises
    assert one[:3] == pytest.approx(other[:3], abs=1e-5)
    fresh = [*other[:6], *one[3:], *other[6:]]
    assert len(fresh) == 13
    assert len({round(each, 4) for each in fresh}) == 13  # a grid of a millionth: none coincide by chance


def test_the_file_shows_no_private_value_and_no_hash_of_one(tmp_path: Path) -> None:
    records, file = make_records(), tmp_path / "checkpoint"
    with pytest.raises(Killed):
        OneShot().fit(records, BUDGET, checkpoint=file, curator_class=make_killer(0, []))
    content = file.read_bytes()
    plain = update_digest(hashlib.sha256(), list_private(records))
    assert plain.hexdigest().encode() not in content
    cells = np.ascontiguousarray(records.label.values).tobytes()
    assert hashlib.sha256(cells).hexdigest().encode() not in content
    assert records.label.values[:1].tobytes() not in content


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "metadata", "version"])
def test_damaged_files_are_refused(damage: str, tmp_path: Path) -> None:
    records, file = make_records(), tmp_path / "checkpoint"
    with pytest.raises(Killed):
        PrivateMean().fit(records, BUDGET, checkpoint=file, curator_class=make_killer(0, []))
    content = file.read_bytes()
    changed = {
        "empty": b"",
        "cut": content[:-3] if len(content) < 100 else content[:90],
        "text": b"not a checkpoint",
        "metadata": content.replace(b"generation", b"generatiom"),
        "version": content.replace(b'conddp_checkpoint\\": 1', b'conddp_checkpoint\\": 7'),
    }[damage]
    assert changed != content
    file.write_bytes(changed)
    with pytest.raises(CheckpointError, match="damaged|has format 7"):
        PrivateMean().fit(records, BUDGET, checkpoint=file)


def test_seeded_fits_can_be_resumed(tmp_path: Path) -> None:
    records, file, drawn = make_records(), tmp_path / "checkpoint", list[Any]()
    for after in (4, 10**9):
        try:
            CondDP(num_steps=8, batch_size=50).fit(
                records,
                BUDGET,
                head=MLP(hidden=(3,)),
                checkpoint=file,
                callback=lambda _: None,
                random_source=RandomSource.of(5),
                curator_class=make_killer(after, drawn),
            )
        except Killed:
            assert after == 4
    assert len(drawn) == 8 and len({noise.tobytes() for noise in drawn}) == 8


def test_single_releases_have_checkpoints_too(tmp_path: Path) -> None:
    for number, algorithm in enumerate((WeightedLLP(noise_scale=3.0), OneShot(), PrivateMean())):
        result = algorithm.fit(make_records(), PrivacyBudget(8.0, 1e-3), checkpoint=tmp_path / str(number))
        assert len(result.transcript) == 1
        assert not (tmp_path / str(number)).exists()


def test_the_estimator_takes_a_checkpoint(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    model = PrivateRegressor(label_bounds=(-3, 3)).fit(X, X[:, 0], checkpoint=tmp_path / "checkpoint")
    assert model.predict(X).shape == (100,)
    assert not (tmp_path / "checkpoint").exists()


SCRIPT = """
import sys
from conddp.cli.main import main
sys.argv = ["conddp", *sys.argv[1:]]
main()
"""


def test_a_process_that_is_killed_again_and_again_ends_with_a_model_for_one_budget(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 2000
    X = rng.normal(size=(n, 6))
    y = X[:, 0] + np.sin(X[:, 1])
    rows = "\n".join(",".join(f"{cell:.6f}" for cell in row) for row in np.column_stack([X, y]))
    (tmp_path / "table.csv").write_text("a,b,c,d,e,f,y\n" + rows + "\n")
    ledger = PrivacyLedger(PrivacyBudget(2.0, 1e-6), path=tmp_path / "ledger.jsonl")
    arguments = ["fit", "table.csv", "--label", "y", "--label-bounds=-4,4", "--public", "all", "--epsilon", "2"]
    arguments += [
        "--head",
        "mlp",
        "--algorithm",
        "cond-dp",
        "--ledger",
        "ledger.jsonl",
        "--checkpoint",
        "going",
        "--out",
        "model",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CONDDP_CHECKPOINT_INTERVAL": "0"}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments], cwd=tmp_path, env=environment, stderr=subprocess.PIPE
        )

    kills = 0
    while kills < 2:
        process = start()
        before, deadline = _read_progress(tmp_path / "going"), time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline and _read_progress(tmp_path / "going") == before:
            time.sleep(0.01)
        if process.poll() is not None:
            process.communicate()
            break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
    assert kills >= 1
    if not (tmp_path / "model").exists():
        process = start()
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()
    assert not (tmp_path / "going").exists()
    loaded = PrivacyLedger.load(ledger.path)  # type: ignore[arg-type]  # has a path
    assert sum(entry.cost.epsilon for entry in loaded.entries) == 2.0
    PrivateRegressor.load(tmp_path / "model")


def _read_progress(path: Path) -> Any:
    """What a checkpoint says of how far it got; None if there is none."""
    try:
        blob = path.read_bytes()
        record = json.loads(json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])["__metadata__"]["record"])
        return record["generation"], record["transcript"], len(record["questions"])
    except (OSError, ValueError, KeyError):
        return None
