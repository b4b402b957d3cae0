"""Saved models of old formats: they load and predict as before, and say which evidence they lack."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from conddp.algorithms import CondNewton
from conddp.bounds import Bounds
from conddp.cli import main as cli
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.errors import LedgerError, PrivacyError
from conddp.estimators import PrivateRegressor
from conddp.models.evidence import check_evidence
from conddp.models.old_formats import STEPS, describe_gaps
from conddp.models.result import FitResult
from conddp.models.saving import FORMAT_VERSION, ModelFileError, load_model, save_model, sign_record
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.randomness import RandomSource
from conddp.report import render_html, render_json, report_fit
from conddp.theory.design import Design

SAVED = Path(__file__).parent / "data" / "saved_models"
NAMES = sorted(path.name for path in SAVED.iterdir() if path.is_dir())
EXACT = "drawn exactly"  # what the text of a new guarantee says about noise


def read_format(name: str) -> int:
    return int(name.split("_")[1])


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    monkeypatch.setattr(sys, "argv", ["conddp", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "4000")
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert not stopped.value.code
    return capsys.readouterr().out


def fit() -> FitResult:
    X = np.random.default_rng(0).normal(size=(200, 2))
    public = PublicFeatures(X, ("age", "years"))
    records = Records(public, None, Labels(X @ [1.0, -1.0], Bounds(-5, 5), "pay"))
    result = CondNewton().fit(records, PrivacyBudget(2.0, 1e-5), random_source=RandomSource.of(0))
    return replace(result, design=Design.of(public))


def test_there_is_a_step_from_every_format_and_a_folder_of_it() -> None:
    assert sorted(STEPS) == list(range(1, FORMAT_VERSION))
    assert {read_format(name) for name in NAMES} >= {1, 2, 3, 4}


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_predicts_what_it_did_when_it_was_saved(name: str) -> None:
    expected = json.loads((SAVED / name / "expected.json").read_text())
    assert json.loads((SAVED / name / "model.json").read_text())["conddp_model"] == read_format(name)
    rows = pa.table(expected["rows"])
    regressor = PrivateRegressor.load(SAVED / name)
    for table in (rows, rows.select(rows.column_names[::-1])):
        np.testing.assert_allclose(regressor.predict(table), expected["predictions"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_guarantee_and_the_report_say_what_cannot_be_checked(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = load_model(SAVED / name)
    stored = json.loads((SAVED / name / "model.json").read_text())
    remark = describe_gaps(read_format(name))
    assert f"saved in format {read_format(name)} " in remark and "would go unnoticed" in remark
    assert ("cannot be recomputed" in remark) == (read_format(name) < 4)
    text = str(result.guarantee)
    assert text.startswith(remark) and EXACT not in text and "no other fit has the same noise" not in text
    for sentence in stored["guarantee"]["text"].split(". ")[:2]:  # the promise and the relation, as they were
        assert sentence in text
    assert text.count("accounted") <= 1  # the releases are described once
    document = report_fit(result)
    lead = f"as recorded in format {read_format(name)}."
    assert remark in render_html(document) and remark in render_json(document) and lead in render_html(document)
    assert EXACT not in render_html(document)
    out = tmp_path / "report.md"
    run(capsys, monkeypatch, "report", SAVED / name, "--out", out)
    assert remark in out.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_ledger_of_a_folder_is_shown_and_cannot_be_spent_on(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first folders did not mark their ledger as a copy."""
    folder = Path(shutil.copytree(SAVED / name, tmp_path / name))
    before = (folder / "ledger.jsonl").read_bytes()
    said = run(capsys, monkeypatch, "ledger", "show", folder)
    assert describe_gaps(read_format(name)) in said
    assert ("changes cannot be seen" in said) == (b"digest" not in before)
    shown = json.loads(run(capsys, monkeypatch, "ledger", "show", folder, "--json"))
    result = load_model(folder)
    assert shown["remark"] == result.guarantee.remark
    stored = [json.loads(line) for line in before.splitlines()[1:]]
    assert [(entry["what"], entry["time"]) for entry in shown["entries"]] == [(e["what"], e["time"]) for e in stored]
    assert any(entry["cost"]["epsilon"] == result.guarantee.epsilon for entry in stored)
    records = Records(PublicFeatures(np.eye(3)), None, Labels(np.zeros(3), Bounds(0, 1)))
    assert result.ledger.neighbouring is result.guarantee.neighbouring
    with pytest.raises(LedgerError, match="copy of a ledger"):
        CondNewton().fit(records, PrivacyBudget(0.1, 1e-7), ledger=result.ledger)
    assert (folder / "ledger.jsonl").read_bytes() == before


