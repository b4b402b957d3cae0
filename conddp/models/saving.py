"""Saving and loading of models. A model folder holds weights as safetensors, metadata as JSON and a ledger copy.

::

    model.safetensors         weights, by name
    uncertainty.safetensors   uncertainty of the coefficients, for linear models if it is known
    model.json                format, head, loss, schema, encoding, guarantee, settings, diagnostics, transcript of the
                              releases, statistics of public columns, evaluation on held-out records if there is one,
                              versions, and digests of all files
    ledger.jsonl              read-only copy of the ledger

A model folder contains nothing private: the weights have been released under the guarantee, and the rest is public. It
contains no code, and loading does not unpickle anything. Loading expects any file to be damaged or altered: every value
is checked, and the guarantee against its own evidence. The digests reveal accidents and careless edits. They are no
signature: whoever may write to the folder can replace all of it.

Folders of all earlier formats can be loaded too (:mod:`conddp.models.old_formats`). They are not saved again, because
they lack evidence that the current format promises.
"""

import hashlib
import json
import math
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.scaling import count_private_features
from conddp.data.schema import Schema
from conddp.errors import CondDPError, LedgerError, PrivacyError, SchemaError
from conddp.features.encoding import Encoding
from conddp.heads import HEADS, Head
from conddp.heads.head import Layout, Linearity
from conddp.losses import LOSSES
from conddp.models.diagnostics import Diagnostics
from conddp.models.evaluation import Evaluation
from conddp.models.evidence import check_evidence
from conddp.models.fitted import FittedModel
from conddp.models.old_formats import describe_gaps, has_digests, upgrade
from conddp.models.result import FitResult
from conddp.models.uncertainty import MOST_STORED, Uncertainty
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.composition import describe_transcript
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.transcript import Transcript
from conddp.stored import LARGEST_FILE, decode, decode_settings, parse_json, read_bytes, require
from conddp.theory.design import Design

__all__ = ["ModelFileError", "check_folder", "decode_budget", "digest_file", "load_model", "save_model"]

FORMAT_VERSION = 7
WEIGHTS, RECORD, LEDGER = "model.safetensors", "model.json", "ledger.jsonl"
UNCERTAINTY = "uncertainty.safetensors"
LONGEST_HEADER = 1 << 24  # bytes of names and shapes before the weights
LONGEST_REASON = 300  # characters of what is wrong with a file
DAMAGES = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


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
    if result.old_format is not None:
        raise ModelFileError(
            f"the model was loaded from a folder of format {result.old_format}, which lacks evidence for its guarantee "
            f"that format {FORMAT_VERSION} holds. Copy the folder instead of saving the model again."
        )
    check_evidence(result)
    model = result.model
    if not np.isfinite(model.parameters).all():
        raise ModelFileError("the weights of the model are not finite. The fit has diverged and cannot be used.")
    weights = {name: np.ascontiguousarray(view[0]) for name, view in model.layout.views(model.parameters[None]).items()}
    blob, errors = save(weights), None
    if result.uncertainty is not None:
        arrays = result.uncertainty.get_arrays()
        errors = save({name: np.ascontiguousarray(each) for name, each in arrays.items()})
    record = {
        "conddp_model": FORMAT_VERSION,
        "weights": _digest(blob),
        "head": {"kind": type(model.head).__name__, **_init_fields(model.head)},
        "loss": model.loss.name,
        "has_constant": model.has_constant,
        "schema": result.schema.to_toml(),
        "guarantee": _describe_guarantee(result),
        "settings": dict(result.settings),
        "diagnostics": result.diagnostics.to_json(),
        "transcript": result.transcript.to_json(),
        "design": _describe_design(result.design),
        "feature_order": list(result.feature_order),
        "encoding": None if result.encoding is None else result.encoding.to_json(),
        "uncertainty": None if errors is None else _describe_uncertainty(result.uncertainty, errors),
        "versions": _list_versions(),
        **({} if result.evaluation is None else {"evaluation": result.evaluation.to_json()}),
    }
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        (temporary / WEIGHTS).write_bytes(blob)
        if errors is not None:
            (temporary / UNCERTAINTY).write_bytes(errors)
        result.ledger.write_copy(temporary / LEDGER)
        content = sign_record({**record, "ledger": _digest((temporary / LEDGER).read_bytes())})
        if len(content) > LARGEST_FILE:
            raise ModelFileError(f"{RECORD} would have {len(content):,} bytes, more than can be loaded again.")
        (temporary / RECORD).write_bytes(content)
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
    """Load a model from its folder, of this or an earlier format.

    The guarantee of a model of format 1 to 4 starts with a remark on what could not be checked.

    Raises
    ------
    ModelFileError
        If a file is missing or damaged, if the guarantee contradicts its own evidence, or if the format is newer than
        this version of conddp.
    """
    folder = Path(folder)
    if not folder.is_dir():
        hint = " Give the folder, not a file in it." if folder.exists() else ""
        raise ModelFileError(f"there is no model folder '{folder}'.{hint}")
    if (folder / "models.json").exists():
        raise ModelFileError(
            f"'{folder}' has the models of several labels. Give the folder of one, such as '{folder}/1'."
        )
    if not (folder / RECORD).exists():
        raise ModelFileError(f"'{folder}' is not the folder of a saved model: it has no {RECORD}.")
    record = _read_record(folder / RECORD)
    version = record["conddp_model"]
    try:
        result = _make_result(upgrade(record, to=FORMAT_VERSION), folder, None if has_digests(version) else version)
    except (ModelFileError, LedgerError):
        raise
    except PrivacyError as error:
        raise _contradiction(folder, error) from None
    except DAMAGES as error:
        reason = str(error).rstrip(".")[:LONGEST_REASON]
        raise ModelFileError(f"'{folder / RECORD}' is damaged: {reason}. Restore the folder.") from None
    try:
        check_evidence(result)
    except (PrivacyError, *DAMAGES) as error:
        raise _contradiction(folder, error) from None
    return result


