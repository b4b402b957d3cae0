"""The content of a report: sections of paragraphs, lists, facts, tables, charts and figures, without any styling."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

__all__ = [
    "Bars",
    "Block",
    "Bullets",
    "Chart",
    "Document",
    "Dots",
    "Facts",
    "Figure",
    "Formula",
    "HeatMap",
    "Panel",
    "Panels",
    "Reference",
    "Section",
    "Series",
    "Table",
    "Text",
]

MOST_IN_TABLE = 9  # positions of a curve
UNIX_EPOCH = date(1970, 1, 1).toordinal()


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
class Bars:
    """Points with bars to both sides, near a diagonal on which x and y are equal.

    Parameters
    ----------
    title : str
        What is drawn; also the alternative text for screen readers.
    x_label, y_label : str
        Of the axes.
    x, y : tuple of float
        Positions of the points.
    inner, outer : tuple of (float, float)
        Ends of a thick and of a thin bar for each point.
    names : tuple of str
        What points, thick and thin bars stand for, and the diagonal.
    """

    title: str
    x_label: str
    y_label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    inner: tuple[tuple[float, float], ...]
    outer: tuple[tuple[float, float], ...]
    names: tuple[str, str, str, str]

    def as_table(self) -> Table:
        """The numbers that are drawn."""
        heads = (self.x_label, self.y_label, *self.names[1:3])
        ends = [
            tuple(f"{show(low)} to {show(high)}" for low, high in pair)
            for pair in zip(self.inner, self.outer, strict=True)
        ]
        rows = tuple((show(x), show(y), *pair) for x, y, pair in zip(self.x, self.y, ends, strict=True))
        return Table(self.title, heads, rows)


@dataclass(frozen=True)
class Dots:
    """Values by name, each with an interval: a forest plot.

    Parameters
    ----------
    title : str
        What is drawn.
    x_label : str
        Of the axis.
    names : tuple of str
        Names of the values.
    values, low, high : tuple of float
        Values, and the ends of their intervals.
    others : tuple of float
        A second value for each name, drawn as a circle: what the model predicts with.
    """

    title: str
    x_label: str
    names: tuple[str, ...]
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    others: tuple[float, ...]

    def as_table(self) -> Table:
        """The numbers that are drawn."""
        rows = zip(self.names, self.values, self.low, self.high, self.others, strict=True)
        cells = tuple((name, *map(show, numbers)) for name, *numbers in rows)
        return Table(self.title, ("", self.x_label, "from", "to", "in the model"), cells)


@dataclass(frozen=True)
class Panel:
    """A function of one column, with a band.

    Parameters
    ----------
    title : str
        What it is a function of.
    x : tuple of float
        Its positions; for a category, they count the levels. Dates are days since 1970.
    y, low, high : tuple of float
        Values, and the ends of their band.
    names : tuple of str
        Names of the levels of a category; empty for a curve.
    x_label : str
        Unit of the positions, if it needs one.
    is_date : bool
        Whether the positions are dates.
    is_log : bool
        Whether the axis of the positions is logarithmic.
    """

    title: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    names: tuple[str, ...] = ()
    x_label: str = ""
    is_date: bool = False
    is_log: bool = False


@dataclass(frozen=True)
class HeatMap:
    """A function of two columns.

    Parameters
    ----------
    title : str
        What it is a function of.
    row_label, column_label : str
        What rows and columns stand for.
    rows, columns : tuple of str
        Values of the rows and of the columns.
    values : tuple of tuple of float
        A row of numbers for each row.
    """

    title: str
    row_label: str
    column_label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]

    def as_table(self) -> Table:
        """The numbers that are drawn."""
        rows = tuple((name, *map(show, values)) for name, values in zip(self.rows, self.values, strict=True))
        return Table(self.title, (f"{self.row_label} \\ {self.column_label}", *self.columns), rows)


@dataclass(frozen=True)
class Panels:
    """Small charts side by side, of functions with a common scale.

    Parameters
    ----------
    title : str
        What is drawn.
    y_label : str
        What the functions measure.
    panels : tuple of Panel or tuple of HeatMap
        The charts.
    """

    title: str
    y_label: str
    panels: tuple[Panel, ...] | tuple[HeatMap, ...]

    def as_tables(self) -> tuple[Table, ...]:
        """The numbers that are drawn, at up to :data:`MOST_IN_TABLE` positions of every curve."""
        maps = tuple(each.as_table() for each in self.panels if isinstance(each, HeatMap))
        rows = tuple(row for each in self.panels if isinstance(each, Panel) for row in _list_rows(each))
        heads = ("column", "value", self.y_label, "from", "to")
        return (*((Table(self.title, heads, rows, num_text=2),) if rows else ()), *maps)


def _list_rows(panel: Panel) -> list[tuple[str, ...]]:
    """Rows of a table of some of the values of a panel."""
    number = len(panel.x)
    some = {round(part * (number - 1) / (MOST_IN_TABLE - 1)) for part in range(MOST_IN_TABLE)}
    shown = range(number) if panel.names else sorted(some)
    return [
        (panel.title, name_position(panel, place), *(show(each[place]) for each in (panel.y, panel.low, panel.high)))
        for place in shown
    ]


def name_position(panel: Panel, place: int) -> str:
    """A position of a panel as text."""
    if panel.names:
        return panel.names[place]
    return show_day(panel.x[place]) if panel.is_date else show(panel.x[place])


def show_day(days: float) -> str:
    """A date, from the number of days since 1970."""
    return str(date.fromordinal(UNIX_EPOCH + math.floor(days)))


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


Block = Text | Bullets | Formula | Facts | Table | Chart | Bars | Dots | Panels | Figure


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
