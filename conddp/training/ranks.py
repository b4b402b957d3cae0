"""Ranks: processes that share the work of one fit. Rank 0 leads, adds noise and keeps the ledger; others compute sums.

Rank 0 runs the fit as a single process would. Before each step it sends the parameters, which are released, to the
other ranks. Every rank sums the clipped gradients of its own records. Rank 0 receives the sums, adds them up in the
order of the ranks, and releases the total through its curator. No other rank has a curator, a noise generator, a ledger
or an optimizer.

A rank that ends closes its connections, so that the others notice at once. One that hangs is given up after a time.
"""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from conddp.errors import RankLost

__all__ = ["Link", "Ranks", "Share", "get_ranks", "set_ranks"]

OBJECT, STEP, END, SUMS, FAILED = range(5)  # kinds of messages


class Link(Protocol):
    """Connections of a rank to the others."""

    @property
    def rank(self) -> int:
        """Number of this rank, from 0."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def send(self, array: NDArray[Any], rank: int, *, patient: bool) -> None:
        """Send a contiguous array; raise OSError or RuntimeError if the other rank has ended or does not answer."""

    def receive(self, array: NDArray[Any], rank: int, *, patient: bool) -> None:
        """Overwrite a contiguous array by one that the other rank has sent; raise as :meth:`send` does.

        ``patient`` allows for long computations of the other rank, between the steps of a run.
        """


class Ranks:
    """Messages between rank 0 and the others.

    Privacy
        Sums of clipped gradients go from the other ranks to rank 0 without noise: all ranks and the network between
        them belong to the curator. Everything that rank 0 sends is public or released, except the generator of the
        Poisson samples, which must stay secret.

    Parameters
    ----------
    link : Link
        Connections to the other ranks.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._buffer: NDArray[np.float64] = np.empty(0)
        self._where = ""  # the step, for messages
        self.rank, self.size = link.rank, link.size
        self.is_lost = False  # a rank is gone, so that no other fit can begin
        self._pending: set[int] = set()  # ranks whose sums rank 0 is waiting for
        self.steps_before = 0  # steps of earlier phases of the run

    def _to_rank(self, rank: int, action: Callable[[], None]) -> None:
        try:
            action()
        except (OSError, RuntimeError):  # what gloo raises; its message has addresses and nothing of use
            self.is_lost = True
            self._pending.discard(rank)
            raise RankLost(f"rank {rank} has ended or does not answer{self._where}.") from None

    def _send(
        self, rank: int, kind: int, payload: NDArray[Any] | None = None, *, step: int = 0, patient: bool = True
    ) -> None:
        header = np.array([kind, 0 if payload is None else payload.size, step], dtype=np.int64)
        self._to_rank(rank, lambda: self._link.send(header, rank, patient=patient))
        if payload is not None:
            self._to_rank(rank, lambda: self._link.send(payload, rank, patient=patient))

    def _receive(self, rank: int, *, patient: bool = True) -> tuple[int, int]:
        """Kind of the next message of a rank and size of what follows; raise if the rank has failed."""
        header = np.empty(3, dtype=np.int64)
        self._to_rank(rank, lambda: self._link.receive(header, rank, patient=patient))
        kind, size, step = header.tolist()
        if self.rank:
            self._where = f" in step {step}" if kind == STEP else self._where if kind == FAILED else ""
        if kind == FAILED:
            raise RankLost(f"rank {rank} {self._receive_object(rank, size)}{self._where}.")
        return kind, size

    def _receive_object(self, rank: int, size: int) -> Any:
        blob = np.empty(size, dtype=np.uint8)
        self._to_rank(rank, lambda: self._link.receive(blob, rank, patient=True))
        return pickle.loads(blob.tobytes())

    def _expect(self, rank: int, kinds: tuple[int, ...], *, patient: bool = True) -> tuple[int, int]:
        kind, size = self._receive(rank, patient=patient)
        if kind not in kinds:
            raise RankLost(f"rank {rank} is at another point of the program{self._where}. Run the same on every rank.")
        return kind, size

    def tell(self, message: object) -> None:
        """Send an object from rank 0 to all other ranks."""
        payload = _pack(message)
        for rank in range(1, self.size):
            self._send(rank, OBJECT, payload)

    def hear(self) -> Any:
        """Receive an object from rank 0."""
        return self._receive_object(0, self._expect(0, (OBJECT,))[1])

    def report(self, message: object) -> None:
        """Send an object to rank 0."""
        self._send(0, OBJECT, _pack(message))

    def collect(self) -> list[Any]:
        """Receive an object from every other rank, in order."""
        return [self._receive_object(rank, self._expect(rank, (OBJECT,))[1]) for rank in range(1, self.size)]

    def start_step(self, parameters: NDArray[np.float64], step: int) -> None:
        """Send the parameters to all other ranks, which then compute their sums."""
        step += self.steps_before
        self._where = f" in step {step}"
        payload = np.ascontiguousarray(parameters)
        for rank in range(1, self.size):
            self._send(rank, STEP, payload, step=step, patient=False)
            self._pending.add(rank)

    def add_up(self, total: NDArray[np.float64]) -> None:
        """Add the sums of all other ranks to that of rank 0, in the order of the ranks."""
        for rank in range(1, self.size):
            total += self._receive_sums(rank).reshape(total.shape)

    def _receive_sums(self, rank: int) -> NDArray[np.float64]:
        """Sums of a rank, in a buffer that is used again."""
        self._pending.discard(rank)
        _, size = self._expect(rank, (SUMS,), patient=False)
        if self._buffer.size != size:
            self._buffer = np.empty(size)
        self._to_rank(rank, lambda: self._link.receive(self._buffer, rank, patient=False))
        return self._buffer

    def end_steps(self) -> None:
        """Tell all other ranks that no further step follows for now."""
        self._where = ""
        for rank in range(1, self.size):
            self._send(rank, END)

    def await_step(self, parameters: NDArray[np.float64], *, is_first: bool) -> bool:
        """Overwrite the parameters by those of the next step of rank 0; return False if there is no further step."""
        kind, _ = self._expect(0, (STEP, END), patient=is_first)
        if kind == STEP:
            self._to_rank(0, lambda: self._link.receive(parameters, 0, patient=False))
        return kind == STEP

    def answer(self, sums: NDArray[np.float64]) -> None:
        """Send the sums of a step to rank 0."""
        self._send(0, SUMS, np.ascontiguousarray(sums), patient=False)

    def fail(self, error: BaseException) -> None:
        """Tell those who wait for this rank that its fit has failed: the kind of error, and nothing else of it."""
        reason = "has lost another rank" if isinstance(error, RankLost) else f"has ended with {type(error).__name__}"
        for rank in range(1, self.size) if self.rank == 0 else (0,):
            with suppress(RankLost):  # it may have ended too
                if rank in self._pending:
                    self._receive_sums(rank)  # it listens when they have been received
                self._send(rank, FAILED, _pack(reason), patient=False)
        self._where = ""


