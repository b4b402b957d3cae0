"""The Criteo results as CSV, and as a page for the documentation."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from conddp.privacy.neighbouring import Neighbouring
from conddp.research.experiments.criteo.lines import Line, LineResult, Measured
from conddp.research.experiments.paper import get_printed
from conddp.research.experiments.tables import show_epsilon

__all__ = ["CriteoRow", "make_rows", "read_rows", "render_page", "write_rows"]

PARTS = {"linear": "Linear models", "mlp": "Embeddings and MLP (128, 64)"}
RELATIONS = {
    Neighbouring.REPLACE.value: "REPLACE",
    Neighbouring.ZERO_OUT.value: "ZERO_OUT, the paper's accounting",
}
WHAT = """The paper's experiments on the Criteo Sponsored Search Conversion Log: 17 categories, hashed into 4,000 bins,
and three numbers predict the value of a sale, clipped at 400 euros."""
REAL = """The records are those of the published log. Lines marked *paper* are the printed numbers."""
SIMULATED = """**The records are simulated**, with the columns, cardinalities, gaps and distributions of the published
log, because the log itself is not on this machine. Numbers printed in the paper are for other records, so they are not
shown beside these. The size matters: with 160,000 training records of an earlier version of the
simulator, linear DPSGD, tuned on the test loss as here, was ahead of the default at epsilon 0.25."""
HOW = """Each cell is a test MSE in square euros: the mean over runs, with its standard deviation. Delta is one over the
number of training records. Runs of one cell differ in noise and initial weights.

The baselines are tuned in their favour, on the test loss and for every epsilon on its own. Settings are compared after
a fraction of the steps with one seed; the best of them run to the end with every seed, and the lowest mean is shown. No
user could do that in private, and its cost is not counted. Settings are tuned under REPLACE and used under both
relations. The grids are small. They were moved between runs where the best setting was at an edge or had been chosen
too early: three grids for Cond-DP, two for linear DPSGD and Switch-Cond-DP. Only the last is shown, and its time.
The *default* is `PrivateRegressor` as it comes: nothing is tuned.

DPSGD, Cond-DP and Switch-Cond-DP take Poisson samples of 8,192 expected records with Adam, as in the paper, for 50
epochs as there or fewer: the table of settings says how many. Sums of gradients are in single precision here; a fit of
the library has them in double precision, and a bound on rounding. Cond-DP conditions by the whitening matrix of the
public columns, which is the paper's matrix up to a rotation. Switch-Cond-DP with embeddings starts from the singular
vectors of the public bins. RR-on-Bins has a grid of 401 labels, needs no delta, and is defined under REPLACE only."""
NETWORKS = """Networks are trained for fewer epochs than in the paper and with few settings, because each budget takes
minutes of a core: the lowest error without noise is not the best that they can do, and longer training may change the
order at large epsilon. The default has a linear head here too. *default* is what a fit of the table does with the three
numbers and 17 categories of the table: each category is encoded on its own. *default, shared bins* is the default on
the 4,003 features of the paper's linear models, in which categories share bins.

Read this table with care. The line *default* was added when the first networks had been measured. It has other
features than all baselines, and linear baselines were not run on them, so part of its lead is that of the encoding.
Networks have one run for each budget, so differences of a few tenths of a percent mean nothing."""
OURS, SHARED_BINS = "default", "default, shared bins"
PRINTED = ("criteo_ssc", {"linear": "criteo_linear", "mlp": "criteo_mlp"})


@dataclass(frozen=True)
class CriteoRow:
    """A method with one budget.

    Parameters
    ----------
    part, method, relation : str
    epsilon : float
        What was measured.
    mse, std : float
        Mean and standard deviation of the test MSE over runs, in square euros.
    num_seeds, num_epochs : int
        Runs, and epochs of each; 0 epochs if there is no descent.
    setting : str
        What was tuned to what.
    line_seconds, line_processor_seconds : float
        Time of the whole line: all budgets and seeds, tuning and reading.
    constant : float
        Test MSE of the mean.
    paper_mse, paper_std : float
        As printed; NaN if the records are not the published ones or nothing is printed.
    """

    part: str
    method: str
    relation: str
    epsilon: float
    mse: float
    std: float
    num_seeds: int
    num_epochs: int
    setting: str
    line_seconds: float
    line_processor_seconds: float
    constant: float
    paper_mse: float = math.nan
    paper_std: float = math.nan


def make_rows(results: Mapping[Line, LineResult]) -> list[CriteoRow]:
    """Rows in the order of the lines. Printed numbers are added only if the records are the published ones."""
    rows = [_make_row(line, result, cell) for line, result in results.items() for cell in result.cells]
    if any(row.part == "mlp" for row in rows):
        shared = [row for row in rows if row.method == OURS and row.part == "linear"]
        rows += [replace(row, part="mlp", method=SHARED_BINS) for row in shared]
    return rows


def _make_row(line: Line, result: LineResult, cell: Measured) -> CriteoRow:
    data, tables = PRINTED
    printed = get_printed(tables[line.part], data, line.method, cell.epsilon) if result.real else None
    return CriteoRow(
        line.part,
        line.method,
        cell.relation,
        cell.epsilon,
        cell.mse,
        cell.std,
        len(cell.errors),
        0 if line.tuning is None else line.tuning.schedule.num_epochs,
        cell.setting,
        result.seconds,
        result.processor_seconds,
        result.constant,
        math.nan if printed is None else printed.mse,
        math.nan if printed is None or printed.std is None else printed.std,
    )


def write_rows(path: Path, rows: Sequence[CriteoRow], *, header: Sequence[str] = ()) -> None:
    """Write a CSV file, with lines that begin with # above it."""
    names = list(CriteoRow.__dataclass_fields__)
    with path.open("w", newline="", encoding="utf-8") as file:
        file.writelines(f"# {line}\n" for line in header)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow([_format(getattr(row, name)) for name in names])


