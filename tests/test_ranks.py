"""Fits that are divided over ranks, as threads here; ``test_rank_processes.py`` has real processes."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conddp import CondDP, CondNewton, PrivacyBudget, PrivacyLedger, PrivateRegressor, SwitchCondDP
from conddp.algorithms import DPSGD, Auto
from conddp.algorithms.algorithm import Algorithm
from conddp.bounds import Bounds
from conddp.data import Labels, PublicFeatures, Records, Schema
from conddp.data.stored_labels import open_labels
from conddp.errors import BudgetExceeded, PrivacyWarning, RankLost, RankMismatch
from conddp.features.stored_reading import open_records
from conddp.heads import MLP, FactorizationMachine, Head, Linear
from conddp.models.result import FitResult
from conddp.privacy import Curator, RandomSource
from conddp.training.loop import train
from conddp.training.ranks import Ranks, Share
from conddp.training.sampling import PoissonSampler
from tests.rank_threads import BUDGET, ThreadLink, make_records, run_ranks

SAMPLED = CondDP(num_steps=6, batch_size=40)  # one calibration for all tests
CASES: dict[str, tuple[Algorithm, Head, str]] = {
    "linear, full batch": (DPSGD(num_steps=6), Linear(), ""),
    "mlp, sampled, private columns": (SAMPLED, MLP(hidden=(4,)), "private"),
    "two phases": (SwitchCondDP(num_steps=6, batch_size=40), MLP(hidden=(3,)), ""),
    "factorization machine": (DPSGD(num_steps=6, batch_size=40), FactorizationMachine(rank=2), ""),
    "units": (CondDP(num_steps=6, batch_size=20), Linear(), "units"),
    "units, full batch": (DPSGD(num_steps=6), MLP(hidden=(3,)), "units"),
    "weights": (SAMPLED, Linear(), "weights"),
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("case", CASES)
def test_several_ranks_give_the_result_of_one_process(case: str, size: int, tmp_path: Path) -> None:
    algorithm, head, kind = CASES[case]
    records = make_records(kind)
    ledgers = [PrivacyLedger(BUDGET, unit=records.schema.unit) for _ in range(size)]

    def fit(rank: int) -> FitResult:
        source = RandomSource.of(7) if rank == 0 else RandomSource.of(rank)  # only that of rank 0 is used
        return algorithm.fit(records, BUDGET, head=head, random_source=source, ledger=ledgers[rank])

    alone = algorithm.fit(records, BUDGET, head=head, random_source=RandomSource.of(7))
    results = run_ranks(size, fit)
    for result in results:
        assert isinstance(result, FitResult), result
        np.testing.assert_array_equal(result.model.parameters, results[0].model.parameters)
        assert (result.guarantee, result.transcript) == (alone.guarantee, alone.transcript)
        assert [entry.cost for entry in result.ledger.entries] == [entry.cost for entry in ledgers[0].entries]
    scale = np.abs(alone.model.parameters).max()  # sums in another order differ by rounding, 1e-16 per step
    np.testing.assert_allclose(results[0].model.parameters, alone.model.parameters, rtol=0, atol=1e-10 * scale)
    assert ledgers[0].spent == BUDGET
    assert all(not ledger.entries for ledger in ledgers[1:])


def test_unseeded_ranks_draw_the_same_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[int, list[Any]] = {}
    draw = PoissonSampler.draw

    def watched(self: PoissonSampler) -> Any:
        drawn.setdefault(threading.get_ident(), []).append(draw(self))
        return drawn[threading.get_ident()][-1]

    monkeypatch.setattr(PoissonSampler, "draw", watched)
    run_ranks(2, lambda _: SAMPLED.fit(make_records(), BUDGET))
    first, second = drawn.values()
    assert len(first) == len(second) == 6
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


class Keeping(Curator):
    """A curator that keeps what it is given and what it releases."""

    kept: list[tuple[Any, Any, Any]]

    def release_gaussian(self, bounded: Any, *, noise_std: Any, sampling_probability: float = 1.0) -> Any:
        total = np.array(bounded.value)
        noisy = super().release_gaussian(bounded, noise_std=noise_std, sampling_probability=sampling_probability)
        self.kept.append((total, noisy - total, np.asarray(noise_std)))
        return noisy


class Forbidden(Curator):
    """A curator that other ranks must not have."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        raise AssertionError("a rank other than 0 has a curator")


