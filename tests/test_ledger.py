import contextlib
import copy
import json
import multiprocessing
import os
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sklearn.base import clone

from conddp import PrivateRegressor
from conddp.errors import BudgetExceeded, LedgerError, PrivacyError
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger, Receipt
from conddp.privacy.neighbouring import Neighbouring


def entry(epsilon: float, delta: float = 1e-7) -> LedgerEntry:
    return LedgerEntry("a fit", PrivacyBudget(epsilon, delta), "because", {"num_steps": 3})


def test_costs_add_up_and_what_does_not_fit_is_refused() -> None:
    ledger = PrivacyLedger(PrivacyBudget(0.3, 1e-6))
    ledger.spend(entry(0.1))
    ledger.spend(entry(0.2))  # 0.1 + 0.2 is a little above 0.3 in floating point and must fit
    with pytest.raises(BudgetExceeded, match=r"needs epsilon=0.01 .* full-batch fit could have epsilon=0"):
        ledger.spend(entry(0.01))
    assert len(ledger.entries) == 2


def test_delta_is_refused_too() -> None:
    with pytest.raises(BudgetExceeded):
        PrivacyLedger(PrivacyBudget(10.0, 1e-6)).spend(entry(0.1, 2e-6))


def test_a_file_keeps_everything(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6), neighbouring=Neighbouring.ZERO_OUT, path=path)
    ledger.spend(entry(0.25))
    again = PrivacyLedger.load(path)
    assert again.entries == ledger.entries
    assert again.budget == ledger.budget
    assert again.neighbouring is Neighbouring.ZERO_OUT
    assert json.loads(path.read_text().splitlines()[0])["conddp_ledger"] == 2


def test_two_openings_of_one_file_see_each_other(tmp_path: Path) -> None:
    first = PrivacyLedger(PrivacyBudget(1.0, 1e-6), path=tmp_path / "l.jsonl")
    second = PrivacyLedger.load(tmp_path / "l.jsonl")
    first.spend(entry(0.7))
    with pytest.raises(BudgetExceeded):
        second.spend(entry(0.7))


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    PrivacyLedger(PrivacyBudget(1.0, 1e-6), path=tmp_path / "l.jsonl")
    with pytest.raises(LedgerError, match="exists already"):
        PrivacyLedger(PrivacyBudget(9.0, 1e-6), path=tmp_path / "l.jsonl")


@pytest.mark.parametrize(
    "damage",
    ["", "not json\n", '{"conddp_ledger": 1}\n', "\x00\n", "[" * 100_000 + "\n", None],
    ids=["empty", "no json", "no budget", "zeros", "deep", "cut off"],
)
def test_a_damaged_file_spends_nothing(tmp_path: Path, damage: str | None) -> None:
    path = tmp_path / "l.jsonl"
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6), path=path)
    ledger.spend(entry(0.1))
    path.write_text(path.read_text()[:-5] if damage is None else damage)
    before = path.read_text()
    with pytest.raises(LedgerError):
        ledger.spend(entry(0.1))
    assert path.read_text() == before


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    PrivacyLedger(PrivacyBudget(1.0, 1e-6), path=path)
    path.write_text(path.read_text().replace('"conddp_ledger": 2', '"conddp_ledger": 3'))
    with pytest.raises(LedgerError, match="Install a newer conddp"):
        PrivacyLedger.load(path)


def test_relations_do_not_mix() -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    with pytest.raises(PrivacyError, match="do not add up"):
        ledger.spend(entry(0.1), neighbouring=Neighbouring.ZERO_OUT)


def test_clones_and_copies_spend_from_the_same_budget() -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    assert clone(PrivateRegressor(ledger=ledger)).ledger is ledger
    assert copy.deepcopy(ledger) is ledger
    assert copy.copy(ledger) is ledger


def test_a_pickled_memory_ledger_can_be_read_but_not_spent() -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    ledger.spend(entry(0.1))
    loaded = pickle.loads(pickle.dumps(ledger))
    assert loaded.spent == ledger.spent
    with pytest.raises(LedgerError, match="copy"):
        loaded.spend(entry(0.1))
    ledger.spend(entry(0.1))


