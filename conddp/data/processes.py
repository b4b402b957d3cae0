"""Executor of passes on worker processes of this machine."""

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypeVar

from conddp._validate import positive_integer
from conddp.data.tasks import THREADS, PackedFunction, Replies, TaskSize, WorkerDied, count_cores, name_rows

__all__ = ["Processes"]

SumsT = TypeVar("SumsT")

POLL = 1.0  # seconds: Ctrl-C that comes just before a thread begins to wait is noticed when it ends to wait

_PROGRAM = "from conddp.data.worker import serve; serve()"


class Processes:
    """Worker processes that execute passes.

    Results are the same as in one process, bit for bit, if that process uses one BLAS thread too. A worker that is
    killed is replaced, and its partition is computed again. It counts once, because only the answer to a request is
    added to the sums.

    Workers are separate programs: a script needs no ``if __name__ == "__main__"``, and threads of the caller do no
    harm. They end when the executor is closed, on Ctrl-C, and when the process that started them is killed.

    Privacy
        Workers get the function of a pass through a pipe, and return partial sums in the same way. Nothing is written
        to disk or printed. If the function raises an exception that is not one of conddp, the error that the caller
        sees contains its type and the rows of the partition, but not its message.

    Parameters
    ----------
    num_workers : int, optional
        Number of processes; one per core by default. Each uses one BLAS thread.
    max_failures : int
        How often the same partition may end its worker before the pass fails with :class:`WorkerDied`.

    Notes
    -----
    Passes over columns in memory stay in the process of the caller; threads (``ThreadPoolExecutor(2).map``) share such
    columns. The function of a pass is sent once per worker and pass.

    At most twice as many tasks as workers are in work or wait to be added, so that memory does not grow with the number
    of partitions. A task is one partition, or several if they take little time and their sums are small.

    Examples
    --------
    >>> with Processes(1) as processes:
    ...     list(processes(lambda span: span.stop - span.start, [slice(0, 4), slice(4, 10)]))
    [4, 6]
    """

    is_remote = True

    def __init__(self, num_workers: int | None = None, *, max_failures: int = 3) -> None:
        num_workers = count_cores() if num_workers is None else num_workers
        positive_integer(num_workers=num_workers, max_failures=max_failures)
        self.num_workers, self.max_failures = num_workers, max_failures
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="conddp-worker")
        self._idle: SimpleQueue[_Worker | None] = SimpleQueue()  # None is a worker that has not been started
        self._passes: set[_Pass] = set()
        self._closed = False
        for _ in range(num_workers):
            self._idle.put(None)

    def __call__(self, function: Callable[[slice], SumsT], spans: Iterable[slice], /) -> Iterator[SumsT]:
        """Yield the results of the function, in order."""
        if self._closed:
            raise ValueError("these worker processes have been stopped. Open new ones.")
        return self._run(PackedFunction.of(function), spans)

    def _run(self, packed: PackedFunction, spans: Iterable[slice]) -> Iterator[Any]:
        current, size, left = _Pass(packed), TaskSize(), iter(spans)
        self._passes.add(current)
        waiting: deque[tuple[list[slice], Future[Replies]]] = deque()
        try:
            while (task := size.take(left)) or waiting:
                if task:
                    waiting.append((task, self._threads.submit(self._compute, current, task)))
                if not task or len(waiting) == 2 * self.num_workers:
                    done, future = waiting[0]
                    while not future.done():
                        wait([future], timeout=POLL)
                    replies = future.result()
                    waiting.popleft()
                    size.adapt(replies)
                    yield from replies.read(done)
        finally:  # also on an error or Ctrl-C, and if not all results are wanted
            current.abandon()
            self._passes.discard(current)
            for _, future in waiting:
                future.cancel()
            wait([future for _, future in waiting])

    def _compute(self, current: "_Pass", spans: list[slice]) -> Replies:
        """Have a task computed by an idle worker, from a thread that waits for it."""
        worker = self._idle.get()
        try:
            for _ in range(self.max_failures):
                current.check()
                worker = worker or _Worker()
                replies = current.ask(worker, spans)
                if replies is not None:
                    return replies
                starts = worker.started
                worker.close()
                worker = None
            if not starts:
                raise WorkerDied("worker processes cannot be started. Their own messages are above.")
            raise WorkerDied(
                f"a worker process was killed {self.max_failures} times while it computed {name_rows(spans)}, perhaps "
                "because memory ran out. Use fewer workers or smaller partitions."
            )
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """Stop all workers at once. A pass that has not ended fails."""
        self._closed = True
        for current in list(self._passes):
            current.abandon()
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            worker = self._idle.get()
            if worker is not None:
                worker.close()

    def __enter__(self) -> Self:
        """Start all workers; they get ready while the caller goes on."""
        for _ in range(self.num_workers):
            self._idle.put(self._idle.get() or _Worker())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Pass:
    """A pass that is running, with the workers that are busy with it."""

    def __init__(self, packed: PackedFunction) -> None:
        self.packed = packed
        self._busy: set[_Worker] = set()
        self._abandoned = False
        self._lock = Lock()

    def ask(self, worker: "_Worker", spans: list[slice]) -> Replies | None:
        """Return the replies of a worker, or None if it died."""
        with self._lock:
            self.check()
            self._busy.add(worker)
        try:
            return worker.ask(self.packed, spans)
        finally:
            with self._lock:
                self._busy.discard(worker)

    def check(self) -> None:
        """Raise if nobody waits for results of this pass any more."""
        if self._abandoned:
            raise CancelledError

    def abandon(self) -> None:
        """Kill busy workers and send no further requests."""
        with self._lock:
            self._abandoned = True
            for worker in self._busy:
                worker.process.kill()


class _Worker:
    """A worker process, used by one thread at a time."""

    def __init__(self) -> None:
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, **dict.fromkeys(THREADS, "1")},
            start_new_session=True,  # Ctrl-C is for the parent, which kills its workers
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._requests, self._replies = self.process.stdin, self.process.stdout
        self._held: PackedFunction | None = None
        self.started = False

    def ask(self, packed: PackedFunction, spans: list[slice]) -> Replies | None:
        """Have partitions computed; None if the worker died. The function is sent unless the worker has it."""
        try:
            if not self.started:
                pickle.load(self._replies)
                self.started = True
            content = None if packed is self._held else packed.content
            pickle.dump((content, spans), self._requests, protocol=pickle.HIGHEST_PROTOCOL)
            self._requests.flush()
            self._held = packed
            replies: Replies = pickle.load(self._replies)
        except (OSError, EOFError, pickle.UnpicklingError):
            return None
        return replies

    def close(self) -> None:
        """Kill the process, which has no state that could be lost, and wait for its end."""
        self.process.kill()
        self.process.wait()
        self._replies.close()
        try:
            self._requests.close()
        except OSError:  # part of a request could not be sent
            pass
