"""Tasks of a pass: the function is packed once, sent to workers, and applied to one partition after the other.

Workers send back either sums or an error without content. An exception of the library itself is sent as it is, because
its message never contains private values. Of any other exception, only the type is sent.
"""

import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from conddp.errors import CondDPError

__all__ = [
    "THREADS",
    "PackedFunction",
    "PassFailed",
    "Replies",
    "TaskSize",
    "WorkerDied",
    "compute_replies",
    "count_cores",
    "name_rows",
]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

# A task that takes longer, or whose sums are larger, gets no further partitions.
ENOUGH_SECONDS = 0.05
ENOUGH_BYTES = 2**20


class PassFailed(CondDPError, RuntimeError):  # noqa: N818  (reads as what happened)
    """The function of a pass cannot be sent to workers, or raised an exception there."""


class WorkerDied(CondDPError, RuntimeError):  # noqa: N818  (reads as what happened)
    """A worker process ended before its work was done."""


class PackedFunction:
    """The function of a pass as bytes, with all that it holds.

    A worker unpacks it once and applies it to many partitions.

    Privacy
        The bytes contain where to find columns in files, and released numbers. They may contain private values if a
        function holds some, so the text of this object shows nothing of them.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._function: Callable[[slice], Any] | None = None
        self._lock = Lock()

    @classmethod
    def of(cls, function: Callable[[slice], Any]) -> "PackedFunction":
        """Pack a function. Functions of a script or notebook are packed with their code."""
        import cloudpickle

        try:
            return cls(cloudpickle.dumps(function))
        except Exception as error:
            raise PassFailed(
                f"the function of a pass cannot be sent to workers ({type(error).__name__}). It must not hold open "
                "files, locks or generators. Run the passes in one process, or open files within the function."
            ) from None

    def unpack(self) -> Callable[[slice], Any]:
        """Return the function, and from now on use one thread in this process.

        With one thread, the result of a partition does not depend on the number of cores of a worker.
        """
        import pyarrow

        with self._lock:  # a worker may have several threads
            if self._function is None:
                self._function = pickle.loads(self.content)
                threadpool_limits(1)  # now: unpacking may have loaded libraries
                pyarrow.set_cpu_count(1)
            return self._function

    def __reduce__(self) -> tuple[type["PackedFunction"], tuple[bytes]]:
        return PackedFunction, (self.content,)

    def __repr__(self) -> str:
        return f"<function of a pass, {len(self.content)} bytes>"

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + 2 * len(self.content)  # packed and unpacked


class Replies:
    """What a worker sends back for the partitions of a task: sums, or an error as the last one.

    Privacy
        Sums of private columns are private until a curator releases them. The text of this object shows nothing of
        them.
    """

    def __init__(self, contents: list[bytes], seconds: float) -> None:
        self.contents, self.seconds = contents, seconds

    def read(self, spans: Sequence[slice]) -> Iterator[Any]:
        """Yield the sums of these partitions, or raise the error. Nothing may be missing or counted twice."""
        for content in self.contents[: len(spans)]:
            succeeded, value = pickle.loads(content)
            if not succeeded:
                raise value
            yield value
        if len(self.contents) != len(spans):
            raise PassFailed(
                f"a worker returned {len(self.contents)} sums for the {len(spans)} partitions of {name_rows(spans)}."
            )

    @property
    def num_bytes(self) -> int:
        """Size of all contents."""
        return sum(map(len, self.contents))

    def __repr__(self) -> str:
        return f"<sums of {len(self.contents)} partitions>"

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.num_bytes


def compute_replies(packed: PackedFunction, spans: Iterable[slice]) -> Replies:
    """Apply the function to partitions one by one, on a worker. Never raises.

    Privacy
        The replies contain sums of private columns. Floating-point warnings are not raised, because they would depend
        on private values. Of an exception that is not one of conddp, only the type is sent.
    """
    started, contents = time.perf_counter(), list[bytes]()
    for span in spans:
        try:
            contents.append(_pack((True, _apply(packed, span))))
        except CondDPError as error:
            contents.append(_pack((False, error)))
            break
    return Replies(contents, time.perf_counter() - started)


def _apply(packed: PackedFunction, span: slice) -> Any:
    try:
        function = packed.unpack()
    except BaseException as error:
        missing = f": no module {error.name!r}" if isinstance(error, ModuleNotFoundError) else ""
        raise PassFailed(
            f"a worker cannot load the function of a pass ({type(error).__name__}{missing}). Install the same packages "
            "on all workers."
        ) from None
    try:
        with np.errstate(all="ignore"):
            return function(span)
    except CondDPError:
        raise
    except BaseException as error:
        advice = " Use fewer workers or smaller partitions." if isinstance(error, MemoryError) else ""
        reason = f"the function of a pass raised {type(error).__name__} for {name_rows([span])}."
        raise PassFailed(reason + advice) from None


def _pack(outcome: tuple[bool, Any]) -> bytes:
    """Pack sums or an error, the latter without its traceback and cause."""
    import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(outcome)
    except BaseException as error:
        reason = f"what the function of a pass returned cannot be sent back ({type(error).__name__})."
        content = pickle.dumps((False, PassFailed(reason)))
    return content


class TaskSize:
    """Number of partitions per task. It grows while tasks take less time than it takes to send them around.

    Results are returned per partition, so they do not depend on it.
    """

    def __init__(self) -> None:
        self.num_spans = 1

    def take(self, spans: Iterator[slice]) -> list[slice]:
        """Take the partitions of the next task; none if there are no more."""
        return list(islice(spans, self.num_spans))

    def adapt(self, replies: Replies) -> None:
        """Choose the size of later tasks after one that was computed."""
        small = replies.seconds < ENOUGH_SECONDS and replies.num_bytes < ENOUGH_BYTES
        if small and len(replies.contents) == self.num_spans:
            self.num_spans *= 2


def name_rows(spans: Sequence[slice]) -> str:
    """Describe consecutive partitions by the numbers of their rows, which are public.

    Examples
    --------
    >>> name_rows([slice(0, 8192), slice(8192, 16384)])
    'rows 0 to 16,383'
    """
    return f"rows {spans[0].start:,} to {spans[-1].stop - 1:,}"


def count_cores() -> int:
    """Number of cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
