"""A trained model in a folder: weights as safetensors, everything else as JSON, the ledger beside it.

::

    model.safetensors   the weights, by name
    model.json          format, head, schema, guarantee, settings, facts about public columns, the course of the fit,
                        versions; the digest of the weights
    ledger.jsonl        a copy of the ledger: what had been spent; nothing may be spent on the copy

Nothing in it is private: the weights have been released under the guarantee, and the rest is public. Nothing in it is
code: loading runs no pickle.
"""

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.bounds import Bounds
from conddp.data.parts import PrivateFeatures, PublicFeatures
from conddp.data.schema import Schema
from conddp.errors import CondDPError
from conddp.heads.factorization import FactorizationMachine
from conddp.heads.head import Head
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.heads.wide import Wide
from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FitResult, FittedModel
from conddp.privacy.accounting import GaussianEvent
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.theory.design import Design

__all__ = ["ModelFileError", "SavedModel", "check_folder", "load_model", "save_model"]

FORMAT_VERSION = 3
WEIGHTS, RECORD, LEDGER = "model.safetensors", "model.json", "ledger.jsonl"
HEADS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Linear, MLP, FactorizationMachine, Wide)}


class ModelFileError(CondDPError, ValueError):
    """A saved model cannot be read or may not be written."""


@dataclass(frozen=True)
class SavedModel:
    """What a folder holds.

    Parameters
    ----------
    model : FittedModel
        Ready to predict.
    schema : Schema
        Of the table that it was trained on.
    guarantee : Guarantee
        What it promises.
    settings : mapping
        Every choice that was made.
    diagnostics : Diagnostics
        The course of the fit, and the uncertainty of its coefficients.
    design : Design
        Facts about the public columns that it was trained on.
    versions : mapping
        Of the software that trained it.
    ledger : PrivacyLedger
        What had been spent when it was saved.
    """

    model: FittedModel
    schema: Schema
    guarantee: Guarantee
    settings: Mapping[str, Any]
    diagnostics: Diagnostics
    design: Design
    versions: Mapping[str, str]
    ledger: PrivacyLedger

    def predict(self, public: PublicFeatures, private: PrivateFeatures | None = None) -> NDArray[np.float64]:
        """Predictions in the label's units. Costs nothing: the model is already released."""
        return self.model.predict(public, private)


