"""What the documents say is run and compared, and the site has a page for everything."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import markdown
import pytest
import yaml

from docs_tools.command_line import render_commands
from docs_tools.docstrings import RoleError, convert_docstring
from docs_tools.hooks import COPIES, REMOTE, ROOM, find_left_overs, list_algorithm_pages, redirect_links
from docs_tools.mathematics import FormulaError, MathExtension, render_formula
from docs_tools.tables import PAGES as PAGES_WITH_TABLES
from docs_tools.tables import write_tables
from tests.test_architecture import DATA_PATH

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)
# What `conddp reproduce` leaves beside its page is not a page of the site.
PAGES = sorted(
    path for path in DOCS.rglob("*.md") if path.parent.name != "reproduction" or path.name in ("index.md", "criteo.md")
)


def run(program: str | Path, folder: Path = ROOT) -> str:
    arguments = [str(program)] if isinstance(program, Path) else ["-c", program]
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", range(len(BLOCK.findall((ROOT / "README.md").read_text()))))
def test_readme_code_prints_what_it_says(number: int) -> None:
    code, shown = BLOCK.findall((ROOT / "README.md").read_text())[number]
    assert run(code).split() == shown.split()  # the page breaks long lines


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda page: page.name)
def test_code_on_a_page_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    for code, shown in BLOCK.findall(page.read_text()):  # in one folder: a block may use files of those before it
        assert run(code, tmp_path).split() == shown.split(), code


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(path: Path) -> None:
    assert run(path)


def rows() -> list[list[str]]:
    text = (DOCS / "paper_map.md").read_text()
    table = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[1])
def test_every_row_of_the_paper_map_names_what_exists(row: list[str]) -> None:
    _, name, file, _, test = row
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        break
    assert (ROOT / file).is_file()
    assert (ROOT / test).is_file()


def test_files_and_tests_named_in_the_documents_exist() -> None:
    for page in (*ROOT.glob("*.md"), *PAGES):
        text = page.read_text()
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.name} links to {link}"
        for named in re.findall(r"`((?:tests|conddp|docs|benchmarks)/[\w/]+\.\w+)(?:::(\w+))?`", text):
            path = ROOT / named[0]
            assert path.exists(), f"{page.name} names {named[0]}"
            assert named[1] in path.read_text()


def test_every_algorithm_is_in_the_overview() -> None:
    from conddp.algorithms import ALGORITHMS

    text = (DOCS / "algorithms" / "index.md").read_text()
    for name, algorithm in ALGORITHMS.items():
        assert f'"{name}"' in text
        assert f"`{type(algorithm).__name__}`" in text


@pytest.mark.parametrize("name", PAGES_WITH_TABLES)
def test_tables_are_made_from_the_registries(name: str, tmp_path: Path) -> None:
    for page in PAGES_WITH_TABLES.values():
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text((ROOT / page).read_text())
    assert not list(write_tables(tmp_path)), "run make tables"
    assert f"<!-- table of {name} -->" in (ROOT / PAGES_WITH_TABLES[name]).read_text()


def test_the_readme_quotes_the_measured_means(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text()
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    figure = importlib.import_module("readme_figure")
    for curve in figure.read_means().values():
        assert " | ".join(f"{mean:.3f}" for mean in curve.values()) in text.replace("**", "")


def test_the_page_on_reproduction_is_made_from_the_stored_results(tmp_path: Path) -> None:
    from conddp.research.experiments.reproduce import write_page

    stored = DOCS / "reproduction"
    for path in (*stored.glob("*.csv"), *stored.glob("*.svg"), stored / "spectra.md"):
        (tmp_path / path.name).write_text(path.read_text())
    markdown, _ = write_page(tmp_path)
    assert markdown.read_text() == (stored / "index.md").read_text()
    assert (tmp_path / "criteo.md").read_text() == (stored / "criteo.md").read_text()


def test_the_changelog_has_a_privacy_heading() -> None:
    assert "### Privacy" in (ROOT / "CHANGELOG.md").read_text()


def navigation() -> set[str]:
    """Pages that mkdocs.yml names."""

    def walk(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            for below in entry.values():
                yield from walk(below)
        else:
            for below in entry:
                yield from walk(below)

    return set(walk(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))


def test_every_page_is_in_the_navigation_and_nothing_else() -> None:
    listed = navigation() | set(list_algorithm_pages())  # these are added by the build
    assert listed == {path.relative_to(DOCS).as_posix() for path in PAGES} | set(COPIES.values())


def test_every_algorithm_has_a_page_of_the_site() -> None:
    from conddp.algorithms import ALGORITHMS

    for name, algorithm in ALGORITHMS.items():
        assert f'"{name}"' in (DOCS / algorithm.page).read_text(), f"{algorithm.page} does not describe {name}"


def test_every_head_is_described() -> None:
    from conddp.heads import HEADS

    text = (DOCS / "heads.md").read_text()
    for name, head in HEADS.items():
        assert f'"{name}"' in text
        assert f"`{type(head).__name__}`" in text


def test_every_room_is_in_the_reference() -> None:
    listed = [room for page in (DOCS / "api").glob("*.md") for room in ROOM.findall(page.read_text())]
    assert len(listed) == len(set(listed))
    assert {*listed, "cli", "_validate", "_fused", "", "__main__"} == {room for row in DATA_PATH for room in row}


def test_the_page_on_the_command_line_has_every_command_with_its_help() -> None:
    from typer.main import get_command

    from conddp.cli.main import app

    page = render_commands(app, "conddp")

    def walk(command: Any, path: str) -> None:
        assert command.help, path
        for name, below in getattr(command, "commands", {}).items():
            assert f" `{path} {name}`\n" in page
            walk(below, f"{path} {name}")

    walk(get_command(app), "conddp")
    assert "| `--epsilon" in page


def draw(text: str) -> str:
    return markdown.markdown(text, extensions=[MathExtension(), "tables"])


def test_formulas_become_mathml() -> None:
    assert draw("With $x_i$.") == (
        '<p>With <math display="inline" alttext="x_i"><mrow><msub><mi>x</mi><mi>i</mi></msub></mrow></math>.</p>'
    )
    assert '<span class="formula"><math display="block"' in draw("So\n\n$$\\sum_i x_i\n  = 1$$\n")
    assert "<mo>&lt;</mo>" in draw("$a < b$")
    assert draw("$f(-c) - 1$").count('<mo form="prefix">') == 1  # a sign, and an operator
    assert draw("| a |\n|---|\n| $x_1$ and $x_2$ |").count("<math") == 2


@pytest.mark.parametrize("text", ["`$x$`", "    $x$", "5 $ and 6 $", "$5 and $6", r"\$x$"])
def test_dollars_that_are_no_formula_stay(text: str) -> None:
    assert "<math" not in draw(text)


@pytest.mark.parametrize("formula", [r"\nosuchcommand x", r"\frac{1}", r"\left( x", "x_", "}", "{", "a & b"])
def test_a_formula_that_cannot_be_drawn_ends_the_build(formula: str) -> None:
    with pytest.raises(FormulaError, match="the formula"):
        render_formula(formula)
    with pytest.raises(FormulaError):
        draw(f"Before ${formula}$ after.")


def find(name: str) -> str | None:
    return {"Spectrum": "conddp.features.spectrum.Spectrum"}.get(name, name if name.startswith("conddp.") else None)


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (":math:`a\n  + b`", "$a + b$"),
        (".. math:: a\n   + b\n\nAfter.", "$$a + b$$\n\nAfter."),
        (".. math::\n\n   a\n\nAfter.", "$$a$$\n\nAfter."),
        (
            ":class:`Spectrum`",
            '<autoref identifier="conddp.features.spectrum.Spectrum" optional><code>Spectrum</code></autoref>',
        ),
        (":func:`~conddp.a.b`", '<autoref identifier="conddp.a.b" optional><code>b</code></autoref>'),
        (":mod:`conddp.a`", '<autoref identifier="conddp.a" optional><code>conddp.a</code></autoref>'),
        (":mod:`that <conddp.a>`", '<autoref identifier="conddp.a" optional><code>that</code></autoref>'),
        (
            "Privacy\n    Free.\nPaper\n    Eq. 1,\n    Eq. 2.",
            "Privacy\n-------\nFree.\n\n\nPaper\n-----\nEq. 1,\nEq. 2.",
        ),
        ("``A``\n    One\n    thing.\n``B``\n    Another.", "``A``\n:   One\n    thing.\n\n``B``\n:   Another."),
        ("a, b : int\n    Both.\n", "a : int\n    Both.\nb : int\n    Both."),
        ("a, b : int, str\n    Both.\nc\n    C.", "a : int\n    Both.\nb : str\n    Both.\nc\n    C."),
        ("a, b\n    Both.", "a\n    Both.\nb\n    Both."),
        ("A tree.\n\n::\n\n    root", "A tree.\n\n\n    root"),
        ("Privacy is not a heading here.\n    Nor here.", "Privacy is not a heading here.\n    Nor here."),
    ],
)
def test_docstrings_become_markdown(docstring: str, expected: str) -> None:
    assert convert_docstring(docstring, find) == expected


@pytest.mark.parametrize("docstring", [":class:`Spectrun`", ":func:`nowhere.at_all`", ":strange:`x`"])
def test_a_docstring_that_names_what_does_not_exist_ends_the_build(docstring: str) -> None:
    with pytest.raises(RoleError):
        convert_docstring(docstring, find)


@pytest.mark.parametrize(
    ("link", "page", "expected"),
    [
        ("[a](../CHANGELOG.md)", "pitfalls.md", "[a](changelog.md)"),
        ("[a](../../README.md#install)", "algorithms/auto.md", "[a](../index.md#install)"),
        ("[a](docs/heads.md)", "contributing.md", "[a](heads.md)"),
        ("[a](../heads.md#privacy)", "algorithms/auto.md", "[a](../heads.md#privacy)"),
        ("[a](https://example.org/a.md)", "pitfalls.md", "[a](https://example.org/a.md)"),
        ("[a](#below)", "pitfalls.md", "[a](#below)"),
        ("[a](../Makefile)", "pitfalls.md", "[a](../Makefile)"),  # not a page: mkdocs warns
    ],
)
def test_links_into_the_repository_lead_to_the_site(link: str, page: str, expected: str) -> None:
    assert redirect_links(link, page) == expected


def test_markup_that_was_not_converted_is_found_outside_of_code() -> None:
    page = "<p>See :class:<code>X</code> and <code>:math:`a`</code>.</p><p>$a_1$</p><p>costs 5 $</p>"
    assert find_left_overs(page) == ["See :class:", "$a_1$"]


def test_what_a_page_would_load_from_elsewhere_is_found() -> None:
    page = '<a href="https://a.org">a</a><script src="https://b.org/b.js"></script><link rel="x" href=//c.org/c.css>'
    assert [found.split("=")[-1].strip('"') for found in REMOTE.findall(page)] == [
        "https://b.org/b.js",
        "//c.org/c.css",
    ]
    assert not REMOTE.findall('<script src="assets/b.js"></script><img src="b.png">')


def test_the_table_of_the_theory_page_is_made_from_stored_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    table = importlib.import_module("theory_table")
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    assert page.split(table.START)[1].split(table.END)[0].strip() == table.render(table.read_lines())
