"""docs/speed.md, written from stored results."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .chosen import Shown, read_shown
from .environments import ENVIRONMENTS
from .figures import FIGURES, write_figures
from .markdown import list_absent, list_conditions, render_fits, render_grid, render_rows, render_table
from .results import load
from .sections import SECTIONS
from .text import show_ratio
from .workers import ROOT

__all__ = ["write_page"]

PAGE = ROOT / "docs" / "speed.md"

TEMPLATE = Path(__file__).with_suffix(".md")  # prose, with places for tables
NOT_MEASURED = "Not measured yet."


def write_page(results: Path, page: Path = PAGE) -> list[Path]:
    """Write the page and its figures; return their paths."""
    shown = read_shown(results)
    assets = page.parent / "assets"
    assets.mkdir(exist_ok=True)
    figures = write_figures(shown, assets)
    machine = load("machine", quick=False, folder=results) or load("machine", quick=True, folder=results)
    text = TEMPLATE.read_text(encoding="utf-8")
    text = text.replace("<!-- summary -->", render_summary(shown))
    text = text.replace("<!-- machine -->", render_machine(machine, shown))
    for name in SECTIONS:
        parts = render_section(shown[name], {path.stem for path in figures}) if name in shown else [NOT_MEASURED]
        text = text.replace(f"<!-- section {name} -->", "\n".join(parts).strip())
    page.write_text(text.strip() + "\n", encoding="utf-8")
    return [page, *figures]


def render_section(shown: Shown, figures: set[str]) -> Iterator[str]:
    """Figure and tables of a section."""
    for name, (section, _) in FIGURES.items():
        if section == shown.name and name in figures:
            yield f"![{DESCRIPTIONS[name]}](assets/{name}.svg)\n"
    if shown.name == "fits":
        yield from render_fits(shown)
    elif shown.name in ("steps", "configurations"):
        yield from render_grid(shown)
    else:
        for work in shown.works:
            if work["rows"]:
                title = work["title"] + ("" if work["threads"] == 1 else f", {work['threads']} threads")
                yield f"**{title[0].upper()}{title[1:]}**\n"
                yield render_rows(shown, work) + "\n"
                if "best" in work["facts"]:
                    yield _describe_setting(work["facts"]) + "\n"
    yield from list_absent(shown)
    yield list_conditions(shown)


DESCRIPTIONS = {
    "speed_target": "Test error against time for all settings of Opacus, its best one, and the default of conddp",
    "speed_steps": "Bars: time of a private step of each contestant as a multiple of that of conddp",
    "speed_fits": "Time of private and non-private fits against the number of rows, for 10 and 100 columns",
}


def render_summary(shown: dict[str, Shown]) -> str:
    """The ratios that matter most."""
    rows = [[what, show_ratio(ratio)] for what, ratio in list_summary(shown)]
    return render_table(["conddp", "times as fast"], rows, right={1}) if rows else NOT_MEASURED


def list_summary(shown: dict[str, Shown]) -> Iterator[tuple[str, float]]:
    """Descriptions and ratios, those that were measured."""
    if "target" in shown:
        section = shown["target"]
        work = section.works[0]
        grid, best = work["rows"][0], work["rows"][1]
        ours = next(row for row in work["rows"] if row["name"].startswith("conddp"))
        than = "lower" if ours["error"] < best["error"] else "higher"
        number = len(work["facts"].get("tried", ())) or 30
        yield (
            f"a {than} test error than Opacus at epsilon 1, against one run of its best setting",
            section.get_ratio(best),
        )
        yield f"the same, against the grid of {number} settings that finds it", section.get_ratio(grid)
    if "steps" in shown:
        section = shown["steps"]
        for work in section.works:
            if work["threads"] > 1:
                continue
            for rival, what in (
                ("Opacus", "Opacus in its best mode"),
                ("JAX", "JAX-Privacy"),
                ("PyTorch", "PyTorch without privacy"),
            ):
                ratios = [section.get_ratio(row) for row in work["rows"] if row["name"].startswith(rival)]
                if ratios:
                    yield f"private step, {work['title']}, against {what}", min(ratios)
    if "fits" in shown:
        section = shown["fits"]
        largest = section.find("1,000,000 x 100") or section.find("100,000 x 100")
        if largest is not None:
            for row in largest["rows"]:
                if "not private" in row["name"]:
                    yield f"default fit, {largest['title']}, against {row['name']}", section.get_ratio(row)


def render_machine(machine: dict[str, Any] | None, shown: dict[str, Shown]) -> str:
    """Facts about the machine and versions."""
    if machine is None:
        return NOT_MEASURED
    facts = machine["works"]["machine, threads 1"]["facts"]
    reading = ", ".join(f"{name} {speed:g}" for name, speed in facts["reading_gb_per_second"].items())
    products = ", ".join(f"{dtype} {speed:g}" for dtype, speed in facts["gflop_per_second"].items())
    others = ", ".join(each.replace("==", " ") for each in (name for names in ENVIRONMENTS.values() for name in names))
    rows = [
        ["processor", f"{facts['processor']}, {facts['cores']} cores"],
        ["caches", ", ".join(f"{name} {size}" for name, size in facts["caches"].items())],
        ["memory", f"{facts['memory_gb']:g} GB"],
        ["read by an inner product, one thread, GB/s", reading],
        ["matrix product, one thread, GFLOP/s", products],
        ["BLAS", facts["blas"]],
        ["load before the run", f"{facts['load']:g}"],
        ["versions", ", ".join(f"{name} {number}" for name, number in facts["versions"].items())],
        ["in environments of their own", others],
        ["commits", ", ".join(sorted({work["commit"] for each in shown.values() for work in each.works}))],
    ]
    return render_table(["", ""], rows)


def _describe_setting(facts: dict[str, Any]) -> str:
    setting = facts["best"]
    spent = f" For replacement, it spends epsilon {facts['replaced']:.2f}." if "replaced" in facts else ""
    return (
        f"Best setting of Opacus: {setting['rule'].replace('sgd', 'SGD').replace('adam', 'Adam')} with learning rate "
        f"{setting['learning_rate']:g}, clip norm {setting['clip_norm']:g}, batches of {setting['batch_size']}, "
        f"{setting['epochs']} epochs.{spent}"
    )