def _contradiction(folder: Path, error: Exception) -> ModelFileError:
    return ModelFileError(
        f"'{folder / RECORD}' promises more than its own evidence shows: {error} Restore the folder, and do not rely "
        "on its guarantee."
    )


def _make_result(record: Mapping[str, Any], folder: Path, old_format: int | None) -> FitResult:
    """Decode a record of the current format and read the other files of its folder, which may be of an old format."""
    schema = Schema.from_toml(decode(str, record["schema"], "schema"))
    head = _make_head(record["head"])
    has_constant = decode(bool, record["has_constant"], "has_constant")
    encoding = None if record["encoding"] is None else Encoding.from_json(record["encoding"])
    require(encoding is None or encoding.names == schema.public, "'encoding' is of other columns than the schema")
    features = schema.public if encoding is None else encoding.features
    layout = head.layout(
        len(features) + has_constant, count_private_features(schema.private_domains, center=has_constant)
    )
    parameters = _read_weights(folder, layout, record["weights"])
    head.check_weights(layout.views(parameters[None]))
    loss = LOSSES[record["loss"]]
    model = FittedModel(head, layout, parameters, has_constant, schema.label_bounds, schema.private_domains, loss)
    transcript = Transcript.from_json(record["transcript"])
    order = decode(tuple[str, ...], record["feature_order"], "feature_order")
    require(
        not order or sorted(order) == sorted([*schema.public, *schema.private]),
        "feature_order does not list the columns of the schema",
    )
    diagnostics = Diagnostics.from_json(record["diagnostics"])
    num_coefficients = len(features) + len(schema.private_terms) + 1
    require(
        len(diagnostics.coefficient_deviations) in (0, num_coefficients),
        "diagnostics do not list a standard deviation for every coefficient",
    )
    if diagnostics.effects is not None:
        diagnostics.effects.check(len(features))
    ledger = PrivacyLedger.load(folder / LEDGER)
    ledger.is_copy = True  # the first folders did not say so
    if old_format is None and _digest(read_bytes(folder / LEDGER)) != record["ledger"]:
        raise ModelFileError(_not_of_this_record(folder / LEDGER))
    return FitResult(
        model,
        replace(_make_guarantee(record["guarantee"], transcript), remark=describe_gaps(old_format)),
        decode_settings(record["settings"], "settings"),
        diagnostics,
        transcript,
        schema,
        ledger,
        None if record["design"] is None else Design.from_json(record["design"]),
        decode(Mapping[str, str], record["versions"], "versions"),
        order,
        encoding,
        old_format,
        None if "evaluation" not in record else Evaluation.from_json(record["evaluation"]),
        _read_uncertainty(folder, model, record["uncertainty"], num_coefficients=num_coefficients),
    )


