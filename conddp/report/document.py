"""The content of a report: sections of paragraphs, lists, facts, tables, charts and figures, without any styling."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "Block",
    "Bullets",
    "Chart",
    "Document",
    "Dots",
    "Facts",
    "Figure",
    "Formula",
    "Reference",
    "Section",
    "Series",
    "Table",
    "Text",
]


@dataclass(frozen=True)
class Text:
    """A paragraph; ``term``, if any, is what it explains."""

    text: str
    term: str = ""


@dataclass(frozen=True)
class Bullets:
    """Items of a list."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Formula:
    """A line of mathematics, in characters that need no typesetting; a power follows a caret: e^x."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Names and their values."""

    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells.

    Parameters
    ----------
    caption : str
        Above the table.
    heads : tuple of str
        Of the columns.
    rows : tuple of tuple of str
        The cells. A number may have a second line.
    num_text : int
        Number of leading columns that hold text; the others hold numbers.
    highlighted : tuple of int
        Indices of rows to emphasize.
    """

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_text: int = 1
    highlighted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Series:
    """A curve, with a band around it if ``low`` and ``high`` are given."""

    name: str
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Reference:
    """A horizontal line to compare curves with."""

    name: str
    y: float


@dataclass(frozen=True)
class Chart:
    """Curves over common positions.

    Parameters
    ----------
    title : str
        What is drawn; also the alternative text for screen readers.
    x_label, y_label : str
        Of the axes.
    x : tuple of float
        Positions.
    series : tuple of Series
        The curves.
    references : tuple of Reference
        Lines to compare with.
    log_x, log_y : bool
        Logarithmic axes.
    highest : float, optional
        Curves above this value leave the chart.
    """

    title: str
    x_label: str
    y_label: str
    x: tuple[float, ...]
    series: tuple[Series, ...]
    references: tuple[Reference, ...] = ()
    log_x: bool = False
    log_y: bool = False
    highest: float | None = None

    def as_table(self) -> Table:
        """The numbers that are drawn."""
        heads = (self.x_label, *(each.name for each in self.series), *(each.name for each in self.references))
        rows = tuple(
            (
                show(x),
                *(show(each.y[place]) if place < len(each.y) else "" for each in self.series),
                *(show(each.y) for each in self.references),
            )
            for place, x in enumerate(self.x)
        )
        return Table(self.title, heads, rows)


@dataclass(frozen=True)
class Dots:
    """Values by name, each with a bar of two standard deviations to both sides."""

    title: str
    x_label: str
    names: tuple[str, ...]
    values: tuple[float, ...]
    deviations: tuple[float, ...]


@dataclass(frozen=True)
class Figure:
    """A drawing that was made elsewhere.

    Parameters
    ----------
    title : str
        What is drawn; also the alternative text for screen readers.
    svg : str
        The drawing. It is embedded as an image, so that its scripts do not run and its styles do not affect the page.
    file : str
        A file with the same drawing, for Markdown, which can only link to it.
    """

    title: str
    svg: str
    file: str


Block = Text | Bullets | Formula | Facts | Table | Chart | Dots | Figure


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A report.

    Parameters
    ----------
    title : str
        The heading.
    lead : str
        The main point, in a sentence or two.
    sections : tuple of Section
        The rest.
    footnote : str
        At the bottom.
    """

    title: str
    lead: str
    sections: tuple[Section, ...]
    footnote: str = ""


def round_up(value: float, digits: int = 3) -> str:
    """The value rounded up to so many digits."""
    if value <= 0:
        return show(value)
    size = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return f"{math.ceil(value / size * (1 - 1e-12)) * size:.{digits}g}"


def show(value: float) -> str:
    """A number in four digits."""
    return f"{value:.4g}"


def join(names: Sequence[str], *, most: int = 12) -> str:
    """Names separated by commas, the first ones if there are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
