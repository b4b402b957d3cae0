"""Experiments: data sets, methods and budgets; each combination is a cell of a table."""

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal

import numpy as np

import conddp
from conddp.algorithms.algorithm import Algorithm
from conddp.algorithms.descent import Descent
from conddp.cache import ContentCache
from conddp.errors import NotCalibrated
from conddp.heads.head import Head
from conddp.planning.budgets import EPSILONS
from conddp.planning.runner import Store, run_cells
from conddp.research.datasets import DATASETS, DatasetNotFound, locate_dataset
from conddp.research.experiments.search import Search
from conddp.research.experiments.tuning import Schedule, tune
from conddp.research.split import load_split

__all__ = [
    "Accounting",
    "Cell",
    "Experiment",
    "Method",
    "Result",
    "is_at_hand",
    "is_sample",
    "measure_cells",
]

VERSION = 1  # raise it when a tuned cell with the same declaration would give other numbers

WITHOUT_INFLUENCE = ("research", "report", "planning", "cli", "files.py")  # on what a fit gives

Accounting = Literal["paper", "ours"]


@dataclass(frozen=True)
class Method:
    """A row of the tables.

    Parameters
    ----------
    name : str
        As the paper calls it.
    algorithm : Algorithm
        With its default settings, for fits without tuning.
    search : Search, optional
        Settings to tune on the test loss under the paper's accounting. None runs the method with its defaults only.
    tuned : Descent, optional
        The algorithm of the tuned runs, if it is another one.
    untuned : bool
        Whether the method also runs with its defaults.
    head : Head, optional
        The model, if it is not the experiment's.
    """

    name: str
    algorithm: Algorithm
    search: Search | None = None
    tuned: Descent | None = None
    untuned: bool = True
    head: Head | None = None


@dataclass(frozen=True)
class Cell:
    """One number to measure, with everything that it depends on.

    Parameters
    ----------
    data : str
        The data set.
    method : Method
        The row.
    accounting : {"paper", "ours"}
        "paper": ZERO_OUT, tuned on the test loss, the paper's preparation of the data. "ours": REPLACE, nothing tuned,
        our preparation.
    epsilon : float
        Budget, with delta 1e-6; infinite for no noise.
    head : Head
        The model.
    schedule : Schedule
        Of tuned runs.
    num_seeds : int
        Runs.
    """

    data: str
    method: Method
    accounting: Accounting
    epsilon: float
    head: Head
    schedule: Schedule
    num_seeds: int

    @property
    def key(self) -> dict[str, Any]:
        """What the result depends on, as a short key for the cache."""
        method = self.method
        declaration = repr((method.algorithm, self.head, self.num_seeds))
        if self.accounting == "paper":
            declaration = repr(
                (method.tuned or method.algorithm, method.search, self.head, self.schedule, self.num_seeds)
            )
        return {
            "version": VERSION,
            "data": self.data,
            "sample": is_sample(self.data),
            "accounting": self.accounting,
            "method": method.name,
            "epsilon": str(self.epsilon),
            "declaration": hashlib.sha256(declaration.encode()).hexdigest(),
            "source": hashlib.sha256(repr(DATASETS.get(self.data)).encode()).hexdigest(),
            **({"code": _digest_code()} if self.accounting == "ours" else {}),
        }

    @property
    def work(self) -> float:
        """Rough size of the work in record visits, to order cells and estimate the remaining time."""
        if self.accounting == "ours" or self.method.search is None:
            return 1e7
        n, d = load_split(self.data, "paper").train.public.shape
        search = self.method.search
        runs, alive, before = float(search.finalists * self.num_seeds), len(search.trials), 0.0
        for fraction, keep in search.rungs:
            runs, alive, before = runs + alive * (fraction - before), keep, fraction
        records = min(n, self.schedule.batch_size or n)
        parameters = self.head.layout(d, 0).size
        return float(runs * self.schedule.num_steps(n) * parameters * (records + 40))

    def compute(self) -> "Result":
        """Measure."""
        started = time.process_time()  # CPU time: other work on the machine does not count
        split = load_split(self.data, self.accounting)
        setting: Mapping[str, Any] = {}
        errors: tuple[float, ...] = ()
        note = ""
        if self.accounting == "paper":
            assert self.method.search is not None, "only methods with a search are tuned"
            algorithm = self.method.tuned or self.method.algorithm
            assert isinstance(algorithm, Descent), "only descent is tuned"
            tuned = tune(
                split,
                algorithm,
                self.head,
                self.epsilon,
                schedule=self.schedule,
                search=self.method.search,
                num_seeds=self.num_seeds,
            )
            setting, errors = asdict(tuned.trial), tuned.errors
        else:
            try:
                errors = tuple(
                    split.measure_fit(self.method.algorithm, self.epsilon, seed=seed, head=self.head)
                    for seed in range(self.num_seeds)
                )
            except NotCalibrated as error:
                note = str(error)
        seconds = time.process_time() - started
        return Result(errors, split.optimum, split.constant, dict(setting), note, seconds)


