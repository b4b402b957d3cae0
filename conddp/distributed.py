"""Fits on several processes: ``torchrun`` starts them, and they talk through ``torch.distributed``."""

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from numpy.typing import NDArray

from conddp._validate import positive
from conddp.errors import require_package
from conddp.training.ranks import Ranks, get_ranks, set_ranks

__all__ = ["is_one_of_several", "use_ranks"]


class TorchLink:
    """Connections of a rank to the others by gloo, from processor memory to processor memory.

    Parameters
    ----------
    group : process group
        Group of torch.distributed.
    timeout, setup_timeout : float
        Seconds to wait for another rank, in a step and between runs of steps.
    """

    def __init__(self, group: Any, *, timeout: float, setup_timeout: float) -> None:
        import torch
        import torch.distributed as distributed

        self._tensor, self._distributed, self._group = torch.from_numpy, distributed, group
        self._limits = {False: timedelta(seconds=timeout), True: timedelta(seconds=setup_timeout)}
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)

    def send(self, array: NDArray[Any], rank: int, *, patient: bool) -> None:
        """Send an array to another rank."""
        work = self._distributed.isend(self._tensor(array), group=self._group, group_dst=rank)
        assert work is not None
        work.wait(self._limits[patient])

    def receive(self, array: NDArray[Any], rank: int, *, patient: bool) -> None:
        """Receive an array from another rank."""
        work = self._distributed.irecv(self._tensor(array), group=self._group, group_src=rank)
        assert work is not None
        work.wait(self._limits[patient])


def is_one_of_several() -> bool:
    """Whether ``torchrun`` has started this process together with others."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def use_ranks(*, timeout: float = 300.0, setup_timeout: float = 3600.0) -> Iterator[int]:
    """Divide the work of each fit within a ``with`` block over all processes that ``torchrun`` has started.

    Every process runs the same program and calls ``fit`` with the same arguments and the same records. Each of them
    sums the gradients of an equal share of the records. DPSGD, CondDP and SwitchCondDP can be divided, with every head.
    In a program that was started without ``torchrun``, the block changes nothing.

    Privacy
        Costs what the same fit costs in one process. Rank 0 alone has the ledger, the checkpoint and the noise: it
        records the cost before any rank uses private values, adds up the sums of all ranks, and adds noise once. Every
        record is used by one rank. The other ranks are part of the curator: their sums reach rank 0 without noise and
        without encryption, so run them on machines and networks that may see the private data. If a rank is lost, the
        fit ends with :class:`~conddp.errors.RankLost`, and its cost stays in the ledger.

    Parameters
    ----------
    timeout : float
        Seconds that a rank waits for another in a step, callback of the user included. A rank that ends is noticed at
        once; this is for one that hangs.
    setup_timeout : float
        The same before and after the steps, while rank 0 prepares the fit and saves the model.

    Yields
    ------
    int
        Number of this process, from 0. Let rank 0 alone print and save.

    Examples
    --------
    >>> with use_ranks() as rank:  # started without torchrun
    ...     print(rank)
    0
    """
    positive(timeout=timeout, setup_timeout=setup_timeout)
    if get_ranks() is not None:
        raise RuntimeError("ranks are in use already. Use one block for all fits.")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield 0
        return
    require_package("torch", extra="torch", purpose="a fit on several processes")
    import torch.distributed as distributed

    limit = timedelta(seconds=setup_timeout)
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", timeout=limit)
        atexit.register(_leave)  # not before: processes that have left cannot come together a second time
    group = distributed.new_group(backend="gloo", timeout=limit)
    try:
        ranks = Ranks(TorchLink(group, timeout=timeout, setup_timeout=setup_timeout))
        with set_ranks(ranks):
            yield ranks.rank
    finally:
        distributed.destroy_process_group(group)


def _leave() -> None:
    """Close the connections of this process, unless the user has done so."""
    import torch.distributed as distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
