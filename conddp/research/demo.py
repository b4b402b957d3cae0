"""The demo: private regression on data that need no download.

Two data sets: the paper's synthetic design with a decaying spectrum, and the RAND Health Insurance Experiment, where
the terms of the insurance plan are public and the health and the doctor's visits of a person are not.
"""

import functools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from conddp.algorithms import DPSGD, Auto, CondDP
from conddp.algorithms.algorithm import Algorithm
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.errors import SchemaError, require_package
from conddp.features.reading import read_records
from conddp.models.saving import load_model, save_model
from conddp.planning.budgets import DELTA, EPSILONS
from conddp.planning.plan import make_plan
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.report import report_fit, write_report
from conddp.report.document import Chart, Reference, Section, Series, Text
from conddp.research.datasets import get_source, load_dataset, make_synthetic
from conddp.research.split import Split, Sweep
from conddp.theory.design import Design

__all__ = ["load_randhie", "run_demo"]

MEASURED = (
    "Measured errors were computed from labels and are not private. Everything else is public, declared or released."
)
ALGORITHMS: dict[str, Algorithm] = {"default": Auto(), "Cond-DP": CondDP(), "DPSGD": DPSGD()}

RANDHIE = Schema.of(
    label="mdvis",
    label_bounds=(0, 30),
    public=["lncoins", "idp", "lpi", "fmde"],
    private={"physlm": (0, 1), "disea": (0, 60), "hlthg": (0, 1), "hlthf": (0, 1), "hlthp": (0, 1)},
)


def load_randhie() -> Records:
    """RAND Health Insurance Experiment, 20,190 person-years, from the statsmodels package.

    The label is the number of outpatient visits to a doctor; the plan's terms are public, health is private.
    """
    from statsmodels.datasets import randhie

    return read_records(randhie.load_pandas().data, RANDHIE)[0]


def print_table(title: str, sweep: Sweep) -> None:
    """Mean test MSE and its ratio to the non-private optimum."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption_justify="left", min_width=72)
    table.add_column("epsilon", justify="right")
    for name in sweep.errors:
        table.add_column(f"{name}\ntest MSE", justify="right")
        table.add_column("over\noptimum", justify="right")
    for row, epsilon in enumerate(sweep.epsilons):
        cells = []
        for name in sweep.errors:
            cells += [f"{sweep.compute_means(name)[row]:.4g}", f"{sweep.compute_ratios(name)[row]:.3f}"]
        table.add_row(f"{epsilon:g}", *cells)
    table.caption = (
        f"not private: least squares {sweep.optimum:.4g}, the mean alone {sweep.constant:.4g}\n"
        f"REPLACE, delta {DELTA:g}, nothing tuned, mean of {sweep.num_seeds} seeds"
    )
    Console().print(table)


def report_sweep(title: str, sweep: Sweep) -> Section:
    """Test errors against epsilon, for a report."""
    series = []
    for name, errors in sweep.errors.items():
        mean, spread = errors.mean(axis=1), errors.std(axis=1)
        series.append(Series(name, tuple(mean), tuple(np.maximum(mean - spread, mean / 4)), tuple(mean + spread)))
    highest = 1.5 * sweep.constant
    lowest = min(sweep.optimum, *(min(each.y) for each in series))
    return Section(
        f"Measured: {title}",
        (
            Text(
                "These data need no protection, so errors can be measured on a held-out fifth of the records: "
                f"mean and standard deviation over {sweep.num_seeds} noise seeds, relation REPLACE, delta {DELTA:g}, "
                "nothing tuned."
            ),
            Chart(
                f"Test error against epsilon: {title}",
                "epsilon",
                "mean squared error",
                sweep.epsilons,
                tuple(series),
                (
                    Reference("least squares, not private", sweep.optimum),
                    Reference("the mean alone, not private", sweep.constant),
                ),
                log_x=True,
                log_y=highest > 4 * lowest,
                highest=highest,
            ),
        ),
    )


def run_demo(out: Path, *, num_seeds: int = 5, names: Sequence[str] = ()) -> Path:
    """Compare algorithms on data sets, then plan, fit and report as a user would on the last of them.

    Parameters
    ----------
    out : Path
        Folder for the model and the page, whose path is returned.
    num_seeds : int
        Noise seeds per cell.
    names : sequence of str
        Data sets by name, instead of the two that need no download.
    """
    for name in names:
        get_source(name)
    if not names:
        require_package("statsmodels", extra="demo", purpose="the demo's table of insurance data")
    _clear(out)
    makers: dict[str, Callable[[], Records]] = {
        "Synthetic, spectrum 1/i, 4000 x 100, label private": lambda: make_synthetic(power=1.0),
        "RAND health insurance, 16152 x 9, visits and health private": load_randhie,
    }
    if names:
        makers = {f"{name}, label private": functools.partial(load_dataset, name) for name in names}
    measured = []
    for title, make in makers.items():
        dataset = make()
        sweep = Split.of(dataset).sweep(ALGORITHMS, epsilons=EPSILONS, seeds=range(num_seeds))
        print_table(title, sweep)
        measured.append(report_sweep(title, sweep))
    page = _make_page(dataset, out, tuple(reversed(measured)))
    print(f"\nReport: {page}")
    return page


def _clear(out: Path) -> None:
    """Make the folder, or remove what an earlier demo wrote to it; other files are never touched."""
    mark = out / "made_by_conddp_demo"
    if mark.exists():
        shutil.rmtree(out / "model", ignore_errors=True)
        (out / "report.html").unlink(missing_ok=True)
    elif out.exists() and any(out.iterdir()):
        raise SchemaError(f"the folder '{out}' is not empty and was not made by an earlier demo. Name another folder.")
    out.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _make_page(dataset: Records, out: Path, sections: tuple[Section, ...]) -> Path:
    """Plan, fit with epsilon 1 without a seed, save the model, and write the page."""
    private = dataset.private
    schema = Schema.of(
        label=dataset.label.name,
        label_bounds=dataset.label.bounds,
        public=dataset.public.names,
        private=None if private is None else dict(zip(private.names, private.domains, strict=True)),
    )
    plan = make_plan(dataset.public, schema, num_workers=None)
    print(f"\nPlan for the last data set, made without its labels: {plan.recommendation}")
    ledger = PrivacyLedger(PrivacyBudget(1.0, DELTA))
    result = Auto().fit(dataset, PrivacyBudget(1.0, DELTA), ledger=ledger)
    print(f"\nGuarantee of a fit with the default algorithm:\n{result.guarantee}")
    folder = out / "model"
    save_model(folder, replace(result, design=Design.of(dataset.public)))
    return write_report(report_fit(load_model(folder), plan, sections, footnote=MEASURED), out / "report.html")
