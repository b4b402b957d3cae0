"""Ledger files: old ones, changed ones, killed writers, racing processes, and the table that a file belongs to."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conddp import CondNewton, PrivacyBudget, PrivacyLedger, PrivateRegressor
from conddp.errors import BudgetExceeded, LedgerError, PrivacyError
from conddp.privacy.chain import read_chain
from conddp.privacy.entry import LedgerEntry
from conddp.privacy.events import expect_event
from conddp.privacy.fingerprint import Fingerprint
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.witness import Witness, state_folder

ROOT = Path(__file__).resolve().parents[1]
OLD = ROOT / "tests" / "fixtures" / "ledger_format_1.jsonl"
FIT = PrivacyBudget(1.0, 1e-6)
TABLE = Fingerprint(50, ("00a1", "00b2"))


def entry(what: str = "a fit", cost: PrivacyBudget = FIT, table: Fingerprint | None = None) -> LedgerEntry:
    return LedgerEntry(what, cost, "because", {"num_steps": 3, "pair": [1, 2.5]}, event=expect_event(cost), table=table)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger file with four entries."""
    path = tmp_path / "ledger.jsonl"
    ledger = PrivacyLedger(PrivacyBudget(9.0, 1e-6), path=path)
    for number in range(4):
        ledger.spend(entry(f"fit {number}", PrivacyBudget(1.0 + number / 10, 1e-6)))
    return path


def forget(path: Path) -> None:
    """What another machine knows of a ledger: nothing."""
    Witness.path(json.loads(path.read_text().splitlines()[0])["id"]).unlink()


def test_events_and_tables_come_back_from_the_file(tmp_path: Path) -> None:
    ledger = PrivacyLedger(PrivacyBudget(9.0, 1e-5), path=tmp_path / "l.jsonl", unit="person")
    ledger.spend(entry(table=TABLE), unit="person")
    again = PrivacyLedger.load(tmp_path / "l.jsonl")
    assert again.entries == ledger.entries and again.unit == "person"
    assert again.entries[0].table == TABLE and again.entries[0].event == expect_event(FIT)
    assert (again.spent, again.remaining) == (ledger.spent, ledger.remaining)


def edit(lines: list[str]) -> list[str]:
    return [*lines[:2], lines[2].replace('"epsilon": 1.1', '"epsilon": 0.1'), *lines[3:]]


def take_from_elsewhere(lines: list[str]) -> list[str]:
    """A well-formed entry of another ledger with its own valid digest."""
    folder = Path(os.environ["CONDDP_STATE"])
    other = folder / "other.jsonl"
    other.unlink(missing_ok=True)
    PrivacyLedger(PrivacyBudget(9.0, 1e-6), path=other).spend(entry("fit 0"))
    return [lines[0], other.read_text().splitlines()[1], *lines[2:]]


@pytest.mark.parametrize(
    ("change", "line"),
    {
        "edited": (edit, 3),
        "other budget": (lambda lines: [lines[0].replace("9.0", "99.0"), *lines[1:]], 1),
        "other relation": (lambda lines: [lines[0].replace("replace", "zero-out"), *lines[1:]], 1),
        "other unit": (lambda lines: [lines[0].replace("null", '"person"'), *lines[1:]], 1),
        "reordered": (lambda lines: [*lines[:2], lines[3], lines[2], lines[4]], 3),
        "one removed": (lambda lines: [*lines[:2], *lines[3:]], 3),
        "first removed": (lambda lines: [lines[0], *lines[2:]], 2),
        "one twice": (lambda lines: [*lines[:3], lines[2], *lines[3:]], 4),
        "from another ledger": (take_from_elsewhere, 2),
        "without digest": (
            lambda lines: [*lines[:4], json.dumps({k: v for k, v in json.loads(lines[4]).items() if k != "digest"})],
            5,
        ),
        "no header": (lambda lines: lines[1:], 1),
        "not json": (lambda lines: [*lines[:3], "{", lines[4]], 4),
        "not an object": (lambda lines: [*lines[:3], "[]", lines[4]], 4),
    }.values(),
)
@pytest.mark.parametrize("machine", ["same", "another"])
def test_a_changed_file_is_refused_with_the_line_and_what_to_do(
    path: Path, change: Any, line: int, machine: str
) -> None:
    ledger = PrivacyLedger.load(path)
    if machine == "another":
        forget(path)
    changed = "\n".join(change(path.read_text().splitlines())) + "\n"
    assert changed != path.read_text()
    path.write_text(changed)
    for attempt in (lambda: PrivacyLedger.load(path), lambda: ledger.spend(entry())):
        with pytest.raises(LedgerError, match=rf"line {line} of the ledger .* Restore the file"):
            attempt()
    assert path.read_text() == changed