def _pack(message: object) -> NDArray[np.uint8]:
    return np.frombuffer(pickle.dumps(message), dtype=np.uint8).copy()  # torch needs a writeable array


@dataclass(frozen=True)
class Share:
    """The consecutive records of a fit that one rank sums up.

    Parameters
    ----------
    ranks : Ranks
        The ranks.
    num_records : int
        Number of records of all ranks together.
    """

    ranks: Ranks
    num_records: int

    @property
    def span(self) -> slice:
        """Positions of the records among all."""
        rank, size = self.ranks.rank, self.ranks.size
        return slice(self.num_records * rank // size, self.num_records * (rank + 1) // size)

    def select(self, drawn: NDArray[np.intp]) -> NDArray[np.intp]:
        """Keep those of increasing positions that are in the share, counted from its first record."""
        first, last = drawn.searchsorted((self.span.start, self.span.stop))
        return np.asarray(drawn[first:last] - self.span.start)


_RANKS: ContextVar[Ranks | None] = ContextVar("ranks", default=None)


def get_ranks() -> Ranks | None:
    """Return the ranks that fits are divided over; None if a fit runs in one process."""
    return _RANKS.get()


@contextmanager
def set_ranks(ranks: Ranks | None) -> Iterator[None]:
    """Divide fits within a ``with`` block over ranks."""
    token = _RANKS.set(ranks)
    try:
        yield
    finally:
        _RANKS.reset(token)