def read_rows(path: Path) -> tuple[list[str], list[CriteoRow]]:
    """The lines above the table, and the rows."""
    lines = path.read_text(encoding="utf-8").splitlines()
    header = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    rows = []
    for entry in csv.DictReader(line for line in lines if not line.startswith("#")):
        numbers = {
            name: float(entry[name] or math.nan)
            for name, field in CriteoRow.__dataclass_fields__.items()
            if field.type is float
        }
        counts = {name: int(entry[name]) for name in ("num_seeds", "num_epochs")}
        texts = {name: entry[name] for name in ("part", "method", "relation", "setting")}
        rows.append(CriteoRow(**texts, **numbers, **counts))  # type: ignore[arg-type]  # the type of each column is chosen above
    return header, rows


def _format(value: str | float) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.7g}"
    return str(value)


def render_page(header: Sequence[str], rows: Sequence[CriteoRow]) -> str:
    """The page for the documentation."""
    real = any(not math.isnan(row.paper_mse) for row in rows)
    parts = ["# Criteo", _introduce(real), f"Made by {'; '.join(header)}."]
    for part, title in PARTS.items():
        chosen = [row for row in rows if row.part == part]
        if not chosen:
            continue
        parts.append(f"## {title}")
        if part == "mlp":
            parts.append(NETWORKS)
        parts.append("\n".join(f"- {claim}" for claim in state_claims(chosen)))
        for relation, words in RELATIONS.items():
            table = [row for row in chosen if row.relation == relation]
            if table:
                parts += [f"### {words}", _render_table(table)]
        parts += ["### Settings and times", _render_times(chosen)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _introduce(real: bool) -> str:
    return "\n\n".join([WHAT, REAL if real else SIMULATED, HOW])


def _render_table(rows: Sequence[CriteoRow]) -> str:
    epsilons = sorted({row.epsilon for row in rows})
    lines = [
        f"| method, at epsilon | {' | '.join(show_epsilon(epsilon) for epsilon in epsilons)} |",
        "|---" + "|---:" * len(epsilons) + "|",
    ]
    for method in dict.fromkeys(row.method for row in rows):
        by_epsilon = {row.epsilon: row for row in rows if row.method == method}
        shown = [_show(by_epsilon.get(epsilon)) for epsilon in epsilons]
        lines.append(f"| {method} | {' | '.join(shown)} |")
        if any(not math.isnan(row.paper_mse) for row in by_epsilon.values()):
            printed = [_show(by_epsilon.get(epsilon), paper=True) for epsilon in epsilons]
            lines.append(f"| {method}, *paper* | {' | '.join(printed)} |")
    constant = rows[0].constant
    return "\n".join(lines) + f"\n\nThe mean of the training labels alone, not private: {constant:,.0f}."


def _show(row: CriteoRow | None, *, paper: bool = False) -> str:
    mse, std = (math.nan, math.nan) if row is None else (row.paper_mse, row.paper_std) if paper else (row.mse, row.std)
    if math.isnan(mse):
        return ""
    return f"{mse:,.0f}" if math.isnan(std) else f"{mse:,.0f} ({std:,.0f})"


def _render_times(rows: Sequence[CriteoRow]) -> str:
    lines = [
        "| method | epochs | runs per cell | processor minutes, whole line | settings by epsilon |",
        "|---|---:|---:|---:|---|",
    ]
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        tuned = [row for row in own if row.setting and row.relation == Neighbouring.REPLACE.value]
        alike = [list(group) for _, group in groupby(tuned, key=lambda row: row.setting)]
        settings = "; ".join(f"{_name_budgets(group)}: {group[0].setting}" for group in alike)
        first = own[0]
        lines.append(
            f"| {method} | {first.num_epochs or ''} | {first.num_seeds} | {first.line_processor_seconds / 60:.1f} | "
            f"{settings or 'nothing tuned'} |"
        )
    return "\n".join(lines)


def _name_budgets(rows: Sequence[CriteoRow]) -> str:
    """Budgets that follow each other, such as 0.25 to 4."""
    first, last = show_epsilon(rows[0].epsilon), show_epsilon(rows[-1].epsilon)
    return first if len(rows) == 1 else f"{first} to {last}"


def state_claims(rows: Sequence[CriteoRow]) -> Iterator[str]:
    """Whether each form of the default is ahead of every other method, for each relation and epsilon."""
    for relation, words in RELATIONS.items():
        for ours in (OURS, SHARED_BINS):
            ahead: list[str] = []
            behind: list[str] = []
            for epsilon in sorted({row.epsilon for row in rows if math.isfinite(row.epsilon)}):
                found = {row.method: row for row in rows if (row.relation, row.epsilon) == (relation, epsilon)}
                others = [row for row in found.values() if row.method not in (OURS, SHARED_BINS)]
                if ours in found and others:
                    own, best = found[ours], min(others, key=lambda row: row.mse)
                    against = f"{own.mse:,.0f} against {best.mse:,.0f} of {best.method}"
                    (ahead if own.mse < best.mse else behind).append(f"{against} at epsilon {show_epsilon(epsilon)}")
            if ahead or behind:
                yield (
                    f"{words}: the {ours}, with nothing tuned, has a lower error than every tuned baseline at "
                    f"{len(ahead)} of {len(ahead) + len(behind)} budgets{': ' + ', '.join(ahead) if ahead else ''}"
                    f"{'; not: ' + ', '.join(behind) if behind else ''}."
                )
