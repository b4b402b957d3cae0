"""Docstrings as they stand in the code (reStructuredText roles, bare headings), turned into what mkdocstrings reads.

Roles become links or formulas, and a bare heading with an indented block, ``Privacy`` above all, becomes an underlined
section, which is shown as a box.
"""

import re
from collections.abc import Callable
from typing import Any

from griffe import Class, Extension, Function, GriffeLoader, Module, NameResolutionError, Object
from mkdocs.exceptions import PluginError

__all__ = ["DocstringExtension", "RoleError", "convert_docstring"]

HEADINGS = ("Privacy", "Symbols", "Paper", "Guarantees")
ROLE = re.compile(r":(\w+):`([^`]+)`")
LINKED = {"attr", "class", "data", "exc", "func", "meth", "mod", "obj"}
MATH_BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +\S.*| *(?=\n\1 +\S)))*)", re.MULTILINE)
DEFINITION = re.compile(r"^(``[^`\n]+``)\n(?= +\S) +", re.MULTILINE)
SEVERAL_NAMES = re.compile(r"^(\w+(?:, \w+)+)(?: : (.*))?\n((?: +\S.*(?:\n|\Z))+)", re.MULTILINE)
BARE_HEADING = re.compile(rf"^({'|'.join(HEADINGS)})\n((?:(?: +\S.*)?(?:\n|\Z))+)", re.MULTILINE)

Resolver = Callable[[str], str | None]  # from a name in a docstring to the full name of what is meant


class RoleError(PluginError):
    """A docstring names something that does not exist, or in a way that is not known; the build ends."""


def convert_docstring(text: str, resolve: Resolver) -> str:
    r"""A docstring in the house style as Markdown with numpydoc sections.

    Parameters
    ----------
    text : str
        The docstring without its indentation.
    resolve : callable
        Gives the full name of what a role names, or None if there is no such thing.

    Raises
    ------
    RoleError
        Where a role is not known, or its target does not exist.

    Examples
    --------
    >>> print(convert_docstring("See :func:`~conddp.newton.release.release`.", lambda name: name))
    See <autoref identifier="conddp.newton.release.release" optional><code>release</code></autoref>.
    >>> print(convert_docstring("Privacy\n    Costs :math:`\\epsilon`.\n", lambda name: name))
    Privacy
    -------
    Costs $\epsilon$.
    """

    def replace_role(match: re.Match[str]) -> str:
        role, content = match.group(1), " ".join(match.group(2).split())
        if role == "math":
            return f"${content}$"
        if role not in LINKED:
            raise RoleError(f"the role in {match.group(0)} is not known.")
        return _make_link(content, resolve)

    def replace_block(match: re.Match[str]) -> str:
        return f"{match.group(1)}$${' '.join(match.group(2).split())}$$"

    text = MATH_BLOCK.sub(replace_block, text)
    text = ROLE.sub(replace_role, text)
    text = SEVERAL_NAMES.sub(_tell_apart, text)
    text = BARE_HEADING.sub(_underline, text)
    text = DEFINITION.sub(r"\n\1\n:   ", text)
    return re.sub(r"^::\n", "", text, flags=re.MULTILINE).strip("\n")


def _make_link(content: str, resolve: Resolver) -> str:
    """A link if the target is on a page of the site, otherwise its name alone."""
    titled = re.fullmatch(r"(.+?) <(.+)>", content)
    title, target = titled.groups() if titled else (content, content)
    name = target.removeprefix("~")
    found = resolve(name)
    if found is None:
        raise RoleError(f"a docstring names '{name}', which does not exist.")
    if not titled:
        title = name.rpartition(".")[2] if target.startswith("~") else name
    return f'<autoref identifier="{found}" optional><code>{title}</code></autoref>'


def _tell_apart(match: re.Match[str]) -> str:
    """One entry for each of several parameters that share one; types go by their order if there are as many."""
    names, types, body = match.group(1).split(", "), match.group(2), match.group(3).rstrip("\n")
    listed = types.split(", ") if types else []
    each = listed if len(listed) == len(names) else [types] * len(names)
    entries = (f"{name} : {kind}" if kind else name for name, kind in zip(names, each, strict=True))
    return "".join(f"{entry}\n{body}\n" for entry in entries)


def _underline(match: re.Match[str]) -> str:
    heading, block = match.groups()
    lines = block.rstrip("\n").split("\n")
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    body = "\n".join(line[indent:] for line in lines)
    return f"\n{heading}\n{'-' * len(heading)}\n{body}\n\n"


class DocstringExtension(Extension):
    """Converts every docstring of a package once it is loaded, and hides what is not for readers."""

    def on_object(self, *, obj: Object, loader: GriffeLoader, **kwargs: Any) -> None:
        """Convert one docstring."""
        if obj.docstring is None:
            return
        if obj.is_special:
            obj.docstring = None  # what the language calls needs no page
            return
        try:
            obj.docstring.value = convert_docstring(obj.docstring.value, lambda name: resolve_name(obj, name, loader))
        except RoleError as error:
            raise RoleError(f"{obj.path}: {error}") from None


def resolve_name(obj: Object, name: str, loader: GriffeLoader) -> str | None:
    """Full name of what ``name`` means in the docstring of ``obj``: from the inside out, as Python reads names."""
    first, _, rest = name.partition(".")
    try:
        full = ".".join(part for part in (obj.resolve(first), rest) if part)
    except NameResolutionError:
        full = name
    package = full.partition(".")[0]
    if package not in loader.modules_collection:
        return None
    try:
        found = loader.modules_collection[full]
    except KeyError:
        return None
    return found.canonical_path if isinstance(found, (Module, Class, Function)) else full
