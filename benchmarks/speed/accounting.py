"""Section: the noise for epsilon 1 and delta 1e-6, the first time, again, and in a new process.

Times include imports of the accountants. conddp keeps results in a file and has them confirmed before it uses them.
"""

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from .results import Measured, Scope, Work
from .turns import Absent
from .workers import Worker

__all__ = ["list_works"]

# Name in the table, accountant and its relation or kind.
CONTESTANTS = {
    "conddp, replacement": ("conddp", "REPLACE"),
    "conddp, zero-out": ("conddp", "ZERO_OUT"),
    "dp-accounting PLD, replacement": ("dp-accounting", "REPLACE_ONE"),
    "dp-accounting PLD, add or remove": ("dp-accounting", "ADD_OR_REMOVE_ONE"),
    "Opacus PRV, add or remove": ("opacus", "prv"),
    "Opacus RDP, add or remove": ("opacus", "rdp"),
}
QUICK = ("conddp, replacement", "Opacus PRV, add or remove")


def list_works(scope: Scope) -> dict[str, Work]:
    """A full-batch run and a Poisson-sampled one."""
    if scope.threads > 1:
        return {}
    works: dict[str, Work] = {"128 full-batch steps": partial(compare, scope, 128, 1.0)}
    if scope.quick:
        works.clear()
    if not scope.tiny:
        works["1,700 steps on Poisson samples of 100 of 17,010"] = partial(compare, scope, 1700, 100 / 17_010)
    return works


def compare(scope: Scope, num_steps: int, sampling_probability: float) -> Measured:
    """All accountants in turn."""
    settings = {"epsilon": 1.0, "delta": 1e-6, "num_steps": num_steps, "sampling_probability": sampling_probability}
    taken: dict[str, list[dict[str, Any]]] = {}
    absent: dict[str, str] = {}
    for _ in range(scope.pick(5, 1, 1)):
        for name, (accountant, kind) in CONTESTANTS.items():
            if name in absent or (scope.tiny and accountant != "conddp") or (scope.quick and name not in QUICK):
                continue
            try:
                taken.setdefault(name, []).append(_measure(accountant, kind, settings))
            except Absent as reason:
                absent[name] = str(reason)
    base = taken["conddp, replacement"]
    rows = []
    for name, found in taken.items():
        pairs = list(zip(found, base, strict=False))
        rows.append({
            "name": name,
            "seconds": statistics.median(each["first"] for each in found),
            "again": statistics.median(each["again"] for each in found),
            "new_process": statistics.median(each["new_process"] for each in found),
            "ratio": statistics.median(own["first"] / ours["first"] for own, ours in pairs),
            "noise_multiplier": found[-1]["noise_multiplier"],
            "turns": len(found),
        })  # fmt: skip
    return Measured(rows, absent)


def _measure(accountant: str, kind: str, settings: dict[str, Any]) -> dict[str, float]:
    """The first call with an empty cache, the second, and the first of a new process with a filled one."""
    request = {"name": accountant, "kind": kind, "settings": settings}
    with _empty_cache():
        with Worker("calibration") as worker:
            first = worker.call("run", timeout=300, **request)
            again = worker.call("run", timeout=300, **request)
        with Worker("calibration") as worker:
            new = worker.call("run", timeout=300, **request)
    return {
        "first": first["seconds"],
        "again": again["seconds"],
        "new_process": new["seconds"],
        "noise_multiplier": first["noise_multiplier"],
    }


@contextmanager
def _empty_cache() -> Iterator[None]:
    before = os.environ.get("CONDDP_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CONDDP_CACHE"] = folder
        try:
            yield
        finally:
            os.environ.pop("CONDDP_CACHE")
            if before is not None:
                os.environ["CONDDP_CACHE"] = before
