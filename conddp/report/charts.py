"""Charts as SVG text. Colours and sizes come from the page's style sheet, so that they follow its theme."""

import math
from collections.abc import Callable, Sequence
from html import escape

from conddp.report.document import Chart, Dots, show

__all__ = [
    "MOST_MARKERS",
    "Axis",
    "join_points",
    "name_style",
    "open_svg",
    "render_chart",
    "render_dots",
    "render_marker",
    "show_tick",
]

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 14, 52
MOST_MARKERS = 16  # on a curve; longer ones are drawn without
WIDEST_INTERVAL = 5.0  # of a forest plot, over the median, up to which an interval is drawn in full
NUM_STYLES = 8  # colours in the style sheet; further series use them again, dashed
MARKERS = ("circle", "square", "diamond", "triangle", "cross", "plus", "down", "star")


def render_chart(chart: Chart, *, number: int = 1) -> str:
    """The chart as an SVG element; ``number`` tells several of one page apart."""
    across = Axis.of(chart.x, log=chart.log_x, start=LEFT, end=WIDTH - RIGHT, padded=False)
    values = [y for each in chart.series for y in (*each.y, *each.low, *each.high)]
    values += [each.y for each in chart.references]
    if chart.highest is not None:
        values = [min(value, chart.highest) for value in values]
    up = Axis.of(values, log=chart.log_y, start=HEIGHT - BOTTOM, end=TOP, padded=True)
    parts = [open_svg(chart.title, _describe(chart), WIDTH, HEIGHT, number)]
    parts.append(f'<clipPath id="plot{number}"><rect x="{LEFT - 6}" y="{TOP}" width="{WIDTH - LEFT - RIGHT + 12}" ')
    parts.append(f'height="{HEIGHT - TOP - BOTTOM}"/></clipPath>')
    for tick in up.ticks(5):
        y = up(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" text-anchor="end" x="{LEFT - 8}" y="{y + 4:.1f}">{show_tick(tick)}</text>')
    for tick in chart.x if len(chart.x) <= 7 else across.ticks(6):
        x = across(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        label = show_tick(tick)
        parts.append(f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}">{label}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text class="axis" text-anchor="middle" x="{middle}" y="{HEIGHT - 8}">{escape(chart.x_label)}</text>'
    )
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text class="axis" text-anchor="middle" transform="translate(16 {middle}) rotate(-90)">'
        f"{escape(chart.y_label)}</text>"
    )
    parts.append(f'<g clip-path="url(#plot{number})">')
    for place, reference in enumerate(chart.references):
        if not math.isfinite(reference.y):
            continue
        y = up(reference.y)
        parts.append(
            f'<line class="reference r{place}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}">'
            f"<title>{escape(reference.name)}: {show(reference.y)}</title></line>"
        )
    for place, series in enumerate(chart.series):
        points = [(across(x), up(y)) for x, y in zip(chart.x, series.y, strict=False) if math.isfinite(y)]
        if series.low and all(map(math.isfinite, (*series.low, *series.high))):
            upper = [(across(x), up(y)) for x, y in zip(chart.x, series.high, strict=False)]
            lower = [(across(x), up(y)) for x, y in zip(chart.x, series.low, strict=False)]
            parts.append(
                f'<polygon class="band {name_style(place)}" points="{join_points([*upper, *reversed(lower)])}"/>'
            )
        parts.append(f'<polyline class="curve {name_style(place)}" points="{join_points(points)}"/>')
        if len(chart.x) <= MOST_MARKERS:
            parts += [render_marker(place, x, y) for x, y in points]
    parts.append("</g></svg>")
    return "".join(parts)


