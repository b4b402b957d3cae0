"""Plans and comparisons on disk: JSON files, from which reports can be made."""

import json
from pathlib import Path

from conddp.errors import SchemaError, refuse_existing
from conddp.planning.comparison import Comparison
from conddp.planning.plan import Plan
from conddp.stored import parse_json, read_bytes

__all__ = ["load_record", "save_record"]

FORMAT_VERSION = 3
KINDS: dict[str, type[Plan] | type[Comparison]] = {"conddp_plan": Plan, "conddp_comparison": Comparison}


def save_record(record: Plan | Comparison, path: Path, *, overwrite: bool = False) -> None:
    """Write a plan or a comparison to a JSON file."""
    refuse_existing(path, overwrite=overwrite)
    kind = next(name for name, each in KINDS.items() if isinstance(record, each))
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {kind: FORMAT_VERSION, **record.to_json()}
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def load_record(path: Path) -> Plan | Comparison:
    """Read a plan or a comparison from its JSON file.

    Raises
    ------
    SchemaError
        If the file is missing or damaged, or its format is newer than this version reads.
    """
    content = read_bytes(path)
    try:
        stored = parse_json(content)
    except SchemaError:
        raise SchemaError(f"'{path}' is not valid JSON.") from None
    kinds = [kind for kind in KINDS if isinstance(stored, dict) and kind in stored]
    version = stored.pop(kinds[0]) if len(kinds) == 1 else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise SchemaError(f"'{path}' is neither a plan nor a comparison that conddp has written.")
    if version > FORMAT_VERSION:
        raise SchemaError(
            f"'{path}' has format {version}, newer than this conddp reads ({FORMAT_VERSION}). Install a newer conddp."
        )
    if version < FORMAT_VERSION:
        raise SchemaError(f"'{path}' was written by an older conddp. Make it again.")
    try:
        return KINDS[kinds[0]].from_json(stored)
    except SchemaError as error:
        raise SchemaError(f"'{path}' is damaged: {error}") from error
