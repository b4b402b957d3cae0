"""Outputs of the code on pages: `python -m docs_tools.outputs [PAGE ...]` runs the code and writes what it prints."""

import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)
WIDTH = 80  # characters of a printed line


def refresh_outputs(page: Path) -> bool:
    """Run the code of a page, in one folder, and replace outputs that differ by more than white space."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        refreshed = BLOCK.sub(lambda block: _refresh(block, folder), text)
    if refreshed != text:
        page.write_text(refreshed, encoding="utf-8")
    return refreshed != text


def _refresh(block: re.Match[str], folder: str) -> str:
    code, shown = block.groups()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, cwd=folder
    )
    if done.returncode:
        raise RuntimeError(f"{code}\n{done.stderr}")
    if shown is None or done.stdout.split() == shown.split():
        return block[0]
    lines = [part for line in done.stdout.splitlines() for part in _wrap(line)]
    return block[0].replace(f"```text\n{shown}```", "```text\n" + "\n".join(lines) + "\n```")


def _wrap(line: str) -> list[str]:
    return [line] if len(line) <= WIDTH else textwrap.wrap(line, WIDTH, break_on_hyphens=False)


if __name__ == "__main__":
    named = [Path(each) for each in sys.argv[1:]]
    for path in named or sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]):
        try:
            if BLOCK.search(path.read_text(encoding="utf-8")) and refresh_outputs(path):
                print(f"{path}: refreshed")
        except RuntimeError as error:  # the other pages are refreshed all the same
            print(f"{path}: failed\n{error}")
