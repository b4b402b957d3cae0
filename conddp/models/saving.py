"""Saving and loading of models. A model folder holds weights as safetensors, metadata as JSON and a ledger copy.

::

    model.safetensors   weights, by name
    model.json          format, head, loss, schema, guarantee, settings, diagnostics, transcript of the releases,
                        statistics of public columns, versions, and the digest of the weights
    ledger.jsonl        read-only copy of the ledger

A model folder contains nothing private: the weights have been released under the guarantee, and the rest is public. It
contains no code, and loading does not unpickle anything.
"""

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from conddp.bounds import Bounds
from conddp.data.schema import Schema
from conddp.errors import CondDPError, PrivacyError
from conddp.heads import HEADS, Head
from conddp.losses import LOSSES
from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.composition import check_cost
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.transcript import Transcript
from conddp.theory.design import Design

__all__ = ["ModelFileError", "check_folder", "load_model", "save_model"]

FORMAT_VERSION = 4
WEIGHTS, RECORD, LEDGER = "model.safetensors", "model.json", "ledger.jsonl"


class ModelFileError(CondDPError, ValueError):
    """A saved model cannot be read or written."""


def save_model(folder: str | Path, result: FitResult) -> Path:
    """Save a model to a folder that does not exist yet. The write is atomic.

    Privacy
        Writes released values and public settings only: no cost.

    Parameters
    ----------
    folder : path
        Folder to create.
    result : FitResult
        Result of a fit.
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
        "loss": model.loss.name,
        "has_constant": model.has_constant,
        "schema": result.schema.to_toml(),
        "guarantee": _describe_guarantee(result.guarantee),
        "settings": dict(result.settings),
        "diagnostics": result.diagnostics.to_json(),
        "transcript": result.transcript.to_json(),
        "design": None if result.design is None else result.design.to_json(),
        "feature_order": list(result.feature_order),
        "versions": _list_versions(),
    }
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        (temporary / WEIGHTS).write_bytes(blob)
        (temporary / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        result.ledger.write_copy(temporary / LEDGER)
        temporary.chmod(0o755)
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def check_folder(folder: Path) -> None:
    """Raise unless a model can be written to this folder. Call this before spending budget on a fit."""
    if folder.exists():
        raise ModelFileError(f"'{folder}' exists already. Models are not overwritten: name another folder.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        Path(tempfile.mkdtemp(dir=folder.parent)).rmdir()
    except OSError as error:
        raise ModelFileError(f"'{folder}' cannot be written: {error.strerror}.") from None


def load_model(folder: str | Path) -> FitResult:
    """Load a model from its folder.

    Raises
    ------
    ModelFileError
        If a file is missing or damaged, or if this version of conddp cannot read the format.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    folder = Path(folder)
    if not folder.is_dir():
        hint = " Give the folder, not a file in it." if folder.exists() else ""
        raise ModelFileError(f"there is no model folder '{folder}'.{hint}")
    if not (folder / RECORD).exists():
        raise ModelFileError(f"'{folder}' is not the folder of a saved model: it has no {RECORD}.")
    record = _read_record(folder / RECORD)
    blob = _read_bytes(folder / WEIGHTS)
    if f"sha256:{hashlib.sha256(blob).hexdigest()}" != record.get("weights"):
        raise ModelFileError(
            f"'{folder / WEIGHTS}' does not belong to its {RECORD}, or is damaged. Restore the folder."
        )
    try:
        head = _make_head(record["head"])
        schema = Schema.from_toml(record["schema"])
        has_constant = bool(record["has_constant"])
        layout = head.layout(len(schema.public) + has_constant, len(schema.private))
        parameters = np.zeros((1, layout.size))
        stored = load(blob)
        for name, view in layout.views(parameters).items():
            view[0] = stored[name]
        loss = LOSSES[record["loss"]]
        model = FittedModel(head, layout, parameters[0], has_constant, schema.label_bounds, schema.private_bounds, loss)
        guarantee = _make_guarantee(record["guarantee"])
        settings, versions = record["settings"], record["versions"]
        diagnostics, transcript = (
            Diagnostics.from_json(record["diagnostics"]),
            Transcript.from_json(record["transcript"]),
        )
        design = None if record["design"] is None else Design.from_json(record["design"])
        order = tuple(record["feature_order"])
        if order and sorted(order) != sorted([*schema.public, *schema.private]):
            raise ValueError("feature_order does not list the columns of the schema")
    except ModelFileError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError, SafetensorError) as error:
        raise ModelFileError(f"'{folder / RECORD}' is damaged: {error}. Restore the folder.") from error
    ledger = PrivacyLedger.load(folder / LEDGER)
    try:
        check_cost(transcript, guarantee.budget, guarantee.neighbouring)
        _check_agreement(guarantee, schema, ledger)
    except (PrivacyError, ArithmeticError, MemoryError, ValueError) as error:
        raise ModelFileError(f"'{folder / RECORD}' promises more than its own evidence shows: {error}") from None
    return FitResult(model, guarantee, settings, diagnostics, transcript, schema, ledger, design, versions, order)


def _check_agreement(guarantee: Guarantee, schema: Schema, ledger: PrivacyLedger) -> None:
    """Raise unless a guarantee is about the columns of the schema and was paid for on the ledger."""
    columns = (schema.label.name, schema.label_bounds, schema.public, schema.private)
    if columns != (guarantee.label, guarantee.label_bounds, guarantee.public_columns, guarantee.private_columns):
        raise ValueError("the guarantee is about other columns or bounds than the schema.")
    if guarantee.unit != (schema.unit or ""):
        raise ValueError("the guarantee and the schema name different unit columns.")
    if guarantee.neighbouring is not ledger.neighbouring:
        raise ValueError("the guarantee and the ledger state different neighbouring relations.")
    if not any(entry.cost == guarantee.budget for entry in ledger.entries):
        raise ValueError("no entry of the ledger has the cost of the guarantee.")
    texts, counts = (guarantee.mechanism, guarantee.choice), (guarantee.num_units, guarantee.records_per_unit)
    right = isinstance(guarantee.seeded, bool) and all(isinstance(text, str) for text in texts)
    if not right or any(type(count) is not int or count < 0 for count in counts):
        raise ValueError("the guarantee has fields of the wrong type.")


def _read_record(path: Path) -> dict[str, Any]:
    content = _read_bytes(path)
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
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
    kind = HEADS.find_class(stored["kind"])
    if kind is None:
        raise ModelFileError(
            f"the model has the head {stored['kind']!r}, which is not registered here. If it is your own, add it to "
            "conddp.heads.HEADS in Python before loading."
        )
    return kind(**{name: value for name, value in stored.items() if name != "kind"})


def _describe_guarantee(guarantee: Guarantee) -> dict[str, Any]:
    described = asdict(guarantee)
    described["neighbouring"] = guarantee.neighbouring.value
    return {**described, "text": str(guarantee)}


def _make_guarantee(stored: Mapping[str, Any]) -> Guarantee:
    values = {name: value for name, value in stored.items() if name != "text"}
    return Guarantee(
        **{
            **values,
            "budget": PrivacyBudget(**values["budget"]),
            "neighbouring": Neighbouring(values["neighbouring"]),
            "label_bounds": Bounds(**values["label_bounds"]),
            "public_columns": tuple(values["public_columns"]),
            "private_columns": tuple(values["private_columns"]),
        }
    )


def _list_versions() -> dict[str, str]:
    packages = ("conddp", "numpy", "scipy", "dp-accounting", "randomgen")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}