def render_dots(dots: Dots, *, number: int = 1) -> str:
    """Values with their intervals, one below the other. Intervals much wider than most end in arrows at the edge."""
    left, row = 200, 24
    height = TOP + row * len(dots.names) + BOTTOM
    across = Axis.of(_span_intervals(dots), log=False, start=left, end=WIDTH - RIGHT, padded=True)
    described = f"{len(dots.names)} values with intervals"
    parts = [open_svg(dots.title, described, WIDTH, height, number, kind="chart dots")]
    bottom = height - BOTTOM
    for tick in across.ticks(6):
        x = across(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{bottom + 20}">{show_tick(tick)}</text>')
    x = across(0.0)
    parts.append(f'<line class="zero" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
    rows = zip(dots.names, dots.values, dots.low, dots.high, dots.others, strict=True)
    for place, (name, value, low, high, other) in enumerate(rows):
        y = TOP + row * (place + 0.5)
        short = name if len(name) <= 16 else name[:15] + "…"
        parts.append(f'<text class="tick" text-anchor="end" x="{left - 8}" y="{y + 4:.1f}">{escape(short)}')
        parts.append(f"<title>{escape(name)}: {show(value)}, from {show(low)} to {show(high)}</title></text>")
        start, end = max(across(low), left), min(across(high), WIDTH - RIGHT)
        parts.append(f'<line class="bar s0" x1="{start:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        for edge, is_beyond, sign in ((start, across(low) < left, -1), (end, across(high) > WIDTH - RIGHT, 1)):
            if is_beyond:
                path = f"M{edge:.1f} {y - 6:.1f}l{7 * sign} 6l{-7 * sign} 6z"
                parts.append(f'<path class="beyond s0" d="{path}"/>')
            else:
                parts.append(
                    f'<line class="cap s0" x1="{edge:.1f}" x2="{edge:.1f}" y1="{y - 5:.1f}" y2="{y + 5:.1f}"/>'
                )
        parts.append(f'<circle class="centre s0" cx="{across(value):.1f}" cy="{y:.1f}" r="3.5"/>')
        parts.append(f'<circle class="other" cx="{across(other):.1f}" cy="{y:.1f}" r="6"/>')
    middle = (left + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis" text-anchor="middle" x="{middle}" y="{height - 8}">{escape(dots.x_label)}</text>')
    return "".join([*parts, "</svg>"])


def _span_intervals(dots: Dots) -> list[float]:
    """Values that the axis of a forest plot must reach: all but the ends of intervals that would hide the others."""
    widths = [high - low for low, high in zip(dots.low, dots.high, strict=True)]
    most = WIDEST_INTERVAL * max(sorted(widths)[len(widths) // 2], max(map(abs, dots.values)) / 2)
    ends = [
        end
        for low, high, width in zip(dots.low, dots.high, widths, strict=True)
        if width <= most
        for end in (low, high)
    ]
    return [0.0, *dots.values, *dots.others, *ends]


def render_marker(place: int, x: float, y: float) -> str:
    """The marker of a series: its shape says what its colour says."""
    shape, style = MARKERS[place % len(MARKERS)], f'class="marker {name_style(place)}"'
    if shape == "circle":
        return f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
    paths = {
        "square": "M-4-4h8v8h-8z",
        "diamond": "M0-6L6 0 0 6-6 0z",
        "triangle": "M0-5.5L5.5 4.5h-11z",
        "down": "M0 5.5L5.5-4.5h-11z",
        "cross": "M-4-4L4 4M4-4L-4 4",
        "plus": "M-5 0H5M0-5V5",
        "star": "M-4-4L4 4M4-4L-4 4M-5 0H5M0-5V5",
    }
    return f'<path {style} d="{paths[shape]}" transform="translate({x:.1f} {y:.1f})"/>'


def name_style(place: int) -> str:
    """Classes of the style sheet for a series."""
    return f"s{place % NUM_STYLES}" + (" again" if place >= NUM_STYLES else "")


class Axis:
    """From values to places on the page."""

    def __init__(self, low: float, high: float, *, log: bool, start: float, end: float) -> None:
        self.low, self.high, self.log, self.start, self.end = low, high, log, start, end
        self.map: Callable[[float], float] = math.log10 if log else float

    @classmethod
    def of(cls, values: Sequence[float], *, log: bool, start: float, end: float, padded: bool) -> "Axis":
        """Make an axis for the finite values, which reaches a little beyond them if ``padded``."""
        seen = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        low, high = (min(seen), max(seen)) if seen else (1.0, 2.0)
        if low == high:
            low, high = (low / 2, high * 2) if log else (low - 0.5 * abs(low or 1), high + 0.5 * abs(high or 1))
        if padded and log:
            margin = (high / low) ** 0.05
            low, high = low / margin, high * margin
        elif padded:
            margin = 0.05 * (high - low)
            low, high = (0.0 if low == 0 else low - margin), high + margin
        return cls(low, high, log=log, start=start, end=end)

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        if self.log:
            value = max(value, self.low * 1e-3)
        low, high = self.map(self.low), self.map(self.high)
        fraction = (self.map(value) - low) / (high - low)
        return self.start + min(max(fraction, -2.0), 3.0) * (self.end - self.start)

    def ticks(self, number: int) -> list[float]:
        """Round numbers along the axis: powers of ten and their double and half, or steps of 1, 2 or 5."""
        if self.log and self.high > 5 * self.low:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for factors in ((1, 2, 5), (1, 3), (1,)):
                ticks = [factor * 10.0**power for power in powers for factor in factors]
                ticks = [tick for tick in ticks if self.low <= tick <= self.high]
                if len(ticks) <= number + 2:
                    return ticks
            return ticks[:: -(-len(ticks) // number)]
        raw = (self.high - self.low) / number
        size = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= raw * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        ticks = [place * step for place in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return [0.0 if abs(tick) < step / 1e6 else tick for tick in ticks]


def open_svg(title: str, description: str, width: int, height: int, number: int, *, kind: str = "chart") -> str:
    """Start an SVG element with a title and a description for screen readers."""
    return (
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t{number} d{number}">'
        f'<title id="t{number}">{escape(title)}</title><desc id="d{number}">{escape(description)}</desc>'
    )


def _describe(chart: Chart) -> str:
    """What someone who cannot see the chart is told; the numbers are in the table below it."""
    pieces = [
        f"{each.name} goes from {show(each.y[0])} to {show(each.y[len(each.y) - 1])}" for each in chart.series if each.y
    ]
    pieces += [f"{each.name} is at {show(each.y)}" for each in chart.references if math.isfinite(each.y)]
    return f"{chart.y_label} against {chart.x_label}: {'; '.join(pieces)}."


def join_points(points: Sequence[tuple[float, float]]) -> str:
    """Coordinates of a line, as SVG writes them."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def show_tick(value: float) -> str:
    """A number of an axis."""
    shown = f"{value:,.0f}" if 1000 <= abs(value) < 1e5 else f"{value:.3g}"
    return shown.replace("-", "−")
