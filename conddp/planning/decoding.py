"""Dataclasses from JSON, with every value checked against the type that the dataclass declares."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from conddp.errors import SchemaError

__all__ = ["decode", "require"]

SMALLEST, LARGEST = 1e-300, 1e300  # numbers beyond, and those that are not finite, break what is computed from them
LARGEST_COUNT = 1 << 53


def require(condition: bool, problem: str) -> None:
    """Raise SchemaError with the problem unless the condition holds."""
    if not condition:
        raise SchemaError(f"{problem}.")


def decode(kind: Any, stored: Any, name: str) -> Any:
    """What was stored, as the given type.

    Parameters
    ----------
    kind : type
        A dataclass, an enumeration, ``float``, ``int`` or ``str``, or a tuple, mapping or optional value of such;
        ``Any`` is left as it is.
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
        return {key: decode(inner[1], each, f"{name}.{key}") for key, each in stored.items()}
    if get_origin(kind) is UnionType:
        return None if stored is None else decode(inner[0], stored, name)
    if is_dataclass(kind):
        return _decode_fields(kind, stored, name)
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
    unknown = sorted(set(stored) - set(known))
    require(not unknown, f"'{name}' has unknown fields {unknown}")
    hints = get_type_hints(kind)
    return kind(**{each: decode(hints[each], value, f"{name}.{each}") for each, value in stored.items()})


def _describe(stored: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(stored), "a number")
