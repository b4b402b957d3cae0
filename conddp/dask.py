"""Executor of passes on a Dask cluster.

Workers compute sums of partitions. This process adds them up in the order of the partitions, and is the only one that
adds noise and writes the ledger. Results are the same as in one process.

Examples
--------
With a cluster that is running::

    from conddp.dask import use_cluster

    with use_cluster("tls://scheduler:8786"):
        fit_file(Path("table"), schema, Path("model"), epsilon=1.0)
"""

import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from typing import Any, TypeVar
from urllib.parse import urlsplit

from conddp._validate import positive, positive_integer
from conddp.data.passes import use_executor
from conddp.data.tasks import (
    THREADS,
    PackedFunction,
    PassFailed,
    Replies,
    TaskSize,
    WorkerDied,
    compute_replies,
    count_cores,
    name_rows,
)
from conddp.errors import CondDPError, MissingExtra, PrivacyWarning

try:
    import dask
    from distributed import CancelledError, Client, Future, KilledWorker, LocalCluster
except ImportError as missing:
    raise MissingExtra("clusters need dask and distributed, which come with the extra conddp[dask].") from missing

__all__ = ["ClusterError", "DaskExecutor", "connect", "start_local", "use_cluster"]

SumsT = TypeVar("SumsT")

POLL = 0.5  # seconds between looks at the cluster while a partition is awaited
MAX_LOSSES = 3  # times that the workers may be lost before the next partition has been computed


class ClusterError(CondDPError, ConnectionError):
    """A cluster cannot be reached, has no workers, or its workers have another version of conddp."""


class DaskExecutor:
    """Executes passes on the workers of a Dask cluster.

    A task is one partition, or several if they take little time and their sums are small. If a worker is lost, Dask or
    this executor has its tasks computed again. Each counts once, because this process takes one result per partition.
    Results are released as soon as they have been received. At most twice as many tasks as the cluster has threads are
    in work or wait to be added.

    Privacy
        Workers read the columns of their partitions, and send back partial sums through the scheduler. Both are
        private, so only people who may see the data may have access to the cluster. Without TLS, everybody who can
        reach the scheduler can read the sums and run programs on the workers. A warning is given if the cluster is on
        another machine and does not use TLS. No private value appears in the names, arguments or errors of tasks,
        which Dask shows on its dashboard and in its logs.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    patience : float
        Seconds for which the cluster may be without a running worker before :class:`ClusterError` is raised.

    Notes
    -----
    Columns must be in files that all workers can read, under the same paths. Passes over columns in memory stay in the
    process of the caller.
    """

    is_remote = True

    def __init__(self, client: Client, *, patience: float = 60.0) -> None:
        positive(patience=patience)
        if client.asynchronous:
            raise ValueError("passes need a client that waits for results, got an asynchronous one.")
        self.client, self.patience = client, patience
        self._checked: set[str] = set()
        address = urlsplit(client.scheduler.address)
        if address.scheme == "tcp" and address.hostname not in {"127.0.0.1", "::1", "localhost"}:
            warnings.warn(
                f"the cluster at {client.scheduler.address} does not use TLS. Sums of private columns can be read on "
                "the network, and everybody who can reach the cluster can run programs on its workers.",
                PrivacyWarning,
                stacklevel=2,
            )

    def __call__(self, function: Callable[[slice], SumsT], spans: Iterable[slice], /) -> Iterator[SumsT]:
        """Yield the results of the function, in order."""
        return self._run(PackedFunction.of(function), spans)

    def _run(self, packed: PackedFunction, spans: Iterable[slice]) -> Iterator[Any]:
        current, size, left = _Pass(self, packed), TaskSize(), iter(spans)
        try:
            while (task := size.take(left)) or current.waiting:
                if task:
                    current.submit(task)
                if not task or len(current.waiting) >= current.most_waiting:
                    done, replies = current.take()
                    size.adapt(replies)
                    yield from replies.read(done)
        finally:  # also on an error or Ctrl-C, and if not all results are wanted
            current.release()

    def wait_for_workers(self) -> dict[str, int]:
        """Number of threads of every running worker. Raise if there are none for too long."""
        until = time.monotonic() + self.patience
        while not (threads := self.count_threads()):
            if time.monotonic() > until:
                raise ClusterError(
                    f"the cluster at {self.client.scheduler.address} has had no running worker for "
                    f"{self.patience:g} seconds. Start workers and try again."
                )
            time.sleep(min(POLL, self.patience / 10))
        return threads

    def count_threads(self) -> dict[str, int]:
        """Threads of every worker that is neither starting, paused nor closing; none if the scheduler is silent."""
        try:
            identity = self.client.sync(self.client.scheduler.identity, n_workers=-1, callback_timeout=10.0)
        except (OSError, CancelledError):  # also time-outs
            return {}
        return {
            address: worker["nthreads"]
            for address, worker in identity["workers"].items()
            if worker["status"] == "running"
        }

    def check_versions(self, workers: Iterable[str]) -> None:
        """Raise unless workers have the version of conddp that this process has. Each worker is asked once."""
        new = list(set(workers) - self._checked)
        found = self.client.run(version, "conddp", workers=new, on_error="return") if new else {}
        here = version("conddp")
        for address, there in found.items():
            if isinstance(there, PackageNotFoundError):
                raise ClusterError(f"conddp is not installed on the worker {address}. Install conddp {here} there.")
            if isinstance(there, str) and there != here:
                raise ClusterError(
                    f"the worker {address} has conddp {there}, but this process has {here}. Install the same version "
                    "on all machines."
                )
        self._checked |= {address for address, there in found.items() if isinstance(there, str)}


