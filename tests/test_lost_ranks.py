"""Fits of which a rank dies or fails: all ranks end, the cost counts, and a checkpoint can be continued."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conddp import PrivacyBudget, PrivacyLedger, SwitchCondDP
from conddp.algorithms import DPSGD
from conddp.errors import RankLost
from conddp.heads import MLP
from conddp.models.result import FitResult
from conddp.training.ranks import Ranks
from tests.rank_threads import BUDGET, make_records, run_ranks


class Gone(BaseException):
    """Takes the place of a kill: nobody is told."""


def fail_in_step(monkeypatch: pytest.MonkeyPatch, rank: int, step: int, error: BaseException) -> None:
    """Let one rank fail while it computes its sum."""
    answer = Ranks.answer
    counts: dict[int, int] = {}

    def failing(self: Ranks, sums: Any) -> None:
        counts[self.rank] = counts.get(self.rank, 0) + 1
        if self.rank == rank and counts[self.rank] == step:
            raise error
        answer(self, sums)

    monkeypatch.setattr(Ranks, "answer", failing)


def test_a_rank_that_dies_ends_the_fit_and_the_cost_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_in_step(monkeypatch, 1, 5, Gone())
    monkeypatch.setattr(Ranks, "fail", lambda self, error, fail=Ranks.fail: self.rank or fail(self, error))
    ledger, records = PrivacyLedger(BUDGET), make_records()
    algorithm = SwitchCondDP(num_steps=6, batch_size=40)  # step 5 is in the second phase
    outcomes = run_ranks(3, lambda rank: algorithm.fit(records, BUDGET, ledger=ledger if rank == 0 else None))
    assert isinstance(outcomes[0], RankLost)
    assert "rank 1 has ended or does not answer in step 5. The cost is in the ledger of rank 0" in str(outcomes[0])
    assert isinstance(outcomes[1], Gone)
    assert isinstance(outcomes[2], RankLost) and "rank 0 has lost another rank in step 5" in str(outcomes[2])
    assert ledger.spent == BUDGET


def test_a_rank_that_fails_says_so_without_the_text_of_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_in_step(monkeypatch, 2, 2, MemoryError("label 3.25"))
    outcomes = run_ranks(3, lambda _: DPSGD(num_steps=4).fit(make_records(), BUDGET))
    assert isinstance(outcomes[2], MemoryError)
    assert str(outcomes[0]).startswith("rank 2 has ended with MemoryError in step 2. The cost is in the ledger")
    assert all("3.25" not in str(outcome) for outcome in outcomes[:2])


def test_a_callback_that_fails_on_rank_0_ends_all_ranks() -> None:
    def callback(progress: Any) -> None:
        raise KeyError("a")

    outcomes = run_ranks(2, lambda _: DPSGD(num_steps=4).fit(make_records(), BUDGET, callback=callback))
    assert isinstance(outcomes[0], KeyError)
    assert isinstance(outcomes[1], RankLost) and "rank 0 has ended with KeyError in step 1" in str(outcomes[1])


def test_a_rank_at_another_point_of_the_program_is_refused() -> None:
    def work(rank: int) -> Any:
        if rank == 0:
            return DPSGD(num_steps=1).fit(make_records(), BUDGET)
        raise ValueError("a script that fails on this rank only")

    lost, _ = run_ranks(2, work)
    assert isinstance(lost, RankLost)
    assert str(lost) == "rank 1 has ended or does not answer. Nothing was spent."


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_fit_that_lost_a_rank_goes_on_from_its_checkpoint(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, records = tmp_path / "checkpoint", make_records()
    ledger = PrivacyLedger(BUDGET, path=tmp_path / "ledger.jsonl")
    algorithm, seen = SwitchCondDP(num_steps=6, batch_size=40), []

    def fit(rank: int) -> FitResult:
        return algorithm.fit(
            records,
            BUDGET,
            head=MLP(hidden=(3,)),
            ledger=ledger if rank == 0 else None,
            checkpoint=file,
            callback=lambda progress: seen.append(progress.step),
        )

    with monkeypatch.context() as patch:
        fail_in_step(patch, 1, 5, MemoryError())
        outcomes = run_ranks(2, fit)
    assert "Start all ranks again with the checkpoint" in str(outcomes[0])
    assert seen == [1, 2, 3, 4]
    results = run_ranks(size, fit) if size > 1 else [fit(0)]
    assert all(isinstance(result, FitResult) for result in results), results
    assert seen == list(range(1, 7))
    assert ledger.spent == BUDGET
    assert not file.exists()
    assert sum(release.count for release in results[0].transcript) == 6


def test_no_fit_begins_after_a_rank_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_in_step(monkeypatch, 1, 1, Gone())
    monkeypatch.setattr(Ranks, "fail", lambda self, error: None)
    ledger = PrivacyLedger(PrivacyBudget(9.0, 1e-5))

    def work(rank: int) -> None:
        with suppress(RankLost):
            DPSGD(num_steps=3).fit(make_records(), BUDGET)
        DPSGD(num_steps=3).fit(make_records(), BUDGET, ledger=ledger)

    assert "Start all ranks again" in str(run_ranks(2, work)[0])
    assert not ledger.entries
