"""Run the Criteo experiment and write its table and page."""

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from conddp.cache import ContentCache, cache_folder
from conddp.planning.runner import ProgressCallback
from conddp.research.experiments.criteo.lines import list_lines, make_quick, measure_lines
from conddp.research.experiments.criteo.page import CriteoRow, make_rows, read_rows, render_page, write_rows
from conddp.research.experiments.criteo.source import find_source

__all__ = ["reproduce_criteo", "write_criteo_page"]

RESULTS = "criteo-v1.jsonl"  # in the cache folder
QUICK_ROWS = 50_000


def reproduce_criteo(
    out: Path,
    *,
    folder: Path | None = None,
    num_rows: int | None = None,
    parts: Sequence[str] = ("linear", "mlp"),
    quick: bool = False,
    num_workers: int | None = None,
    fresh: bool = False,
    callback: ProgressCallback | None = None,
) -> list[CriteoRow]:
    """Measure the Criteo experiment and write ``criteo.csv`` and ``criteo.md`` to a folder.

    Lines are stored as they are measured, and the state of long runs twice a minute: an interrupted run continues.

    Privacy
        Tunes on test labels and reads them: for data that need no protection.

    Parameters
    ----------
    out : path
        The folder.
    folder : path, optional
        Folder of the converted log. If None or not finished, rows are simulated.
    num_rows : int, optional
        Only so many rows of sales; all 1,732,721 if None.
    parts : sequence of str
        "linear", "mlp" or both.
    quick : bool
        50,000 rows, fewer epochs, budgets, settings and seeds.
    num_workers : int, optional
        Processes; all cores if None.
    fresh : bool
        Measure again what is in the cache.
    callback : callable, optional
        See :func:`~conddp.planning.runner.run_cells`.
    """
    source = find_source(folder, num_rows=num_rows or (QUICK_ROWS if quick else None))
    lines = [make_quick(line) if quick else line for line in list_lines(source) if line.part in parts]
    cache = ContentCache(cache_folder() / RESULTS)
    found = measure_lines(lines, cache, num_workers=num_workers, fresh=fresh, callback=callback)
    results = {line: found[line] for line in lines}
    rows = make_rows(results)
    work = sum(result.processor_seconds for result in results.values())
    header = [
        f"`conddp reproduce criteo{' --quick' if quick else ''}`",
        f"on {date.today().isoformat()}",
        f"with {source.description}",
        f"{work / 60:.0f} core-minutes on {os.cpu_count()} cores, which other work used too",
    ]
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / "criteo.csv", rows, header=header)
    write_criteo_page(out)
    return rows


def write_criteo_page(out: Path) -> Path | None:
    """Write the page from ``criteo.csv`` in a folder, if it is there."""
    if not (out / "criteo.csv").exists():
        return None
    page = out / "criteo.md"
    page.write_text(render_page(*read_rows(out / "criteo.csv")), encoding="utf-8")
    return page