def fit_watched(size: int, records: Sequence[Records], algorithm: Algorithm, **more: Any) -> list[tuple[Any, Any, Any]]:
    kept: list[tuple[Any, Any, Any]] = []
    keeping = type("Kept", (Keeping,), {"kept": kept})

    def fit(rank: int) -> FitResult:
        curator: type[Curator] = keeping if rank == 0 else Forbidden
        return algorithm.fit(records[rank], BUDGET, curator_class=curator, **more)

    for outcome in run_ranks(size, fit):
        assert isinstance(outcome, FitResult), outcome
    return kept


@pytest.mark.parametrize("size", [1, 2, 3])
def test_noise_is_drawn_once_on_rank_0(size: int) -> None:
    """Labels in the middle of their range and weights of zero: the first sum is zero, and the rest is noise."""
    rng = np.random.default_rng(0)
    records = Records(PublicFeatures(rng.normal(size=(120, 101))), None, Labels(np.zeros(120), Bounds(-1, 1)))
    ratios = []
    for _ in range(20):
        (total, noise, noise_std), *_ = fit_watched(size, [records] * size, DPSGD(num_steps=1))
        assert not total.any()
        ratios.append(noise / noise_std)
    # 2,040 squares of standard normal variables: the mean is off by 0.16 with probability below 1e-6
    assert np.mean(np.square(ratios)) == pytest.approx(1.0, abs=0.16)


def test_private_values_of_other_ranks_are_not_used() -> None:
    records, other = make_records("private"), make_records("private", seed=1)
    algorithm, source = SAMPLED, RandomSource.for_neighbours(3)
    half = records.num_records // 2

    def mix(first: Records, second: Records) -> Records:
        label = replace(first.label, values=np.r_[first.label.values[:half], second.label.values[half:]])
        assert first.private is not None and second.private is not None
        cells = np.vstack([first.private.values[:half], second.private.values[half:]])
        return replace(records, label=label, private=replace(first.private, values=cells))

    whole = fit_watched(2, [records, records], algorithm, random_source=source)
    parts = fit_watched(2, [mix(records, other), mix(other, records)], algorithm, random_source=source)
    for (total, noise, _), (again, same, _) in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(total, again)
        np.testing.assert_array_equal(noise, same)


@pytest.mark.parametrize("place", [0, 101, 102, 202])
def test_one_label_moves_the_sum_of_all_ranks_by_at_most_the_sensitivity(place: int) -> None:
    records, clip_norm = make_records(), 0.3
    low, high = records.label.values.copy(), records.label.values.copy()
    low[place], high[place] = -4, 4
    totals = []
    for values in (low, high):
        given_ = replace(records, label=replace(records.label, values=values))
        algorithm = DPSGD(num_steps=1, clip_norm=clip_norm)
        (total, _, _), *_ = fit_watched(2, [given_] * 2, algorithm, random_source=RandomSource.for_neighbours(1))
        totals.append(total)
    move = np.linalg.norm(totals[0] - totals[1])
    assert 0.5 * clip_norm < move <= 2 * clip_norm * (1 + 1e-9)


