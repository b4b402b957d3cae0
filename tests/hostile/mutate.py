"""Damage to files: bytes and JSON values, changed at random by a seeded generator."""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

__all__ = ["ODD", "damage_bytes", "damage_json", "list_places"]

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 7.5, 1e-320, 1e300, -1e300, 10**12, 2**63, 10**400),
    *(float("nan"), float("inf"), float("-inf"), "", "x", "1", "é\u0000\ud800", "x" * 5000),
    *([], [[1]], ["x"], [None], {}, {"a": 1}, [10**12], [0.5] * 50, {"": {"": []}}),
)
PIECES = (
    *(
        b"",
        b"\x00",
        b"\xff\xfe",
        b"\n",
        b"\r\n",
        b",",
        b'"',
        b"'",
        b";",
        b"\t",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b"-",
        b"=",
    ),
    *(b"nan", b"NaN", b"Infinity", b"1e400", b"-1e-400", b"9" * 500, b"null", b"true", b"\xef\xbb\xbf", b"\\u0000"),
    *(b"[" * 3000, b"a" * 3000, b"label", b"bounds", b"# "),
)


def damage_bytes(content: bytes, random: Random) -> bytes:
    """Change a few places of some bytes: overwrite, insert, delete, repeat, move or cut off."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        start = random.randrange(len(content) + 1)
        stop = min(len(content), start + random.choice((1, 1, 2, 8, 40, 300)))
        piece = random.choice((random.choice(PIECES), random.randbytes(random.choice((1, 4, 16)))))
        content = random.choice(
            (
                content[:start] + piece + content[start:],
                content[:start] + piece + content[stop:],
                content[:start] + content[stop:],
                content[:start] + content[start:stop] * 2 + content[stop:],
                content[:start],
                content[start:] + content[:start],
                content[:start] + bytes([random.randrange(256)]) + content[start + 1 :],
            )
        )
    return content


def list_places(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of all values, at most a few in a list."""
    if place:
        yield place
    if len(place) > 20:
        return
    if isinstance(content, dict):
        for name, value in content.items():
            yield from list_places(value, (*place, name))
    elif isinstance(content, list):
        for number in sorted({0, 1, len(content) // 2, len(content) - 1} & set(range(len(content)))):
            yield from list_places(content[number], (*place, number))


def damage_json(content: Any, random: Random) -> Any:
    """Change a few values of a JSON document: replace, remove, add, repeat, scale or nest."""
    content = copy.deepcopy(content)
    for _ in range(random.choice((1, 1, 1, 1, 2, 3))):
        places = list(list_places(content))
        if not places:
            return content
        *way, last = random.choice(places)
        part = content
        for name in way:
            part = part[name]
        _change(part, last, random)
    return content


def _change(part: Any, name: Any, random: Random) -> None:
    value = part[name]
    kind = random.randrange(8)
    if kind == 0:
        del part[name]
    elif kind == 1 and isinstance(part, dict):
        part[random.choice(("extra", "kind", "", "text"))] = copy.deepcopy(random.choice(ODD))
    elif kind == 1:
        part.insert(name, value)
    elif kind == 2 and isinstance(value, (int, float)) and not isinstance(value, bool):
        part[name] = value * random.choice((-1, 0, 0.5, 2, 1e-9, 1e9, 1e200))
    elif kind == 3:
        nested: Any = value
        for _ in range(random.choice((1, 3, 30, 200))):
            nested = random.choice(([nested], {"a": nested}))
        part[name] = nested
    elif kind == 4 and isinstance(value, str):
        part[name] = damage_bytes(value.encode("utf-8", "replace"), random).decode("utf-8", "replace")
    elif kind == 5 and isinstance(part, list):
        random.shuffle(part)
    elif kind == 6 and isinstance(part, dict) and len(part) > 1:
        part[name] = copy.deepcopy(part[random.choice(list(part))])
    else:
        part[name] = copy.deepcopy(random.choice(ODD))


def dump(content: Any) -> bytes:
    """JSON with whatever it holds."""
    return json.dumps(content).encode("utf-8", "replace")