def test_what_the_formats_kept_comes_back() -> None:
    first, later = load_model(SAVED / "format_1_first_linear"), load_model(SAVED / "format_1_linear")
    assert not first.diagnostics.steps and len(later.diagnostics.steps) == 14
    assert len(later.diagnostics.coefficient_deviations) == 3  # of two columns and the intercept
    assert first.design is None and later.design is None
    third, fourth = load_model(SAVED / "format_3_no_intercept"), load_model(SAVED / "format_4_first_linear")
    assert third.design is not None and third.design.num_records == 400 and not len(third.transcript)
    assert len(fourth.transcript) == 14 and fourth.design is not None and not third.model.has_constant
    assert load_model(SAVED / "format_4_private_column").schema.private == ("children",)


def test_a_model_of_an_old_format_is_not_saved_as_one_of_the_new(tmp_path: Path) -> None:
    for name in ("format_1_linear", "format_4_wide"):
        with pytest.raises(ModelFileError, match=r"from a folder of format \d, .* Copy the folder"):
            save_model(tmp_path / "model", load_model(SAVED / name))
        with pytest.raises(ModelFileError, match="Copy the folder"):
            PrivateRegressor.load(SAVED / name).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_the_remark_cannot_be_lost_or_borrowed() -> None:
    old, new = load_model(SAVED / "format_1_linear"), fit()
    check_evidence(old)
    check_evidence(new)
    borrowed = replace(new, guarantee=replace(new.guarantee, remark=old.guarantee.remark))
    for result in (
        replace(old, guarantee=replace(old.guarantee, remark="")),
        replace(old, old_format=None),
        replace(old, old_format=2),
        replace(old, old_format=5, guarantee=replace(old.guarantee, remark="")),
        replace(old, old_format=4, guarantee=replace(old.guarantee, remark=describe_gaps(4))),
        replace(old, transcript=new.transcript),
        borrowed,
    ):
        with pytest.raises(PrivacyError):
            report_fit(result)


