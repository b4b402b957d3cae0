"""Many independent measurements on all cores. Results are stored, so that an interrupted run can be continued."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Generic, Protocol, TypeVar

from threadpoolctl import threadpool_limits

from conddp.cache import ContentCache
from conddp.data.tasks import WorkerDied, count_cores

__all__ = ["ProgressCallback", "Store", "WorkerDied", "run_cells"]

ProgressCallback = Callable[[int, int, float], None]  # cells done, cells in all, seconds left


class Work(Hashable, Protocol):
    """A cell: everything that one result depends on."""

    @property
    def work(self) -> float:
        """Rough size of the work in any unit, to order cells and estimate the remaining time."""


CellT = TypeVar("CellT", bound=Work)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Store(Generic[CellT, ResultT]):
    """Where results are kept, and how.

    Parameters
    ----------
    cache : ContentCache
        The file.
    key : callable
        What the result of a cell depends on, short enough to be a line in a file.
    encode, decode : callable
        A result to what JSON can hold, and back.
    """

    cache: ContentCache
    key: Callable[[CellT], Mapping[str, Any]]
    encode: Callable[[ResultT], Any]
    decode: Callable[[Any], ResultT]


def run_cells(
    cells: Iterable[CellT],
    compute: Callable[[CellT], ResultT],
    *,
    store: Store[CellT, ResultT] | None = None,
    num_workers: int | None = None,
    fresh: bool = False,
    callback: ProgressCallback | None = None,
) -> dict[CellT, ResultT]:
    """Results of all cells, from the store or computed.

    Every worker process has one BLAS thread: on kernels of this size a second one gains little, and cores are better
    used by another cell. The largest cells start first. A result is stored as soon as it is computed.

    Parameters
    ----------
    cells : iterable
        What to measure.
    compute : callable
        Takes a cell to its result. Workers get it once, with all that it holds.
    store : Store, optional
        Where results are kept; nowhere if None.
    num_workers : int, optional
        Processes; as many as there are cores if None. With 1 all is done in this process.
    fresh : bool
        Also compute what is in the store, and replace it.
    callback : callable, optional
        Called with the number of finished cells, the number of cells, and the estimated seconds left.
    """
    cells = list(dict.fromkeys(cells))
    results: dict[CellT, ResultT] = {}
    keys = {cell: store.key(cell) for cell in cells} if store else {}  # now: data files may change while this runs
    for cell in cells:
        stored = store.cache.get(keys[cell]) if store and not fresh else None
        if store and stored is not None:
            results[cell] = store.decode(stored)
    missing = sorted((cell for cell in cells if cell not in results), key=lambda cell: -cell.work)
    num_workers = min(num_workers or count_cores(), max(len(missing), 1))
    clock = _Clock(sum(cell.work for cell in missing), num_workers)

    def finish(cell: CellT, result: ResultT, seconds: float) -> None:
        if store:
            store.cache.put(keys[cell], store.encode(result))
        results[cell] = result
        if callback is not None:
            callback(len(results), len(cells), clock.left(cell.work, seconds))

    if callback is not None:
        callback(len(results), len(cells), 0.0 if not missing else math.nan)
    if num_workers == 1:
        for cell in missing:
            finish(cell, *_time(compute, cell))
        return results
    pool = ProcessPoolExecutor(
        num_workers, mp_context=get_context("spawn"), initializer=_start_worker, initargs=(os.getpid(), compute)
    )
    try:
        with _interrupts_held_back():  # workers that are still starting cannot handle them
            waiting = {pool.submit(_compute, cell): cell for cell in missing}
        for future in as_completed(waiting):
            finish(waiting[future], *future.result())
    except BaseException as error:
        workers = list((pool._processes or {}).values())  # before shutdown forgets them
        for process in workers:
            process.terminate()
        for process in workers:
            process.join(timeout=5)
        pool.shutdown(wait=False, cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise WorkerDied(
                "a worker process was killed, perhaps because memory ran out. Try again with num_workers=1."
            ) from error
        raise
    pool.shutdown()
    return results


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Delay interrupts until this ends, and hide them from processes that are started meanwhile."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Clock:
    """How long the rest will take, from the seconds that finished cells took in their workers.

    Waiting for workers to start is left out. Cells that other workers are at count as half done.
    """

    def __init__(self, work: float, num_workers: int) -> None:
        self.work, self.num_workers = work, num_workers
        self.done, self.seconds, self.num_cells = 0.0, 0.0, 0

    def left(self, done: float, seconds: float) -> float:
        self.done, self.seconds, self.num_cells = self.done + done, self.seconds + seconds, self.num_cells + 1
        if not self.done:
            return math.nan
        running = (self.num_workers - 1) / 2 * self.done / self.num_cells
        return self.seconds / self.done * max(0.0, self.work - self.done - running) / self.num_workers


_compute_in_worker: Callable[[Any], Any]  # set where a worker process starts


def _compute(cell: Any) -> tuple[Any, float]:
    return _time(_compute_in_worker, cell)


def _time(compute: Callable[[CellT], ResultT], cell: CellT) -> tuple[ResultT, float]:
    """The result of a cell, and the seconds that it took."""
    started = time.monotonic()
    result = compute(cell)
    return result, time.monotonic() - started


def _start_worker(parent: int, compute: Callable[[Any], Any]) -> None:
    """Use one BLAS thread, leave Ctrl-C to the parent, and exit with the parent."""
    global _compute_in_worker
    _compute_in_worker = compute
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    """Exit when the parent is gone: a killed parent cannot stop its workers, which would run on for hours."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
