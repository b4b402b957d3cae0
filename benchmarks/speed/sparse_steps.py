"""Section: one private step at the size of the paper's Criteo experiments.

The records have 17 categories in 4,000 shared bins and 3 numbers; the batch has 8,192 records. conddp computes sums of
gradients in float64, and so everything in the linear model; the activations of its network are in float32.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .descent import Descent
from .results import Measured, Scope, Work
from .turns import Contestant, gather, take_turns

__all__ = ["list_works"]

NUM_CATEGORIES, NUM_NUMBERS, NUM_BINS, WIDTH, HIDDEN = 17, 3, 4000, 8, (128, 64)
BASE = "conddp, DP-SGD"


def list_works(scope: Scope) -> dict[str, Work]:
    """The linear model of 4,003 weights, and embeddings with a network."""
    batch, n = scope.pick((8192, 1_386_176), (8192, 100_000), (64, 200))
    linear = f"linear model of {NUM_BINS + NUM_NUMBERS:,} weights, batch of {batch:,}"
    network = f"embeddings {NUM_BINS:,} x {WIDTH} and a network 139-128-64-1, batch of {batch:,}"
    return {linear: partial(compare_linear, scope, n, batch), network: partial(compare_networks, scope, n, batch)}


def make_records(n: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Bins with Zipf-like frequencies, numbers and labels."""
    rng = np.random.default_rng(0)
    codes = np.empty((n, NUM_CATEGORIES), dtype=np.int64)
    sizes = np.geomspace(10, 20_000, NUM_CATEGORIES).astype(int)
    for place, size in enumerate(sizes.tolist()):
        frequencies = 1 / np.arange(1.0, size + 1)
        levels = rng.choice(size, size=n, p=frequencies / frequencies.sum())
        codes[:, place] = rng.integers(0, NUM_BINS, size=size)[levels]
    return codes, rng.normal(size=(n, NUM_NUMBERS)), 0.3 * rng.normal(size=n)


def make_rows(codes: NDArray[np.int64], numbers: NDArray[np.float64]) -> csr_array[Any, tuple[int, int]]:
    """Indicators of bins and numbers as a CSR array in canonical form."""
    n = len(codes)
    columns = np.hstack([codes, np.tile(NUM_BINS + np.arange(NUM_NUMBERS), (n, 1))]).astype(np.int32)
    values = np.hstack([np.ones(codes.shape), numbers])
    places = np.arange(n + 1) * columns.shape[1]
    rows = csr_array((values.ravel(), columns.ravel(), places), shape=(n, NUM_BINS + NUM_NUMBERS))
    rows.sum_duplicates()
    return rows


def compare_linear(scope: Scope, n: int, batch: int) -> Measured:
    """The linear model; conddp has an intercept too."""
    from conddp.features.conditioned_rows import ConditionedRows
    from conddp.features.scaled_rows import ScaledRows
    from conddp.heads.head import Inputs
    from conddp.heads.linear import Linear

    from .conddp_steps import ConddpSteps

    codes, numbers, label = make_records(n)
    d = NUM_BINS + NUM_NUMBERS
    scaled = ScaledRows.of(make_rows(codes, numbers), np.ones(d + 1), has_constant=True)
    part, start = scaled[:batch], np.zeros((1, d + 1))
    settings: dict[str, Any] = {"parameters": start, "num_public": d + 1}

    def conddp(rows: Any, target: Any, descent: Descent) -> Contestant:
        return Contestant(ConddpSteps(descent, Linear(), Inputs.of(rows), target, **settings).run)

    def conditioned() -> Contestant:
        rng = np.random.default_rng(1)
        C = rng.normal(size=(d, d + 1)) / np.sqrt(d)
        return conddp(ConditionedRows(part.columns, np.zeros(d), C, rng.normal(size=d + 1)), label[:batch], Descent())

    builders: dict[str, Callable[[], Contestant]] = {
        BASE: partial(conddp, part, label[:batch], Descent()),
        f"{BASE}, with Poisson samples": partial(conddp, scaled, label, Descent(batch_size=batch)),
        "conddp, Cond-DP": conditioned,
    }
    rivals = _list_rivals(codes[:batch], numbers[:batch], label[:batch], hidden=())
    if scope.quick:
        rivals = _leave_out(rivals)
    ready, absent = gather({**builders, **rivals}, base=BASE)
    return Measured(take_turns(ready, base=BASE, turns=scope.pick(9, 3, 1), seconds=scope.seconds), absent)


