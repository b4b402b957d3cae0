"""Section: ``conddp plan`` with its defaults, by head. Other software has nothing like it."""

from functools import partial

from .results import Measured, Scope, Work
from .turns import Absent
from .workers import Worker

__all__ = ["list_works"]

TIMEOUT = 300.0  # seconds


def list_works(scope: Scope) -> dict[str, Work]:
    """One table."""
    n, d = scope.pick((4_406, 10), (4_406, 10), (200, 2))
    return {f"{n:,} x {d}": partial(measure, scope, n, d)}


def measure(scope: Scope, n: int, d: int) -> Measured:
    """Each head once, the second time of two where that is quick."""
    rows, absent = [], {}
    for head in scope.pick(("linear", "wide", "mlp", "fm"), ("linear",), ()):
        with Worker("planning") as worker:
            try:
                taken = worker.call("run", timeout=TIMEOUT, n=n, d=d, head=head, workers=scope.threads)
                if taken[0] < 10 and not scope.quick:
                    taken = worker.call("run", timeout=TIMEOUT, n=n, d=d, head=head, workers=scope.threads)
                rows.append({"name": f"conddp, head {head}", "seconds": taken[0], "busy_seconds": taken[1], "turns": 1})
            except Absent as reason:
                absent[f"conddp, head {head}"] = str(reason)
    return Measured(rows, absent)
