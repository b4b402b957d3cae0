"""Output of commands: text, tables, JSON and progress. Heavy imports wait until they are needed."""

import io
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from conddp.cli.wording import name_options

if TYPE_CHECKING:
    from rich.table import Table

    from conddp.features.encoding import Encoding
    from conddp.planning.comparison import Comparison
    from conddp.planning.plan import Plan
    from conddp.theory.design import Design

__all__ = [
    "add_row",
    "describe_default",
    "describe_errors",
    "make_comparison_table",
    "make_design_table",
    "make_evaluation_table",
    "make_table",
    "print_json",
    "print_plain",
    "print_prose",
    "print_remarks",
    "print_skipped",
    "show_progress",
]

LINE_EVERY = 30.0  # seconds between lines about progress, if there is no terminal


def make_design_table(design: "Design") -> "Table":
    """Facts about public columns."""
    table = make_table("public columns", "")
    for name, value in (
        ("records", f"{design.num_records:,}"),
        ("columns", f"{len(design.columns)}, {design.rank} directions with the constant"),
        ("effective rank", f"{design.effective_rank:.3g}"),
        (
            "condition number",
            f"{design.condition_number:.3g}, {design.scaled_condition_number:.3g} with scaled columns",
        ),
        ("leverage", f"{design.largest_leverage:.2g} at most, {design.mean_leverage:.2g} on average"),
        ("spectrum", _draw_sparkline(design.scaled_singular_values)),
    ):
        add_row(table, name, value)
    return table


def _draw_sparkline(values: tuple[float, ...]) -> str:
    """At most 60 block characters that show the logarithms of decreasing values."""
    from math import log

    shown = values[:: -(-len(values) // 60)] if values else ()
    if not shown or shown[0] == shown[-1]:
        return "█" * len(shown)
    low, high = log(shown[-1]), log(shown[0])
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (log(value) - low) / (high - low))] for value in shown)


def describe_errors(comparison: "Comparison") -> str:
    """A sentence that explains the numbers of a comparison."""
    sampled = ""
    if comparison.num_simulated < comparison.num_records:
        sampled = f", for a sample of {comparison.num_simulated:,} records (with all of them errors are lower)"
    protected = ""
    if comparison.unit:
        protected = f", protecting all records with one of {comparison.num_units:,} values of '{comparison.unit}'"
    return (
        f"Error on simulated labels over that of linear least squares without privacy, {comparison.head} head, delta "
        f"{comparison.delta:g}{protected}{sampled}:"
    )


def describe_default(head: str) -> str:
    """A sentence on which model the numbers are for, and what a fit chooses if it is not told."""
    from conddp.heads import HEADS

    model = HEADS[head].name_model()
    if head == "learned":
        return f"These numbers are for {model}. Add --head learned to fit one: the default, auto, may choose another."
    return (
        f"These numbers are for {model}. The default of `conddp fit`, --head auto, may learn features instead: add "
        f"--head {head} to fit {model}."
    )


def make_comparison_table(comparison: "Comparison") -> "Table":
    """Mean errors by algorithm and budget."""
    heads = [f"epsilon {epsilon:g}" for epsilon in comparison.epsilons]
    table = make_table("algorithm", *heads, right=tuple(heads))
    for name in comparison.errors:
        shown = "mean, private" if name == "mean" else name
        add_row(table, shown, *(f"{error:.3f}" for error in comparison.mean(name)))
    add_row(table, "mean, not private", *[f"{comparison.mean_constant:.3f}"] * len(heads))
    return table


def make_evaluation_table(plan: "Plan") -> "Table":
    """Widths to expect of an evaluation."""
    heads = ("RMSE", "R²", "records for half of it", "or epsilon")
    table = make_table("deviation of the label", *heads, right=heads)
    for row in plan.list_evaluation():
        add_row(table, *row)
    return table


@contextmanager
def show_progress(title: str, *, after: float = 0.0) -> Iterator[Any]:
    """Show a progress bar, or a line every 30 seconds without a terminal; yields a function of (done, total).

    The function may also be given the seconds that are left, and what is being done in the meantime.

    Parameters
    ----------
    title : str
        What is going on.
    after : float
        Seconds before the bar appears. It then also moves while nothing is reported.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %{task.fields[left]}"),
        )
        bar = Progress(*columns, console=console, transient=True)
        task = bar.add_task(title, total=None, left="")

        def advance(done: float, total: int | None, left: float = float("nan"), doing: str = "") -> None:
            bar.update(task, completed=done, total=total, description=_join(title, doing), left=_show_left(left))

        with _repeat(bar.start, first=after, every=None) if after else bar:
            try:
                yield advance
            finally:
                bar.stop()
        return
    seen: tuple[float, int | None, float, str] | None = None

    def note(done: float, total: int | None, left: float = float("nan"), doing: str = "") -> None:
        nonlocal seen
        seen = done, total, left, doing

    def log() -> None:
        if seen is None:
            console.print(title)
        else:
            done, total, left, doing = seen
            console.print(f"{_join(title, doing)}: {int(done)} of {total or '?'}{_show_left(left)}")

    with _repeat(log, first=LINE_EVERY, every=LINE_EVERY):
        yield note


@contextmanager
def _repeat(action: Callable[[], object], *, first: float, every: float | None) -> Iterator[None]:
    """Call a function after some seconds, and then every so many, from a thread that ends with the block."""
    done = threading.Event()

    def work() -> None:
        wait: float | None = first
        while wait is not None and not done.wait(wait):
            action()
            wait = every

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _join(title: str, doing: str) -> str:
    return f"{title}, {doing}" if doing else title


def _show_left(seconds: float) -> str:
    if not seconds >= 0:
        return ""
    return f", {seconds / 60:.0f} min left" if seconds > 90 else f", {seconds:.0f} s left"


def print_plain(what: Any, **options: Any) -> None:
    """Print without interpreting markup, and replace characters that the terminal cannot show."""
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")

    Console().print(what, **{"markup": False, "highlight": False, "soft_wrap": isinstance(what, str), **options})


def print_prose(text: str) -> None:
    """Print text with line breaks between words if it goes to a terminal, and as it is otherwise."""
    from rich.console import Console

    print_plain(text, soft_wrap=not Console().is_terminal)


def print_skipped(skipped: Mapping[str, str]) -> None:
    """Print which algorithms were not tried, a line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        print_plain(f"not tried: {', '.join(names)}: {name_options(reason)}")


def print_remarks(encoding: "Encoding | None") -> None:
    """Print what was done to public columns."""
    for place, remark in enumerate(() if encoding is None else encoding.list_remarks()):
        print_prose(f"{'' if place else chr(10)}- {remark}")


def make_table(*heads: str, right: tuple[str, ...] = ()) -> "Table":
    """An empty table without borders; columns named in ``right`` are right-aligned."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right" if head in right else "left", no_wrap=head == "name")
    return table


def add_row(table: "Table", *cells: str) -> None:
    """Add a row without interpreting markup."""
    from rich.text import Text

    table.add_row(*(Text(cell) for cell in cells))


def print_json(what: Any) -> None:
    """Print as JSON, with NaN as null and infinity as text."""

    def tidy(value: Any) -> Any:
        if isinstance(value, float) and value != value:
            return None
        if isinstance(value, dict):
            return {key: tidy(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [tidy(each) for each in value]
        return str(value) if value in (float("inf"), float("-inf")) else value

    print(json.dumps(tidy(what), indent=2, allow_nan=False))
