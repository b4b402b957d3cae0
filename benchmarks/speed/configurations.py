"""Section: 64 configurations of a noisy descent, at once and one by one. Times are per configuration and step."""

from collections.abc import Callable
from functools import partial

from .conddp_steps import ConddpSteps
from .descent import Descent, Network, make_records
from .results import Measured, Scope, Work
from .turns import Contestant, gather, take_turns

__all__ = ["list_works"]

NUM_CONFIGURATIONS = 64
BASE = "conddp, 64 at once"


def list_works(scope: Scope) -> dict[str, Work]:
    """The works of the section on steps."""
    works: dict[str, Work] = {}
    for n, d in scope.pick(((16_512, 8), (4_000, 100)), ((16_512, 8), (4_000, 100)), ((60, 3),)):
        works[f"linear model, full batch of {n:,} x {d}"] = partial(compare, scope, n, Network.of(d), Descent())
    if not scope.tiny:
        network, descent = Network.of(81, (16, 8)), Descent(batch_size=100)
        works["network 81-16-8-1, Poisson samples of 100 of 17,010"] = partial(compare, scope, 17_010, network, descent)
    return works


def compare(scope: Scope, n: int, network: Network, descent: Descent) -> Measured:
    """Take turns on one work."""
    X, y = make_records(n, network.widths[0])

    def conddp(K: int) -> Contestant:
        return Contestant(ConddpSteps.of(descent, network, X, y, K=K).run, parts=K)

    def opacus(mode: str) -> Contestant:
        from .opacus_steps import OpacusSteps

        return Contestant(OpacusSteps.of(descent, network, X, y, mode=mode).run)

    builders: dict[str, Callable[[], Contestant]] = {
        BASE: partial(conddp, NUM_CONFIGURATIONS),
        "conddp, one at a time": partial(conddp, 1),
        "Opacus, hooks, one at a time": partial(opacus, "hooks"),
        "Opacus, ew, one at a time": partial(opacus, "ew"),
    }
    ready, absent = gather(builders, base=BASE)
    return Measured(take_turns(ready, base=BASE, turns=scope.turns, seconds=scope.seconds), absent)