@pytest.mark.parametrize("kept", [1, 2, 4])
def test_a_file_cut_at_its_end_is_refused_where_it_was_written(path: Path, kept: int) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:kept]))
    with pytest.raises(LedgerError, match=r"has lost entries since this machine last wrote to it.*Restore the file"):
        PrivacyLedger.load(path)
    forget(path)  # nothing is known of it elsewhere, and a file alone cannot tell
    assert len(PrivacyLedger.load(path).entries) == kept - 1


def test_another_continuation_of_the_same_file_is_refused(path: Path) -> None:
    before = path.read_bytes()
    PrivacyLedger.load(path).spend(entry("here"))
    path.write_bytes(before)
    forget(path)
    PrivacyLedger.load(path).spend(entry("there"))
    there = path.read_bytes()
    path.write_bytes(before)
    forget(path)
    PrivacyLedger.load(path).spend(entry("here"))
    path.write_bytes(there)
    with pytest.raises(LedgerError, match="was changed since this machine"):
        PrivacyLedger.load(path)


def test_a_file_that_was_continued_on_another_machine_is_accepted(path: Path) -> None:
    witness = Witness.path(json.loads(path.read_text().splitlines()[0])["id"])
    before = witness.read_text()
    PrivacyLedger.load(path).spend(entry("elsewhere"))
    witness.write_text(before)
    assert len(PrivacyLedger.load(path).entries) == 5


def test_an_open_ledger_notices_a_loss_even_without_a_witness(path: Path) -> None:
    ledger = PrivacyLedger.load(path)
    forget(path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(LedgerError, match="has lost entries since it was opened"):
        ledger.spend(entry())


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"num_lines": true, "digest": ""}', "\x00"])
def test_a_damaged_witness_is_no_witness(path: Path, content: str) -> None:
    Witness.path(json.loads(path.read_text().splitlines()[0])["id"]).write_text(content)
    PrivacyLedger.load(path).spend(entry())