@dataclass(frozen=True)
class Result:
    """The result of a cell.

    Parameters
    ----------
    errors : tuple of float
        Test MSE of each run, in the paper's units of the label; empty where the method does not apply.
    optimum, constant : float
        Test MSE of non-private least squares on the same columns, and of the mean.
    setting : dict
        The tuned settings.
    note : str
        Why there are no errors.
    seconds : float
        How long it took.
    """

    errors: tuple[float, ...]
    optimum: float
    constant: float
    setting: Mapping[str, float]
    note: str
    seconds: float

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Result":
        """The result that was stored."""
        return cls(**{**stored, "errors": tuple(stored["errors"])})

    def to_json(self) -> dict[str, Any]:
        """The result as it is stored."""
        stored: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return stored

    @property
    def mse(self) -> float:
        """Mean over runs."""
        return float(np.mean(self.errors)) if self.errors else math.nan

    @property
    def std(self) -> float:
        """Standard deviation over runs."""
        return float(np.std(self.errors, ddof=1)) if len(self.errors) > 1 else math.nan


@dataclass(frozen=True)
class Experiment:
    """A table and a figure of the paper to reproduce.

    Parameters
    ----------
    name, title : str
        On the command line, and above the table.
    table : str
        Where the printed numbers are; empty if the paper prints none.
    sets : tuple of str
        Data sets.
    head : Head
        The model.
    schedule : Schedule
        Epochs and batches.
    methods : tuple of Method
        The rows.
    epsilons : tuple of float
        The columns.
    num_seeds : int
        Runs of each cell.
    reference : {"least squares", "lowest cell"}
        Denominator of ratios: least squares, or the lowest of the cells without privacy.
    """

    name: str
    title: str
    table: str
    sets: tuple[str, ...]
    head: Head
    schedule: Schedule
    methods: tuple[Method, ...]
    epsilons: tuple[float, ...] = (*EPSILONS, math.inf)
    num_seeds: int = 5
    reference: Literal["least squares", "lowest cell"] = "least squares"

    def cells(self) -> Iterator[Cell]:
        """All cells of the sets on this machine."""
        for data in self.sets_at_hand():
            for method in self.methods:
                for epsilon in self.epsilons:
                    if method.search is not None:
                        yield self._cell(data, method, "paper", epsilon)
                    if method.untuned and math.isfinite(epsilon):
                        yield self._cell(data, method, "ours", epsilon)

    def sets_at_hand(self) -> tuple[str, ...]:
        """The data sets whose files are on this machine."""
        return tuple(data for data in self.sets if is_at_hand(data))

    def _cell(self, data: str, method: Method, accounting: Accounting, epsilon: float) -> Cell:
        return Cell(data, method, accounting, epsilon, method.head or self.head, self.schedule, self.num_seeds)


def measure_cells(cells: Iterable[Cell], cache: ContentCache, **options: Any) -> dict[Cell, Result]:
    """Results of cells, from the cache or computed; for ``options`` see :func:`~conddp.planning.runner.run_cells`."""
    store: Store[Cell, Result] = Store(cache, lambda cell: cell.key, Result.to_json, Result.from_json)
    return run_cells(cells, methodcaller("compute"), store=store, **options)


@cache
def _digest_code() -> str:
    """Digest of the code that a fit depends on: defaults change, and untuned fits are quick to repeat."""
    package = Path(conddp.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] not in WITHOUT_INFLUENCE:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def is_at_hand(data: str) -> bool:
    """Whether the file of a data set is on this machine."""
    if data.startswith("synthetic"):
        return True
    try:
        locate_dataset(data)
    except DatasetNotFound:
        return False
    return True


def is_sample(data: str) -> bool:
    """Whether only a sample of it is on this machine."""
    return not data.startswith("synthetic") and locate_dataset(data)[1]
