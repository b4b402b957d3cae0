"""A real Dask cluster with worker processes: the same bits if a worker is killed, and nothing private in logs."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import dask
import numpy as np
import pytest
from dask.utils import parse_timedelta
from distributed import Client, LocalCluster

from conddp import CondNewton, PrivateMean
from conddp.algorithms import Algorithm
from conddp.dask import ClusterError, DaskExecutor, connect, start_local, use_cluster
from conddp.data import run_pass
from conddp.data.tasks import PackedFunction, Replies, WorkerDied
from conddp.errors import MissingExtra, PrivacyWarning
from conddp.execution import open_executor
from tests.executor_checks import check_errors, check_killed_worker, check_sums, interrupt_when
from tests.pass_functions import (
    BLOCKS,
    SECRET,
    Add,
    FileColumn,
    Kill,
    Large,
    Raise,
    Sleep,
    Unpacked,
    add,
    count_threads,
    expected,
    make_column,
    pretend,
    read_lines,
    stop_pretending,
    sum_block,
    wait_until,
)
from tests.stored_tables import fit_table, write_table


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with start_local(2) as started:
        yield started


@pytest.fixture
def executor(client: Client) -> DaskExecutor:
    client.wait_for_workers(1, timeout=30)  # the test before may have killed some
    return DaskExecutor(client)


def test_sums_are_the_same_bit_for_bit(executor: DaskExecutor) -> None:
    check_sums(executor)


@pytest.mark.parametrize("algorithm", [PrivateMean(), pytest.param(CondNewton(), marks=pytest.mark.slow)])
def test_a_fit_on_a_cluster_is_the_same_bit_for_bit(
    algorithm: Algorithm, executor: DaskExecutor, tmp_path: Path
) -> None:
    schema = write_table(tmp_path)
    with use_cluster(executor.client):
        elsewhere = fit_table(tmp_path, schema, algorithm)
    assert np.array_equal(elsewhere, fit_table(tmp_path, schema, algorithm))


def test_a_cluster_is_used_within_its_block(executor: DaskExecutor, tmp_path: Path) -> None:
    column = FileColumn(tmp_path / "column.npy", make_column())
    here = run_pass(sum_block, column)
    with use_cluster(executor.client):
        elsewhere = run_pass(sum_block, column)
    assert elsewhere[0] == here[0]
    assert os.getpid() in here[1] and os.getpid() not in elsewhere[1]


def test_no_label_is_in_an_error_or_log(
    executor: DaskExecutor, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = executor.client
    check_errors(executor, silent=True)
    assert list(executor(Raise(silent=True), BLOCKS[:2])) == [SECRET, SECRET]
    shown = "".join(map(str, (client.get_worker_logs(), client.get_scheduler_logs(), capfd.readouterr(), caplog.text)))
    assert str(SECRET) not in shown
    assert "Compute Failed" not in shown and "overflow" not in shown
    assert "conddp" not in str(client.get_worker_logs())  # no task appears in them


def test_dask_would_log_a_label(client: Client) -> None:
    task = client.submit(Raise(silent=True), slice(300, 400))
    with pytest.raises(ValueError, match=str(SECRET)):
        task.result()
    assert str(SECRET) in str(client.get_worker_logs())
    task.release()


def test_the_text_of_what_is_sent_says_nothing() -> None:
    packed, replies = PackedFunction.of(Raise()), Replies([f"{SECRET}".encode()], 0.1)
    assert repr(packed) == f"<function of a pass, {len(packed.content)} bytes>"
    assert repr(replies) == "<sums of 1 partitions>"


def list_keys(executor: DaskExecutor) -> list[str]:
    return [key for key in executor.client.futures if key.startswith(("conddp-", "PackedFunction-"))]


def test_nothing_stays_on_the_cluster(executor: DaskExecutor) -> None:
    results = executor(Large(), BLOCKS)
    taken = 0
    for number, sums in enumerate(results):
        assert sums[0] == BLOCKS[number].start
        taken = max(taken, len(list_keys(executor)))
    assert 0 < taken <= 2 * 2 + 1  # tasks and the function
    results = executor(Large(), BLOCKS)
    next(results)
    results.close()  # type: ignore[attr-defined]  # a generator
    wait_until(lambda: not list_keys(executor))
    wait_until(lambda: not any(executor.client.has_what().values()))


def test_a_function_is_not_unpacked_for_every_task(executor: DaskExecutor, tmp_path: Path) -> None:
    assert len(list(executor(Unpacked(tmp_path), BLOCKS * 4))) == 80  # in at least 16 tasks of 0.05 seconds
    assert len(read_lines(tmp_path / "unpacked")) <= 8  # once per worker, unless Dask moves it while nobody uses it


def test_ctrl_c_ends_a_pass(executor: DaskExecutor, tmp_path: Path) -> None:
    with interrupt_when(lambda: any(tmp_path.glob("worker-*"))):
        list(executor(Sleep(tmp_path, 3.0), BLOCKS))
    wait_until(lambda: not list_keys(executor))


@pytest.mark.parametrize(
    ("installed", "said"), [("0.0.7", r"has conddp 0\.0\.7, but this process has \d"), (None, "is not installed")]
)
def test_another_version_on_a_worker_is_refused(installed: str | None, said: str, executor: DaskExecutor) -> None:
    executor.client.run(pretend, installed)
    try:
        with pytest.raises(ClusterError, match=said):
            list(executor(Add(make_column()), BLOCKS))
    finally:
        executor.client.run(stop_pretending)
    assert list(executor(count_threads, BLOCKS[:1])) == [1]


def test_a_cluster_without_workers_is_an_error_and_no_hang() -> None:
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
        pytest.raises(ClusterError, match=r"no running worker for 0\.3 seconds"),
    ):
        list(DaskExecutor(client, patience=0.3)(Add(make_column()), BLOCKS))


def test_a_cluster_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ClusterError, match=r"'tcp://127\.0\.0\.1:9' cannot be reached"):
        with connect("tcp://127.0.0.1:9", timeout=0.3):
            pass
    with pytest.raises(ClusterError, match="cannot be reached"), connect("nonsense://here", timeout=0.3):
        pass


@pytest.mark.parametrize(
    ("address", "warns"), [("tcp://10.0.0.5:8786", True), ("tls://10.0.0.5:8786", False), ("tcp://127.0.0.1:1", False)]
)
def test_a_cluster_elsewhere_without_tls_is_warned_about(address: str, warns: bool) -> None:
    fake = SimpleNamespace(asynchronous=False, scheduler=SimpleNamespace(address=address))
    if warns:
        with pytest.warns(PrivacyWarning, match="does not use TLS"):
            DaskExecutor(fake)
    else:
        DaskExecutor(fake)


def test_a_client_of_an_event_loop_is_refused() -> None:
    with pytest.raises(ValueError, match="asynchronous one"):
        DaskExecutor(SimpleNamespace(asynchronous=True))


def test_an_address_opens_an_executor(client: Client) -> None:
    column = make_column()
    with open_executor(cluster=client.scheduler.address) as executor:
        assert isinstance(executor, DaskExecutor)
        assert add(executor(Add(column), BLOCKS)) == expected(column)


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "conddp.dask")
    with pytest.raises(MissingExtra, match=r"conddp\[dask\]"), open_executor(cluster="local"):
        pass


def test_a_block_whose_worker_is_killed_counts_once(executor: DaskExecutor, tmp_path: Path) -> None:
    check_killed_worker(executor, tmp_path)


def test_a_local_worker_that_starts_slowly_is_not_given_up(client: Client) -> None:
    assert parse_timedelta(dask.config.get("distributed.deploy.lost-worker-timeout")) > 3600


@pytest.mark.slow
def test_a_pass_goes_on_after_all_workers_were_lost_with_the_function(executor: DaskExecutor) -> None:
    column, results = make_column(), []
    for number, sums in enumerate(executor(Add(column), BLOCKS)):
        results.append(sums)
        if number == 2:
            for process in executor.client.run(os.getpid).values():
                os.kill(process, signal.SIGKILL)
    assert add(iter(results)) == expected(column)


@pytest.mark.slow
def test_a_block_that_always_kills_its_worker_is_named(executor: DaskExecutor, tmp_path: Path) -> None:
    with pytest.raises(WorkerDied, match="rows 700 to 799, perhaps because memory ran out"):
        list(executor(Kill(make_column(), tmp_path, start=700, for_ever=True), BLOCKS[7:8]))
