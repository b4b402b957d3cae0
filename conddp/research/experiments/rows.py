"""Results beside the printed numbers, one row per data set, method and epsilon; kept as CSV."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conddp.research.experiments.experiment import Accounting, Cell, Experiment, Result
from conddp.research.experiments.paper import get_printed

__all__ = ["KINDS", "Measure", "Row", "make_rows", "read_rows", "write_rows"]

KINDS = ("paper", "tuned", "untuned")
MEASURES = ("mse", "std", "ratio", "ratio_std")
REST = ("optimum", "constant", "setting", "note")


@dataclass(frozen=True)
class Measure:
    """Mean test MSE and its standard deviation over runs, and both over a non-private optimum; NaN where missing."""

    mse: float = math.nan
    std: float = math.nan
    ratio: float = math.nan
    ratio_std: float = math.nan

    @classmethod
    def of(cls, mse: float, std: float | None, unit: float) -> "Measure":
        """In units of an optimum."""
        std = math.nan if std is None else std
        return cls(mse, std, mse / unit, std / unit)


@dataclass(frozen=True)
class Row:
    """One method at one epsilon: the paper's number, ours as the paper did it, ours as it should be.

    Parameters
    ----------
    data, method : str
    epsilon : float
        What was measured.
    paper : Measure
        As printed; the optimum is the lowest of the paper's own cells without privacy.
    tuned : Measure
        Ours under ZERO_OUT, tuned on the test loss, with the paper's preparation of the data; the optimum is least
        squares, or for MLP models the lowest of our own cells without privacy.
    untuned : Measure
        Ours under REPLACE with nothing tuned; the optimum is least squares with intercept, or for MLP models as above.
    optimum, constant : float
        Test MSE of non-private least squares with intercept, and of the mean.
    setting, note : str
        What was tuned to what; why a number is missing.
    """

    data: str
    method: str
    epsilon: float
    paper: Measure
    tuned: Measure
    untuned: Measure
    optimum: float
    constant: float
    setting: str
    note: str


def make_rows(experiment: Experiment, results: Mapping[Cell, Result]) -> list[Row]:
    """Rows in the order of the declaration."""
    found = {(cell.data, cell.method.name, cell.accounting, cell.epsilon): result for cell, result in results.items()}
    rows = []
    measured = {cell.data for cell in results}
    for data in (each for each in experiment.sets if each in measured):
        for method in experiment.methods:
            for epsilon in experiment.epsilons:
                row = _make_row(experiment, found, data, method.name, epsilon)
                if row is not None:
                    rows.append(row)
    return rows


def _make_row(
    experiment: Experiment,
    found: Mapping[tuple[str, str, Accounting, float], Result],
    data: str,
    method: str,
    epsilon: float,
) -> Row | None:
    tuned = found.get((data, method, "paper", epsilon))
    untuned = found.get((data, method, "ours", epsilon))
    printed = get_printed(experiment.table, data, method, epsilon)
    if tuned is None and untuned is None and printed is None:
        return None
    without = [get_printed(experiment.table, data, method.name, math.inf) for method in experiment.methods]
    lowest = min((cell.mse for cell in without if cell), default=math.nan)
    paper = Measure.of(printed.mse, printed.std, lowest) if printed else Measure()
    ours = {}
    for accounting, result in (("paper", tuned), ("ours", untuned)):
        unit = _reference(experiment, found, data, accounting)
        ours[accounting] = Measure.of(result.mse, result.std, unit) if result else Measure()
    plain = [result for key, result in found.items() if key[0] == data and key[2] == "ours"]
    reference = plain[0] if plain else next(result for key, result in found.items() if key[0] == data)
    setting = "" if tuned is None else " ".join(f"{name}={value:.3g}" for name, value in tuned.setting.items())
    note = untuned.note if untuned else ""
    return Row(
        data,
        method,
        epsilon,
        paper,
        ours["paper"],
        ours["ours"],
        reference.optimum,
        reference.constant,
        setting,
        note,
    )


def _reference(
    experiment: Experiment,
    found: Mapping[tuple[str, str, Accounting, float], Result],
    data: str,
    accounting: str,
) -> float:
    """What ours is divided by."""
    if experiment.reference == "lowest cell":
        without = [each.mse for key, each in found.items() if key[0] == data and key[2:] == ("paper", math.inf)]
        return min(without, default=math.nan)
    optima = [result.optimum for key, result in found.items() if key[0] == data and key[2] == accounting]
    return optima[0] if optima else math.nan


def write_rows(path: Path, rows: Iterable[Row], *, header: Sequence[str] = ()) -> None:
    """Write a CSV file, with lines that begin with # above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        file.writelines(f"# {line}\n" for line in header)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["data", "method", "epsilon", *(f"{kind}_{name}" for kind in KINDS for name in MEASURES), *REST]
        )
        for row in rows:
            measures = [getattr(getattr(row, kind), name) for kind in KINDS for name in MEASURES]
            rest = [getattr(row, name) for name in REST]
            writer.writerow([_format(value) for value in (row.data, row.method, row.epsilon, *measures, *rest)])


def read_rows(path: Path) -> tuple[list[str], list[Row]]:
    """The lines above the table, and the rows."""
    lines = path.read_text(encoding="utf-8").splitlines()
    header = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    rows = []
    for entry in csv.DictReader(line for line in lines if not line.startswith("#")):
        paper, tuned, untuned = (
            Measure(*(float(entry[f"{kind}_{name}"] or math.nan) for name in MEASURES)) for kind in KINDS
        )
        rows.append(
            Row(
                entry["data"],
                entry["method"],
                float(entry["epsilon"]),
                paper,
                tuned,
                untuned,
                float(entry["optimum"]),
                float(entry["constant"]),
                entry["setting"],
                entry["note"],
            )
        )
    return header, rows


def _format(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return "" if math.isnan(value) else f"{value:.6g}"
