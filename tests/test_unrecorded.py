"""Warnings about what no guarantee covers."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from conddp import PrivacyBudget, PrivacyLedger, PrivateRegressor, Schema
from conddp.algorithms import unrecorded
from conddp.data.parts import PublicFeatures
from conddp.errors import PrivacyWarning
from conddp.files import fit_file
from conddp.planning.comparison import compare_algorithms


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrecorded, "_FITS", [])


@pytest.fixture
def table() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(90, 3))
    return X, X.sum(axis=1)


def fit(X: np.ndarray, y: np.ndarray, **settings: object) -> PrivateRegressor:
    return PrivateRegressor(**{"label_bounds": (-5, 5), **settings}).fit(X, y)  # type: ignore[arg-type]  # settings of different types


@pytest.mark.filterwarnings("error")
def test_a_second_fit_without_a_ledger_warns_with_the_joint_cost(table: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = table
    fit(X, y)
    for number, together in enumerate(("1.45", "1.81", "2.12"), start=2):
        with pytest.warns(PrivacyWarning, match=rf"{number} fits .* cost epsilon={together} at delta=1e-06") as caught:
            fit(X[:, :2] if number == 3 else X, y)  # fewer columns of the same records
        assert "ledger=PrivacyLedger(budget)" in str(caught[0].message)
    with pytest.warns(PrivacyWarning, match=re.escape("cost epsilon=2.37 at")):
        fit(X, y, algorithm="laplace", epsilon=0.3)


@pytest.mark.filterwarnings("error")
def test_other_records_other_relations_and_ledgers_do_not_warn(table: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = table
    fit(X, y)
    fit(X[:80], y[:80])
    fit(X**2, y)
    fit(X, y, neighbouring="zero-out")
    ledger = PrivacyLedger(PrivacyBudget(9.0, 1e-6))
    fit(X, y, ledger=ledger)
    fit(X, y, ledger=ledger)
    compare_algorithms(PublicFeatures(X), algorithms=("auto",), epsilons=(1.0,), num_draws=1, num_workers=1)


@pytest.mark.filterwarnings("error")
def test_a_fit_that_fails_after_it_has_paid_counts(
    table: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr("conddp.algorithms.cond_newton.run_newton", crash)
        with pytest.raises(RuntimeError):
            fit(*table)
    with pytest.warns(PrivacyWarning, match="2 fits"):
        fit(*table)


def test_costs_that_add_by_basic_composition_are_added(table: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = np.tile(table[0], (20, 1)), np.tile(table[1], 20)
    fit(X, y, algorithm="weighted-llp", epsilon=4.0, delta=1e-4)
    with pytest.warns(PrivacyWarning, match=r"epsilon=8 at delta=0.0002"):
        fit(X, y, algorithm="weighted-llp", epsilon=4.0, delta=1e-4)


def test_files_are_recognised_too(tmp_path: Path, table: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = table
    data = tmp_path / "t.csv"
    data.write_text("a,b,y\n" + "\n".join(f"{a},{b},{c}" for (a, b, _), c in zip(X, y, strict=True)) + "\n")
    schema = Schema.of(label="y", label_bounds=(-5, 5), public=["a", "b"])
    fit_file(data, schema, tmp_path / "one")
    with pytest.warns(PrivacyWarning, match="2 fits"):
        fit_file(data, schema, tmp_path / "two")


def test_a_score_warns_and_so_does_cross_validation(table: tuple[np.ndarray, np.ndarray]) -> None:
    model = fit(*table)
    with pytest.warns(PrivacyWarning, match="no guarantee covers"):
        score = model.score(*table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        from sklearn.metrics import r2_score

        assert score == pytest.approx(r2_score(table[1], model.predict(table[0])))
    with pytest.warns(PrivacyWarning, match="no guarantee covers"):
        cross_val_score(PrivateRegressor(label_bounds=(-5, 5)), *table, cv=3)