def compare_networks(scope: Scope, n: int, batch: int) -> Measured:
    """Embeddings of width 8 and a network."""
    import torch

    from conddp.heads.embeddings import Embeddings

    from .conddp_steps import ConddpSteps

    codes, numbers, label = make_records(n)
    head = Embeddings(num_bins=NUM_BINS, width=WIDTH, hidden=HIDDEN, num_categories=NUM_CATEGORIES)
    num_public = NUM_CATEGORIES + NUM_NUMBERS + 1
    start = head.initialize(head.layout(num_public, 0), np.random.default_rng(0))[None]
    rows = np.hstack([codes, numbers, np.ones((n, 1))]).astype(np.float32)
    tensors, target, first = torch.from_numpy(rows), torch.from_numpy(label), torch.from_numpy(start)

    def conddp(given: Any, target: Any, parameters: Any, descent: Descent) -> Contestant:
        inputs = head.prepare(given, None)
        steps = ConddpSteps(descent, head, inputs, target, parameters=parameters, num_public=num_public)
        return Contestant(steps.run)

    builders: dict[str, Callable[[], Contestant]] = {
        BASE: partial(conddp, tensors[:batch], target[:batch], first, Descent()),
        f"{BASE}, with Poisson samples": partial(conddp, tensors, target, first, Descent(batch_size=batch)),
        f"{BASE}, on NumPy": partial(conddp, rows[:batch], label[:batch], start, Descent()),
    }
    rivals = _list_rivals(codes[:batch], numbers[:batch], label[:batch], hidden=HIDDEN)
    if not scope.tiny:  # gradients of single records take 5 GB
        rivals = _leave_out(rivals)
    ready, absent = gather({**builders, **rivals}, base=BASE)
    return Measured(take_turns(ready, base=BASE, turns=scope.pick(9, 3, 1), seconds=scope.seconds), absent)


def _leave_out(rivals: dict[str, Callable[[], Contestant]]) -> dict[str, Callable[[], Contestant]]:
    """Without the modes of Opacus that make gradients of single records."""
    return {name: build for name, build in rivals.items() if "hooks" not in name and "functorch" not in name}


def _list_rivals(
    codes: NDArray[np.int64], numbers: NDArray[np.float64], label: NDArray[np.float64], *, hidden: tuple[int, ...]
) -> dict[str, Callable[[], Contestant]]:
    """PyTorch and Opacus on one batch, on indicators (linear model only) and with embeddings."""
    import torch

    from .sparse_models import Bins, Dense

    y = torch.from_numpy(label.astype(np.float32))
    parts = torch.from_numpy(codes), torch.from_numpy(numbers.astype(np.float32))

    def prepare(kind: str) -> tuple[Any, tuple[Any, ...]]:
        if kind == "dense":
            rows = make_rows(codes, numbers).toarray().astype(np.float32)
            return Dense(NUM_BINS + NUM_NUMBERS), (torch.from_numpy(rows),)
        widths = (NUM_CATEGORIES * WIDTH + NUM_NUMBERS, *hidden) if hidden else ()
        return Bins(NUM_BINS, NUM_NUMBERS, width=WIDTH if hidden else 1, widths=widths), parts

    def plain(kind: str) -> Contestant:
        from .torch_steps import TorchSteps

        net, inputs = prepare(kind)
        return Contestant(TorchSteps(Descent(), net, inputs, y).run)

    def opacus(kind: str, mode: str) -> Contestant:
        from .opacus_steps import OpacusSteps

        net, inputs = prepare(kind)
        return Contestant(OpacusSteps(Descent(), net, inputs, y, mode=mode).run)

    kinds = ("Embedding",) if hidden else ("dense", "Embedding")
    builders: dict[str, Callable[[], Contestant]] = {}
    for kind in kinds:
        builders[f"PyTorch, not private, {kind}"] = partial(plain, kind)
    for kind in kinds:
        for mode in ("hooks", "functorch", "ghost"):
            builders[f"Opacus, {mode}, {kind}"] = partial(opacus, kind, mode)
    return builders
