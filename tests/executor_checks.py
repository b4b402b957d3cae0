"""What every executor of passes must do, whether its workers are processes or a Dask cluster."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from conddp.data.passes import Executor
from conddp.data.tasks import PassFailed
from conddp.errors import SchemaError
from tests.pass_functions import (
    BLOCKS,
    Add,
    Kill,
    Overflow,
    Raise,
    add,
    count_threads,
    expected,
    make_column,
    read_lines,
    wait_until,
)


def check_sums(executor: Executor) -> None:
    """Sums are the same bit for bit as in one process, in the order of the blocks, also if blocks are repeated."""
    column = make_column()
    assert add(executor(Add(column), BLOCKS)) == expected(column)
    for blocks in (BLOCKS[::-1], BLOCKS * 3):
        there = add(map(Add(column), blocks))
        assert there[0] != expected(column)[0]  # the order and the number of blocks matter
        assert add(executor(Add(column), blocks)) == there
    assert list(executor(count_threads, BLOCKS[:4])) == [1, 1, 1, 1]


def check_killed_worker(executor: Executor, folder: Path) -> None:
    """A block whose worker is killed is computed again and counts once."""
    column = make_column()
    total, counted = add(executor(Kill(column, folder), BLOCKS))
    executed = Counter(read_lines(folder / "executed"))
    assert (total, counted) == expected(column)
    assert set(counted.values()) == {1}
    assert executed["700"] == 2
    assert len(executed) == len(BLOCKS)


def check_errors(executor: Executor, *, silent: bool) -> None:
    """An exception shows its type and rows only, one about the table its text, and a warning nothing."""
    with pytest.raises(PassFailed) as caught:
        list(executor(Raise(silent=silent), BLOCKS))
    assert str(caught.value) == "the function of a pass raised ValueError for rows 300 to 399."
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    with pytest.raises(SchemaError, match=r"column 'price' has gaps\.$"):
        list(executor(Raise(refused=True, silent=silent), BLOCKS))
    assert list(executor(Overflow(), BLOCKS[:3])) == [np.inf] * 3


@contextmanager
def interrupt_when(condition: Callable[[], bool]) -> Iterator[None]:
    """Expect that Ctrl-C, once a condition holds, ends what is done within a ``with`` block."""
    main_thread = threading.get_ident()

    def interrupt() -> None:
        wait_until(condition)
        signal.pthread_kill(main_thread, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
