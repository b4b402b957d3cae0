"""Choosing on private labels, and paying for it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conddp.algorithms import CondDP, CondNewton, OneShot, PrivateMean, RROnBins, Tuned
from conddp.algorithms.tuned import LARGEST_RESIDUAL
from conddp.bounds import Bounds
from conddp.data import Labels, PrivateFeatures, PublicFeatures, Records
from conddp.errors import PrivacyError
from conddp.privacy import Curator, Neighbouring, PrivacyBudget, PrivacyLedger, RandomSource, compute_delta
from conddp.privacy.accounting import compute_gaussian_epsilon
from conddp.report import report_fit, write_report

BUDGET = PrivacyBudget(2.0, 1e-6)
CANDIDATES = (PrivateMean(), OneShot())


def make_records(n: int = 3000, *, private: bool = False) -> Records:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = X @ [2.0, -1.0] + 0.3 * rng.normal(size=n)
    hidden = PrivateFeatures(rng.uniform(size=(n, 1)), (Bounds(0, 1),)) if private else None
    return Records(PublicFeatures(X), hidden, Labels(y, Bounds(-10, 10)))


def test_the_better_candidate_is_chosen_and_paid_for() -> None:
    ledger = PrivacyLedger(BUDGET)
    tuned = Tuned(candidates=CANDIDATES, expected_runs=20)
    result = tuned.fit(make_records(), BUDGET, ledger=ledger, random_source=RandomSource.of(1))
    assert result.settings["chosen"] == repr(OneShot())
    assert result.guarantee.budget == BUDGET
    assert ledger.spent.epsilon == pytest.approx(2.0)
    (release,) = result.transcript
    assert compute_delta(result.transcript, 2.0, Neighbouring.REPLACE) <= 1e-6 * (1 + 1e-9)
    assert compute_delta(result.transcript, 1.99, Neighbouring.REPLACE) > 1e-6
    assert "chosen by a private score" in str(result.guarantee)
    public, _, _ = result.model.compute_linear_coefficients()
    assert public == pytest.approx([2.0, -1.0], abs=0.3)


def test_a_run_costs_what_the_price_says() -> None:
    tuned = Tuned(candidates=CANDIDATES, expected_runs=10, score_fraction=0.3)
    price = tuned.compute_price(PrivacyBudget(1.0, 1e-6))
    assert price.run.epsilon == pytest.approx(compute_gaussian_epsilon(price.mu * math.sqrt(0.7), 1e-6))
    assert 0.2 < price.run.epsilon < 0.5
    dearer = Tuned(candidates=CANDIDATES, expected_runs=100).compute_price(PrivacyBudget(1.0, 1e-6))
    assert dearer.mu < price.mu


@pytest.mark.parametrize("private", [False, True])
def test_one_record_moves_a_score_by_at_most_its_sensitivity(private: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every label from end to end and beyond, for predictions everywhere in the range and private columns at their ends.
    from conddp.algorithms import tuned as module

    sums: list[float] = []

    class Watching(Curator):
        def release_gaussian(self, bounded: Any, **settings: Any) -> Any:
            sums.append(float(bounded.value[0]))
            assert bounded.sensitivity == LARGEST_RESIDUAL**2
            assert settings["noise_std"] == pytest.approx(bounded.sensitivity / 0.3)
            return super().release_gaussian(bounded, **settings)

    records = make_records(50, private=private)
    algorithm = CondDP(num_steps=4) if private else OneShot(shrink=False)
    result = algorithm.fit(records, PrivacyBudget(50.0, 1e-6))
    curator = Watching(np.random.default_rng(0), num_records=50)
    largest = 0.0
    for position in range(50):
        for label in (-1e9, -10.0, 0.0, 3.0, 10.0, 1e9):
            for hidden in (0.0, 1.0) if private else (None,):
                values = records.label.values.copy()
                values[position] = label
                columns = records.private
                if columns is not None:
                    cells = columns.values.copy()
                    cells[position] = hidden
                    columns = PrivateFeatures(cells, columns.domains)
                changed = Records(records.public, columns, Labels(values, records.label.bounds))
                module._release_score(result, changed, 0.3, curator)
        moved = max(sums) - min(sums)
        largest = max(largest, moved)
        sums.clear()
    assert 0.9 * LARGEST_RESIDUAL**2 < largest <= LARGEST_RESIDUAL**2 * (1 + 1e-9)


@pytest.mark.parametrize("candidate", [RROnBins(), CondDP(batch_size=100, num_steps=5)])
def test_candidates_that_are_not_gaussian_are_refused(candidate: Any) -> None:
    ledger = PrivacyLedger(BUDGET)
    with pytest.raises(PrivacyError, match="full-batch Gaussian sums only"):
        Tuned(candidates=(candidate,)).fit(make_records(500), BUDGET, ledger=ledger)
    with pytest.raises(PrivacyError, match="full-batch Gaussian sums only"):
        Tuned(candidates=(OneShot(), candidate)).compute_price(BUDGET)
    assert not ledger.entries


def test_candidates_may_be_named_and_the_report_says_what_was_released(tmp_path: Path) -> None:
    result = Tuned(candidates=("one-shot", "mean"), expected_runs=3).fit(make_records(300), BUDGET)  # type: ignore[arg-type]  # names stand for algorithms
    (release,) = result.transcript
    text = write_report(report_fit(result), tmp_path / "report.md").read_text()
    assert "best of 3 runs on average" in text and "none: not protected" not in text


def test_private_columns_and_the_other_relation_work() -> None:
    result = Tuned(candidates=(CondNewton(), CondDP(num_steps=16))).fit(
        make_records(500, private=True), BUDGET, neighbouring=Neighbouring.ZERO_OUT
    )
    assert result.guarantee.neighbouring is Neighbouring.ZERO_OUT


def test_a_seed_repeats_the_choice() -> None:
    tuned, records = Tuned(candidates=CANDIDATES, expected_runs=4), make_records(300)
    one, other = (tuned.fit(records, BUDGET, random_source=RandomSource.of(3)) for _ in range(2))
    assert np.array_equal(one.model.parameters, other.model.parameters)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="must be several algorithms"):
        Tuned(candidates=())
    with pytest.raises(ValueError, match="expected_runs must lie between"):
        Tuned(candidates=CANDIDATES, expected_runs=1)