def _read_weights(folder: Path, layout: Layout, digest: object) -> NDArray[np.float64]:
    """Read the parameters. Nothing is allocated for shapes that the file does not have."""
    path = folder / WEIGHTS
    stored = _read_arrays(path, digest, at_most=layout.size)
    found = {name: weights.shape for name, weights in stored.items()}
    if found != {name: tuple(shape) for name, shape in layout.shapes.items()}:
        raise ModelFileError(
            f"'{path}' has weights of other names, shapes or types than {RECORD} describes. Restore the folder."
        )
    return np.concatenate([stored[name].ravel() for name in layout.shapes])


def _read_uncertainty(folder: Path, model: FittedModel, described: Any, *, num_coefficients: int) -> Uncertainty | None:
    """Read the uncertainty of a model, if it is stored."""
    if described is None:
        return None
    settings = decode_settings(described, "uncertainty")
    digest = settings.pop("digest", None)
    require(model.head.linear_in is Linearity.COLUMNS, "there is the uncertainty of a model that is not linear")
    size = len(model.parameters)
    most = min(size**2, MOST_STORED) + len(fields(Uncertainty)) * max(size, num_coefficients)
    arrays = _read_arrays(folder / UNCERTAINTY, digest, at_most=most)
    named = {each.name for each in fields(Uncertainty)}
    require(set(arrays) | set(settings) == named, "the uncertainty does not have the fields of its format")
    bound, counts = settings.pop("bound", None), settings.pop("counts_clamping", None)
    require(not settings, "the uncertainty has numbers in a place for arrays")
    made = Uncertainty(
        **arrays, bound=decode(float, bound, "bound"), counts_clamping=decode(bool, counts, "counts_clamping")
    )
    made.check(size)
    require(len(made.sampling_factors) in (0, num_coefficients), "there is not a factor for every coefficient")
    return made


def _describe_uncertainty(known: Uncertainty | None, blob: bytes) -> dict[str, Any]:
    assert known is not None
    return {"digest": _digest(blob), "bound": known.bound, "counts_clamping": known.counts_clamping}


