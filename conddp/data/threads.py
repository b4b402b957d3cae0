"""Threads of this process that share the blocks of a pass over columns in memory.

Each block is computed by one thread, with one BLAS thread, and the results are added up in the order of the blocks. So
the number of threads makes no difference to the result, not even to its last bit.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, partial
from itertools import islice
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["count_threads", "run_in_threads", "run_on_one_thread", "use_one_blas_thread"]

SumsT = TypeVar("SumsT")

MOST_THREADS = 8  # more do not get more from memory


def count_threads() -> int:
    """Number of threads that this process may use: as many as BLAS may, so that one limit applies to both.

    It is one in a worker process (:mod:`conddp.data.processes`), and within a pass that runs in threads itself.
    """
    import pyarrow

    numbers = [each.num_threads for each in _find_blas().lib_controllers]
    return int(min(MOST_THREADS, pyarrow.cpu_count(), *filter(None, numbers)))


@cache
def _find_blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def run_on_one_thread(function: Callable[[slice], SumsT], spans: Iterable[slice]) -> Iterator[SumsT]:
    """Execute a pass on this thread, with one BLAS thread: the blocks are too small to be shared by several."""
    with use_one_blas_thread():
        yield from map(function, spans)


def run_in_threads(function: Callable[[slice], SumsT], spans: Iterable[slice]) -> Iterator[SumsT]:
    """Execute a pass on threads of this process.

    Examples
    --------
    >>> list(run_in_threads(lambda span: span.stop, [slice(0, 2), slice(2, 3)]))
    [2, 3]
    """
    number = count_threads()
    if number == 1:
        yield from run_on_one_thread(function, spans)
        return
    with use_one_blas_thread():
        left = iter(spans)
        waiting: deque[Future[SumsT]] = deque()
        pool = ThreadPoolExecutor(number, thread_name_prefix="conddp-pass")
        submit = partial(_submit, pool, function)
        try:
            waiting.extend(map(submit, islice(left, 2 * number)))
            while waiting:
                sums = waiting.popleft().result()
                waiting.extend(map(submit, islice(left, 1)))
                yield sums
        finally:
            pool.shutdown(cancel_futures=True)


def _submit(pool: ThreadPoolExecutor, function: Callable[[slice], SumsT], span: slice) -> "Future[SumsT]":
    """Submit one block, with the executor and the handling of floating-point errors that the caller has set."""
    return pool.submit(copy_context().run, function, span)


class _Limit:
    """The limit on BLAS threads, which belongs to the process: kept until the last of those that ask for it leaves."""

    def __init__(self) -> None:
        self._lock, self._users = Lock(), 0
        self._before: list[tuple[Any, int]] = []  # libraries with several threads, and their numbers

    def enter(self) -> None:
        with self._lock:
            if not self._users:
                numbers = [(each, each.num_threads) for each in _find_blas().lib_controllers]
                self._before = [(each, number) for each, number in numbers if number is not None and number > 1]
                for each, _ in self._before:
                    each.set_num_threads(1)
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                for each, number in self._before:
                    each.set_num_threads(number)


_LIMIT = _Limit()


@contextmanager
def use_one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread within a ``with`` block, also if several threads of the caller do so at once."""
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()
