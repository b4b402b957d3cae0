"""Progress of long commands: a bar on a terminal, a line now and then elsewhere, at no cost for the fit."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from conddp.algorithms import DPSGD
from conddp.bounds import Bounds
from conddp.cli import main as cli
from conddp.cli import terminal
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.planning.runner import _Clock
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.checkpoint import Checkpoint
from conddp.privacy.randomness import RandomSource
from conddp.training.loop import Callback, StepCounter

BUDGET = PrivacyBudget(1.0, 1e-6)


@pytest.fixture
def records() -> Records:
    X = np.random.default_rng(0).normal(size=(300, 3))
    return Records(PublicFeatures(X), None, Labels(X[:, 0], Bounds(-3, 3)))


def test_a_counter_sees_numbers_of_steps_and_changes_nothing(records: Records) -> None:
    seen: list[tuple[int, int]] = []
    counter = StepCounter(lambda done, total: seen.append((done, total)))
    algorithm = DPSGD(num_steps=12)
    counted = algorithm.fit(records, BUDGET, random_source=RandomSource.of(1), callback=counter)
    assert seen == [(step, 12) for step in range(1, 13)]
    plain = algorithm.fit(records, BUDGET, random_source=RandomSource.of(1))
    assert np.array_equal(counted.model.parameters, plain.model.parameters)


def test_a_checkpoint_is_not_written_at_every_step_for_a_counter(
    records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[Path] = []
    write = Checkpoint.write

    def count(self: Checkpoint) -> None:
        writes.append(self.path)
        write(self)

    monkeypatch.setattr(Checkpoint, "write", count)

    def fit(callback: Callback | None) -> int:
        writes.clear()
        DPSGD(num_steps=40).fit(records, BUDGET, callback=callback, checkpoint=tmp_path / "going")
        assert not (tmp_path / "going").exists()
        return len(writes)

    assert fit(StepCounter(lambda done, total: None)) == fit(None) < 10
    assert fit(lambda progress: None) >= 40  # what this one sees must be on disk first


def test_without_a_terminal_a_line_appears_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "LINE_EVERY", 0.1)
    with terminal.show_progress("fitting") as advance:
        time.sleep(0.25)  # nothing is reported, and still something is said
        advance(3, 9, 8.0)
        time.sleep(0.25)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "fitting" and lines[-1] == "fitting: 3 of 9, 8 s left"
    time.sleep(0.25)
    assert capsys.readouterr().err == ""  # it ends with the block


def test_lines_say_what_is_done_between_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "LINE_EVERY", 0.1)
    with terminal.show_progress("fitting") as advance:
        advance(2.6, 9, doing="choosing features")
        time.sleep(0.25)
    assert capsys.readouterr().err.splitlines()[-1] == "fitting, choosing features: 2 of 9"


def test_the_bar_of_a_learned_fit_moves_between_steps(
    table: Path, schema: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[float, int, str]] = []

    @contextmanager
    def record(title: str, *, after: float = 0.0) -> Iterator[object]:
        yield lambda done, total, left=math.nan, doing="": seen.append((done, total, doing))

    monkeypatch.setattr("conddp.cli.fitting.show_progress", record)
    arguments = ["fit", str(table), "--schema", str(schema), "--out", str(tmp_path / "m"), "--head", "additive"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    (total,) = {each[1] for each in seen}  # known from the start
    done = [each[0] for each in seen]
    assert done == sorted(done) and set(range(1, total + 1)) <= set(done)
    assert any(between != int(between) for between in done)
    assert {each[2] for each in seen} >= {"", "choosing features", "computing directions"}


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, False), (0.6, True)])
def test_a_bar_appears_only_if_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: float, shown: bool
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich take the output for a terminal
    with terminal.show_progress("fitting", after=0.2) as advance:
        advance(1, 4)
        time.sleep(seconds)
    printed = capsys.readouterr().err
    assert ("fitting" in printed) == shown
    assert ("25 %" in printed) == shown


def test_an_interrupted_fit_with_a_checkpoint_says_how_to_go_on(
    table: Path, schema: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("conddp.files.fit_file", stop)
    arguments = ["fit", str(table), "--schema", str(schema), "--out", str(tmp_path / "m"), "--checkpoint", "going"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 130 and "run the same command again" in result.stderr


def test_the_time_left_is_right_from_the_first_cell_on() -> None:
    """Two workers, eleven cells of ten seconds: after the first one the other worker is at the second."""
    clock = _Clock(11.0, 2)
    assert clock.left(1.0, 10.0) == pytest.approx(47.5)  # 9.5 cells of 10 seconds by two workers
    assert math.isfinite(clock.left(0.0, 0.0))
    alone = _Clock(4.0, 1)
    assert [alone.left(1.0, 10.0) for _ in range(4)] == [30.0, 20.0, 10.0, 0.0]
