"""A hundred dots as SVG text, in the style of :mod:`conddp.report.charts`."""

from collections.abc import Iterator

from conddp.report.charts import open_svg
from conddp.report.document import Odds

__all__ = ["list_odds_keys", "render_odds"]

STEP, RADIUS, PER_ROW = 20, 7.5, 10
KINDS = ("before", "added", "rest")  # classes of the style sheet


def render_odds(odds: Odds, *, number: int = 1) -> str:
    """Draw ten rows of ten dots as an SVG element; ``number`` tells several drawings of one page apart."""
    described = "; ".join(f"{count}: {name}" for name, count in zip(odds.names, odds.counts, strict=True))
    kinds = [kind for kind, count in zip(KINDS, odds.counts, strict=True) for _ in range(count)]
    dots = [_draw(kind, *_place(place)) for place, kind in enumerate(kinds)]
    size = STEP * PER_ROW
    return "".join([open_svg(odds.title, described, size, size, number, kind="odds"), *dots, "</svg>"])


def list_odds_keys(odds: Odds) -> Iterator[tuple[str, str]]:
    """Yield the names of the legend, with their numbers and a dot of the kind; kinds without dots are left out."""
    for kind, name, count in zip(KINDS, odds.names, odds.counts, strict=True):
        if count:
            yield f"{count} {name}", _draw(kind, 0, 0)


def _place(place: int) -> tuple[float, float]:
    row, column = divmod(place, PER_ROW)
    return STEP * (column + 0.5), STEP * (row + 0.5)


def _draw(kind: str, x: float, y: float) -> str:
    """A dot, with a ring if it is added, so that the kinds differ without colours too."""
    ring = f'<circle class="ring" cx="{x:g}" cy="{y:g}" r="3"/>' if kind == "added" else ""
    return f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{RADIUS}"/>{ring}'
