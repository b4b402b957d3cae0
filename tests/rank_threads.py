"""Ranks that are threads, for fits that are divided over them."""

import threading
from collections.abc import Callable
from dataclasses import replace
from queue import Empty, Queue
from typing import Any

import numpy as np

from conddp import PrivacyBudget
from conddp.bounds import Bounds
from conddp.data import Labels, PrivateFeatures, PublicFeatures, Records
from conddp.data.units import Units
from conddp.training.ranks import Ranks, set_ranks

BUDGET = PrivacyBudget(2.0, 1e-6)
Pipes = dict[tuple[int, int], "Queue[Any]"]


class ThreadLink:
    """Connections between threads. A rank whose thread has ended answers nobody."""

    def __init__(self, rank: int, size: int, pipes: Pipes, ended: set[int], *, limit: float = 20.0) -> None:
        self.rank, self.size = rank, size
        self._pipes, self._ended, self._limit = pipes, ended, limit

    def send(self, array: Any, rank: int, *, patient: bool) -> None:
        if rank in self._ended:
            raise RuntimeError("connection closed")
        self._pipes[self.rank, rank].put(np.array(array))

    def receive(self, array: Any, rank: int, *, patient: bool) -> None:
        for _ in range(int(self._limit / 0.02)):
            had_ended = rank in self._ended
            try:
                array[...] = self._pipes[rank, self.rank].get(timeout=0.02).reshape(array.shape)
                return
            except Empty:
                if had_ended:
                    break
        raise RuntimeError("connection closed, or timed out")


def run_ranks(size: int, work: Callable[[int], Any]) -> list[Any]:
    """What each rank returns or raises."""
    pipes: Pipes = {(a, b): Queue() for a in range(size) for b in range(size)}
    ended: set[int] = set()
    outcomes: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            with set_ranks(Ranks(ThreadLink(rank, size, pipes, ended))):
                outcomes[rank] = work(rank)
        except BaseException as error:
            outcomes[rank] = error
        finally:
            ended.add(rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a rank hangs"
    return outcomes


def make_records(kind: str = "", *, n: int = 203, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = X[:, 0] + 0.5 * rng.normal(size=n)
    records = Records(PublicFeatures(X), None, Labels(y, Bounds(-4, 4)))
    if kind == "private":
        return replace(records, private=PrivateFeatures(rng.uniform(size=(n, 2)), (Bounds(0, 1), Bounds(0, 1))))
    if kind == "units":
        return replace(records, units=Units(rng.integers(0, 60, size=n)))
    if kind == "weights":
        return replace(records, weights=rng.uniform(0.1, 1, size=n))
    return records
