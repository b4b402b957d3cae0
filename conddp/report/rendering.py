"""Documents as HTML, Markdown and JSON."""

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

from conddp.errors import SchemaError, refuse_existing
from conddp.report.bars import list_keys, render_bars
from conddp.report.charts import MOST_MARKERS, name_style, render_chart, render_dots, render_marker
from conddp.report.document import (
    Bars,
    Block,
    Bullets,
    Chart,
    Document,
    Dots,
    Facts,
    Figure,
    Formula,
    HeatMap,
    Panel,
    Panels,
    Section,
    Text,
)
from conddp.report.panels import render_heat_map, render_panel

__all__ = ["render_html", "render_json", "render_markdown", "write_report"]


def write_report(document: Document, path: Path, *, overwrite: bool = False) -> Path:
    """Write a document to a file: HTML, Markdown or JSON by its suffix."""
    renderers = {".html": render_html, ".md": render_markdown, ".json": render_json}
    if path.suffix not in renderers:
        raise SchemaError(f"a report is written to .html, .md or .json, got '{path}'.")
    refuse_existing(path, overwrite=overwrite)
    text = renderers[path.suffix](document)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def render_html(document: Document) -> str:
    """One page that needs nothing else: no script, no remote file."""
    from jinja2 import Environment
    from markupsafe import Markup

    folder = files("conddp.report")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(folder.joinpath("page.html.j2").read_text(encoding="utf-8"))
    numbers = count(1)
    sections = [
        {
            "title": section.title,
            "anchor": f"section-{place}",
            "blocks": [_html(b, numbers) for b in section.blocks],
        }
        for place, section in enumerate(document.sections, start=1)
    ]
    style = Markup(folder.joinpath("page.css").read_text(encoding="utf-8"))
    return template.render(document=document, sections=sections, style=style)


def _html(block: Block, numbers: Any) -> dict[str, Any]:
    """What the template needs of a block; text stays text and is escaped there."""
    from markupsafe import Markup

    kind = type(block).__name__.lower()
    if isinstance(block, Chart):
        legend = [
            {
                "key": Markup(_key(f'<line class="curve {name_style(place)}" x1="-9" x2="9" y1="0" y2="0"/>{marker}')),
                "name": each.name,
            }
            for place, each in enumerate(block.series)
            for marker in (render_marker(place, 0, 0) if len(block.x) <= MOST_MARKERS else "",)
        ]
        legend += [
            {"key": Markup(_key(f'<line class="reference r{place}" x1="-9" x2="9" y1="0" y2="0"/>')), "name": each.name}
            for place, each in enumerate(block.references)
        ]
        svg = Markup(render_chart(block, number=next(numbers)))
        return {"kind": kind, "chart": block, "svg": svg, "legend": legend, "table": block.as_table()}
    if isinstance(block, Bars):
        legend = [{"key": Markup(_key(drawn)), "name": name} for name, drawn in list_keys(block)]
        svg = Markup(render_bars(block, number=next(numbers)))
        return {"kind": "chart", "chart": block, "svg": svg, "legend": legend, "table": block.as_table()}
    if isinstance(block, Dots):
        drawn = Markup(render_dots(block, number=next(numbers)))
        return {"kind": kind, "chart": block, "svg": drawn, "table": block.as_table(), "legend": _list_marks()}
    if isinstance(block, Panels):
        drawn = Markup("".join(_draw_panels(block, numbers)))
        return {"kind": kind, "chart": block, "svg": drawn, "tables": block.as_tables()}
    if isinstance(block, Formula):
        return {
            "kind": kind,
            "formula": Markup(
                re.sub(r"\^(\S+)", lambda power: f"<sup>{power[1].replace('-', '−')}</sup>", escape(block.text))
            ),
        }
    if isinstance(block, Figure):
        image = b64encode(block.svg.encode()).decode("ascii")
        return {"kind": kind, "title": block.title, "address": f"data:image/svg+xml;base64,{image}"}
    return {"kind": kind, "block": block}


def _list_marks() -> list[dict[str, Any]]:
    """Legend of a forest plot."""
    from markupsafe import Markup

    bar = '<line class="bar s0" x1="-9" x2="9" y1="0" y2="0"/>'
    return [
        {
            "key": Markup(_key(bar + '<circle class="centre s0" cx="0" cy="0" r="3.5"/>')),
            "name": "estimate with its interval",
        },
        {"key": Markup(_key('<circle class="other" cx="0" cy="0" r="4.5"/>')), "name": "in the model, after shrinkage"},
    ]


def _draw_panels(block: Panels, numbers: Any) -> Iterator[str]:
    """The charts of a block, on a common scale."""
    curves = [each for each in block.panels if isinstance(each, Panel)]
    ends = [value for each in curves for value in (*each.low, *each.high)]
    span = (min(0.0, *ends), max(0.0, *ends)) if ends else (0.0, 0.0)
    maps = [each for each in block.panels if isinstance(each, HeatMap)]
    largest = max((abs(value) for each in maps for row in each.values for value in row), default=0.0)
    for each in block.panels:
        if isinstance(each, Panel):
            yield render_panel(each, span, number=next(numbers))
        else:
            yield render_heat_map(each, largest, number=next(numbers))


def _key(content: str) -> str:
    """A piece of a curve, for the legend."""
    return f'<svg class="key" viewBox="-9 -9 18 18" aria-hidden="true">{content}</svg>'


def render_markdown(document: Document) -> str:
    """The same content as Markdown: charts become tables."""
    parts = [f"# {_mark(document.title)}", _mark(document.lead)]
    for section in document.sections:
        parts.append(f"## {_mark(section.title)}")
        parts += [_markdown(block) for block in section.blocks]
    if document.footnote:
        parts.append(_mark(document.footnote))
    return "\n\n".join(parts) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Text):
        return (f"**{_mark(block.term)}**: " if block.term else "") + _mark(block.text)
    if isinstance(block, Bullets):
        return "\n".join(f"- {_mark(item)}" for item in block.items)
    if isinstance(block, Figure):
        return f"![{_mark(block.title)}]({block.file})"
    if isinstance(block, Formula):
        return f"    {block.text}"
    if isinstance(block, Facts):
        return "\n".join(f"- {_mark(name)}: {_mark(value)}" for name, value in block.facts)
    if isinstance(block, Panels):
        return "\n\n".join(map(_markdown, block.as_tables()))
    if isinstance(block, Bars | Chart | Dots):
        block = block.as_table()
    rule = "|" + "".join("---|" if place < block.num_text else "---:|" for place in range(len(block.heads)))
    lines = ["| " + " | ".join(_mark(cell) for cell in row) + " |" for row in block.rows]
    head = "| " + " | ".join(_mark(cell) for cell in block.heads) + " |"
    return "\n".join([f"{_mark(block.caption)}", "", head, rule, *lines])


def _mark(text: str) -> str:
    """Escape what Markdown would take for markup."""
    return re.sub(r"([\\`*_|<>\[\]#])", r"\\\1", " ".join(text.split()))


def render_json(document: Document) -> str:
    """The same content as JSON; numbers that are not finite become null."""

    def encode(section: Section) -> dict[str, Any]:
        return {
            "title": section.title,
            "blocks": [{"kind": type(block).__name__.lower(), **asdict(block)} for block in section.blocks],
        }

    content = {
        "conddp_report": 1,
        "title": document.title,
        "lead": document.lead,
        "sections": [encode(section) for section in document.sections],
        "footnote": document.footnote,
    }
    return json.dumps(_tidy(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _tidy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tidy(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tidy(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
