"""Many measurements on all cores: what becomes of workers that are stopped or die."""

import multiprocessing
import os
import time
from dataclasses import dataclass

import pytest

from conddp.planning.runner import WorkerDied, run_cells


@dataclass(frozen=True)
class Task:
    number: int
    work: float = 1.0


def square(task: Task) -> int:
    return task.number**2


def linger(task: Task) -> int:
    if task.number:
        time.sleep(60)
    return task.number


def die(task: Task) -> int:
    if task.number == 1:
        os._exit(9)
    return task.number


def test_results_belong_to_their_cells() -> None:
    tasks = [Task(number) for number in range(5)]
    expected = {task: task.number**2 for task in tasks}
    assert run_cells(tasks, square, num_workers=1) == run_cells(tasks, square, num_workers=2) == expected


def test_an_interrupt_ends_the_workers() -> None:
    def interrupt(done: int, total: int, left: float) -> None:
        if done:
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_cells([Task(0), Task(1), Task(2)], linger, num_workers=2, callback=interrupt)
    while multiprocessing.active_children() and time.monotonic() < started + 30:
        time.sleep(0.1)
    assert not multiprocessing.active_children()


def test_a_worker_that_is_killed_is_named_with_what_to_do() -> None:
    with pytest.raises(WorkerDied, match="num_workers=1"):
        run_cells([Task(0), Task(1)], die, num_workers=2)
