"""Processes that spend from one ledger file and are killed, or race. Run as a program, it prints what happened as JSON.

A process of its own, because it forks: that is safe only without threads.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conddp.errors import BudgetExceeded
from conddp.privacy import ledger_file
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.chain import append_line
from conddp.privacy.events import expect_event
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger

FIT = PrivacyBudget(1.0, 1e-6)
KILLS_PER_FILE = 20


class Slow:
    """A file that is written byte by byte, so that a kill often falls into the middle of a line."""

    def __init__(self, file: Any) -> None:
        self.flush, self.fileno, self._file = file.flush, file.fileno, file

    def write(self, blob: bytes) -> None:
        for byte in blob:
            self._file.write(bytes([byte]))
            self._file.flush()


def start(work: Callable[[int], None]) -> tuple[int, int]:
    """Fork a process that works and reports to a pipe; returns its number and the end to read from."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        work(writing)
        os._exit(0)
    os.close(writing)
    return process, reading


def kill(folder: Path, times: int) -> dict[str, int]:
    """Kill processes at random instants; count what they had been told and what the file holds."""
    chance = random.Random(0)
    slowed: Any = lambda file, *rest: append_line(Slow(file), *rest)  # type: ignore[arg-type]  # noqa: E731  (Slow writes like a file; a short function)
    ledger_file.append_line = slowed  # type: ignore[attr-defined]  # in place of the function of the module
    os.fsync = lambda _: None  # type: ignore[assignment]  # a killed process needs no disk, and more happens in less time
    counts = {"kills": 0, "returned": 0, "in the file": 0, "lost": 0, "incomplete lines": 0}
    for number in range(times):
        path = folder / f"{number // KILLS_PER_FILE}.jsonl"
        if not path.exists():
            PrivacyLedger(PrivacyBudget(1e6, 0.0), path=path)
            told: set[str] = set()

        def spend(pipe: int, path: Path = path, number: int = number) -> None:
            ledger = PrivacyLedger.load(path)
            for turn in range(10**6):
                ledger.spend(LedgerEntry(f"{number}.{turn}", PrivacyBudget(1e-3, 0.0)))
                os.write(pipe, f"{number}.{turn}\n".encode())

        process, pipe = start(spend)
        time.sleep(chance.uniform(0.002, 0.05))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        with os.fdopen(pipe) as reports:
            returned = reports.read().split()
        told.update(returned)
        held = {entry.what for entry in PrivacyLedger.load(path).entries}
        counts["kills"] += 1
        counts["returned"] += len(returned)
        counts["lost"] += len(told - held)
        counts["incomplete lines"] += not path.read_bytes().endswith(b"\n")
        if number % KILLS_PER_FILE == KILLS_PER_FILE - 1 or number == times - 1:
            counts["in the file"] += len(held)
    return counts


def race(folder: Path, rounds: int, racers: int) -> dict[str, int]:
    """Let processes race for a budget that covers four fits; count how many were accepted in all."""
    counts = {"rounds": rounds, "asked": 0, "accepted": 0, "most in a round": 0, "in the file": 0}
    for number in range(rounds):
        path = folder / f"race-{number}.jsonl"
        PrivacyLedger(PrivacyBudget(2.13, 1e-6), path=path)
        waiting, starting = os.pipe()

        def spend(pipe: int, path: Path = path, waiting: int = waiting, starting: int = starting) -> None:
            ledger = PrivacyLedger.load(path)
            os.close(starting)
            os.read(waiting, 1)  # returns when the other end is closed
            for _ in range(3):
                try:
                    ledger.spend(LedgerEntry("a fit", FIT, event=expect_event(FIT)))
                    os.write(pipe, b".")
                except BudgetExceeded:
                    pass

        started = [start(spend) for _ in range(racers)]
        os.close(waiting)
        os.close(starting)
        accepted = 0
        for process, pipe in started:
            with os.fdopen(pipe) as reports:
                accepted += len(reports.read())
            os.waitpid(process, 0)
        counts["asked"] += 3 * racers
        counts["accepted"] += accepted
        counts["most in a round"] = max(counts["most in a round"], accepted)
        counts["in the file"] += len(PrivacyLedger.load(path).entries)
    return counts


if __name__ == "__main__":
    what, folder, *numbers = sys.argv[1:]
    print(json.dumps((kill if what == "kill" else race)(Path(folder), *map(int, numbers))))
