"""Ledgers and choices for fits that protect all records of a person."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conddp import PrivacyBudget, PrivacyLedger, PrivateRegressor
from conddp.algorithms import OneShot, PrivateMean, Tuned
from conddp.algorithms.tuned import LARGEST_RESIDUAL
from conddp.bounds import Bounds
from conddp.data import Labels, PublicFeatures, Records, Schema
from conddp.data.units import Units
from conddp.errors import PrivacyError
from conddp.files import fit_file
from conddp.privacy import Curator


def make_table() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    return X, X[:, 0] + 0.1 * rng.normal(size=120), np.repeat(np.arange(40), 3)


def test_a_ledger_for_people_takes_fits_for_people_only(tmp_path: Path) -> None:
    X, y, person = make_table()
    ledger = PrivacyLedger(PrivacyBudget(2.0, 1e-6), path=tmp_path / "ledger.jsonl", unit="person")
    table = {"a": X[:, 0], "b": X[:, 1], "person": person}
    model = PrivateRegressor(label_bounds=(-3, 3), ledger=ledger, unit="person").fit(pd.DataFrame(table), y)
    assert "'person'" in str(model.guarantee_)
    with pytest.raises(PrivacyError, match="protects all rows with the same 'person'"):
        PrivateRegressor(0.1, label_bounds=(-3, 3), ledger=ledger).fit(X, y)
    assert sum(entry.cost.epsilon for entry in ledger.entries) == 1.0


def test_a_ledger_for_records_takes_fits_for_people_which_protect_more() -> None:
    X, y, person = make_table()
    ledger = PrivacyLedger(PrivacyBudget(2.0, 1e-6))
    PrivateRegressor(label_bounds=(-3, 3), ledger=ledger).fit(X, y, unit=person)
    PrivateRegressor(0.5, label_bounds=(-3, 3), ledger=ledger).fit(X, y)
    assert 1.0 < ledger.spent.epsilon < 1.5


def test_the_score_of_a_choice_is_calibrated_to_a_person() -> None:
    from conddp.algorithms import tuned

    X, y, person = make_table()
    asked: list[Any] = []

    class Watching(Curator):
        def release_gaussian(self, bounded: Any, **settings: Any) -> Any:
            asked.append((float(bounded.value[0]), bounded.sensitivity))
            return super().release_gaussian(bounded, **settings)

    def score(label: Any) -> None:
        records = Records(PublicFeatures(X), None, Labels(label, Bounds(-3, 3)), Units.of(person))
        tuned._release_score(result, records, 0.5, Watching(np.random.default_rng(0), num_records=120))

    records = Records(PublicFeatures(X), None, Labels(y, Bounds(-3, 3)), Units.of(person))
    result = PrivateMean().fit(records, PrivacyBudget(5.0, 1e-6))
    for person_label in (-3.0, 0.0, 3.0):
        changed = y.copy()
        changed[:3] = person_label
        score(changed)
    sums, sensitivities = zip(*asked, strict=True)
    assert set(sensitivities) == {3 * LARGEST_RESIDUAL**2}
    assert 0.9 * 3 * LARGEST_RESIDUAL**2 < max(sums) - min(sums) <= 3 * LARGEST_RESIDUAL**2 * (1 + 1e-9)
    chosen = Tuned(candidates=(PrivateMean(), OneShot()), expected_runs=2).fit(records, PrivacyBudget(5.0, 1e-6))
    assert chosen.guarantee.unit == "unit"


def test_a_ledger_for_people_knows_their_grouping_and_not_only_its_name() -> None:
    X, y, person = make_table()
    ledger = PrivacyLedger(PrivacyBudget(2.0, 1e-6), unit="unit")
    settings: dict[str, Any] = {"label_bounds": (-3, 3), "ledger": ledger}
    PrivateRegressor(0.5, **settings).fit(X, y, unit=person)
    with pytest.raises(PrivacyError, match="divide the records otherwise"):
        PrivateRegressor(0.5, **settings).fit(X, y, unit=np.arange(120))
    shuffled = np.random.default_rng(0).permutation(120)
    PrivateRegressor(0.5, **settings).fit(X[shuffled], y[shuffled], unit=person[shuffled])
    assert sum(entry.cost.epsilon for entry in ledger.entries) == 1.0


@pytest.mark.parametrize("algorithm", ["laplace", "rr-on-bins", "staircase"])
def test_randomised_labels_of_people_cost_what_the_ledger_says(algorithm: str) -> None:
    X, y, person = make_table()
    ledger = PrivacyLedger(PrivacyBudget(2.0, 0.0))
    PrivateRegressor(1.5, label_bounds=(-3, 3), ledger=ledger, algorithm=algorithm).fit(X, y, unit=person)
    assert ledger.plain_sum.epsilon == pytest.approx(1.5)
    assert ledger.remaining.epsilon == pytest.approx(0.5)


@pytest.mark.parametrize("max_rows", [1, 2, 5])
def test_a_file_with_a_maximum_of_rows_per_person_is_fitted_and_saved(max_rows: int, tmp_path: Path) -> None:
    X, y, person = make_table()
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "person": person, "y": y})
    table.to_csv(tmp_path / "table.csv", index=False)
    schema = Schema.of(label="y", label_bounds=(-3, 3), public=["a", "b"], unit="person", max_rows=max_rows)
    saved = fit_file(tmp_path / "table.csv", schema, tmp_path / "model")
    assert saved.guarantee.num_records == 40 * min(3, max_rows)
    assert saved.guarantee.records_per_unit == min(3, max_rows)
    assert saved.ledger.unit == "person"