def test_a_remark_is_not_read_from_a_file(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", fit())
    record = json.loads((folder / "model.json").read_text())
    assert "remark" not in record["guarantee"]
    record["guarantee"]["remark"] = "Checked by everybody."
    (folder / "model.json").write_bytes(sign_record(record))
    with pytest.raises(ModelFileError, match="unknown field 'remark'"):
        load_model(folder)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_new_folder_does_not_pass_for_an_old_one(version: int, tmp_path: Path) -> None:
    """Changing the number is refused. A folder that is rewritten with care loads with the remark only."""
    result = fit()
    folder = save_model(tmp_path / "model", result)
    record = json.loads((folder / "model.json").read_text())
    write(folder, {**record, "conddp_model": version})
    with pytest.raises(ModelFileError, match=f"does not have the fields of format {version}"):
        load_model(folder)
    guarantee = {**record["guarantee"], "mechanism": record["guarantee"]["note"] or "Nothing was released."}
    newer = ("unit", "num_units", "records_per_unit", "category_columns", "weighted", "missing_is_public", "rounding")
    for name in ("note", *newer):
        del guarantee[name]
    added = ("digest", "ledger", "feature_order", "encoding", "uncertainty")
    old = {name: value for name, value in record.items() if name not in added}
    if version < 4:
        guarantee["event"] = None
        del old["loss"], old["transcript"]
    write(folder, {**old, "conddp_model": version, "guarantee": guarantee})
    loaded = load_model(folder)
    assert str(loaded.guarantee).startswith(describe_gaps(version))
    for name, value in (("unit", "age"), ("remark", "Checked.")):
        write(folder, {**old, "conddp_model": version, "guarantee": {**guarantee, name: value}})
        with pytest.raises(ModelFileError, match=f"does not have the fields of format {4 if version == 4 else 3}"):
            load_model(folder)


def write(folder: Path, record: Any) -> None:
    (folder / "model.json").write_text(json.dumps(record))


def change(**entries: object) -> Callable[[dict[str, Any]], object]:
    return lambda record: record.update(entries)


def promise(**entries: object) -> Callable[[dict[str, Any]], object]:
    return lambda record: record["guarantee"].update(entries)


PROMISES_MORE = "promises more than its own evidence shows"
NO_TRANSCRIPT = ["format_1_linear", "format_2_private_column", "format_3_batches"]
EDITS: dict[str, tuple[list[str], Callable[[dict[str, Any]], object], str]] = {
    "a lower epsilon": (NAMES, promise(budget={"epsilon": 0.5, "delta": 1e-5}), PROMISES_MORE),
    "no delta": (["format_1_mlp", "format_4_wide"], promise(budget={"epsilon": 2.0, "delta": 0.0}), PROMISES_MORE),
    "another label": (NAMES, promise(label="age"), "other columns or bounds"),
    "other bounds": (NAMES, promise(label_bounds={"low": 0.0, "high": 41.0}), "other columns or bounds"),
    "fewer private columns": (["format_1_private_column"], promise(private_columns=[]), "other columns or bounds"),
    "another relation": (NAMES, promise(neighbouring="zero-out"), "different neighbouring|promises more"),
    "no records": (NAMES, promise(num_records=0), "at least 1"),
    "other records": (["format_3_rr_on_bins", "format_4_wide"], promise(num_records=401), "other records or columns"),
    "less noise": (
        NO_TRANSCRIPT,
        lambda record: record["guarantee"]["event"].update(noise_multiplier=0.5),
        f"{PROMISES_MORE}: .* its event has delta=",
    ),
    "an event of another kind": (NO_TRANSCRIPT, promise(event={"noise": 1}), "is damaged"),
    "no event": (NO_TRANSCRIPT, lambda record: record["guarantee"].pop("event"), "fields of format 3"),
    "less noise in the transcript": (
        ["format_4_first_linear", "format_4_mlp"],
        lambda record: record["transcript"][0].update(noise_std=1e-3),
        f"{PROMISES_MORE}: .* have delta=",
    ),
    "an empty transcript": (["format_4_first_linear"], change(transcript=[]), "lists no release"),
    "a transcript before its time": (["format_3_mlp"], change(transcript=[]), "fields of format 3"),
    "a unit": (
        NAMES,
        lambda record: record.update(schema=record["schema"] + '\n[unit]\ncolumn = "who"\n'),
        "different unit columns",
    ),
    "a later field": (NAMES, change(digest="sha256:0"), "does not have the fields of format"),
    "format 0": (NAMES, change(conddp_model=0), "is not the record of a conddp model"),
    "true": (NAMES, change(conddp_model=True), "is not the record of a conddp model"),
    "another head": (NAMES, change(head={"kind": "Linear", "width": 3}), "is damaged"),
    "no guarantee": (NAMES, change(guarantee=None), "is damaged"),
    "other weights": (NAMES, change(weights="sha256:0"), "does not belong"),
    "no schema": (NAMES, change(schema=""), "is damaged"),
}


@pytest.mark.parametrize("name", list(EDITS))
def test_an_altered_or_damaged_folder_is_refused(name: str, tmp_path: Path) -> None:
    folders, edit, message = EDITS[name]
    for number, source in enumerate(folders):
        folder = tmp_path / str(number)
        shutil.copytree(SAVED / source, folder)
        record = json.loads((folder / "model.json").read_text())
        edit(record)
        write(folder, record)
        with pytest.raises(ModelFileError, match=message):
            load_model(folder)


def test_numbers_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    """As by the current format; old ones stored them."""
    shutil.copytree(SAVED / "format_4_first_linear", tmp_path / "model")
    record = json.loads((tmp_path / "model" / "model.json").read_text())
    record["diagnostics"]["distances"][0] = float("inf")
    record["design"]["improvement"]["best"] = float("nan")
    write(tmp_path / "model", record)
    loaded = load_model(tmp_path / "model")
    assert loaded.design is None and not loaded.diagnostics.distances
