"""Section: default fits of nonlinear heads, beside a private boosting machine."""

from functools import partial

from .fits import Entry, compare_fits
from .results import Measured, Scope, Work
from .tables import write_table

__all__ = ["list_works"]

LARGE = ((200_000, 20), (1_000_000, 20), (100_000, 200))  # for heads whose features are learned


def list_works(scope: Scope) -> dict[str, Work]:
    """Wide, deep, learned and additive heads on tables with a curved label."""
    works: dict[str, Work] = {}
    if scope.threads == 1:
        for n, d in scope.pick(((16_512, 8), (100_000, 20)), ((16_512, 8),), ((300, 3),)):
            works[f"{n:,} x {d}"] = partial(compare, scope, n, d)
    for n, d in scope.pick(LARGE, (), ()):
        works[f"{n:,} x {d}, learned features"] = partial(compare_learned, scope, n, d)
    return works


def compare(scope: Scope, n: int, d: int) -> Measured:
    """Heads of conddp in turn."""
    heads = scope.pick(("wide", "mlp", "learned", "additive"), ("wide", "learned"), ("wide", "learned"))
    entries = list_entries(heads)
    if not scope.quick:
        entries["interpret DP-EBM"] = ("boosting", "boosting", {"ranges": [(-5.0, 5.0)] * d}, "interpret")
    return compare_fits(scope, entries, n, d, write=write_table, kind="curved")


def compare_learned(scope: Scope, n: int, d: int) -> Measured:
    """Heads whose features are learned, once: they take minutes."""
    return compare_fits(scope, list_entries(("learned", "additive")), n, d, write=write_table, kind="curved", turns=1)


def list_entries(heads: tuple[str, ...]) -> dict[str, Entry]:
    """The default and heads of conddp."""
    entries: dict[str, Entry] = {"conddp": ("conddp_fit", "default", {}, None)}
    return entries | {f"conddp, head {head}": ("conddp_fit", "default", {"head": head}, None) for head in heads}
