"""A delta that is too large for the number of records is refused or warned about, before anything is spent."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from conddp import PrivacyBudget, PrivacyLedger, PrivateRegressor
from conddp.cli import main as cli
from conddp.data.parts import PublicFeatures
from conddp.errors import PrivacyWarning
from conddp.planning import compare_algorithms

N = 4406
X = np.random.default_rng(0).normal(size=(N, 2))
Y = X @ [1.0, -1.0]


def test_delta_above_one_over_the_number_of_records_is_warned_about() -> None:
    expected = "with delta=0.05 and 4,406 records, releasing about 220 records outright .* such as 1e-05"
    with pytest.warns(PrivacyWarning, match=expected) as said:
        PrivateRegressor(delta=0.05, label_bounds=(-9, 9), random_state=0).fit(X, Y)
    assert said[0].filename == __file__  # the warning points to the call of fit
    with pytest.warns(PrivacyWarning, match="releasing a few records outright"):
        PrivateRegressor(delta=4 / N, label_bounds=(-9, 9), random_state=0).fit(X, Y)


@pytest.mark.parametrize(
    ("delta", "algorithm"), [(1 / N, "auto"), (1e-6, "auto"), (0.05, "rr-on-bins"), (0.5, "laplace")]
)
def test_a_small_or_unused_delta_is_not(delta: float, algorithm: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrivateRegressor(delta=delta, algorithm=algorithm, label_bounds=(-9, 9), random_state=0).fit(X, Y)


def test_a_delta_that_protects_nobody_is_refused_and_nothing_is_spent() -> None:
    ledger = PrivacyLedger(PrivacyBudget(9.0, 0.9))
    for delta in (0.1, 0.5, 0.89):
        with pytest.raises(ValueError, match=r"delta must be below 0\.1, got delta="):
            PrivateRegressor(delta=delta, label_bounds=(-9, 9), ledger=ledger).fit(X, Y)
    with pytest.raises(ValueError, match=r"delta must be below 0\.1"):
        compare_algorithms(PublicFeatures(X), delta=0.2, algorithms=["mean"])
    assert ledger.spent == PrivacyBudget(0.0, 0.0) and not ledger.entries


def test_the_warning_does_not_depend_on_private_values() -> None:
    said = []
    for label in (Y, np.zeros(N), 1e300 * Y):
        ledger = PrivacyLedger(PrivacyBudget(1.0, 0.05))
        with pytest.warns(PrivacyWarning) as warned:
            PrivateRegressor(delta=0.05, label_bounds=(-9, 9), random_state=0, ledger=ledger).fit(X, label)
        said.append([str(each.message) for each in warned])
    assert said[0] == said[1] == said[2] and len(said[0]) == 1


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_the_command_line_prints_it_without_a_place_in_the_code(
    command: str,
    table: Path,
    schema: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = [command, str(table), "--schema", str(schema), "--delta", "0.05"]
    arguments += (
        ["--out", str(tmp_path / "model")]
        if command == "fit"
        else ["--workers", "1", "--algorithm", "mean", "--epsilon", "1"]
    )
    monkeypatch.setattr(sys, "argv", ["conddp", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    error = capsys.readouterr().err
    assert stopped.value.code == 0
    assert error.count("PrivacyWarning: with delta=0.05 and 200 records, releasing about 10 records outright") == 1
    assert ".py" not in error
