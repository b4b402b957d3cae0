"""Types of columns, in words that a schema draft shows."""

from typing import Any

__all__ = ["BOOLEAN", "TEXT", "UNKNOWN", "name_type"]

BOOLEAN = "true or false"
TEXT = "text"
UNKNOWN = "type unknown"


def name_type(kind: Any) -> str:
    """Return what an Arrow type holds, in words: "number", "whole number", "text", "date" and so on.

    Examples
    --------
    >>> import pyarrow
    >>> name_type(pyarrow.int64()), name_type(pyarrow.dictionary(pyarrow.int8(), pyarrow.string()))
    ('whole number', 'category, stored as text')
    """
    from pyarrow import types

    if types.is_dictionary(kind):
        return f"category, stored as {name_type(kind.value_type)}"
    for holds, word in (
        (types.is_boolean, BOOLEAN),
        (types.is_integer, "whole number"),
        (types.is_floating, "number"),
        (types.is_decimal, "decimal number"),
        (types.is_date, "date"),
        (types.is_timestamp, "time stamp"),
        (types.is_time, "time of day"),
        (types.is_duration, "duration"),
        (types.is_nested, "nested values"),
        (_is_text, TEXT),
        (_is_binary, "bytes"),
    ):
        if holds(kind):
            return word
    return UNKNOWN


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: Any) -> bool:
    from pyarrow import types

    views = types.is_binary_view(kind) or types.is_fixed_size_binary(kind)
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or views)
