"""Small charts of functions of one or two columns, as SVG text, in the style of :mod:`conddp.report.charts`."""

import math
from collections.abc import Sequence
from html import escape

from conddp.report.charts import Axis, join_points, open_svg, show_tick
from conddp.report.document import HeatMap, Panel, name_position, show, show_day

__all__ = ["choose_span", "render_heat_map", "render_panel"]

WIDTH, HEIGHT = 300, 210
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 26, 34
NAMES = 104  # width of the names of levels
MOST_LEVELS = 8
LONGEST_NAME = 15  # characters
LONGEST_LABEL = 24  # of an axis of a pair
NUM_SHADES = 5
ENLARGED = (50, 20, 10, 5, 2, 1)  # scales of panels, so that small effects can be seen beside large ones


def choose_span(panel: Panel, span: tuple[float, float]) -> tuple[tuple[float, float], int]:
    """Choose the range of a panel: the common one, or one that is enlarged as often as the function still fits.

    Returns
    -------
    (low, high), int
        The range, and how many times it is smaller than the common one.
    """
    ends = (*panel.low, *panel.high)
    low, high = min(0.0, *ends), max(0.0, *ends)
    fits = (each for each in ENLARGED if each == 1 or (low >= span[0] / each and high <= span[1] / each and high > low))
    factor = next(fits)
    return (span[0] / factor, span[1] / factor), factor


def render_panel(panel: Panel, span: tuple[float, float], *, number: int = 1) -> str:
    """A curve with its band, or bars for the levels of a category.

    Parameters
    ----------
    panel : Panel
        The function.
    span : (low, high)
        Common range of the functions of all panels. A panel with a much smaller function has an enlarged scale, and
        says so.
    number : int
        Tells several of one page apart.
    """
    span, factor = choose_span(panel, span)
    note = f"scale enlarged ×{factor}" if factor > 1 else ""
    drawn = _render_bars(panel, span, number) if panel.names else _render_curve(panel, span, number)
    if not note:
        return drawn
    mark = f'<text class="tick enlarged" text-anchor="end" x="{WIDTH - RIGHT}" y="15">{note}</text></svg>'
    return drawn.removesuffix("</svg>") + mark


def _render_curve(panel: Panel, span: tuple[float, float], number: int) -> str:
    across = Axis.of(panel.x, log=panel.is_log, start=LEFT, end=WIDTH - RIGHT, padded=False)
    up = Axis.of(span, log=False, start=HEIGHT - BOTTOM, end=TOP, padded=True)
    ends = f"{name_position(panel, 0)} to {name_position(panel, len(panel.x) - 1)}"
    described = f"Effect at {ends}: lowest {show(min(panel.y))}, highest {show(max(panel.y))}."
    parts = [_start(panel.title, described, HEIGHT, number)]
    for tick in up.ticks(4):
        y, kind = up(tick), "zero" if tick == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" text-anchor="end" x="{LEFT - 6}" y="{y + 4:.1f}">{show_tick(tick)}</text>')
    for tick, label in _list_ticks(panel, across):
        x = across(tick)
        anchor = "end" if x > WIDTH - 30 else "middle"
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>'
        )
        parts.append(
            f'<text class="tick" text-anchor="{anchor}" x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}">{escape(label)}</text>'
        )
    if panel.x_label:
        parts.append(
            f'<text class="tick" text-anchor="middle" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 3}">'
            f"{escape(panel.x_label)}</text>"
        )
    upper, lower, middle = (
        [(across(x), up(y)) for x, y in zip(panel.x, values, strict=True)]
        for values in (panel.high, panel.low, panel.y)
    )
    parts.append(f'<polygon class="band s0" points="{join_points([*upper, *reversed(lower)])}"/>')
    parts.append(f'<polyline class="curve s0" points="{join_points(middle)}"/>')
    return "".join([*parts, "</svg>"])


def _list_ticks(panel: Panel, across: Axis) -> list[tuple[float, str]]:
    if not panel.is_date:
        return [(tick, _show_position(tick)) for tick in across.ticks(3 if panel.is_log else 4)]
    first, last = panel.x[0], panel.x[-1]
    ticks = [first + part * (last - first) for part in (0.12, 0.5, 0.88)]
    return [(tick, show_day(tick)[:7]) for tick in ticks]


def _show_position(value: float) -> str:
    """A position on the axis of a column. Four digits have no comma, since they may be years."""
    return (f"{value:.5g}" if abs(value) < 1e4 else f"{value:,.5g}").replace("-", "−")