def save_model(folder: str | Path, result: FitResult, schema: Schema, ledger: PrivacyLedger, design: Design) -> Path:
    """Write a model to a folder that does not exist yet, whole or not at all.

    Privacy
        Writes what has been released, and public settings: no cost.

    Parameters
    ----------
    folder : path
        Where to.
    result : FitResult
        Of an algorithm.
    schema : Schema
        Of the table.
    ledger : PrivacyLedger
        That paid for it; its entries are copied.
    design : Design
        Of the public columns.
    """
    from safetensors.numpy import save

    folder = Path(folder)
    check_folder(folder)
    model = result.model
    weights = {name: np.ascontiguousarray(view[0]) for name, view in model.layout.views(model.parameters[None]).items()}
    blob = save(weights)
    record = {
        "conddp_model": FORMAT_VERSION,
        "weights": f"sha256:{hashlib.sha256(blob).hexdigest()}",
        "head": {"kind": type(model.head).__name__, **_init_fields(model.head)},
        "has_constant": model.has_constant,
        "schema": schema.to_toml(),
        "guarantee": _describe_guarantee(result.guarantee),
        "settings": dict(result.settings),
        "diagnostics": result.diagnostics.to_json(),
        "design": design.to_json(),
        "versions": _list_versions(),
    }
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        (temporary / WEIGHTS).write_bytes(blob)
        (temporary / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        ledger.write_copy(temporary / LEDGER)
        temporary.chmod(0o755)
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def check_folder(folder: Path) -> None:
    """Raise unless a model can be written to this folder; to be called before budget is spent on one."""
    if folder.exists():
        raise ModelFileError(f"'{folder}' exists already. Models are not overwritten: name another folder.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        Path(tempfile.mkdtemp(dir=folder.parent)).rmdir()
    except OSError as error:
        raise ModelFileError(f"'{folder}' cannot be written: {error.strerror}.") from None


def load_model(folder: str | Path) -> SavedModel:
    """Read a model from its folder.

    Raises
    ------
    ModelFileError
        If a file is missing or damaged, or the format is newer than this version reads.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    folder = Path(folder)
    if not folder.is_dir():
        raise ModelFileError(f"there is no model folder '{folder}'.")
    record = _read_record(folder / RECORD)
    blob = _read_bytes(folder / WEIGHTS)
    if f"sha256:{hashlib.sha256(blob).hexdigest()}" != record.get("weights"):
        raise ModelFileError(
            f"'{folder / WEIGHTS}' does not belong to its {RECORD}, or is damaged. Restore the folder."
        )
    try:
        head = _make_head(record["head"])
        schema = Schema.from_toml(record["schema"])
        label_bounds = schema.label.bounds
        assert label_bounds is not None  # Column has made sure
        has_constant = bool(record["has_constant"])
        layout = head.layout(len(schema.public) + has_constant, len(schema.private))
        parameters = np.zeros((1, layout.size))
        stored = load(blob)
        for name, view in layout.views(parameters).items():
            view[0] = stored[name]
        model = FittedModel(head, layout, parameters[0], has_constant, label_bounds, schema.private_bounds)
        guarantee = _make_guarantee(record["guarantee"])
        settings, versions = record["settings"], record["versions"]
        diagnostics, design = Diagnostics.from_json(record["diagnostics"]), Design.from_json(record["design"])
    except (AttributeError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise ModelFileError(f"'{folder / RECORD}' is damaged: {error}. Restore the folder.") from error
    ledger = PrivacyLedger.load(folder / LEDGER)
    return SavedModel(model, schema, guarantee, settings, diagnostics, design, versions, ledger)


def _read_record(path: Path) -> dict[str, Any]:
    content = _read_bytes(path)
    try:
        record = json.loads(content)
    except ValueError:
        raise ModelFileError(f"'{path}' is not valid JSON. Restore the folder.") from None
    if not isinstance(record, dict) or not isinstance(record.get("conddp_model"), int):
        raise ModelFileError(f"'{path}' is not the record of a conddp model.")
    if record["conddp_model"] > FORMAT_VERSION:
        raise ModelFileError(
            f"'{path}' has format {record['conddp_model']}, newer than this conddp reads ({FORMAT_VERSION}). Install a "
            "newer conddp."
        )
    if record["conddp_model"] < FORMAT_VERSION:
        raise ModelFileError(
            f"'{path}' has format {record['conddp_model']}, of an older conddp than this one, which reads "
            f"{FORMAT_VERSION}. Predict with the version that is named in it."
        )
    return record


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"'{path}' cannot be read: {error.strerror}.") from None


def _init_fields(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value) if each.init}


def _make_head(stored: Mapping[str, Any]) -> Head:
    kind = stored["kind"]
    if kind not in HEADS:
        raise ValueError(f"unknown head {kind!r}")
    head: Head = HEADS[kind](**{name: value for name, value in stored.items() if name != "kind"})
    return head


def _describe_guarantee(guarantee: Guarantee) -> dict[str, Any]:
    described = asdict(guarantee)
    described["neighbouring"] = guarantee.neighbouring.value
    if guarantee.event is not None:
        described["event"]["neighbouring"] = guarantee.event.neighbouring.value
    return {**described, "text": str(guarantee)}


def _make_guarantee(stored: Mapping[str, Any]) -> Guarantee:
    values = {name: value for name, value in stored.items() if name != "text"}
    event = values["event"]
    if event is not None:
        event = GaussianEvent(**{**event, "neighbouring": Neighbouring(event["neighbouring"])})
    return Guarantee(
        **{
            **values,
            "budget": PrivacyBudget(**values["budget"]),
            "neighbouring": Neighbouring(values["neighbouring"]),
            "label_bounds": Bounds(**values["label_bounds"]),
            "public_columns": tuple(values["public_columns"]),
            "private_columns": tuple(values["private_columns"]),
            "event": event,
        }
    )


def _list_versions() -> dict[str, str]:
    packages = ("conddp", "numpy", "scipy", "dp-accounting", "randomgen")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}
