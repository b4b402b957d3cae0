"""Points with bars near a diagonal, as SVG text, in the style of :mod:`conddp.report.charts`."""

from collections.abc import Iterator
from html import escape

from conddp.report.charts import Axis, open_svg, render_marker, show_tick
from conddp.report.document import Bars, show

__all__ = ["list_keys", "render_bars"]

WIDTH, HEIGHT = 640, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 14, 52


def render_bars(bars: Bars, *, number: int = 1) -> str:
    """Draw the chart as an SVG element; ``number`` tells several of one page apart.

    Both axes have the scale of the points; bars may leave the chart.
    """
    span = (*bars.x, *bars.y)
    inner = [end for pair in bars.inner for end in pair]
    room = max(span) - min(span) or 1.0
    low, high = max(min(span) - room, min(*inner, *span)), min(max(span) + room, max(*inner, *span))
    across = Axis.of(bars.x, log=False, start=LEFT, end=WIDTH - RIGHT, padded=True)
    up = Axis.of((low, high), log=False, start=HEIGHT - BOTTOM, end=TOP, padded=True)
    described = f"{bars.y_label} against {bars.x_label}: {len(bars.x)} points from {show(bars.y[0])} at "
    described += f"{show(bars.x[0])} to {show(bars.y[-1])} at {show(bars.x[-1])}."
    parts = [open_svg(bars.title, described, WIDTH, HEIGHT, number)]
    parts.append(f'<clipPath id="plot{number}"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" ')
    parts.append(f'height="{HEIGHT - TOP - BOTTOM}"/></clipPath>')
    for tick in up.ticks(6):
        y = up(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" text-anchor="end" x="{LEFT - 8}" y="{y + 4:.1f}">{show_tick(tick)}</text>')
    for tick in across.ticks(6):
        x = across(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        label = show_tick(tick)
        parts.append(f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}">{label}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis" text-anchor="middle" x="{middle}" y="{HEIGHT - 8}">{escape(bars.x_label)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text class="axis" text-anchor="middle" transform="translate(16 {middle}) rotate(-90)">'
        f"{escape(bars.y_label)}</text>"
    )
    parts.append(f'<g clip-path="url(#plot{number})">')
    ends = [(across(end), up(end)) for end in (across.low, across.high)]
    parts.append(
        f'<line class="reference r0" x1="{ends[0][0]:.1f}" x2="{ends[1][0]:.1f}" '
        f'y1="{ends[0][1]:.1f}" y2="{ends[1][1]:.1f}"/>'
    )
    for place, (x_value, y_value) in enumerate(zip(bars.x, bars.y, strict=True)):
        x = across(x_value)
        for kind, (bottom, top) in (("whisker", bars.outer[place]), ("bar s0", bars.inner[place])):
            parts.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{up(bottom):.1f}" y2="{up(top):.1f}"/>')
        parts.append(render_marker(0, x, up(y_value)))
    parts.append("</g></svg>")
    return "".join(parts)


def list_keys(bars: Bars) -> Iterator[tuple[str, str]]:
    """Yield the names of the legend with a piece of what they stand for."""
    drawn = (
        render_marker(0, 0, 0),
        '<line class="bar s0" x1="0" x2="0" y1="-8" y2="8"/>',
        '<line class="whisker" x1="0" x2="0" y1="-8" y2="8"/>',
        '<line class="reference r0" x1="-9" x2="9" y1="0" y2="0"/>',
    )
    yield from zip(bars.names, drawn, strict=True)
