"""Section: default fits of nonlinear heads, beside a private boosting machine."""

from functools import partial

from .fits import Entry, compare_fits
from .results import Measured, Scope, Work
from .tables import write_table

__all__ = ["list_works"]


def list_works(scope: Scope) -> dict[str, Work]:
    """Wide and deep heads on tables with a curved label."""
    works: dict[str, Work] = {}
    if scope.threads > 1:
        return works
    for n, d in scope.pick(((16_512, 8), (100_000, 20)), ((16_512, 8),), ((300, 3),)):
        works[f"{n:,} x {d}"] = partial(compare, scope, n, d)
    return works


def compare(scope: Scope, n: int, d: int) -> Measured:
    """Heads of conddp in turn."""
    heads = scope.pick(("wide", "mlp"), ("wide",), ("wide",))
    entries: dict[str, Entry] = {"conddp": ("conddp_fit", "default", {}, None)}
    entries |= {f"conddp, head {head}": ("conddp_fit", "default", {"head": head}, None) for head in heads}
    if not scope.quick:
        entries["interpret DP-EBM"] = ("boosting", "boosting", {"ranges": [(-5.0, 5.0)] * d}, "interpret")
    return compare_fits(scope, entries, n, d, write=write_table, kind="curved")
