"""Worker processes: the same bits, whatever happens to a worker, and no private value on the way."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from conddp import CondNewton, PrivateMean
from conddp.algorithms import Algorithm
from conddp.data import Processes, list_blocks, run_pass, use_executor
from conddp.data.tasks import PackedFunction, PassFailed, WorkerDied, compute_replies
from conddp.errors import SchemaError
from conddp.execution import open_executor
from conddp.files import load_records
from tests.executor_checks import check_errors, check_killed_worker, check_sums, interrupt_when
from tests.pass_functions import (
    BLOCKS,
    SECRET,
    Add,
    Kill,
    Large,
    Raise,
    Sleep,
    Unpacked,
    add,
    count_threads,
    expected,
    find_living,
    make_column,
    open_threads,
    read_lines,
    wait_until,
)
from tests.stored_tables import Counted, fit_table, write_table


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(2) as opened:
        yield opened


def test_sums_are_the_same_bit_for_bit_and_depend_on_the_order(processes: Processes) -> None:
    check_sums(processes)
    with open_threads() as threads:
        assert add(threads(Add(make_column()), BLOCKS)) == expected(make_column())


@pytest.mark.parametrize("algorithm", [CondNewton(), PrivateMean()])
def test_fits_on_processes_are_the_same_bit_for_bit(algorithm: Algorithm, processes: Processes, tmp_path: Path) -> None:
    schema, counted = write_table(tmp_path), Counted(processes)
    with use_executor(counted):
        elsewhere = fit_table(tmp_path, schema, algorithm)
    assert counted.num_spans >= 4 * 3
    assert np.array_equal(elsewhere, fit_table(tmp_path, schema, algorithm))


def test_what_a_worker_refuses_is_said_as_ever(processes: Processes, tmp_path: Path) -> None:
    schema = write_table(tmp_path)
    part = tmp_path / "part-2.parquet"
    table = pyarrow.parquet.read_table(part)
    missing = pyarrow.array([None, *table["price"].to_pylist()[1:]], type=pyarrow.float64())
    pyarrow.parquet.write_table(table.set_column(2, "price", missing), part)
    with pytest.raises(SchemaError) as here:
        load_records(tmp_path, schema, small=True)
    with use_executor(processes), pytest.raises(SchemaError) as elsewhere:
        load_records(tmp_path, schema, small=True)
    assert str(elsewhere.value) == str(here.value)


def test_columns_in_memory_are_not_sent(processes: Processes) -> None:
    counted = Counted(processes)
    with use_executor(counted):
        assert run_pass(lambda span, column: column.sum(), np.arange(10.0)) == 45
    assert counted.num_spans == 0


def test_a_block_whose_worker_is_killed_counts_once(processes: Processes, tmp_path: Path) -> None:
    check_killed_worker(processes, tmp_path)


def test_a_block_that_always_kills_its_worker_is_named(processes: Processes, tmp_path: Path) -> None:
    column = make_column()
    with pytest.raises(WorkerDied, match=r"killed 3 times while it computed rows 700 to 799, perhaps"):
        list(processes(Kill(column, tmp_path, for_ever=True), [*BLOCKS[:4], slice(700, 800)]))
    assert read_lines(tmp_path / "executed").count("700") == 3
    assert add(processes(Add(column), BLOCKS)) == expected(column)  # workers have been replaced


def test_an_exception_shows_its_type_and_rows_only(processes: Processes, capfd: pytest.CaptureFixture[str]) -> None:
    check_errors(processes, silent=False)
    out, err = capfd.readouterr()
    assert out == err == ""


def test_sums_that_wait_are_few(processes: Processes) -> None:
    taken: list[slice] = []

    def list_spans() -> Iterator[slice]:
        for span in BLOCKS:
            taken.append(span)
            yield span

    for number, sums in enumerate(processes(Large(), list_spans())):
        assert sums[0] == BLOCKS[number].start
        assert len(taken) - number <= 2 * processes.num_workers


def test_small_blocks_share_a_task_and_keep_their_own_sums(processes: Processes) -> None:
    blocks = [slice(start, start + 1) for start in range(2000)]
    assert list(processes(Add(np.arange(2000.0)), blocks)) == [(span.start, Counter([span.start])) for span in blocks]


@pytest.mark.parametrize("num_sums", [1, 3])
def test_a_sum_that_is_missing_or_left_over_is_an_error(num_sums: int) -> None:
    replies = compute_replies(PackedFunction.of(len), ["a", "bb", "ccc"][:num_sums])  # type: ignore[arg-type]  # texts stand for spans
    with pytest.raises(PassFailed, match=f"returned {num_sums} sums for the 2 partitions of rows 0 to 199"):
        list(replies.read(BLOCKS[:2]))


def test_a_function_is_sent_once_per_worker_and_pass(processes: Processes, tmp_path: Path) -> None:
    for number_of_pass in (1, 2):
        used: Any = sum(processes(Unpacked(tmp_path), BLOCKS * 2), Counter())
        assert Counter(read_lines(tmp_path / "unpacked")) == {str(each): number_of_pass for each in used}
    assert len(used) == 2


def test_ctrl_c_ends_a_pass_and_its_workers(processes: Processes, tmp_path: Path) -> None:
    started = time.monotonic()
    with interrupt_when(lambda: len(list(tmp_path.glob("worker-*"))) == 2):
        list(processes(Sleep(tmp_path), [slice(0, 1), slice(1, 2)]))
    assert time.monotonic() < started + 20
    assert not find_living(tmp_path)
    column = make_column()
    assert add(processes(Add(column), BLOCKS)) == expected(column)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_a_script(kind: signal.Signals, tmp_path: Path) -> None:
    program = """