def test_no_rank_reads_private_values_before_the_cost_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, recorded = PrivacyLedger(BUDGET), []

    def watched(*args: Any, **settings: Any) -> Any:
        recorded.append(ledger.spent)
        return open_labels(*args, **settings)

    monkeypatch.setattr("conddp.algorithms.descent.open_labels", watched)
    records = make_records()

    def fit(rank: int, used: PrivacyLedger) -> FitResult:
        return DPSGD(num_steps=2).fit(records, BUDGET, ledger=used if rank == 0 else None)

    run_ranks(3, lambda rank: fit(rank, ledger))
    assert recorded == [BUDGET] * 3
    poor = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    refused, *others = run_ranks(3, lambda rank: fit(rank, poor))
    assert isinstance(refused, BudgetExceeded)
    assert all(isinstance(other, RankLost) and "ended with BudgetExceeded" in str(other) for other in others)
    assert len(recorded) == 3


OTHERS: dict[str, dict[str, Any]] = {
    "algorithm": {"algorithm": DPSGD(num_steps=3, clip_norm=0.5)},
    "budget": {"budget": PrivacyBudget(1.9, 1e-6)},
    "head": {"head": MLP(hidden=(4,))},
    "fit_intercept": {"fit_intercept": False},
    "number of records": {"records": make_records(n=204)},
    "public values, units or weights": {"records": make_records(seed=1)},
    "columns and bounds": {
        "records": replace(make_records(), label=Labels(make_records().label.values, Bounds(-4, 5)))
    },
}


@pytest.mark.parametrize("what", OTHERS)
def test_ranks_with_other_settings_are_refused_before_anything_is_spent(what: str) -> None:
    ledger = PrivacyLedger(PrivacyBudget(5.0, 1e-5))
    usual = {"algorithm": DPSGD(num_steps=3), "budget": BUDGET, "head": MLP(hidden=(3,)), "fit_intercept": True}

    def fit(rank: int) -> Any:
        settings = {"records": make_records(), **usual, **(OTHERS[what] if rank == 1 else {})}
        algorithm, records, budget = (settings.pop(name) for name in ("algorithm", "records", "budget"))
        return algorithm.fit(records, budget, ledger=ledger, **settings)

    for outcome in run_ranks(3, fit):
        assert isinstance(outcome, RankMismatch)
        assert what in str(outcome) and "rank 1" in str(outcome) and "rank 2" not in str(outcome)
    assert not ledger.entries


def test_a_rank_with_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import conddp.algorithms.dividing as dividing

    names = {0: "1.0", 1: "1.1"}
    here = threading.local()
    monkeypatch.setattr(dividing, "version", lambda package: names[here.rank] if package == "numpy" else "1.0")

    def fit(rank: int) -> Any:
        here.rank = rank
        return DPSGD(num_steps=1).fit(make_records(), BUDGET)

    assert all("versions" in str(outcome) and isinstance(outcome, RankMismatch) for outcome in run_ranks(2, fit))


def test_a_callback_stops_all_ranks() -> None:
    def fit(_: int) -> FitResult:
        return SwitchCondDP(num_steps=8).fit(make_records(), BUDGET, callback=lambda progress: progress.step == 2)

    for result in run_ranks(2, fit):
        assert sum(release.count for release in result.transcript) == 2


def test_the_estimator_is_fitted_on_every_rank_with_a_ledger_that_cannot_be_spent(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 2)), rng.normal(size=(120, 2))
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(PrivacyBudget(3.0, 1e-5), path=path)

    def fit(rank: int) -> PrivateRegressor:
        ledger = PrivacyLedger.load(path)
        model = PrivateRegressor(
            2.0, algorithm=DPSGD(num_steps=3), label_bounds=(-3, 3), ledger=ledger, random_state=rank
        )
        return model.fit(X, y)

    models = run_ranks(2, fit)
    np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X))
    assert str(models[0].guarantee_) == str(models[1].guarantee_)
    assert models[1].ledger_.is_copy and not models[0].ledger_.is_copy
    assert sum(entry.cost.epsilon > 0 for entry in PrivacyLedger.load(path).entries) == 2  # one per label


@pytest.mark.parametrize("algorithm", [CondNewton(), Auto()])
def test_algorithms_of_one_process_are_refused(algorithm: Algorithm) -> None:
    for outcome in run_ranks(2, lambda _: algorithm.fit(make_records(), BUDGET)):
        assert isinstance(outcome, ValueError) and "Use DPSGD, CondDP or SwitchCondDP" in str(outcome)


