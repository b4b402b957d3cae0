"""Parts of a schema as TOML text."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta

from conddp.data.column import Column, Kind

__all__ = ["list_names", "quote", "render_bounds", "render_private"]


def quote(text: str) -> str:
    r"""Quote text as a TOML basic string. JSON escapes are valid in TOML, which also requires DEL to be escaped.

    Examples
    --------
    >>> print(quote('a "b"'))
    "a \"b\""
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def list_names(names: Iterable[str]) -> str:
    """Return names as a TOML array."""
    return f"[{', '.join(quote(name) for name in names)}]"


def render_bounds(column: Column) -> str:
    """Return the declared range of a column as a TOML array."""
    assert column.bounds is not None
    return f"[{_show(column.bounds.low, column)}, {_show(column.bounds.high, column)}]"


def render_private(column: Column) -> list[str]:
    """Return the lines of the table ``[private.NAME]`` of a column."""
    lines = [f"[private.{quote(column.name)}]"]
    if column.categories is not None:
        lines += [f"categories = {list_names(column.categories.names)}"]
        lines += [] if column.fill is None else [f"fill = {quote(str(column.fill))}"]
        return lines
    lines += [f"bounds = {render_bounds(column)}"]
    lines += ['kind = "boolean"'] if column.kind is Kind.BOOLEAN else []
    lines += [] if column.fill is None else [f"fill = {_show(float(column.fill), column)}"]
    return lines


def _show(value: float, column: Column) -> str:
    """A number, or the date that it stands for, in TOML."""
    return (datetime(1970, 1, 1) + timedelta(days=value)).isoformat() if column.kind is Kind.DATE else repr(value)