import os, time
from pathlib import Path
from conddp.data import Processes

def linger(span):
    Path(f"worker-{os.getpid()}").touch()
    time.sleep(60)

with Processes(2) as processes:  # without if __name__ == "__main__"
    list(processes(linger, [slice(0, 1), slice(1, 2)]))
"""
    (tmp_path / "script.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: len(list(tmp_path.glob("worker-*"))) == 2)
        script.send_signal(kind)
        _, shown = script.communicate(timeout=20)
    finally:
        script.kill()
    wait_until(lambda: not find_living(tmp_path), seconds=5)
    assert shown.decode().count("Traceback") == (kind == signal.SIGINT)  # that of the script


def test_what_cannot_be_sent_is_refused(processes: Processes) -> None:
    lock = threading.Lock()
    with pytest.raises(PassFailed, match=r"cannot be sent to workers \(TypeError\)"):
        processes(lambda span: lock, BLOCKS)
    with pytest.raises(PassFailed, match=r"cannot be sent back \(TypeError\)"):
        list(processes(lambda span: threading.Lock(), BLOCKS))


def test_a_module_that_workers_do_not_have_is_named(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("only_here")
    module.function = lambda span: 0  # type: ignore[attr-defined]  # a module made here
    module.function.__module__, module.function.__qualname__ = "only_here", "function"
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(PassFailed, match=r"ModuleNotFoundError: no module 'only_here'"):
        list(processes(module.function, BLOCKS))


def test_workers_that_do_not_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Processes(1) as broken, pytest.raises(WorkerDied, match="cannot be started"):
        list(broken(len, BLOCKS))  # type: ignore[arg-type]  # never called


def test_workers_that_have_been_stopped_do_nothing() -> None:
    with Processes(1) as stopped:
        results = stopped(Add(make_column()), BLOCKS)
        next(results)
    with pytest.raises(ValueError, match="have been stopped"):
        stopped(Add(make_column()), BLOCKS)
    with pytest.raises(RuntimeError):
        list(results)
    with pytest.raises(ValueError, match="num_workers must be a whole number"):
        Processes(0)


def test_options_open_an_executor() -> None:
    blocks = list(list_blocks(10, block_size=4))
    with open_executor() as default, open_executor(num_workers=1) as one:
        assert default is one
        assert list(one(count_threads, blocks)) == [1, 1, 1]  # as in workers, so that results are the same
    with open_executor(num_workers=2) as executor:
        assert isinstance(executor, Processes)
        assert list(executor(lambda span: span.stop, blocks)) == [4, 8, 10]
    with pytest.raises(ValueError, match="num_workers"), open_executor(num_workers=0):
        pass
    with pytest.raises(ValueError, match="has its own workers, so"), open_executor(2, "tcp://10.0.0.1:8786"):
        pass


def test_the_secret_would_be_seen() -> None:
    with pytest.raises(ValueError, match=str(SECRET)):
        list(map(Raise(), BLOCKS))
