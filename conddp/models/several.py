"""Folders with the models of several labels, which were fitted together.

::

    models.json         format, joint budget, and the digest of each model's record
    1/, 2/, ...         the folder of a model for each label, in their order
"""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conddp.data.column import Role
from conddp.models.result import FitResult
from conddp.models.saving import (
    RECORD,
    ModelFileError,
    check_folder,
    decode_budget,
    digest_file,
    load_model,
    save_model,
)
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.joint_guarantee import JointGuarantee
from conddp.privacy.total import JointCost
from conddp.stored import decode, parse_json, read_bytes

__all__ = ["load_models", "save_models"]

FORMAT_VERSION = 1
INDEX = "models.json"


@dataclass(frozen=True)
class _Index:
    conddp_models: int
    budget: Any
    records: tuple[str, ...]


def save_models(folder: str | Path, results: Sequence[FitResult], guarantee: JointGuarantee) -> Path:
    """Save the models of several labels to a folder that does not exist yet. The write is atomic.

    Privacy
        Writes released values and public settings only: no cost.

    Parameters
    ----------
    folder : path
        Folder to create.
    results : sequence of FitResult
        Result for each label.
    guarantee : JointGuarantee
        Guarantee of all models together.
    """
    folder = Path(folder)
    check_folder(folder)
    _check_alike(results)
    _check_cost(results, guarantee.budget)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        saved = [save_model(temporary / str(place), each) for place, each in enumerate(results, start=1)]
        index: dict[str, Any] = {
            "conddp_models": FORMAT_VERSION,
            "budget": {"epsilon": guarantee.epsilon, "delta": guarantee.delta},
            "records": [digest_file(each / RECORD) for each in saved],
        }
        (temporary / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
        temporary.chmod(0o755)
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def load_models(folder: str | Path) -> tuple[tuple[FitResult, ...], Guarantee | JointGuarantee]:
    """Load the models of a folder: one, or those of several labels, and the guarantee of all of them.

    Raises
    ------
    ModelFileError
        If a file is missing, damaged or altered, or if the models together cost more than the joint budget.
    """
    folder = Path(folder)
    if not (folder / INDEX).is_file():
        result = load_model(folder)
        return (result,), result.guarantee
    try:
        index: _Index = decode(_Index, parse_json(read_bytes(folder / INDEX)), "models")
        budget = decode_budget(index.budget)
    except ValueError as error:
        raise ModelFileError(f"'{folder / INDEX}' is damaged: {error} Restore the folder.") from None
    if index.conddp_models != FORMAT_VERSION or len(index.records) < 2:
        raise ModelFileError(f"'{folder / INDEX}' is not of a format that this conddp reads. Install a newer conddp.")
    results = []
    for place, digest in enumerate(index.records, start=1):
        part = folder / str(place)
        results.append(load_model(part))
        if digest_file(part / RECORD) != digest:
            raise ModelFileError(f"'{part}' does not belong to its {INDEX}, or is damaged. Restore the folder.")
    _check_alike(results)
    _check_cost(results, budget)
    return tuple(results), JointGuarantee(budget, tuple(each.guarantee for each in results))


def _check_alike(results: Sequence[FitResult]) -> None:
    """Raise unless the models are of different labels of the same records."""

    def describe(result: FitResult) -> tuple[Any, ...]:
        features = tuple(column for column in result.schema.columns if column.role is not Role.LABEL)
        return (
            features,
            result.schema.unit,
            result.encoding,
            result.feature_order,
            result.guarantee.num_records,
            result.guarantee.seeded,
            result.model.head,
            result.model.has_constant,
        )

    labels = {result.schema.label.name for result in results}
    if len(labels) < len(results) or any(describe(each) != describe(results[0]) for each in results[1:]):
        raise ModelFileError("the models are not of different labels of the same records.")


def _check_cost(results: Sequence[FitResult], budget: PrivacyBudget) -> None:
    """Raise unless the releases of all models together stay within the joint budget."""
    relations = {each.guarantee.neighbouring for each in results}
    events = [(each.guarantee.budget, each.transcript) for each in results]
    if len(relations) > 1 or not JointCost.of(events, relations.pop()).is_covered_by(budget):
        raise ModelFileError("the models of these labels together cost more than the joint budget that is stated.")
