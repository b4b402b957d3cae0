"""Section: the default fit on tables of many sizes, beside least squares, each in a process of its own."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from .environments import find
from .results import Measured, Scope, Work
from .tables import Kind, make_sparse, write_table
from .turns import Absent, Contestant, gather, take_turns
from .workers import Worker

__all__ = ["Entry", "compare_fits", "list_works", "list_sparse_works"]

Entry = tuple[str, str, dict[str, Any], str | None]  # module, model, settings, environment
DEFAULT: Entry = ("conddp_fit", "default", {}, None)
LARGEST_PRIVATE = 10_000_000  # cells up to which diffprivlib is timed
FULL = (
    (10_000, 10), (10_000, 100), (100_000, 10), (100_000, 100), (100_000, 500), (1_000_000, 10), (1_000_000, 30),
    (1_000_000, 100), (5_000_000, 10), (5_000_000, 30), (10_000, 1_000), (20_000, 2_000), (100_000, 2_000),
)  # fmt: skip
QUICK = ((10_000, 10), (100_000, 100))
TWO_THREADS = ((1_000_000, 100), (100_000, 500), (100_000, 2_000), (100_000, 100))


def list_works(scope: Scope) -> dict[str, Work]:
    """Dense tables."""
    sizes = scope.pick(FULL, QUICK, ((300, 3),))
    if scope.threads > 1:
        sizes = tuple(size for size in sizes if size in TWO_THREADS)
    return {f"{n:,} x {d:,}": partial(compare_dense, scope, n, d) for n, d in sizes}


def compare_dense(scope: Scope, n: int, d: int) -> Measured:
    """The default beside least squares and ridge regression without privacy, and diffprivlib."""
    entries: dict[str, Entry] = {
        "conddp": DEFAULT,
        "numpy lstsq, not private": ("least_squares", "lstsq", {}, None),
        "scikit-learn LinearRegression, not private": ("least_squares", "sklearn", {"kind": "LinearRegression"}, None),
        "scikit-learn Ridge, not private": ("least_squares", "sklearn", {"kind": "Ridge"}, None),
    }
    if n * d <= LARGEST_PRIVATE and d <= 100 and not scope.quick:
        entries["diffprivlib LinearRegression"] = ("diffprivlib_fit", "linear", {}, "diffprivlib")
    return compare_fits(scope, entries, n, d, write=write_table)


def list_sparse_works(scope: Scope) -> dict[str, Work]:
    """Sparse tables."""
    n, d = scope.pick((1_000_000, 4_000), (50_000, 500), (400, 200))
    return {f"{n:,} x {d:,}, 17 values per row": partial(compare_sparse, scope, n, d)}


def compare_sparse(scope: Scope, n: int, d: int) -> Measured:
    """The default beside ridge regression without privacy."""
    ridge = {"kind": "Ridge", "solver": "lsqr"}
    entries: dict[str, Entry] = {
        "conddp": DEFAULT,
        "scikit-learn Ridge (lsqr), not private": ("least_squares", "sklearn", ridge, None),
        "scikit-learn Ridge (sparse_cg), not private": (
            "least_squares",
            "sklearn",
            {**ridge, "solver": "sparse_cg"},
            None,
        ),
    }
    return compare_fits(scope, entries, n, d, write=make_sparse)


def compare_fits(
    scope: Scope,
    entries: dict[str, Entry],
    n: int,
    d: int,
    *,
    write: Callable[..., None],
    kind: Kind | None = None,
    turns: int | None = None,
) -> Measured:
    """Take turns on one table, which is written to a temporary folder."""
    cells = n * d
    turns = turns or scope.pick(9 if cells <= 2e6 else 5 if cells <= 2e7 else 3, 2, 1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="conddp-speed-")))
        check_memory(4 * 8 * n * d if write is write_table else 0)
        write(folder, n, d, **({"kind": kind} if kind else {}))

        def build(entry: Entry) -> Contestant:
            module, model, settings, environment = entry
            worker = stack.enter_context(Worker(module, find(environment) if environment else None))
            worker.call("set_up", name=model, folder=str(folder), warm_rows=min(n, 1000), **settings)
            return Contestant(worker.time, num_steps=1)

        builders = {name: partial(build, entry) for name, entry in entries.items()}
        ready, absent = gather(builders, base="conddp", warm=cells <= 2e6)  # the first rows are fitted anyway
        rows = take_turns(ready, base="conddp", turns=turns)
    return Measured(rows, absent, {"rows": n, "columns": d})


def check_memory(num_bytes: float) -> None:
    """Raise :class:`Absent` if this does not fit."""
    import psutil

    if num_bytes > psutil.virtual_memory().available:
        raise Absent(f"needs {num_bytes / 1e9:.0f} GB of memory")
