"""Tables of the documentation that are made from the code: `make tables` writes them into their pages."""

import ast
import posixpath
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from string import ascii_letters

from conddp.algorithms import ALGORITHMS, Algorithm
from conddp.heads import HEADS
from conddp.privacy import PrivacyBudget

__all__ = ["PAGES", "render_algorithms", "render_heads", "render_imports", "write_tables"]

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"algorithms": "docs/algorithms/index.md", "heads": "docs/heads.md", "imports": "CONTRIBUTING.md"}
PACKAGE = ROOT / "conddp"
ROOMS = (
    *(
        "errors",
        "_validate",
        "cache",
        "losses",
        "registry",
        "bounds",
        "stored",
        "privacy",
        "data",
        "dask",
        "execution",
        "features",
        "theory",
    ),
    *("heads", "models", "training", "newton", "labels", "algorithms", "planning", "auditing", "report", "estimators"),
    *("files", "research", "cli"),
)
ORDER = ("auto", "cond-newton", "cond-dp", "switch-cond-dp", "dpsgd", "one-shot", "rr-on-bins")  # then all others


def render_algorithms(page: str = "algorithms/index.md") -> str:
    """A row for every class of algorithm, with all names under which it is registered."""
    names: dict[type[Algorithm], list[str]] = {}
    for name in [*ORDER, *(each for each in ALGORITHMS if each not in ORDER)]:
        names.setdefault(type(ALGORITHMS[name]), []).append(name)
    lines = ["| `algorithm=` | class | page | protects | heads | guarantee |", "|---|---|---|---|---|---|"]
    for kind, known in names.items():
        asked = ", ".join(f'`"{name}"`' for name in known) + (" (default)" if known == ["auto"] else "")
        link = posixpath.relpath(kind.page, posixpath.dirname(page))
        title = (ROOT / "docs" / kind.page).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        heads = "linear" if kind.linear_only else "all"
        cells = (asked, f"`{kind.__name__}`: {kind.summary}", f"[{title}]({link})", kind.protects, heads)
        lines.append(f"| {' | '.join(cells)} | {_name_guarantee(ALGORITHMS[known[0]])} |")
    return "\n".join(lines)


def _name_guarantee(algorithm: Algorithm) -> str:
    cost = algorithm.cost(PrivacyBudget(1.0, 1e-6))
    if cost.epsilon == float("inf"):
        return "none"
    return "(epsilon, delta)" if cost.delta else "pure epsilon"


def render_heads() -> str:
    """A row for every head, with its settings and their defaults."""
    lines = ["| `head=` | class | prediction | settings and their defaults |", "|---|---|---|---|"]
    for name, head in HEADS.items():
        public = [each.name for each in fields(head) if each.init and each.repr]  # type: ignore[arg-type]  # heads are dataclasses
        settings = ", ".join(f"`{each}={getattr(head, each)!r}`".replace("'", '"') for each in public) or "none"
        lines.append(f'| `"{name}"` | `{type(head).__name__}` | {head.summary} | {settings} |')
    return "\n".join(lines)


def render_imports() -> str:
    """Which room imports which, as a matrix: below the diagonal, so without cycles."""
    graph = {room: _list_imports(room) for room in ROOMS}
    width = max(map(len, ROOMS))
    lines = ["```text"]
    for number, room in enumerate(ROOMS):
        marks = ["x" if each in graph[room] else "." for each in ROOMS[:number]]
        lines.append(f"{room:>{width}} {' '.join([*marks, ascii_letters[number]])}")
    return "\n".join([*lines, "```"])


def _list_imports(room: str) -> set[str]:
    """Other rooms that the files of a room import."""
    paths = sorted((PACKAGE / room).rglob("*.py")) or [PACKAGE / f"{room}.py"]
    found = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("conddp."):
                found.add((node.module or "").split(".")[1])
    return found - {room}


def write_tables(root: Path = ROOT) -> Iterator[str]:
    """Write every table between its marks; yields the pages that have changed."""
    for name, render in (
        ("algorithms", render_algorithms),
        ("heads", render_heads),
        ("imports", render_imports),
    ):
        path = root / PAGES[name]
        text = path.read_text(encoding="utf-8")
        marked = re.compile(rf"(<!-- table of {name} -->\n).*?(\n<!-- end -->)", re.S)
        table = render().replace("\\", r"\\")
        written = marked.sub(rf"\1\n{table}\n\2", text)
        if written != text:
            path.write_text(written, encoding="utf-8")
            yield PAGES[name]


if __name__ == "__main__":
    for changed in write_tables():
        print(changed, file=sys.stderr)
