"""Saved models: what comes back, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conddp.algorithms import CondDP, CondNewton, RROnBins
from conddp.algorithms.algorithm import Algorithm
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.errors import LedgerError
from conddp.heads.factorization import FactorizationMachine
from conddp.heads.head import Head
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.heads.wide import Wide
from conddp.models.result import FitResult
from conddp.models.saving import ModelFileError, load_model, save_model, sign_record
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.randomness import RandomSource
from conddp.theory.design import Design

SCHEMA = Schema.of(label="price", label_bounds=(-5, 5), public=["a", "b"], private={"c": (0, 1)})
DESIGN = Design.of(PublicFeatures(np.random.default_rng(0).normal(size=(300, 2)), ("a", "b")))
PUBLIC_ONLY = Schema.of(label="price", label_bounds=(-5, 5), public=["a", "b"])
UNPROTECTED = {"kind": "unprotected", "what": "labels", "count": 1}


@pytest.fixture
def dataset(rng: np.random.Generator) -> Records:
    X = rng.normal(size=(300, 2))
    c = rng.uniform(size=(300, 1))
    y = X @ [1.0, -1.0] + c[:, 0]
    return Records(
        PublicFeatures(X, ("a", "b")), PrivateFeatures(c, (Bounds(0, 1),), ("c",)), Labels(y, Bounds(-5, 5), "price")
    )


def fit(
    dataset: Records, algorithm: Algorithm, head: Head, *, private: bool
) -> tuple[FitResult, PrivacyLedger, Records]:
    if not private:
        dataset = Records(dataset.public, None, dataset.label)
    ledger = PrivacyLedger(PrivacyBudget(3.0, 1e-5))
    result = algorithm.fit(
        dataset, PrivacyBudget(1.0, 1e-6), head=head, random_source=RandomSource.of(0), ledger=ledger
    )
    return replace(result, design=DESIGN), ledger, dataset


@pytest.mark.parametrize(
    ("algorithm", "head", "private"),
    [
        (CondNewton(), Linear(), True),
        (CondDP(num_steps=5), MLP(hidden=(4, 3), activation="tanh", embedding=2), True),
        (CondDP(num_steps=5), FactorizationMachine(rank=3), True),
        (CondNewton(), Wide(width=20), False),
        (RROnBins(), Linear(), False),
    ],
)
def test_a_model_comes_back_as_it_was(
    tmp_path: Path, dataset: Records, algorithm: Algorithm, head: Head, private: bool
) -> None:
    result, ledger, used = fit(dataset, algorithm, head, private=private)
    folder = save_model(tmp_path / "deep" / "model", result)
    saved = load_model(folder)
    assert saved.predict(used.public, used.private).tolist() == result.model.predict(used.public, used.private).tolist()
    assert saved.model.head == head
    assert saved.guarantee == result.guarantee
    assert str(saved.guarantee) == str(result.guarantee)
    assert saved.schema == result.schema == (SCHEMA if private else PUBLIC_ONLY)
    assert saved.design == DESIGN
    assert saved.transcript == result.transcript and len(saved.transcript) > 0
    assert saved.settings == json.loads(json.dumps(dict(result.settings)))
    assert saved.ledger.spent == ledger.spent and saved.ledger.budget == ledger.budget
    assert [entry.reason for entry in saved.ledger.entries] == [entry.reason for entry in ledger.entries]


def test_no_private_value_is_in_the_folder(tmp_path: Path, dataset: Records) -> None:
    result, ledger, used = fit(dataset, CondNewton(), Linear(), private=True)
    assert used.private is not None
    folder = save_model(tmp_path / "model", result)
    text = "".join(path.read_text(errors="replace") for path in folder.iterdir())
    blob = b"".join(path.read_bytes() for path in folder.iterdir())
    for value in (*used.label.values[:50], *used.private.values[:50, 0]):
        assert repr(float(value))[:8] not in text
        assert np.float64(value).tobytes() not in blob
    assert {path.name for path in folder.iterdir()} == {
        *("model.safetensors", "uncertainty.safetensors", "model.json", "ledger.jsonl"),
    }


def test_a_folder_is_never_overwritten(tmp_path: Path, dataset: Records) -> None:
    result, ledger, _ = fit(dataset, CondNewton(), Linear(), private=True)
    save_model(tmp_path / "model", result)
    with pytest.raises(ModelFileError, match="exists already"):
        save_model(tmp_path / "model", result)


def test_a_failure_leaves_nothing_behind(tmp_path: Path, dataset: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    result, ledger, _ = fit(dataset, CondNewton(), Linear(), private=True)

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("conddp.models.saving.os.rename", fail)
    with pytest.raises(OSError, match="disk full"):
        save_model(tmp_path / "model", result)
    assert list(tmp_path.iterdir()) == []


def _change(folder: Path, **entries: object) -> None:
    record = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_bytes(sign_record({**record, **entries}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.json").unlink(), "is not the folder of a saved model"),
        (lambda folder: (folder / "model.safetensors").unlink(), "cannot be read"),
        (lambda folder: (folder / "model.json").write_text("{"), "not valid JSON"),
        (lambda folder: (folder / "model.json").write_text("[]"), "not the record of a conddp model"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "does not belong"),
        (lambda folder: _change(folder, conddp_model=8), r"format 8, newer than this conddp reads \(7\)"),
        (lambda folder: _change(folder, conddp_model=1), "does not have the fields of format 1"),
        (lambda folder: _change(folder, conddp_model=4), "does not have the fields of format 4"),
        (lambda folder: _change(folder, head={"kind": "os.system"}), "the head 'os.system', which is not registered"),
        (lambda folder: _change(folder, loss="magic"), "is damaged"),
        (lambda folder: _change(folder, transcript={}), "must be a list of releases"),
        (lambda folder: _change(folder, transcript=[{"kind": "magic"}]), "unknown kind 'magic'"),
        (lambda folder: _change(folder, transcript=[{"kind": "gaussian", "size": 1}]), "wrong fields"),
        (lambda folder: _change(folder, transcript=[]), "promises more than its own evidence shows"),
        (lambda folder: _change(folder, transcript=[UNPROTECTED]), "promises more than its own evidence shows"),
        (lambda folder: _change(folder, schema="[label]"), "is damaged"),
        (lambda folder: _change(folder, has_constant=False), "has weights of other names, shapes or types"),
        (lambda folder: _change(folder, guarantee={}), "is damaged"),
        (lambda folder: _change(folder, guarantee=[]), "is damaged"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path: Path, dataset: Records, damage: Any, message: str) -> None:
    result, ledger, _ = fit(dataset, CondNewton(), Linear(), private=True)
    folder = save_model(tmp_path / "model", result)
    damage(folder)
    with pytest.raises(ModelFileError, match=message):
        load_model(folder)


def test_nothing_can_be_spent_on_the_copy_of_the_ledger(tmp_path: Path, dataset: Records) -> None:
    result, ledger, used = fit(dataset, CondNewton(), Linear(), private=True)
    folder = save_model(tmp_path / "model", result)
    copy = PrivacyLedger.load(folder / "ledger.jsonl")
    assert copy.remaining == ledger.remaining  # it can be read
    with pytest.raises(LedgerError, match="copy of a ledger"):
        CondNewton().fit(used, PrivacyBudget(1.0, 1e-6), ledger=copy)
    assert PrivacyLedger.load(folder / "ledger.jsonl").spent == ledger.spent


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, dataset: Records) -> None:
    result, ledger, _ = fit(dataset, CondNewton(), Linear(), private=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFileError, match="cannot be written"):
        save_model(tmp_path / "file" / "model", result)


def test_a_missing_folder_or_ledger_is_named(tmp_path: Path, dataset: Records) -> None:
    with pytest.raises(ModelFileError, match="there is no model folder"):
        load_model(tmp_path / "absent")
    result, ledger, _ = fit(dataset, CondNewton(), Linear(), private=True)
    folder = save_model(tmp_path / "model", result)
    (folder / "ledger.jsonl").unlink()
    with pytest.raises(LedgerError, match="cannot be read"):
        load_model(folder)