class _Pass:
    """A pass that is running: which partitions wait for their results, in order, and their tasks."""

    def __init__(self, executor: DaskExecutor, packed: PackedFunction) -> None:
        self.executor, self.packed = executor, packed
        self.waiting: deque[tuple[list[slice], Future]] = deque()
        self.most_waiting = 0
        self.failure = ""  # last exception of Dask itself
        self._share()

    def _share(self) -> None:
        """Send the function to all workers."""
        for losses in range(1, MAX_LOSSES + 1):
            workers = self.executor.wait_for_workers()
            self.executor.check_versions(workers)
            self.most_waiting = 2 * sum(workers.values())
            try:
                self.shared = self.executor.client.scatter(self.packed, broadcast=True, hash=False)
                break
            except (OSError, CancelledError) as error:
                if losses == MAX_LOSSES:
                    raise ClusterError(
                        f"the function of a pass could not be sent to the workers ({type(error).__name__}). Check that "
                        "workers have enough memory and can be reached."
                    ) from None
        self._numbers = count()
        self._token = uuid.uuid4().hex[:8]  # Dask shows tasks whose names differ in such a token together

    def submit(self, spans: list[slice]) -> None:
        """Have partitions computed, as one task."""
        bounds = [(span.start, span.stop) for span in spans]
        key = f"conddp-{self._token}-{next(self._numbers)}"  # Dask computes tasks with equal keys once
        task = self.executor.client.submit(_compute, self.shared, bounds, key=key, pure=False)
        self.waiting.append((spans, task))

    def take(self) -> tuple[list[slice], Replies]:
        """Wait for the first task and return its partitions and replies."""
        for _ in range(MAX_LOSSES):
            spans, task = self.waiting[0]
            replies = self._wait(spans, task)
            if replies is not None:
                self.waiting.popleft()
                task.release()
                return spans, replies
            self._submit_again()
        if self.failure:
            raise PassFailed(f"Dask could not compute {name_rows(spans)} ({self.failure}), {MAX_LOSSES} times.")
        raise WorkerDied(
            f"all workers of the cluster were lost {MAX_LOSSES} times while they computed {name_rows(spans)}, perhaps "
            "because memory ran out. Use smaller partitions or workers with more memory."
        )

    def _wait(self, spans: list[slice], task: Future) -> Replies | None:
        """Return the replies of a task, or None if the function was lost together with the workers that held it."""
        while True:
            try:
                replies: Replies = task.result(timeout=POLL)
                return replies
            except TimeoutError:
                if self.shared.status != "finished" or task.status in {"lost", "cancelled"}:
                    return None
                self.executor.wait_for_workers()
            except CancelledError:
                return None
            except KilledWorker:
                raise WorkerDied(
                    f"several workers of the cluster died while they computed {name_rows(spans)}, perhaps because "
                    "memory ran out. Use smaller partitions or workers with more memory."
                ) from None
            except Exception as error:  # of Dask itself: what a task computes never raises
                self.failure = type(error).__name__
                return None

    def _submit_again(self) -> None:
        """Send the function again, and submit all partitions whose results have not been taken."""
        tasks = [spans for spans, _ in self.waiting]
        self.release()
        self._share()
        for spans in tasks:
            self.submit(spans)

    def release(self) -> None:
        """Let the cluster forget all tasks that are left, and the function."""
        for _, task in self.waiting:
            task.release()
        self.waiting.clear()
        self.shared.release()


def _compute(packed: PackedFunction, bounds: list[tuple[int, int]]) -> Replies:
    """Compute a task, on a worker."""
    return compute_replies(packed, [slice(*each) for each in bounds])


@contextmanager
def connect(address: str, *, timeout: float = 30.0) -> Iterator[Client]:
    """Connect to a cluster, and disconnect at the end of a ``with`` block.

    Certificates for ``tls://`` addresses come from Dask's configuration, ``distributed.comm.tls``.
    """
    try:
        client = Client(address, timeout=timeout)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"the cluster at {address!r} cannot be reached within {timeout:g} seconds ({type(error).__name__}). Give "
            "the address of its scheduler, such as tcp://10.0.0.1:8786."
        ) from error
    with client:
        yield client


@contextmanager
def use_cluster(cluster: Client | str, *, patience: float = 60.0) -> Iterator[None]:
    """Run all passes within a ``with`` block on a cluster, given by its client or address.

    Privacy
        See :class:`DaskExecutor`.
    """
    if isinstance(cluster, str):
        with connect(cluster) as client, use_executor(DaskExecutor(client, patience=patience)):
            yield
    else:
        with use_executor(DaskExecutor(cluster, patience=patience)):
            yield


@contextmanager
def start_local(num_workers: int | None = None) -> Iterator[Client]:
    """Start a cluster on this machine, and stop it at the end of a ``with`` block.

    Workers are processes with one thread each; they share the memory of the machine evenly. They keep nothing on disk,
    and there is no dashboard. In a script, call this below ``if __name__ == "__main__":``.

    Privacy
        Other users of the machine can connect to the cluster. If there are any, use
        :class:`~conddp.data.processes.Processes`, which has no such door.

    Parameters
    ----------
    num_workers : int, optional
        Number of workers; one per core by default.
    """
    num_workers = count_cores() if num_workers is None else num_workers
    positive_integer(num_workers=num_workers)
    settings: dict[str, Any] = {
        "distributed.worker.memory.target": False,  # a fraction beyond which data go to disk
        "distributed.worker.memory.spill": False,
        # By default, a worker that needs 15 seconds to start again, as on a busy machine, is given up for good.
        "distributed.deploy.lost-worker-timeout": "1 day",
        # By default, Dask also has workers return memory to the system whenever an array is deleted, which took
        # a third of the processor time of passes.
        "distributed.nanny.pre-spawn-environ": dict.fromkeys(THREADS, "1"),
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=num_workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # None would take port 8787
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
