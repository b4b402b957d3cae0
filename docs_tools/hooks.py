"""What mkdocs calls while it builds the site: formulas, pages made from elsewhere, and a look at what came out.

Pages are written to be read in the repository too. Links that leave ``docs/`` there go to a copy on the site here.
"""

import logging
import posixpath
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # mkdocs loads this file by its path, which does not make its neighbours known

from docs_tools.command_line import render_commands  # noqa: E402  (after the path)
from docs_tools.mathematics import MathExtension  # noqa: E402  (after the path)

log = logging.getLogger("mkdocs.plugins.docs_tools")

# Files of the repository that are pages of the site, and their place on it.
COPIES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "VISION.md": "vision.md"}
PLACES = {**COPIES, "README.md": "index.md"}
COMMANDS = "<!-- commands -->"  # replaced by the reference of the command line
ROOM = re.compile(r"<!-- room: (\w+) -->")  # replaced by the reference of every file of a room
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
LONG_CODE = re.compile(r"(?<!<span></span>)<code>[^<]{16,}(?=</code>)")  # blocks of code have an empty span before
REMOTE = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>\"'\s]*")
PRIVATE_MEMBER = re.compile(r'\bid="(conddp(?:\.\w+)*\._\w*)"')
LEFT_OVER = re.compile(r":(?:attr|class|data|exc|func|math|meth|mod|obj):|\.\. \w+::|\$[^\s$]|\$\$")


@event_priority(100)  # before mkdocstrings copies the list for its own pages
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let Markdown know formulas, and add pages of new algorithms to the navigation."""
    extensions: list[Any] = list(config.markdown_extensions)
    config.markdown_extensions = [*extensions, MathExtension()]
    section: list[Any] = next(each["Algorithms"] for each in config.nav or [] if "Algorithms" in each)
    named = {page for entry in section for page in entry.values()}
    section += [page for page in list_algorithm_pages() if page not in named]  # with their own titles
    return config


def list_algorithm_pages() -> list[str]:
    """Pages of algorithms, below ``docs/``; those that ``mkdocs.yml`` does not place come last."""
    return sorted(f"algorithms/{path.name}" for path in (ROOT / "docs" / "algorithms").glob("*.md"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that live elsewhere in the repository."""
    for source, place in COPIES.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links into the repository into links within the site, and write the reference of the command line."""
    if page.file.src_uri.startswith("api/"):
        page.meta["search"] = {"boost": 0.5}  # pages that explain come first
    markdown = ROOM.sub(lambda match: list_modules(match.group(1)), markdown)
    if COMMANDS in markdown:
        from conddp.cli.main import app

        markdown = markdown.replace(COMMANDS, render_commands(app, "conddp"))
    return redirect_links(markdown, page.file.src_uri)


def list_modules(room: str) -> str:
    """Reference directives for every file of a room, or for a room that is a single file.

    Examples
    --------
    >>> print(list_modules("bounds"))
    ::: conddp.bounds
    """
    folder = ROOT / "conddp" / room
    paths = [path for path in sorted(folder.rglob("*.py")) if path.name != "__init__.py"] or [folder.with_suffix(".py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return "\n\n".join(f"::: {name}" for name in names)


def redirect_links(markdown: str, page: str) -> str:
    """Links to files of the repository as links to pages of the site, where they are pages.

    Parameters
    ----------
    markdown : str
        Text of the page.
    page : str
        Its place below ``docs/``.

    Examples
    --------
    >>> redirect_links("[rules](../CONTRIBUTING.md)", "pitfalls.md")
    '[rules](contributing.md)'
    >>> redirect_links("[numbers](docs/default.md#wine)", "changelog.md")
    '[numbers](default.md#wine)'
    """
    copied = page in COPIES.values()
    folder = "" if copied else posixpath.join("docs", posixpath.dirname(page))

    def redirect(match: re.Match[str]) -> str:
        before, link, after = match.groups()
        if "://" in link or link.startswith("mailto:"):
            return match.group(0)
        target = posixpath.normpath(posixpath.join(folder, link))
        place = target.removeprefix("docs/") if target.startswith("docs/") else PLACES.get(target)
        if place is None:
            return match.group(0)  # mkdocs will complain
        return before + posixpath.relpath(place, posixpath.dirname(page) or ".") + after

    return LINK.sub(redirect, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let long names break where a reader would break them."""
    return allow_breaks(html)


def allow_breaks(html: str) -> str:
    """Code in running text that may break after dots, slashes, colons and underscores, if it is long.

    Examples
    --------
    >>> allow_breaks("<code>conddp.algorithms.cond_dp</code> and <code>a.b</code>")
    '<code>conddp.<wbr>algorithms.<wbr>cond_<wbr>dp</code> and <code>a.b</code>'
    >>> allow_breaks("<pre><span></span><code>a block that prints 0.25</code></pre>")
    '<pre><span></span><code>a block that prints 0.25</code></pre>'
    """
    return LONG_CODE.sub(lambda match: re.sub(r"(?<=[/._:])(?=\w)", "<wbr>", match.group(0)), html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Warn of what no page may show, so that the build fails: markup left as it is, remote parts, private members."""
    for left in find_left_overs(output):
        log.warning("%s shows markup that was not converted: '%s'", page.file.src_uri, left)
    for remote in REMOTE.findall(output):
        log.warning("%s loads something from elsewhere: '%s'", page.file.src_uri, remote)
    for member in PRIVATE_MEMBER.findall(output):
        log.warning("%s shows the private member '%s'", page.file.src_uri, member)
    return output


def find_left_overs(page: str) -> list[str]:
    """Texts of a page, outside of code, that still hold a role or a formula."""
    reader = _TextReader()
    reader.feed(page)
    return [text for text in reader.texts if LEFT_OVER.search(text)]


class _TextReader(HTMLParser):
    """Collects the texts of a page that a reader sees, but for code."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._closed = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Close the eyes in code, scripts and formulas."""
        self._closed += tag in ("code", "pre", "script", "style", "math", "title")

    def handle_endtag(self, tag: str) -> None:
        """Open them again."""
        self._closed -= tag in ("code", "pre", "script", "style", "math", "title")

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        if not self._closed and data.strip():
            self.texts.append(data.strip())
