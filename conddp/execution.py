"""Where passes run: in this process, on worker processes of this machine, or on a Dask cluster."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from conddp._validate import positive_integer
from conddp.data.passes import Executor
from conddp.data.processes import Processes

__all__ = ["open_executor"]

SumsT = TypeVar("SumsT")


@contextmanager
def open_executor(num_workers: int | None = None, cluster: str | None = None) -> Iterator[Executor]:
    """Open the executor that the options of a command ask for, and close it at the end of a ``with`` block.

    Privacy
        Costs nothing. See :class:`~conddp.data.processes.Processes` and :class:`~conddp.dask.DaskExecutor` for what
        workers see.

    Parameters
    ----------
    num_workers : int, optional
        Number of workers on this machine. Without a cluster, passes run in this process if there is at most one.
    cluster : str, optional
        Address of the scheduler of a Dask cluster, or ``"local"`` for a cluster on this machine with ``num_workers``
        workers, by default one per core.

    Examples
    --------
    >>> from conddp.data import use_executor
    >>> with open_executor(num_workers=1) as executor, use_executor(executor):
    ...     pass  # fit a model
    """
    if num_workers is not None:
        positive_integer(num_workers=num_workers)
    if cluster is None:
        if num_workers is None or num_workers == 1:
            yield _run_on_one_thread
            return
        with Processes(num_workers) as processes:
            yield processes
        return
    from conddp.dask import DaskExecutor, connect, start_local  # Dask is an extra

    if cluster == "local":
        with start_local(num_workers) as client:
            yield DaskExecutor(client)
        return
    if num_workers is not None:
        raise ValueError(
            f"the cluster {cluster!r} has its own workers, so their number cannot be chosen, got {num_workers}."
        )
    with connect(cluster) as client:
        yield DaskExecutor(client)


def _run_on_one_thread(function: Callable[[slice], SumsT], spans: Iterable[slice]) -> Iterator[SumsT]:
    """Execute a pass in this process as a worker would, so that results are the same bit for bit.

    What is computed from the sums has all threads of the process, here as with workers.
    """
    threads = ThreadpoolController()
    for span in spans:
        with threads.limit(limits=1):
            sums = function(span)
        yield sums
