"""What the documents say is run and compared."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)


def run(program: str | Path) -> str:
    arguments = [str(program)] if isinstance(program, Path) else ["-c", program]
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", range(len(BLOCK.findall((ROOT / "README.md").read_text()))))
def test_readme_code_prints_what_it_says(number: int) -> None:
    code, shown = BLOCK.findall((ROOT / "README.md").read_text())[number]
    assert run(code).split() == shown.split()  # the page breaks long lines


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(path: Path) -> None:
    assert run(path)


def rows() -> list[list[str]]:
    text = (ROOT / "docs" / "paper_map.md").read_text()
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
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.name} links to {link}"
        for named in re.findall(r"`((?:tests|conddp|docs|benchmarks)/[\w/]+\.\w+)(?:::(\w+))?`", text):
            path = ROOT / named[0]
            assert path.exists(), f"{page.name} names {named[0]}"
            assert named[1] in path.read_text()


def test_every_algorithm_and_head_is_in_the_readme() -> None:
    from conddp.estimators import ALGORITHMS, HEADS

    text = (ROOT / "README.md").read_text()
    for each in (*ALGORITHMS.values(), *HEADS.values()):
        assert f"`{type(each).__name__}`" in text
    for name in ALGORITHMS:
        assert f'"{name}"' in text


def test_the_page_on_reproduction_is_made_from_the_stored_results(tmp_path: Path) -> None:
    from conddp.experiments.reproduce import write_page

    stored = ROOT / "docs" / "reproduction"
    for path in (*stored.glob("*.csv"), *stored.glob("*.svg"), stored / "spectra.md"):
        (tmp_path / path.name).write_text(path.read_text())
    markdown, _ = write_page(tmp_path)
    assert markdown.read_text() == (stored / "index.md").read_text()


def test_the_changelog_has_a_privacy_heading() -> None:
    assert "### Privacy" in (ROOT / "CHANGELOG.md").read_text()
