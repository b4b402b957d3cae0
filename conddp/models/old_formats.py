"""Records of old model formats, brought to the current one step by step.

========  ==============================================================================================
format 1  head, schema, guarantee, settings and versions; later also diagnostics and design
format 2  the design may have an improvement factor
format 3  the design has an improvement factor
format 4  loss and transcript, later the order of features; the guarantee no longer has an event
format 5  digests of the record and of the ledger; of the text about releases, only a note is stored
format 6  the encoding of public columns; later also the effects of columns of additive models
format 7  the uncertainty of the coefficients of linear models
========  ==============================================================================================

Old formats hold less evidence for their guarantee: formats 1 to 3 kept no transcript, and format 4 no digests. What
they do hold is still checked. The guarantee of such a model starts with a remark that says what is missing, and the
remark is made from the number of the format, not read from the file. Whoever can write to a folder can rewrite it as
one of an old format, whose guarantee is checked less, but then everybody who reads the guarantee, a report or the
output of ``conddp ledger show`` sees the remark. Fields of another format are refused, so that changing the number
alone is not enough.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from conddp.errors import PrivacyError
from conddp.privacy.accounting import GaussianEvent
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.composition import compute_delta, describe_transcript
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.transcript import GaussianRelease, Transcript
from conddp.stored import decode, require

__all__ = ["STEPS", "describe_gaps", "has_digests", "has_transcript", "upgrade"]

Record = dict[str, Any]

_BASIC = {"conddp_model", "weights", "head", "has_constant", "schema", "guarantee", "settings", "versions"}
_STATISTICS = {"diagnostics", "design"}
_RELEASES = {"loss", "transcript"}
_PROMISE = {
    *("budget", "neighbouring", "num_records", "label", "label_bounds", "public_columns", "private_columns"),
    *("mechanism", "seeded", "choice", "text"),
}
_REWORDED = {  # in descriptions of the same releases, since format 4 began
    "together they are one Gaussian mechanism": "together they form one Gaussian mechanism",
    "distributions (its pair of worst-case outputs under replacement is supported numerically, not proved).": (
        "distributions, which give an upper bound."
    ),
}
_ROUNDING = 1e-9


def has_transcript(version: int) -> bool:
    """Whether a format lists the releases."""
    return version >= 4


def has_digests(version: int) -> bool:
    """Whether a format has digests of the record and of the ledger."""
    return version >= 5


def describe_gaps(old_format: int | None) -> str:
    """Describe what cannot be checked in a model of an old format; empty if nothing is missing.

    Examples
    --------
    >>> describe_gaps(None)
    ''
    >>> describe_gaps(1)[:32]
    'This model was saved in format 1'
    """
    if old_format is None or has_digests(old_format):
        return ""
    start = f"This model was saved in format {old_format} by an earlier version of conddp, which kept"
    noise = "drawn in floating point, and its low-order bits can reveal private values; this is not covered."
    if has_transcript(old_format):
        return (
            f"{start} no digests of its record and ledger: the guarantee follows from the releases listed in the "
            f"folder, but changes to the folder since then would go unnoticed. Its noise may have been {noise}"
        )
    return (
        f"{start} no list of releases: its guarantee is as recorded then and cannot be recomputed, and changes to the "
        f"folder since then would go unnoticed. Any noise was {noise}"
    )


def upgrade(record: Mapping[str, Any], *, to: int) -> Record:
    """Bring a record to a newer format. What the old format did not have becomes empty.

    Parameters
    ----------
    record : mapping
        The record, with the number of its format.
    to : int
        Number of the format to return.

    Raises
    ------
    SchemaError, ValueError, LookupError, TypeError
        If the record is not one of its format.
    PrivacyError
        If the guarantee promises more than the event that formats 1 to 3 may have recorded.
    """
    made = dict(record)
    for version in range(made["conddp_model"], to):
        made = {**STEPS[version](made), "conddp_model": version + 1}
    return made


def _upgrade_1(record: Record) -> Record:
    _check_fields(record, 1, _BASIC, _STATISTICS)
    return {"diagnostics": {}, "design": None, **record}


def _upgrade_2(record: Record) -> Record:
    _check_fields(record, 2, _BASIC | _STATISTICS)
    design = record["design"]
    if isinstance(design, dict) and "improvement" not in design:
        return {**record, "design": None}  # the factor cannot be computed without the public columns
    return record


def _upgrade_3(record: Record) -> Record:
    _check_fields(record, 3, _BASIC | _STATISTICS)
    guarantee = _open_guarantee(record, 3, _PROMISE | {"event"})
    _check_event(guarantee.pop("event"), guarantee)
    return {**record, "guarantee": guarantee, "loss": "squared", "transcript": []}


def _upgrade_4(record: Record) -> Record:
    _check_fields(record, 4, _BASIC | _STATISTICS | _RELEASES, {"feature_order"})
    guarantee = _open_guarantee(record, 4, _PROMISE)
    text = decode(str, guarantee.pop("mechanism"), "guarantee.mechanism")
    for old, new in _REWORDED.items():
        text = text.replace(old, new)
    relation = decode(Neighbouring, guarantee["neighbouring"], "guarantee.neighbouring")
    generated = describe_transcript(Transcript.from_json(record["transcript"]), relation)
    diagnostics, design = record["diagnostics"], record["design"]
    return {
        "feature_order": [],
        **record,
        "guarantee": {**guarantee, "note": text.removeprefix(generated).strip()},
        "diagnostics": diagnostics if _is_finite(diagnostics) else {},  # format 5 leaves out what is not known
        "design": design if _is_finite(design) else None,
        "ledger": None,
    }


def _upgrade_5(record: Record) -> Record:
    require("encoding" not in record, "it does not have the fields of format 5")
    return {**record, "encoding": None}


def _upgrade_6(record: Record) -> Record:
    require("uncertainty" not in record, "it does not have the fields of format 6")
    return {**record, "uncertainty": None}


STEPS: dict[int, Callable[[Record], Record]] = {
    1: _upgrade_1,
    2: _upgrade_2,
    3: _upgrade_3,
    4: _upgrade_4,
    5: _upgrade_5,
    6: _upgrade_6,
}


def _check_fields(stored: Mapping[str, Any], version: int, needed: set[str], optional: set[str] | None = None) -> None:
    require(needed <= set(stored) <= needed | (optional or set()), f"it does not have the fields of format {version}")


def _open_guarantee(record: Record, version: int, needed: set[str]) -> Record:
    stored = record["guarantee"]
    require(isinstance(stored, dict), "'guarantee' must be an object")
    _check_fields(stored, version, needed)
    return dict(stored)


def _check_event(stored: Any, guarantee: Record) -> None:
    """Raise unless the event that formats 1 to 3 recorded for Gaussian runs, if any, costs at most the guarantee."""
    if stored is None:
        return
    event: GaussianEvent = decode(GaussianEvent, stored, "guarantee.event")
    cost: PrivacyBudget = decode(PrivacyBudget, guarantee["budget"], "guarantee.budget")
    if event.neighbouring.value != guarantee["neighbouring"]:
        raise PrivacyError("the guarantee and its event state different neighbouring relations.")
    release = GaussianRelease(
        "sums",
        event.num_steps,
        event.neighbouring.sensitivity(1.0),
        event.noise_multiplier,
        event.sampling_probability,
    )
    delta = compute_delta(Transcript((release,)), cost.epsilon, event.neighbouring, at_most=cost.delta)
    if not delta <= cost.delta * (1 + _ROUNDING):
        raise PrivacyError(
            f"the guarantee states {cost}, but at epsilon={cost.epsilon:g} its event has delta={delta:.3g}."
        )


def _is_finite(value: Any) -> bool:
    """Whether no number in a stored value is infinite or not a number."""
    if isinstance(value, (dict, list)):
        return all(_is_finite(each) for each in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