def _read_arrays(path: Path, digest: object, *, at_most: int) -> dict[str, NDArray[np.float64]]:
    """Read arrays of up to so many finite numbers in double precision."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        blob = read_bytes(path, at_most=8 * at_most + LONGEST_HEADER)
        if _digest(blob) != digest:
            raise ModelFileError(_not_of_this_record(path))
        stored: dict[str, NDArray[np.float64]] = load(blob)
    except SchemaError as error:
        raise ModelFileError(str(error)) from None
    except SafetensorError:
        raise ModelFileError(f"'{path}' is damaged. Restore the folder.") from None
    if any(each.dtype != np.float64 for each in stored.values()):
        raise ModelFileError(
            f"'{path}' has weights of other names, shapes or types than {RECORD} describes. Restore the folder."
        )
    if not all(np.isfinite(each).all() for each in stored.values()):
        raise ModelFileError(f"'{path}' has weights that are not finite. Restore the folder.")
    return stored


def _not_of_this_record(path: Path) -> str:
    return f"'{path}' does not belong to its {RECORD}, or is damaged. Restore the folder."


def digest_file(path: Path) -> str:
    """Return the digest of a file, as it is stored in records."""
    return _digest(read_bytes(path))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def sign_record(record: Mapping[str, Any]) -> bytes:
    """Return a record as JSON, with the digest of everything else in it."""
    return (json.dumps({**record, "digest": _digest_record(record)}, indent=2) + "\n").encode()


def _digest_record(record: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in record.items() if name != "digest"}
    return _digest(json.dumps(rest, sort_keys=True).encode())


def _read_record(path: Path) -> dict[str, Any]:
    try:
        content = read_bytes(path)
    except SchemaError as error:
        raise ModelFileError(str(error)) from None
    try:
        stored = parse_json(content)
    except SchemaError:
        raise ModelFileError(f"'{path}' is not valid JSON. Restore the folder.") from None
    record: dict[str, Any] = stored if isinstance(stored, dict) else {}
    version = record.get("conddp_model")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ModelFileError(f"'{path}' is not the record of a conddp model.")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"'{path}' has format {version}, newer than this conddp reads ({FORMAT_VERSION}). Install a newer conddp."
        )
    if has_digests(version) and record.get("digest") != _digest_record(record):
        raise ModelFileError(f"'{path}' was changed after it had been saved, or is damaged. Restore the folder.")
    return record


def _init_fields(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value) if each.init}


def _make_head(stored: Any) -> Head:
    settings = decode_settings(stored, "head")
    name = decode(str, settings.pop("kind", None), "head.kind")
    kind = HEADS.find_class(name)
    if kind is None:
        raise ModelFileError(
            f"the model has the head {name[:LONGEST_REASON]!r}, which is not registered here. If it is your own, add "
            "it to conddp.heads.HEADS in Python before loading."
        )
    return kind(**settings)


def _describe_guarantee(result: FitResult) -> dict[str, Any]:
    """Return the stored form of a guarantee. Of its text, only what the transcript does not give is read again."""
    described = asdict(result.guarantee)
    generated = describe_transcript(result.transcript, result.guarantee.neighbouring)
    note = described.pop("mechanism").removeprefix(generated).strip()
    del described["remark"]  # is not stored: it follows from the format
    described["neighbouring"] = result.guarantee.neighbouring.value
    return {**described, "note": note, "text": str(result.guarantee)}


def _make_guarantee(stored: Any, transcript: Transcript) -> Guarantee:
    values = decode_settings(stored, "guarantee")
    budget, note = values.pop("budget", None), decode(str, values.pop("note", None), "guarantee.note")
    require("remark" not in values, "'guarantee' has an unknown field 'remark'")
    values.pop("text", None)  # for people who open the file; it is always made anew from the fields
    placeholder = {"epsilon": 0.0, "delta": 0.0}
    guarantee: Guarantee = decode(Guarantee, {**values, "budget": placeholder, "mechanism": ""}, "guarantee")
    generated = describe_transcript(transcript, guarantee.neighbouring)
    mechanism = " ".join(filter(None, (generated, note)))
    made = replace(guarantee, budget=decode_budget(budget), mechanism=mechanism)
    require(made.num_records >= 1, "'guarantee.num_records' must be at least 1")
    require(min(made.num_units, made.records_per_unit) >= 0, "numbers of units must not be negative")
    return made


def decode_budget(stored: Any) -> PrivacyBudget:
    """Decode a budget, whose epsilon may be infinite."""
    unlimited = isinstance(stored, dict) and stored.get("epsilon") == math.inf
    made: PrivacyBudget = decode(PrivacyBudget, {**stored, "epsilon": 0.0} if unlimited else stored, "guarantee.budget")
    return replace(made, epsilon=math.inf) if unlimited else made


def _describe_design(design: Design | None) -> dict[str, Any] | None:
    """Return the stored form of a design, or None if it has numbers that could not be read again."""
    if design is None:
        return None
    stored = design.to_json()
    try:
        Design.from_json(json.loads(json.dumps(stored)))
    except SchemaError:
        return None
    return stored


def _list_versions() -> dict[str, str]:
    packages = ("conddp", "numpy", "scipy", "dp-accounting", "randomgen")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}
