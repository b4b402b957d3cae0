"""Section: one private step of noisy descent on dense columns."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .conddp_steps import ConddpSteps
from .descent import Descent, Network, make_records
from .environments import find
from .results import Measured, Scope, Work
from .turns import Contestant, gather, take_turns
from .workers import Worker

__all__ = ["list_works"]

MODES = ("hooks", "functorch", "ew", "ghost")


def list_works(scope: Scope) -> dict[str, Work]:
    """The linear model on two shapes, full batch, and a small network with Poisson samples."""
    works: dict[str, Work] = {}
    for n, d in scope.pick(((16512, 8), (4000, 100)), ((16512, 8), (4000, 100)), ((60, 3),)):
        works[f"linear model, full batch of {n:,} x {d}"] = partial(compare, scope, n, Network.of(d), Descent())
    n, d, hidden, batch = scope.pick((17010, 81, (16, 8), 100), (17010, 81, (16, 8), 100), (60, 3, (4,), 10))
    title = f"network {'-'.join(map(str, (d, *hidden, 1)))}, Poisson samples of {batch} of {n:,}"
    works[title] = partial(compare, scope, n, Network.of(d, hidden), Descent(batch_size=batch))
    return works


def compare(scope: Scope, n: int, network: Network, descent: Descent) -> Measured:
    """Take turns on one work."""
    X, y = make_records(n, network.widths[0])
    with ExitStack() as stack:
        ready, absent = gather(list_contestants(stack, network, descent, X, y, quick=scope.quick), base="conddp")
        rows = take_turns(ready, base="conddp", turns=scope.turns, seconds=scope.seconds)
    return Measured(rows, absent)


def list_contestants(
    stack: ExitStack, network: Network, descent: Descent, X: NDArray[Any], y: NDArray[Any], *, quick: bool
) -> dict[str, Callable[[], Contestant]]:
    """Builders by name; workers end with the stack."""

    def conddp(dtype: str) -> Contestant:
        return Contestant(ConddpSteps.of(descent, network, X, y, dtype=dtype).run)

    def torch(**settings: Any) -> Contestant:
        from .torch_steps import TorchSteps

        return Contestant(TorchSteps.of(descent, network, X, y, **settings).run)

    def opacus(mode: str) -> Contestant:
        from .opacus_steps import OpacusSteps

        return Contestant(OpacusSteps.of(descent, network, X, y, mode=mode).run)

    def jax(at_once: bool) -> Contestant:
        return Contestant(start_jax(stack, network, descent, X, y, at_once=at_once).time)

    builders: dict[str, Callable[[], Contestant]] = {
        "conddp": partial(conddp, "float64"),
        "conddp, float32 without guarantee": partial(conddp, "float32"),
        "PyTorch, not private": torch,
    }
    if descent.batch_size is not None:
        builders["PyTorch, not private, without its loader"] = partial(torch, batches="gather")
    builders |= {f"Opacus, {mode}": partial(opacus, mode) for mode in MODES}
    builders["JAX-Privacy"] = partial(jax, at_once=False)
    if descent.batch_size is None and not quick:
        builders["JAX-Privacy, 100 steps compiled"] = partial(jax, at_once=True)
    return builders


def start_jax(
    stack: ExitStack, network: Network, descent: Descent, X: NDArray[Any], y: NDArray[Any], *, at_once: bool = False
) -> Worker:
    """A worker in the environment of JAX-Privacy, set up for the work."""
    python = find("jax-privacy")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    np.savez(folder / "records.npz", X=X, y=y, parameters=network.parameters)
    worker = stack.enter_context(Worker("jax_steps", python))
    worker.call(
        "set_up",
        path=str(folder / "records.npz"),
        widths=list(network.widths),
        settings=asdict(descent),
        at_once=at_once,
    )
    return worker
