"""A guarantee is repeated only if its own evidence supports it: when a model is saved, loaded, shown or reported."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conddp.algorithms import ALGORITHMS
from conddp.bounds import Bounds
from conddp.cli import main as cli
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.errors import PrivacyError
from conddp.models.evidence import check_evidence
from conddp.models.result import FitResult
from conddp.models.saving import ModelFileError, load_model, save_model, sign_record
from conddp.privacy.bounded_sum import bound_rounding
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.report import report_fit

BUDGET = PrivacyBudget(4.0, 1e-6)


def fit(algorithm: str = "cond-newton") -> FitResult:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    records = Records(PublicFeatures(X, ("a", "b")), None, Labels(X @ [1.0, -1.0], Bounds(-5, 5), "price"))
    infinite = PrivacyLedger(PrivacyBudget(float("inf"), 1e-5))  # covers the algorithm without privacy too
    return ALGORITHMS[algorithm].fit(records, BUDGET, random_source=RandomSource.of(0), ledger=infinite)


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_algorithm_gives_the_evidence_for_its_guarantee(algorithm: str, tmp_path: Path) -> None:
    result = fit(algorithm)
    check_evidence(result)
    loaded = load_model(save_model(tmp_path / "model", result))
    assert loaded.guarantee == result.guarantee  # the text too, which is made anew
    report_fit(loaded)


Edit = Callable[[dict[str, Any]], object]
EDITS: dict[str, tuple[Edit, str]] = {
    "epsilon": (
        lambda record: record["guarantee"]["budget"].update(epsilon=0.01),
        "states epsilon=0.01 .* have delta=",
    ),
    "delta": (lambda record: record["guarantee"]["budget"].update(delta=1e-12), "states .*delta=1e-12, but"),
    "pure": (lambda record: record["guarantee"]["budget"].update(delta=0.0), "states .*delta=0, but"),
    "noise": (lambda record: record["transcript"][0].update(noise_std=1e-3), "have delta="),
    "sensitivity": (lambda record: record["transcript"][0].update(sensitivity=1e3), "have delta="),
    "count": (lambda record: record["transcript"][0].update(count=10**6), "have delta="),
    "no noise": (
        lambda record: record["transcript"].append({"kind": "unprotected", "what": "labels", "count": 1}),
        "have delta=1",
    ),
    "fewer releases": (lambda record: record["transcript"].clear(), "lists no release"),
    "a smaller cost than was paid": (
        lambda record: record["guarantee"]["budget"].update(epsilon=4.5),
        "no entry of the ledger has the cost",
    ),
    "relation": (lambda record: record["guarantee"].update(neighbouring="zero-out"), "different neighbouring"),
    "records": (lambda record: record["guarantee"].update(label="income"), "other columns or bounds"),
    "rounding": (lambda record: record["guarantee"].update(rounding=0.0), "cannot cover rounding errors"),
    "more rounding": (lambda record: record["guarantee"].update(rounding=1.0), "cannot cover rounding errors"),
    "bounds": (lambda record: record["guarantee"]["label_bounds"].update(high=50), "other columns or bounds"),
}


@pytest.mark.parametrize("name", list(EDITS))
def test_an_edited_guarantee_or_transcript_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even if the digest of the record has been renewed; without that, the digest reveals the edit already."""
    edit, message = EDITS[name]
    folder = save_model(tmp_path / "model", fit())
    record = json.loads((folder / "model.json").read_text())
    edit(record)
    (folder / "model.json").write_text(json.dumps(record))
    with pytest.raises(ModelFileError, match="was changed after it had been saved"):
        load_model(folder)
    (folder / "model.json").write_bytes(sign_record(record))
    with pytest.raises(ModelFileError, match=f"promises more than its own evidence shows: .*{message}"):
        load_model(folder)
    for command in (["report", str(folder), "--out", str(tmp_path / "report.md")], ["ledger", "show", str(folder)]):
        monkeypatch.setattr(sys, "argv", ["conddp", *command])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        printed = capsys.readouterr()
        assert stopped.value.code == 1 and "promises more" in printed.err and not printed.out
    assert not (tmp_path / "report.md").exists()


def test_a_model_without_the_increase_of_noise_states_that_of_undivided_sums(tmp_path: Path) -> None:
    result = fit()
    folder = save_model(tmp_path / "model", result)
    record = json.loads((folder / "model.json").read_text())
    assert record["guarantee"].pop("rounding") == bound_rounding(200)
    (folder / "model.json").write_bytes(sign_record(record))
    assert str(load_model(folder).guarantee) == str(result.guarantee)


def test_evidence_that_looks_better_than_the_guarantee_is_refused_too(tmp_path: Path) -> None:
    """More noise than was added would not contradict the cost, so that only the digest can reveal it."""
    folder = save_model(tmp_path / "model", fit())
    record = json.loads((folder / "model.json").read_text())
    record["transcript"][0]["noise_std"] *= 2
    (folder / "model.json").write_text(json.dumps(record))
    with pytest.raises(ModelFileError, match="was changed after it had been saved"):
        load_model(folder)


def test_the_stored_text_of_a_guarantee_is_never_repeated(tmp_path: Path) -> None:
    result = fit()
    folder = save_model(tmp_path / "model", result)
    record = json.loads((folder / "model.json").read_text())
    record["guarantee"]["text"] = "Perfectly private."
    (folder / "model.json").write_bytes(sign_record(record))
    assert str(load_model(folder).guarantee) == str(result.guarantee)


def test_an_edited_ledger_copy_is_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", fit())
    path = folder / "ledger.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[-1] + "\n")
    with pytest.raises((ModelFileError, PrivacyError, ValueError), match=r"ledger\.jsonl'"):
        load_model(folder)


@pytest.mark.parametrize("use", [lambda result, path: save_model(path, result), lambda result, _: report_fit(result)])
def test_a_result_in_memory_is_checked_before_it_is_saved_or_reported(use: Any, tmp_path: Path) -> None:
    result = fit()
    guarantee = result.guarantee
    for altered in (
        replace(guarantee, budget=PrivacyBudget(0.01, 1e-6)),
        replace(guarantee, neighbouring=Neighbouring.ZERO_OUT),
        replace(guarantee, mechanism="Nothing was released."),
        replace(guarantee, public_columns=("a",)),
    ):
        with pytest.raises(PrivacyError):
            use(replace(result, guarantee=altered), tmp_path / "model")
    assert not (tmp_path / "model").exists()
    use(result, tmp_path / "model")
