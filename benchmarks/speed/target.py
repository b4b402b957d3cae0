"""Section: time to the test error that Opacus reaches at epsilon 1 on California housing, accounting included.

A user of Opacus has to find a learning rate, a clip norm, a batch size and a number of epochs. The grid has 30
settings. Its best one is chosen by test error, which favours Opacus: a user cannot do that privately for free. Its
epsilon is for adding or removing a record, where the sensitivity of a clipped sum is half of that under replacement.
The epsilon of conddp is for replacement, which is the stronger guarantee.
"""

import statistics
import tempfile
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from .environments import find
from .housing import Housing
from .results import Measured, Scope, Work
from .turns import Absent, describe
from .workers import Worker

__all__ = ["compute_replaced", "list_works", "make_grid"]

EPSILON, DELTA = 1.0, 1e-6
LINEAR_RULES = (("sgd", 0.1), ("sgd", 0.5), ("sgd", 1.0), ("adam", 0.01), ("adam", 0.03))
NETWORK_RULES = (("sgd", 0.1), ("sgd", 0.5), ("adam", 0.003), ("adam", 0.01), ("adam", 0.03))
# Title, columns that Opacus gets, hidden layers of its network, head of conddp.
WORKS = (
    ("linear model, standardized columns", "standardized", (), "linear"),
    ("linear model, columns squashed as conddp does", "squashed", (), "linear"),
    ("network 8-64-32-1, columns squashed as conddp does", "squashed", (64, 32), "wide"),
)
Found = tuple[float, float, dict[str, float]]  # seconds, of processor time, test error


def list_works(scope: Scope) -> dict[str, Work]:
    """A linear model and a network."""
    if scope.threads > 1:
        return {}
    works = scope.pick(WORKS, WORKS[:1], WORKS[:1])
    return {title: partial(compare, scope, *rest) for title, *rest in works}


def make_grid(rules: tuple[tuple[str, float], ...], *, scope: Scope) -> list[dict[str, Any]]:
    """Settings that a user would try: 30, or fewer for a quick look."""
    sizes = scope.pick(((256, 5), (256, 20), (1024, 20)), ((1024, 20),), ((100, 1),))
    rules = scope.pick(rules, rules[-2:], rules[:1])
    clips = scope.pick((0.1, 1.0), (1.0,), (1.0,))
    return [
        {"rule": rule, "learning_rate": rate, "clip_norm": clip, "batch_size": batch, "epochs": epochs}
        for (batch, epochs), clip, (rule, rate) in product(sizes, clips, rules)
    ]


def compare(scope: Scope, columns: str, hidden: tuple[int, ...], head: str) -> Measured:
    """The grid once, then its best setting and one-call estimators in turns."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        housing = Housing.load(small=scope.tiny)
        path = str(folder / "housing.npz")
        housing.save(path)
        opacus = stack.enter_context(Worker("opacus_fit"))
        settings: dict[str, Any] = {
            "columns": columns,
            "hidden": list(hidden),
            "threads": scope.threads,
            "small": scope.tiny,
        }
        opacus.call("set_up", epsilon=EPSILON, delta=DELTA, **settings)
        grid = make_grid(NETWORK_RULES if hidden else LINEAR_RULES, scope=scope)
        tried: list[Found] = [opacus.call("run", setting=setting, seed=0) for setting in grid]
        place = min(range(len(grid)), key=lambda number: tried[number][2]["error"])
        taken: dict[str, list[Found]] = {}
        absent: dict[str, str] = {}
        for turn in range(scope.pick(7, 2, 1)):
            found = {"Opacus, one run of its best setting": opacus.call("run", setting=grid[place], seed=turn + 1)}
            with Worker("housing_fit") as worker:  # a new process, so that nothing is remembered
                worker.call("set_up", name="conddp", path=path, epsilon=EPSILON, delta=DELTA, settings={"head": head})
                found["conddp, first fit of a process"] = worker.call("run")
                found["conddp"] = worker.call("run")
            for name, (model, more, environment) in _list_others(scope, hidden).items():
                try:
                    with Worker("housing_fit", find(environment) if environment else None) as worker:
                        worker.call("set_up", name=model, path=path, epsilon=EPSILON, delta=DELTA, settings=more)
                        found[name] = worker.call("run")
                except Absent as reason:
                    absent[name] = describe(reason)
            for name, each in found.items():
                taken.setdefault(name, []).append(each)
    total = sum(each[0] for each in tried)
    base = taken["conddp, first fit of a process"]
    rows = [_summarize(name, found, base) for name, found in taken.items()]
    ratios = [total / each[0] for each in base]
    rows.insert(0, {
        "name": f"Opacus, grid of {len(grid)} settings",
        "seconds": total,
        "busy_seconds": sum(each[1] for each in tried),
        "ratio": statistics.median(ratios),
        "busy_ratio": statistics.median(sum(each[1] for each in tried) / each[1] for each in base),
        "error": tried[place][2]["error"],
        "turns": 1,
    })  # fmt: skip
    facts = {
        "best": grid[place],
        "tried": [{"seconds": each[0], "busy_seconds": each[1], "error": each[2]["error"]} for each in tried],
        "replaced": compute_replaced(grid[place], len(housing.y)),
        "records": len(housing.y),
        "epsilon": EPSILON,
        "delta": DELTA,
    }
    return Measured(rows, absent, facts)


def compute_replaced(setting: dict[str, Any], n: int) -> float:
    """Epsilon under replacement of a run that Opacus calibrates for adding or removing a record.

    The noise is that of zeroing out a record, which agrees with it closely.
    """
    from conddp.privacy.accounting import GaussianEvent, calibrate_noise_multiplier, compute_epsilon
    from conddp.privacy.neighbouring import Neighbouring

    per_epoch = -(-n // setting["batch_size"])
    run: dict[str, Any] = {"num_steps": setting["epochs"] * per_epoch, "sampling_probability": 1 / per_epoch}
    noise = calibrate_noise_multiplier(EPSILON, DELTA, neighbouring=Neighbouring.ZERO_OUT, **run)
    return compute_epsilon(GaussianEvent(noise, neighbouring=Neighbouring.REPLACE, **run), DELTA)


def _list_others(scope: Scope, hidden: tuple[int, ...]) -> dict[str, tuple[str, dict[str, Any], str | None]]:
    if scope.tiny or scope.quick:
        return {}
    if hidden:
        return {"interpret DP-EBM": ("boosting", {}, "interpret")}
    return {
        "diffprivlib LinearRegression": ("diffprivlib", {}, "diffprivlib"),
        "scikit-learn LinearRegression, not private": ("sklearn", {"kind": "LinearRegression"}, None),
    }


def _summarize(name: str, own: list[Found], base: list[Found]) -> dict[str, Any]:
    errors = [each[2]["error"] for each in own]
    return {
        "name": name,
        "seconds": statistics.median(each[0] for each in own),
        "busy_seconds": statistics.median(each[1] for each in own),
        "ratio": statistics.median(a[0] / b[0] for a, b in zip(own, base, strict=True)),
        "busy_ratio": statistics.median(a[1] / b[1] for a, b in zip(own, base, strict=True)),
        "error": statistics.median(errors),
        "lowest_error": min(errors),
        "highest_error": max(errors),
        "turns": len(own),
    }
