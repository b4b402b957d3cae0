"""Lines of the Criteo tables: a method on one part, with all its budgets. Each is measured and stored on its own."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from operator import methodcaller
from typing import Any, Literal

import numpy as np

from conddp.cache import ContentCache
from conddp.planning.budgets import EPSILONS
from conddp.planning.runner import Store, run_cells
from conddp.privacy.neighbouring import Neighbouring
from conddp.research.experiments.criteo import methods
from conddp.research.experiments.criteo.methods import Budget, Tuning
from conddp.research.experiments.criteo.networks import train_on_bins, tune_networks
from conddp.research.experiments.criteo.source import CriteoSource, load_table
from conddp.research.experiments.criteo.table import CriteoTable
from conddp.research.experiments.search import Search
from conddp.research.experiments.tuning import Schedule

__all__ = ["Line", "LineResult", "Measured", "list_lines", "make_quick", "measure_lines"]

Part = Literal["linear", "mlp"]
BOTH = (Neighbouring.REPLACE, Neighbouring.ZERO_OUT)
REPLACE_ONLY = (Neighbouring.REPLACE,)
BATCH_SIZE, NUM_EPOCHS = 8192, 50  # of the paper
CONDITIONED_EPOCHS, NETWORK_EPOCHS = 10, 5  # 50 take an hour of a core: a product with C, or a network, in every step
VERSION = 2  # raise it when a line with the same declaration would give other numbers


@dataclass(frozen=True)
class Line:
    """A method on one part of the experiment.

    Parameters
    ----------
    part : {"linear", "mlp"}
        The model of the paper's table.
    method : str
        As the paper calls it.
    source : CriteoSource
        The records.
    relations : tuple of Neighbouring
        Relations under which the budgets are stated.
    epsilons : tuple of float
        Budgets; infinite for no noise.
    num_seeds : int
        Runs for each budget.
    tuning : Tuning, optional
        How settings are chosen; None if nothing is tuned.
    """

    part: Part
    method: str
    source: CriteoSource
    relations: tuple[Neighbouring, ...]
    epsilons: tuple[float, ...]
    num_seeds: int
    tuning: Tuning | None = None

    @property
    def key(self) -> dict[str, Any]:
        """What the result depends on."""
        return {
            "criteo": VERSION,
            "part": self.part,
            "method": self.method,
            "declaration": hashlib.sha256(repr(self).encode()).hexdigest(),
        }

    @property
    def work(self) -> float:
        """Rough size of the work: steps times settings, and a constant."""
        if self.tuning is None:
            return 1e3
        steps = self.tuning.schedule.num_steps(self.source.num_train)
        per_step = 10.0 if self.part == "mlp" else 1.0 if self.method == "DPSGD" else 5.0
        return steps * per_step * len(self.epsilons) * len(self.relations)

    @property
    def budgets(self) -> list[Budget]:
        """All relations and epsilons. Without noise there is no relation, and the first stands for it."""
        paid = [(relation, epsilon) for relation in self.relations for epsilon in self.epsilons if epsilon < math.inf]
        return paid + [(self.relations[0], epsilon) for epsilon in self.epsilons if epsilon == math.inf]

    def compute(self) -> "LineResult":
        """Measure."""
        started, worked = time.monotonic(), time.process_time()
        table = _load(self.source)
        cells = tuple(MEASURES[self.method](table, self))
        seconds, busy = time.monotonic() - started, time.process_time() - worked
        return LineResult(cells, table.constant, table.real, seconds, busy)


@dataclass(frozen=True)
class Measured:
    """Test errors for one budget.

    Parameters
    ----------
    relation : str
        "replace" or "zero-out".
    epsilon : float
        The budget.
    errors : tuple of float
        Test MSE of each run, in square euros.
    setting : str
        Settings that were tuned.
    """

    relation: str
    epsilon: float
    errors: tuple[float, ...]
    setting: str = ""

    @property
    def mse(self) -> float:
        """Mean over runs."""
        return float(np.mean(self.errors))

    @property
    def std(self) -> float:
        """Standard deviation over runs; NaN for one run."""
        return float(np.std(self.errors, ddof=1)) if len(self.errors) > 1 else math.nan


@dataclass(frozen=True)
class LineResult:
    """What was measured on a line.

    Parameters
    ----------
    cells : tuple of Measured
        One for each budget.
    constant : float
        Test MSE of the mean of the training labels.
    real : bool
        Whether the records are the published ones.
    seconds, processor_seconds : float
        Time of all runs of the line, including tuning and reading, on the clock and of the processor.
    """

    cells: tuple[Measured, ...]
    constant: float
    real: bool
    seconds: float
    processor_seconds: float

    def to_json(self) -> dict[str, Any]:
        """The result as it is stored."""
        stored: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "LineResult":
        """The result that was stored."""
        cells = tuple(Measured(**{**cell, "errors": tuple(cell["errors"])}) for cell in stored["cells"])
        return cls(**{**stored, "cells": cells})


@lru_cache(maxsize=1)
def _load(source: CriteoSource) -> CriteoTable:
    return load_table(source)


def _measure_default(table: CriteoTable, line: Line) -> Iterator[Measured]:
    fit = methods.fit_default if line.part == "linear" else methods.fit_encoded
    for (relation, epsilon), errors in fit(table, line.budgets, line.num_seeds).items():
        yield Measured(relation.value, epsilon, errors)


def _measure_on_bins(table: CriteoTable, line: Line) -> Iterator[Measured]:
    setting = ""
    if line.part == "linear":
        found = methods.fit_on_bins(table, line.epsilons, line.num_seeds)
    else:
        assert line.tuning is not None, "the schedule is that of the tuned networks"
        rate = line.tuning.search.trials[0].learning_rate
        setting = f"learning_rate={rate:.3g}"
        found = train_on_bins(table, line.epsilons, line.tuning.schedule, rate, line.num_seeds)
    for epsilon, errors in found.items():
        yield Measured(Neighbouring.REPLACE.value, epsilon, errors, setting)


def _measure_least_squares(table: CriteoTable, line: Line) -> Iterator[Measured]:
    yield Measured(Neighbouring.REPLACE.value, math.inf, (methods.fit_least_squares(table),))


def _measure_descent(table: CriteoTable, line: Line) -> Iterator[Measured]:
    assert line.tuning is not None, "baselines are tuned"
    tune = methods.tune_descent if line.part == "linear" else tune_networks
    found = tune(table, line.method, line.budgets, line.tuning, line.num_seeds)
    for (relation, epsilon), outcome in found.items():
        yield Measured(relation.value, epsilon, outcome.errors, methods.describe_settings(outcome))


MEASURES: dict[str, Callable[[CriteoTable, Line], Iterator[Measured]]] = {
    "DPSGD": _measure_descent,
    "Cond-DP": _measure_descent,
    "Switch-Cond-DP": _measure_descent,
    "RR-on-Bins": _measure_on_bins,
    "least squares": _measure_least_squares,
    "default": _measure_default,
}


def list_lines(source: CriteoSource) -> list[Line]:
    """All lines of both tables, in the order in which they are shown."""
    with_optimum = (*EPSILONS, math.inf)
    long, short, brief = (Schedule(epochs, BATCH_SIZE) for epochs in (NUM_EPOCHS, CONDITIONED_EPOCHS, NETWORK_EPOCHS))

    def tune(rung: float, finalists: int, schedule: Schedule = long, **grid: list[float]) -> Tuning:
        return Tuning(schedule, Search.over_grid(grid, rungs=((rung, finalists),), finalists=finalists))

    plain = tune(0.2, 1, learning_rate=[1e-3, 3e-3], clip_residual=[0.1, 0.3, 1.0])
    conditioned = tune(0.6, 1, short, learning_rate=[2e-4, 5e-4, 1e-3], clip_residual=[0.05, 0.2])
    switching = tune(0.2, 1, learning_rate=[1e-4, 5e-4, 2e-3], clip_residual=[0.05, 0.2, 0.8], switch=[0.1])
    networks = tune(0.2, 1, brief, learning_rate=[1e-3, 4e-3], clip_residual=[0.1])
    on_bins = tune(1.0, 1, brief, learning_rate=[2e-3], clip_residual=[1.0])
    return [
        Line("linear", "DPSGD", source, BOTH, with_optimum, 2, plain),
        Line("linear", "Cond-DP", source, BOTH, with_optimum, 2, conditioned),
        Line("linear", "Switch-Cond-DP", source, REPLACE_ONLY, EPSILONS, 2, switching),
        Line("linear", "RR-on-Bins", source, REPLACE_ONLY, EPSILONS, 3),
        Line("linear", "least squares", source, REPLACE_ONLY, (math.inf,), 1),
        Line("linear", "default", source, BOTH, EPSILONS, 2),
        Line("mlp", "DPSGD", source, REPLACE_ONLY, with_optimum, 1, networks),
        Line("mlp", "Switch-Cond-DP", source, REPLACE_ONLY, with_optimum, 1, networks),
        Line("mlp", "RR-on-Bins", source, REPLACE_ONLY, EPSILONS, 1, on_bins),
        Line("mlp", "default", source, REPLACE_ONLY, EPSILONS, 2),
    ]


def make_quick(line: Line) -> Line:
    """A quick version: fewer budgets, epochs, settings and seeds. For a first look, not for conclusions."""
    if line.tuning is None:
        return replace(line, num_seeds=1)
    trials = line.tuning.search.trials
    search = Search(tuple(trials[:: max(1, len(trials) // 4)]), ((0.5, 1),), finalists=1)
    epsilons = tuple(epsilon for epsilon in line.epsilons if epsilon in (1.0, 4.0))
    return replace(
        line,
        epsilons=epsilons,
        relations=REPLACE_ONLY,
        num_seeds=1,
        tuning=Tuning(replace(line.tuning.schedule, num_epochs=3), search),
    )


def measure_lines(lines: Iterable[Line], cache: ContentCache, **options: Any) -> dict[Line, LineResult]:
    """Results of lines, from the cache or computed; for ``options`` see :func:`~conddp.planning.runner.run_cells`."""
    store: Store[Line, LineResult] = Store(cache, lambda line: line.key, LineResult.to_json, LineResult.from_json)
    return run_cells(lines, methodcaller("compute"), store=store, **options)