def test_a_state_folder_that_cannot_be_written_is_no_error(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CONDDP_STATE", str(tmp_path / "file" / "folder"))
    PrivacyLedger.load(path).spend(entry())
    assert len(PrivacyLedger.load(path).entries) == 5


def test_the_state_folder_is_where_it_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDDP_STATE", "/elsewhere")
    assert state_folder() == Path("/elsewhere")
    monkeypatch.delenv("CONDDP_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", "/states")
    assert state_folder() == Path("/states/conddp")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_folder() == Path.home() / ".local" / "state" / "conddp"


def test_an_identity_that_is_a_path_finds_no_witness(tmp_path: Path) -> None:
    assert Witness.load("../../etc/passwd") is None


def test_an_old_ledger_adds_as_before_and_can_be_continued(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_bytes(OLD.read_bytes())
    ledger = PrivacyLedger.load(path)
    assert ledger.spent == PrivacyBudget(0.75, 1e-6) == ledger.plain_sum
    assert ledger.num_unchained == len(ledger.entries) == 4
    with pytest.raises(BudgetExceeded):
        ledger.spend(entry(cost=PrivacyBudget(1.3, 1e-5)))
    rest = ledger.remaining
    assert 1.24 < rest.epsilon < 1.25  # what basic composition leaves, 1.25, at a delta of 9e-6 instead of 1e-5
    ledger.spend(entry("new", rest))
    assert path.read_bytes().startswith(OLD.read_bytes())
    again = PrivacyLedger.load(path)
    assert [each.what for each in again.entries][-1] == "new" and again.num_unchained == 4
    assert again.remaining.epsilon < 1e-3
    changed = path.read_text().replace('"epsilon": 0.5', '"epsilon": 0.4')  # an old line, which the chain now covers
    path.write_text(changed)
    with pytest.raises(LedgerError, match="line 6 of the ledger"):
        PrivacyLedger.load(path)
    path.write_bytes(OLD.read_bytes())
    with pytest.raises(LedgerError, match="lost entries"):
        again.check("a fit", PrivacyBudget(0.1, 0.0), Neighbouring.REPLACE)


def test_a_copy_is_chained_and_stays_a_copy(path: Path, tmp_path: Path) -> None:
    ledger = PrivacyLedger.load(path)
    ledger.write_copy(tmp_path / "copy.jsonl")
    ledger.spend(entry("later"))  # the witness has moved on, but a copy is older by nature
    copy = PrivacyLedger.load(tmp_path / "copy.jsonl")
    assert copy.entries == ledger.entries[:-1]
    with pytest.raises(LedgerError, match="copy of a ledger"):
        copy.spend(entry())
    text = (tmp_path / "copy.jsonl").read_text()
    (tmp_path / "copy.jsonl").write_text(text.replace(', "copy": true', ""))
    with pytest.raises(LedgerError, match="line 1"):
        PrivacyLedger.load(tmp_path / "copy.jsonl")


def test_an_incomplete_line_is_left_out_and_removed_by_the_next_entry(path: Path) -> None:
    before = path.read_bytes()
    PrivacyLedger.load(path).spend(entry("interrupted"))
    line = path.read_bytes()[len(before) :]
    for length in range(1, len(line)):
        path.write_bytes(before)
        forget(path)
        Witness(5, read_chain(path, newest=2).digest).write(json.loads(before.splitlines()[0])["id"])
        path.write_bytes(before + line[:length])
        whole = ["interrupted"] if length == len(line) - 1 else []  # only its line break is missing: it counts
        assert len(PrivacyLedger.load(path).entries) == 4 + len(whole)
        if length % 40 == 1 or whole:
            PrivacyLedger.load(path).spend(entry("next"))
            assert [each.what for each in PrivacyLedger.load(path).entries][3:] == ["fit 3", *whole, "next"]
            assert path.read_bytes().startswith(before) and path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("length", [0, 1, 40])
def test_a_file_that_was_being_created_says_that_nothing_was_spent(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(LedgerError, match="nothing was spent: remove it and create it again"):
        PrivacyLedger.load(path)


def run_processes(folder: Path, *arguments: object) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.ledger_processes", str(arguments[0]), str(folder), *map(str, arguments[1:])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kills", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_every_spend_that_returned_is_in_the_file_after_a_kill(tmp_path: Path, kills: int) -> None:
    counts = run_processes(tmp_path, "kill", kills)
    assert counts["kills"] == kills and counts["lost"] == 0
    assert counts["in the file"] >= counts["returned"] > kills / 4
    assert counts["incomplete lines"] > kills / 50  # else the kills were too late or too early to show anything


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("rounds", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_processes_that_race_for_four_fits_get_four(tmp_path: Path, rounds: int) -> None:
    counts = run_processes(tmp_path, "race", rounds, 8)
    assert counts["most in a round"] == 4
    assert counts["accepted"] == counts["in the file"] == 4 * rounds


def make_table(n: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, X.sum(axis=1)


def fit(ledger: PrivacyLedger, X: np.ndarray, y: np.ndarray) -> None:
    PrivateRegressor(epsilon=0.1, label_bounds=(-5, 5), ledger=ledger).fit(X, y)


def test_a_file_belongs_to_one_table(tmp_path: Path) -> None:
    X, y = make_table()
    path = tmp_path / "l.jsonl"
    ledger = PrivacyLedger(PrivacyBudget(9.0, 1e-5), path=path)
    fit(ledger, X, y)
    order = np.random.default_rng(1).permutation(len(X))
    for same in (X, X[order], X[:, :1], np.column_stack([X[:, 2], y**2]), X.astype(np.float64, order="F")):
        fit(PrivacyLedger.load(path), same, y)
    spent = ledger.plain_sum
    for other in (make_table(seed=1), make_table(n=81), (X[:40], y[:40]), (np.vstack([X, X]), np.r_[y, y])):
        with pytest.raises(LedgerError, match=r"belongs to another table: .* Open a new ledger .*other_rows=True"):
            fit(PrivacyLedger.load(path), *other)
    assert PrivacyLedger.load(path).plain_sum == spent and spent.epsilon == pytest.approx(6 * 0.1)
    fit(PrivacyLedger.load(path, other_rows=True), X[:40], y[:40])
    fit(PrivacyLedger.load(path), X[:40], y[:40])  # known from now on


def test_a_ledger_in_memory_does_not_bind() -> None:
    ledger = PrivacyLedger(PrivacyBudget(9.0, 1e-5))
    fit(ledger, *make_table())
    fit(ledger, *make_table(n=40))
    assert all(each.table is None for each in ledger.entries)


def test_free_entries_and_entries_without_a_table_bind_nothing(tmp_path: Path) -> None:
    ledger = PrivacyLedger(PrivacyBudget(9.0, 1e-5), path=tmp_path / "l.jsonl")
    ledger.spend(entry("by hand"))
    ledger.spend(entry(table=TABLE))
    ledger.spend(entry("by hand"))
    with pytest.raises(LedgerError, match="another table"):
        ledger.spend(entry(table=Fingerprint(50, ("00c3",))))


def test_a_fingerprint_sees_values_and_nothing_else() -> None:
    X, _ = make_table()
    whole = Fingerprint.of(X)
    assert whole == Fingerprint.of(X[::-1, ::-1]) == Fingerprint.of(np.asfortranarray(X))
    assert whole.num_records == 80 and len(whole.columns) == 3
    assert len(set(Fingerprint.of(X + 1e-15).columns) & set(whole.columns)) < 3
    changed = X.copy()
    changed[7, 1] = np.nextafter(changed[7, 1], 9)
    assert len(set(Fingerprint.of(changed).columns) & set(whole.columns)) == 2
    assert Fingerprint.of(np.zeros((9, 2))) == Fingerprint.of(np.full((9, 1), 7.0)) == Fingerprint(9, ())  # constants
    assert Fingerprint.of(np.array([[0.0], [1.0]])) == Fingerprint.of(np.array([[-0.0], [1.0]]))
    single = X.astype(np.float32)
    assert Fingerprint.of(single) == Fingerprint.of(single.astype(np.float64))
    large = np.random.default_rng(0).normal(size=(70_000, 1))  # several blocks
    assert Fingerprint.of(large) == Fingerprint.of(np.random.default_rng(1).permutation(large))
    assert Fingerprint.of(np.zeros((5, 0))).matches(Fingerprint(5, ("ab",)))


def test_labels_and_private_columns_do_not_enter_the_fingerprint(tmp_path: Path) -> None:
    X, y = make_table()
    prints = []
    for number, private in enumerate((X[:, 0], X[:, 0] + 1)):
        ledger = PrivacyLedger(PrivacyBudget(9.0, 1e-5), path=tmp_path / f"{number}.jsonl")
        model = PrivateRegressor(label_bounds=(-5, 5), private_columns={2: (-9, 9)}, ledger=ledger)
        model.fit(np.column_stack([X[:, :2], private]), y + number)
        prints += [each.table for each in ledger.entries if each.table is not None]
    assert len(prints) == 2 and prints[0] == prints[1] == Fingerprint.of(X[:, :2])


def test_units_do_not_mix(tmp_path: Path) -> None:
    ledger = PrivacyLedger(PrivacyBudget(9.0, 1e-5), unit="person")
    with pytest.raises(PrivacyError, match="all rows with the same 'person', but a fit was requested for one record"):
        ledger.spend(entry())
    with pytest.raises(PrivacyError, match="use one ledger for each"):
        ledger.check("a fit", FIT, Neighbouring.REPLACE, unit="household")
    ledger.spend(entry(), unit="person")
    PrivacyLedger(PrivacyBudget(9.0, 1e-5)).spend(entry(), unit="person")  # protects each record of a person too


def test_a_file_that_is_replaced_while_a_writer_waits_is_opened_anew(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    ledger, content = PrivacyLedger.load(path), path.read_bytes()
    calls: list[int] = []

    def replace_once(*_: object) -> None:
        if not calls:
            (tmp_path / "backup").write_bytes(content)
            os.replace(tmp_path / "backup", path)
        calls.append(1)

    monkeypatch.setattr(fcntl, "flock", replace_once)
    ledger.spend(entry("after the backup"))
    assert len(calls) == 2
    assert PrivacyLedger.load(path).entries[-1].what == "after the backup"


def test_a_fit_is_refused_on_a_damaged_ledger_before_labels_are_used(path: Path) -> None:
    X, y = make_table()
    ledger = PrivacyLedger.load(path)
    path.write_text("\n".join(edit(path.read_text().splitlines())) + "\n")
    with pytest.raises(LedgerError, match="line 3"):
        fit(ledger, X, y)
    assert CondNewton().expect(FIT) == expect_event(FIT)


def test_an_open_ledger_shows_what_other_processes_have_spent(path: Path) -> None:
    one, other = PrivacyLedger.load(path), PrivacyLedger.load(path)
    before = other.spent.epsilon
    one.spend(entry("by one"))
    assert other.entries[-1].what == "by one"
    assert other.spent.epsilon == one.spent.epsilon > before
    assert other.remaining == one.remaining


def test_a_ledger_whose_delta_protects_nobody_is_not_created(tmp_path: Path) -> None:
    for budget in (PrivacyBudget(2.0, 0.5), PrivacyBudget(0.0, 1e-6)):
        with pytest.raises(ValueError, match="an epsilon above 0 and a delta below 0.1"):
            PrivacyLedger(budget, path=tmp_path / "ledger.jsonl")
    assert not (tmp_path / "ledger.jsonl").exists()


def test_two_handles_show_the_same_numbers_at_any_time(path: Path) -> None:
    one, other = PrivacyLedger.load(path), PrivacyLedger.load(path)
    before = {name: getattr(other, name) for name in ("entries", "plain_sum", "spent", "remaining")}
    for name, seen in before.items():  # each read first after the change, by its own handle
        fresh = PrivacyLedger.load(path)
        assert getattr(fresh, name) == getattr(other, name)
        one.spend(entry(f"for {name}", PrivacyBudget(0.1, 1e-9)))
        assert getattr(fresh, name) == getattr(one, name) == getattr(other, name) != seen
    assert repr(other) == repr(one)
    other = PrivacyLedger.load(path)
    one.spend(entry("for the copy", PrivacyBudget(0.1, 1e-9)))
    other.write_copy(path.parent / "copy.jsonl")
    assert "for the copy" in (path.parent / "copy.jsonl").read_text()


def test_a_handle_sees_what_another_process_has_spent(path: Path) -> None:
    ledger = PrivacyLedger.load(path)
    spent = ledger.plain_sum.epsilon
    program = (
        "import sys; from conddp import PrivacyBudget, PrivacyLedger; from conddp.privacy.entry import LedgerEntry\n"
        "PrivacyLedger.load(sys.argv[1]).spend(LedgerEntry('elsewhere', PrivacyBudget(0.5, 0.0)))"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, cwd=ROOT)
    assert ledger.plain_sum.epsilon == pytest.approx(spent + 0.5)
    assert ledger.entries[-1].what == "elsewhere"


def test_an_unchanged_file_is_not_read_again_to_be_shown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger.load(path)
    shown = repr(ledger)
    monkeypatch.setattr("conddp.privacy.ledger_file.read_chain", None)
    assert repr(ledger) == shown