def test_a_head_that_other_processes_cannot_import_is_refused() -> None:
    class Local(Linear):
        pass

    for outcome in run_ranks(2, lambda _: DPSGD(num_steps=1).fit(make_records(), BUDGET, head=Local())):
        assert isinstance(outcome, ValueError) and "top level of a module" in str(outcome)


def test_more_ranks_than_records_are_refused() -> None:
    for outcome in run_ranks(3, lambda _: DPSGD(num_steps=1).fit(make_records(n=2), BUDGET)):
        assert isinstance(outcome, ValueError) and "2 records cannot be divided over 3 ranks" in str(outcome)


def test_fits_that_processes_make_separately_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    model = PrivateRegressor(algorithm=DPSGD(num_steps=1), label_bounds=(-3, 3))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(PrivacyWarning, match="each of them makes this fit"):
        model.fit(X, X[:, 0])


@given(n=st.integers(1, 50), size=st.integers(1, 6), seed=st.integers(0, 99))
def test_shares_divide_the_records_and_their_samples(n: int, size: int, seed: int) -> None:
    drawn = np.flatnonzero(np.random.default_rng(seed).random(n) < 0.4)
    shares = [Share(Ranks(ThreadLink(rank, size, {}, set())), n) for rank in range(size)]
    covered = [place for share in shares for place in range(n)[share.span]]
    assert covered == list(range(n))
    np.testing.assert_array_equal(np.concatenate([each.select(drawn) + each.span.start for each in shares]), drawn)


def test_the_rounding_of_rows_that_are_never_formed_is_covered_on_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.sparse import random_array

    monkeypatch.setattr("conddp.features.standardization.LARGEST_IN_MEMORY", 50)
    rows = random_array((120, 6), density=0.5, rng=np.random.default_rng(0), format="csr")
    records = Records(PublicFeatures(rows), None, Labels(np.zeros(120), Bounds(-1, 1)))
    bounds = []

    def watched(*args: Any, **more: Any) -> Any:
        bounds.append(args[3].rounding + more["rounding_elsewhere"])
        return train(*args, **more)

    monkeypatch.setattr("conddp.algorithms.descent.train", watched)
    CondDP(num_steps=2).fit(records, BUDGET)
    assert isinstance(run_ranks(2, lambda _: CondDP(num_steps=2).fit(records, BUDGET))[0], FitResult)
    alone, together = bounds
    assert 0.5 * alone < together < 2 * alone


def test_sums_of_a_table_in_files_are_covered_as_sums_of_whole_shares(tmp_path: Path) -> None:
    """A rank sums its share in one product: the smaller bound on sums of blocks would not cover its rounding."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=["a", "b", "y"])
    for part in range(3):
        frame[part * 100 : (part + 1) * 100].to_parquet(tmp_path / f"{part}.parquet", index=False)
    schema = Schema.of(label="y", label_bounds=(-3, 3), public=["a", "b"])
    seen: list[int | None] = []

    class Watching(Curator):
        def __init__(self, *args: Any, additions: int | None = None, **more: Any) -> None:
            seen.append(additions)
            super().__init__(*args, additions=additions, **more)

    def fit(rank: int) -> FitResult:
        records, _ = open_records(sorted(tmp_path.glob("*.parquet")), schema)
        source, curator = RandomSource.for_neighbours(2), Watching if rank == 0 else Forbidden
        return DPSGD(num_steps=3).fit(records, BUDGET, random_source=source, curator_class=curator)

    alone, (together, _) = fit(0), run_ranks(2, fit)
    assert isinstance(together, FitResult), together
    np.testing.assert_allclose(together.model.parameters, alone.model.parameters, rtol=1e-6, atol=1e-9)
    in_blocks, on_ranks = seen
    assert in_blocks is not None and on_ranks is None