def test_a_pickled_file_ledger_goes_on_with_the_file(tmp_path: Path) -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6), path=tmp_path / "l.jsonl")
    pickle.loads(pickle.dumps(ledger)).spend(entry(0.9))
    with pytest.raises(BudgetExceeded):
        ledger.spend(entry(0.2))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # from Python 3.12 on
def test_a_forked_process_cannot_spend_from_memory() -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    child = os.fork()
    if child == 0:  # in the child: 0 for refused, 1 for spent
        try:
            ledger.spend(entry(0.9))
        except LedgerError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    ledger.spend(entry(0.9))


def test_threads_cannot_overspend_together() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))

            def spend(shared: PrivacyLedger = ledger) -> None:
                with contextlib.suppress(BudgetExceeded):
                    shared.spend(entry(0.6))

            threads = [threading.Thread(target=spend) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert ledger.spent.epsilon == 0.6
    finally:
        sys.setswitchinterval(before)


def test_a_file_that_lost_entries_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6), path=path)
    ledger.spend(entry(0.9))
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with pytest.raises(LedgerError, match="lost entries"):
        ledger.spend(entry(0.9))


def spend_repeatedly(path: Path) -> int:
    spent = 0
    for _ in range(20):
        try:
            PrivacyLedger.load(path).spend(entry(0.1, 0.0))
            spent += 1
        except BudgetExceeded:
            pass
    return spent


def test_processes_cannot_overspend_together(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    PrivacyLedger(PrivacyBudget(1.0, 0.0), path=path)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert sum(pool.map(spend_repeatedly, [path, path])) == 10
    assert PrivacyLedger.load(path).spent.epsilon == pytest.approx(1.0)


@pytest.mark.parametrize("amount", [(-1.0, 0.0), (float("nan"), 0.0), (1.0, 1.0), (True, 0.0)])
def test_impossible_amounts_are_refused(amount: tuple[float, float]) -> None:
    with pytest.raises(ValueError):
        PrivacyBudget(*amount)


def test_an_entry_is_forced_to_disk_before_spending_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6), path=path)
    forced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda _: forced.append(path.read_text().splitlines()[-1]))
    receipt = ledger.spend(LedgerEntry("a fit", PrivacyBudget(0.5, 1e-7)))
    assert len(forced) == 1
    assert '"a fit"' in forced[0]
    assert ledger.redeem(receipt)


def test_a_receipt_is_good_once_and_on_its_own_ledger() -> None:
    ledger, other = PrivacyLedger(PrivacyBudget(1.0, 1e-6)), PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    receipt = ledger.spend(LedgerEntry("a fit", PrivacyBudget(0.5, 1e-7)))
    assert not other.redeem(receipt)
    assert not ledger.redeem(Receipt(receipt.entry, ledger))
    assert ledger.redeem(receipt)
    assert not ledger.redeem(receipt)


def test_a_file_is_held_against_other_processes_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "ledger.jsonl"
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6), path=path)
    held: list[tuple[int, int]] = []
    monkeypatch.setattr(fcntl, "flock", lambda _, how: held.append((how, len(path.read_text().splitlines()))))
    ledger.spend(LedgerEntry("a fit", PrivacyBudget(0.5, 1e-7)))
    assert held == [(fcntl.LOCK_EX, 1)]  # before the entry is there


def test_threads_share_a_file_without_losing_entries(tmp_path: Path) -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6), path=tmp_path / "ledger.jsonl")

    def spend(_: int) -> bool:
        try:
            ledger.check("a fit", PrivacyBudget(0.1, 1e-8), ledger.neighbouring)
            ledger.spend(LedgerEntry("a fit", PrivacyBudget(0.1, 1e-8)))
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(spend, range(40))) == 10
    assert len(ledger.entries) == len(PrivacyLedger.load(tmp_path / "ledger.jsonl").entries) == 10
