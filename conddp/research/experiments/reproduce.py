"""Run an experiment and write its tables, figures and page."""

import os
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from conddp.cache import ContentCache, cache_folder
from conddp.errors import CondDPError, require_package
from conddp.planning.runner import ProgressCallback
from conddp.report import write_report
from conddp.research.datasets import DATASETS
from conddp.research.experiments.catalogue import EXPERIMENTS, make_quick
from conddp.research.experiments.criteo.run import write_criteo_page
from conddp.research.experiments.experiment import Experiment, is_sample, measure_cells
from conddp.research.experiments.figures import draw_rows, draw_spectra, render_svg
from conddp.research.experiments.page import ExperimentResults, render_page_markdown, report_reproduction
from conddp.research.experiments.rows import Row, make_rows, read_rows, write_rows
from conddp.research.experiments.spectra import list_spectra, render_spectra_markdown, write_spectra
from conddp.research.experiments.tables import render_markdown

__all__ = ["NAMES", "NothingAtHand", "reproduce_experiment", "reproduce_spectra", "write_page"]

NAMES = ("spectra", *EXPERIMENTS, "criteo")
FURTHER = "\n## Criteo\n\nThe experiments on the Criteo log have [a page of their own](criteo.md).\n"
RESULTS = "experiments-v1.jsonl"  # in the cache folder


class NothingAtHand(CondDPError, FileNotFoundError):  # noqa: N818  (reads as what happened)
    """No data set of an experiment is on this machine."""


def reproduce_experiment(
    name: str,
    out: Path,
    *,
    quick: bool = False,
    num_workers: int | None = None,
    fresh: bool = False,
    callback: ProgressCallback | None = None,
) -> list[Row]:
    """Measure an experiment and write its table (CSV, Markdown) and figure (SVG, PNG) to a folder.

    Results are stored in the user's cache: an interrupted run continues, and a finished one is only drawn again.

    Privacy
        Tunes on test labels and reads them: for data that need no protection.

    Parameters
    ----------
    name : str
        One of the experiments.
    out : Path
        The folder.
    quick : bool
        Fewer trials, budgets, seeds and epochs.
    num_workers : int, optional
        Processes; all cores if None.
    fresh : bool
        Measure again what is in the cache.
    callback : callable, optional
        See :func:`~conddp.planning.runner.run_cells`.
    """
    require_package("matplotlib", extra="reproduce", purpose="drawing figures")
    experiment = make_quick(EXPERIMENTS[name]) if quick else EXPERIMENTS[name]
    if not experiment.sets_at_hand():
        raise NothingAtHand(
            f"no data set of '{name}' is on this machine. Download one with fetch_dataset(name): "
            f"{', '.join(experiment.sets)}."
        )
    started = time.monotonic()
    cache = ContentCache(cache_folder() / RESULTS)
    results = measure_cells(experiment.cells(), cache, num_workers=num_workers, fresh=fresh, callback=callback)
    rows = make_rows(experiment, results)
    work = sum(result.seconds for result in results.values())
    command = f"`conddp reproduce {name}{' --quick' if quick else ''}`"
    header = [command, f"on {date.today().isoformat()}", f"{work / 60:.1f} core-minutes"]
    header += [
        f"{data} is a sample of {DATASETS[data].num_records} records"
        for data in experiment.sets_at_hand()
        if is_sample(data)
    ]
    if fresh:
        header.append(f"{(time.monotonic() - started) / 60:.1f} minutes on {num_workers or os.cpu_count()} cores")
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / f"{name}.csv", rows, header=header)
    (out / f"{name}.md").write_text(f"# {experiment.title}\n\n{render_markdown(rows)}", encoding="utf-8")
    _draw(out / name, rows, experiment)
    return rows


def reproduce_spectra(out: Path) -> str:
    """Write the singular values of all data sets on this machine (CSV, SVG, PNG) and a table, which is returned."""
    require_package("matplotlib", extra="reproduce", purpose="drawing figures")
    summaries = list_spectra()
    out.mkdir(parents=True, exist_ok=True)
    write_spectra(out / "spectra.csv", summaries)
    table = render_spectra_markdown(summaries)
    (out / "spectra.md").write_text(f"# Spectra\n\n{table}", encoding="utf-8")
    figure = draw_spectra({each.data: each.singular_values for each in summaries})
    (out / "spectra.svg").write_text(render_svg(figure), encoding="utf-8")
    figure.savefig(out / "spectra.png", dpi=110)
    return table


def write_page(out: Path) -> tuple[Path, Path]:
    """Write one page on all results in a folder, as Markdown and as HTML.

    Returns
    -------
    (Path, Path)
        The Markdown file and the HTML file.
    """
    results = []
    figures = {}
    for name, experiment in EXPERIMENTS.items():
        path = out / f"{name}.csv"
        if path.exists():
            header, rows = read_rows(path)
            results.append(ExperimentResults(experiment, tuple(rows), tuple(header), f"{name}.svg"))
            figures[f"{name}.svg"] = (out / f"{name}.svg").read_text(encoding="utf-8")
    spectra = ""
    if (out / "spectra.svg").exists():
        figures["spectra.svg"] = (out / "spectra.svg").read_text(encoding="utf-8")
        spectra = (out / "spectra.md").read_text(encoding="utf-8").split("\n\n", 1)[1]
    markdown, page = out / "index.md", out / "index.html"
    further = FURTHER if write_criteo_page(out) else ""
    markdown.write_text(render_page_markdown(results, spectra) + further, encoding="utf-8")
    write_report(report_reproduction(results, figures, spectra), page, overwrite=True)
    return markdown, page


def _draw(path: Path, rows: Sequence[Row], experiment: Experiment) -> None:
    figure = draw_rows(rows, experiment.title)
    path.with_suffix(".svg").write_text(render_svg(figure), encoding="utf-8")
    figure.savefig(path.with_suffix(".png"), dpi=110)