def _render_bars(panel: Panel, span: tuple[float, float], number: int) -> str:
    order = sorted(range(len(panel.names)), key=lambda place: -abs(panel.y[place]))[:MOST_LEVELS]
    order = sorted(order) if len(panel.names) <= MOST_LEVELS else sorted(order, key=lambda place: -panel.y[place])
    across = Axis.of((0.0, *span), log=False, start=NAMES, end=WIDTH - RIGHT, padded=True)
    bottom = HEIGHT - BOTTOM
    described = "; ".join(f"{panel.names[place]} {show(panel.y[place])}" for place in order)
    parts = [_start(panel.title, described, HEIGHT, number)]
    for tick in across.ticks(3):
        x, kind = across(tick), "zero" if tick == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{bottom + 17}">{show_tick(tick)}</text>')
    row = min(26.0, (bottom - TOP) / len(order))
    zero = across(0.0)
    for line, place in enumerate(order):
        y, end = TOP + row * (line + 0.5), across(panel.y[place])
        parts.append(
            f'<text class="tick" text-anchor="end" x="{NAMES - 6}" y="{y + 4:.1f}">{_shorten(panel.names[place])}'
        )
        parts.append(f"<title>{escape(panel.names[place])}</title></text>")
        thick = min(11.0, 0.6 * row)
        parts.append(f'<rect class="level s0" x="{min(zero, end):.1f}" y="{y - thick / 2:.1f}" ')
        parts.append(f'width="{abs(end - zero):.1f}" height="{thick:.1f}"/>')
        low, high = across(panel.low[place]), across(panel.high[place])
        parts.append(f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
    hidden = len(panel.names) - len(order)
    note = f"the {MOST_LEVELS} largest of {len(panel.names)} levels" if hidden else panel.x_label
    if note:
        parts.append(
            f'<text class="tick" text-anchor="middle" x="{(NAMES + WIDTH - RIGHT) / 2}" y="{HEIGHT - 3}">'
            f"{escape(note)}</text>"
        )
    return "".join([*parts, "</svg>"])


def render_heat_map(chart: HeatMap, largest: float, *, number: int = 1) -> str:
    """A function of two columns: a cell for each pair of values, darker the larger the effect.

    Parameters
    ----------
    chart : HeatMap
        The function.
    largest : float
        Effect of the darkest cells.
    number : int
        Tells several of one page apart.
    """
    left, bottom = NAMES - 18, HEIGHT - BOTTOM
    wide, high = (WIDTH - RIGHT - left) / len(chart.columns), (bottom - TOP) / len(chart.rows)
    everything = [value for row in chart.values for value in row]
    described = f"Effect from {show(min(everything))} to {show(max(everything))}."
    parts = [_start(chart.title, described, HEIGHT, number)]
    for place, row in enumerate(reversed(chart.values)):
        for column, value in enumerate(row):
            shade = math.ceil(NUM_SHADES * min(1.0, abs(value) / largest) - 0.5) if largest > 0 else 0
            if shade:
                sign = "positive" if value > 0 else "negative"
                parts.append(
                    f'<rect class="{sign} shade{shade}" x="{left + column * wide:.2f}" y="{TOP + place * high:.2f}" '
                    f'width="{wide + 0.1:.2f}" height="{high + 0.1:.2f}"/>'
                )
    parts.append(f'<rect class="frame" x="{left}" y="{TOP}" width="{WIDTH - RIGHT - left}" height="{bottom - TOP}"/>')
    for place in _choose(len(chart.rows), 5):
        y = bottom - (place + 0.5) * high
        name = _shorten(chart.rows[place], 10)  # beside the label of the axis
        parts.append(f'<text class="tick" text-anchor="end" x="{left - 6}" y="{y + 4:.1f}">{name}</text>')
    for place in _choose(len(chart.columns), 3):
        x = left + (place + 0.5) * wide
        anchor = "end" if x > WIDTH - 40 else "middle"
        parts.append(
            f'<text class="tick" text-anchor="{anchor}" x="{min(x, WIDTH - 2):.1f}" y="{bottom + 15}">'
            f"{_shorten(chart.columns[place], 12)}</text>"
        )
    parts.append(
        f'<text class="tick" text-anchor="middle" x="{(left + WIDTH - RIGHT) / 2}" y="{HEIGHT - 3}">'
        f"{_shorten(chart.column_label, LONGEST_LABEL)}</text>"
    )
    parts.append(
        f'<text class="tick" text-anchor="middle" transform="translate(12 {(TOP + bottom) / 2}) rotate(-90)">'
        f"{_shorten(chart.row_label, LONGEST_LABEL)}</text>"
    )
    return "".join([*parts, "</svg>"])


def _start(title: str, described: str, height: int, number: int) -> str:
    heading = f'<text class="heading" x="4" y="15">{_shorten(title, 40)}</text>'
    return open_svg(title, described, WIDTH, height, number, kind="panel") + heading


def _choose(number: int, at_most: int) -> Sequence[int]:
    """Some places, evenly spaced, with the first and the last."""
    if number <= at_most:
        return range(number)
    return sorted({round(part * (number - 1) / (at_most - 1)) for part in range(at_most)})


def _shorten(name: str, longest: int = LONGEST_NAME) -> str:
    return escape(name if len(name) <= longest else name[: longest - 1] + "…")
