"""Stored JSON: files of bounded size, and dataclasses whose values are checked against their declared types.

Whoever reads a file must expect anything in it. What these functions return has the declared types, finite numbers of
usual size and no deep nesting. For anything else they raise :class:`~conddp.errors.SchemaError`.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from conddp.errors import SchemaError

__all__ = ["decode", "decode_settings", "parse_json", "read_bytes", "require"]

SMALLEST, LARGEST = 1e-300, 1e300  # numbers beyond, and those that are not finite, break what is computed from them
LARGEST_COUNT = 1 << 53
LARGEST_FILE = 1 << 26  # bytes; parsing JSON takes up to about twenty times as much memory
DEEPEST = 8  # levels of nesting of settings
SHOWN = 40  # characters of a name that errors quote


def require(condition: bool, problem: str) -> None:
    """Raise SchemaError with the problem unless the condition holds."""
    if not condition:
        raise SchemaError(f"{problem}.")


def read_bytes(path: Path, *, at_most: int = LARGEST_FILE) -> bytes:
    """Return the content of a regular file of limited size; links are followed.

    Raises
    ------
    SchemaError
        If the file is missing, a folder, a device or too large, or cannot be read. The message starts with its path.
    """
    try:
        size = path.stat().st_size
        require(path.is_file(), f"'{path}' cannot be read: it is not a file")
        require(size <= at_most, f"'{path}' has {size:,} bytes, more than the {at_most:,} that it may have")
        with path.open("rb") as file:
            return file.read(size)  # a larger number would be allocated at once
    except OSError as error:
        raise SchemaError(f"'{path}' cannot be read: {error.strerror}.") from None


def parse_json(content: bytes) -> Any:
    """Parse UTF-8 encoded JSON.

    Raises
    ------
    SchemaError
        If it is not JSON, repeats a name in an object, or is nested too deeply.
    """
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=_make_object)
    except (ValueError, RecursionError, MemoryError):
        raise SchemaError("it is not valid JSON.") from None


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name occurs twice")  # readers would disagree on which of its values counts
    return made


def decode_settings(stored: Any, name: str) -> dict[str, Any]:
    """Return stored settings: an object of JSON values of any kind.

    Raises
    ------
    SchemaError
        If it is something else, is nested too deeply, or has a whole number beyond the range of floating point.
    """
    require(isinstance(stored, dict), f"'{name}' must be an object, got {_describe(stored)}")
    _check_setting(stored, name, DEEPEST)
    return dict(stored)


def _check_setting(value: Any, name: str, levels: int) -> None:
    if isinstance(value, (dict, list)):
        require(levels > 0, f"'{name}' is nested too deeply")
        for each in value.values() if isinstance(value, dict) else value:
            _check_setting(each, name, levels - 1)
    elif isinstance(value, int):
        require(abs(value) < LARGEST, f"'{name}' has a number that is not of a usual size")


def decode(kind: Any, stored: Any, name: str) -> Any:
    """What was stored, as the given type.

    Parameters
    ----------
    kind : type
        A dataclass, an enumeration, ``float``, ``int``, ``str`` or ``bool``, or a tuple, mapping or optional value of
        such; ``Any`` is left as it is.
    stored : object
        The value that ``json.loads`` returned.
    name : str
        What errors call it.

    Raises
    ------
    SchemaError
        If a value has another type, a field is missing or unknown, or a number is not finite.
    """
    if kind is Any:
        return stored
    inner = get_args(kind)
    if get_origin(kind) is tuple:
        require(isinstance(stored, list), f"'{name}' must be a list, got {_describe(stored)}")
        return tuple(decode(inner[0], each, f"{name}[{place}]") for place, each in enumerate(stored))
    if get_origin(kind) is Mapping:
        require(isinstance(stored, dict), f"'{name}' must be an object, got {_describe(stored)}")
        return {key: decode(inner[1], each, f"{name}.{key[:SHOWN]}") for key, each in stored.items()}
    if get_origin(kind) is UnionType:
        return None if stored is None else decode(inner[0], stored, name)
    if is_dataclass(kind):
        return _decode_fields(kind, stored, name)
    if kind is bool:
        require(isinstance(stored, bool), f"'{name}' must be true or false, got {_describe(stored)}")
        return stored
    if issubclass(kind, Enum):
        known = [each.value for each in kind]
        require(isinstance(stored, str) and stored in known, f"'{name}' must be one of {known}")
        return kind(stored)
    if kind is float:
        is_number = isinstance(stored, (int, float)) and not isinstance(stored, bool)
        require(is_number, f"'{name}' must be a number, got {_describe(stored)}")
        size = abs(stored)
        require(size == 0 or SMALLEST < size < LARGEST, f"'{name}' must be a finite number of a usual size")
        return float(stored)
    right = isinstance(stored, kind) and not isinstance(stored, bool)
    wanted = {int: "a whole number", str: "text"}[kind]
    require(right, f"'{name}' must be {wanted}, got {_describe(stored)}")
    require(kind is str or abs(stored) < LARGEST_COUNT, f"'{name}' must be a whole number of a usual size")
    return stored


def _decode_fields(kind: Any, stored: Any, name: str) -> Any:
    require(isinstance(stored, dict), f"'{name}' must be an object, got {_describe(stored)}")
    known = {field.name: field for field in fields(kind)}
    missing = [each for each, field in known.items() if field.default is MISSING and each not in stored]
    require(not missing, f"'{name}' lacks {missing}")
    unknown = sorted(each[:SHOWN] for each in set(stored) - set(known))[:DEEPEST]
    require(not unknown, f"'{name}' has unknown fields {unknown}")
    hints = get_type_hints(kind)
    return kind(**{each: decode(hints[each], value, f"{name}.{each}") for each, value in stored.items()})


def _describe(stored: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(stored), "a number")
