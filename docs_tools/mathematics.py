"""Formulas of Markdown pages, ``$...$`` and ``$$...$$``, as MathML: drawn without scripts and without fonts."""

import html
import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from mkdocs.exceptions import PluginError

__all__ = ["FormulaError", "MathExtension", "render_formula"]

INLINE = r"(?<![\\$\w])\$(?![\s$])([^$]+?)(?<![\s\\])\$(?![\w$])"  # as GitHub reads it: no blank inside the dollars
DISPLAY = r"(?<![\\$])\$\$([^$]+?)\$\$(?!\$)"
AFTER_CODE, BEFORE_ESCAPES = 187, 188  # priorities: code has 190, backslashes have 180

SIGNS, CLOSING = ("−", "-", "+", "±"), (")", "]", "}", "|", "‖", "!")

NUM_CHILDREN = {"mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "mroot": 2, "msubsup": 3, "munderover": 3}


class FormulaError(PluginError):
    """A formula cannot be drawn; the build ends."""


def render_formula(formula: str, *, display: bool = False) -> str:
    r"""MathML of a LaTeX formula, in the line or on a line of its own.

    Raises
    ------
    FormulaError
        Where a part of the formula is not understood, also where the converter would pass it on as it is.

    Examples
    --------
    >>> render_formula("x")
    '<math display="inline" alttext="x"><mrow><mi>x</mi></mrow></math>'
    """
    source = " ".join(formula.split())
    try:
        tree = ElementTree.fromstring(convert(source, display="block" if display else "inline"))
    except Exception as error:  # the converter's errors have no common ancestor
        raise FormulaError(f"the formula '{source}' cannot be converted: {type(error).__name__} {error}") from error
    for element in tree.iter():
        name = _drop_namespace(element)
        expected = NUM_CHILDREN.get(name)
        if expected is not None and len(element) != expected:
            raise FormulaError(f"the formula '{source}' is incomplete: an {name} has {len(element)} parts.")
        if name == "mi" and re.search(r"[\\{}]", element.text or ""):
            raise FormulaError(f"the formula '{source}' has '{element.text}', which is not known.")
        _mark_signs(element)
    tree.set("alttext", source)
    drawn = ElementTree.tostring(tree, encoding="unicode")
    return f'<span class="formula">{drawn}</span>' if display else drawn


def _mark_signs(row: ElementTree.Element) -> None:
    """Tell signs from operators, as in (-c): browsers look only at whether something stands before them."""
    before: ElementTree.Element | None = None
    for element in row:
        follows_operator = before is None or (before.tag.endswith("mo") and before.text not in CLOSING)
        if element.tag.endswith("mo") and element.text in SIGNS and follows_operator:
            element.set("form", "prefix")
        before = element


def _drop_namespace(element: ElementTree.Element) -> str:
    element.tag = element.tag.rpartition("}")[2]
    return element.tag


class _FormulaProcessor(InlineProcessor):
    """Replaces what lies between dollars."""

    def __init__(self, pattern: str, md: Markdown, *, display: bool) -> None:
        super().__init__(pattern, md)
        self.display = display

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Any, int, int]:  # noqa: N802  (Markdown's name)
        """The formula, set aside so that nothing else changes it."""
        drawn = render_formula(html.unescape(m.group(1)), display=self.display)
        return self.md.htmlStash.store(drawn), m.start(0), m.end(0)


class MathExtension(Extension):
    """Python-Markdown with formulas."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  (Markdown's name)
        """Add both kinds of formulas."""
        md.inlinePatterns.register(_FormulaProcessor(DISPLAY, md, display=True), "display-formula", BEFORE_ESCAPES)
        md.inlinePatterns.register(_FormulaProcessor(INLINE, md, display=False), "formula", AFTER_CODE)
