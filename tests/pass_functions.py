"""Functions of passes for tests of executors, in a module that workers import quickly."""

import importlib.metadata
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from conddp.data import run_in_order
from conddp.data.passes import Executor
from conddp.errors import SchemaError

SECRET = 7351.8246  # a label that must not be seen anywhere
BLOCKS = [slice(start, start + 100) for start in range(0, 2000, 100)]


def make_column() -> Any:
    """Numbers of very different sizes: their sum depends on the order of addition."""
    rng = np.random.default_rng(5)
    return rng.normal(size=2000) * 10.0 ** rng.integers(-9, 9, size=2000)


@dataclass(frozen=True)
class Add:
    """Sum of a block, with a note of which block it was. Every execution leaves a line in a file."""

    column: Any
    folder: Path | None = None

    def __call__(self, span: slice) -> tuple[Any, Any]:
        if self.folder is not None:
            with open(self.folder / "executed", "a") as file:
                file.write(f"{span.start}\n")
        return self.column[span].sum(), Counter([span.start])


@dataclass(frozen=True)
class Kill(Add):
    """Kills its process with SIGKILL when it meets a block, the first time or every time."""

    start: int = 700
    for_ever: bool = False

    def __call__(self, span: slice) -> tuple[Any, Any]:
        sums = super().__call__(span)
        assert self.folder is not None
        if span.start == self.start:
            marker = self.folder / "killed"
            if self.for_ever or not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return sums


@dataclass(frozen=True)
class Raise:
    """Raises an exception that shows a label, after having printed it everywhere."""

    label: float = SECRET
    refused: bool = False
    silent: bool = False  # what a function prints on a Dask worker is nobody's business but its own

    def __call__(self, span: slice) -> float:
        if not self.silent:
            print(self.label)
            print(self.label, file=sys.stderr)
            os.write(2, str(self.label).encode())
        if span.start == 300:
            if self.refused:
                raise SchemaError("column 'price' has gaps.")
            raise ValueError(f"bad label {self.label}")
        return self.label


@dataclass(frozen=True)
class Overflow:
    """Would warn, in a way that depends on labels."""

    column: Any = field(default_factory=lambda: np.array([1e308]))

    def __call__(self, span: slice) -> Any:
        return (self.column * 10).sum()


@dataclass(frozen=True)
class Large:
    """Sums of more than a megabyte."""

    def __call__(self, span: slice) -> Any:
        return np.full(200_000, float(span.start))


@dataclass(frozen=True)
class Sleep:
    """Takes a minute, and says in which process."""

    folder: Path
    seconds: float = 60.0

    def __call__(self, span: slice) -> int:
        (self.folder / f"worker-{os.getpid()}").touch()
        time.sleep(self.seconds)
        return 0


@dataclass
class Unpacked:
    """Leaves a file whenever it is unpacked."""

    folder: Path

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        with open(self.folder / "unpacked", "a") as file:
            file.write(f"{os.getpid()}\n")

    def __call__(self, span: slice) -> Any:
        time.sleep(0.01)
        return Counter([os.getpid()])


class FileColumn:
    """A column in a file, with partitions."""

    def __init__(self, path: Path, values: Any) -> None:
        self.path, self.partitions = path, tuple(BLOCKS)
        np.save(path, values)

    def __len__(self) -> int:
        return BLOCKS[-1].stop

    def __getitem__(self, span: slice) -> Any:
        return np.load(self.path)[span]


def sum_block(span: slice, block: Any) -> tuple[Any, Any]:
    """Sum of a block, and the process that computed it."""
    return block.sum(), Counter([os.getpid()])


def count_threads(span: slice) -> Any:
    """Largest number of threads of a library for linear algebra in this process."""
    return max(info["num_threads"] for info in threadpool_info())


@contextmanager
def open_threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool.map


@contextmanager
def open_serial() -> Iterator[Executor]:
    yield run_in_order


def read_lines(path: Path) -> list[str]:
    return path.read_text().split()


def find_living(folder: Path, prefix: str = "worker-") -> list[int]:
    """Processes that have left a file and still run."""
    found = [int(path.name.removeprefix(prefix)) for path in folder.glob(f"{prefix}*")]
    return [each for each in found if Path(f"/proc/{each}").exists() and "Z" not in _read_state(each)]


def _read_state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def wait_until(condition: Any, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def add(results: Iterable[Any]) -> Any:
    """Add up what Add returned, in order."""
    return reduce(lambda total, part: tuple(a + b for a, b in zip(total, part, strict=True)), results)


def expected(column: Any) -> tuple[Any, Any]:
    """The sum in this process, and that every block counts once."""
    return add(map(Add(column), BLOCKS))


def pretend(installed: str | None) -> None:
    """Let a worker say that it has another version of conddp, or none."""

    def version(distribution_name: str) -> str:
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(distribution_name)
        return installed

    importlib.metadata.true_version = importlib.metadata.version  # type: ignore[attr-defined]  # kept for stop_pretending
    importlib.metadata.version = version


def stop_pretending() -> None:
    importlib.metadata.version = importlib.metadata.true_version  # type: ignore[attr-defined]  # as above
