"""Everything that was reproduced, on one page: Markdown for the documentation, HTML to look at."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conddp.research.experiments.claims import state_claims
from conddp.research.experiments.experiment import Experiment
from conddp.research.experiments.rows import Row
from conddp.research.experiments.tables import (
    KIND_NAMES,
    list_epsilons,
    list_sets,
    make_lines,
    render_markdown,
    show_epsilon,
)

__all__ = ["Section", "render_html", "render_page_markdown"]

INTRODUCTION = """Every table of the paper "Private Learning with Public Feature Conditioning" that can be measured with
data at hand, beside its printed numbers. Each cell is a mean over five runs (two with `--quick`) on one split
(train_test_split with test_size=0.2 and random_state=42), with its standard deviation, in the paper's units of the
label; delta is 1e-6. Below it is the ratio to a non-private optimum. There are up to three lines per method:

**Paper**: as printed; ratio to the lowest of its own cells without privacy.

**Ours, as the paper**: ZERO_OUT accounting (a record against nothing). Learning rate, clip norm, initial scale and
switching epoch are tuned on the test loss for every cell, which no user could do in private. No intercept and columns
as they are, as far as the paper's set-up could be recovered; for MLP models it could not, and without conditioning
columns are standardized (supercond, wave) or divided by their root mean square (toms_hardware). Runs of one cell
differ in noise and initial weights; with Poisson samples they share the samples. Ratio to least squares on the same
columns, or for MLP models to the lowest of our own cells without privacy.

**Ours, REPLACE, nothing tuned**: the default settings of this package under the stronger relation, with declared
label bounds and an intercept. Ratio to least squares with intercept, or for MLP models as above.

Predictions are clamped to the label's range, test labels are not. RR-on-Bins is pure epsilon-DP under REPLACE and
Weighted-LLP is stated under REPLACE, so they have no line of the second kind; both run as published, without tuning."""


@dataclass(frozen=True)
class Section:
    """An experiment with its rows.

    Parameters
    ----------
    experiment : Experiment
        The declaration.
    rows : tuple of Row
        The results.
    header : tuple of str
        Command, date and machine.
    figure : str
        File name of the figure.
    """

    experiment: Experiment
    rows: tuple[Row, ...]
    header: tuple[str, ...]
    figure: str

    @property
    def remarks(self) -> list[str]:
        """What is absent."""
        remarks = []
        measured = list_sets(self.rows)
        for data in self.experiment.sets:
            if data not in measured:
                remarks.append(f"{data} is not at hand, so it was not measured.")
        return remarks


def render_page_markdown(sections: Sequence[Section], spectra: str) -> str:
    """The page for the documentation."""
    parts = ["# Reproduction", INTRODUCTION]
    for section in sections:
        parts.append(f"## {section.experiment.title}")
        parts.append(f"Made by {'; '.join(section.header)}.")
        claims = (*section.remarks, *state_claims(section.experiment.name, section.rows))
        parts.append("\n".join(f"- {claim}" for claim in claims))
        parts.append(f"![Test MSE against epsilon]({section.figure})")
        parts.append(render_markdown(section.rows).strip())
    if spectra:
        parts += ["## Spectra", "![Singular values](spectra.svg)", spectra.strip()]
    return "\n\n".join(part for part in parts if part) + "\n"


def render_html(sections: Sequence[Section], figures: Mapping[str, str], spectra: str = "") -> str:
    """The page to look at: self-contained, with figures inside."""
    body = ["<h1>Reproduction</h1>"]
    body += [f"<p>{_emphasize(paragraph)}</p>" for paragraph in INTRODUCTION.split("\n\n")]
    for section in sections:
        claims = (*section.remarks, *state_claims(section.experiment.name, section.rows))
        title = html.escape(section.experiment.title)
        body.append(f'<section aria-label="{title}"><h2>{title}</h2>')
        body.append(f"<p class='made'>Made by {_emphasize('; '.join(section.header))}.</p>")
        if claims:
            body.append("<ul>" + "".join(f"<li>{html.escape(claim)}</li>" for claim in claims) + "</ul>")
        body.append(
            f"<figure role='img' aria-label='Test MSE against epsilon, {title}'>{figures[section.figure]}</figure>"
        )
        body += [_render_table(section.rows, data) for data in list_sets(section.rows)]
        body.append("</section>")
    if spectra:
        body.append(f"<section aria-label='Spectra'><h2>Spectra</h2><figure>{figures['spectra.svg']}</figure>")
        body.append(_render_pipes(spectra) + "</section>")
    return PAGE.replace("{body}", "\n".join(body))


def _render_table(rows: Sequence[Row], data: str) -> str:
    first = next(row for row in rows if row.data == data)
    heads = "".join(f"<th scope='col'>{show_epsilon(epsilon)}</th>" for epsilon in list_epsilons(rows))
    lines = []
    for line in make_lines(rows, data):
        cells = "".join(
            f"<td>{html.escape(mse)}<br><b>{ratio}</b></td>" if mse else "<td></td>" for mse, ratio in line.cells
        )
        head = f"<th scope='row'>{html.escape(line.method)}<br><small>{html.escape(KIND_NAMES[line.kind])}</small></th>"
        lines.append(f"<tr class='{line.kind}'>{head}{cells}</tr>")
    caption = f"{data}. Not private: least squares {first.optimum:.4g}, the mean alone {first.constant:.4g}."
    return (
        f"<div class='wide'><table><caption>{html.escape(caption)}</caption>"
        f"<thead><tr><th scope='col'>epsilon</th>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _render_pipes(markdown: str) -> str:
    """A Markdown table as HTML."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.strip().splitlines()]
    head = "".join(f"<th scope='col'>{html.escape(cell)}</th>" for cell in lines[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in lines[2:])
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _emphasize(text: str) -> str:
    """Escape, and turn Markdown's marks for bold text and code into HTML."""
    text = html.escape(text)
    for mark, tag in (("**", "b"), ("`", "code")):
        pieces = text.split(mark)
        text = "".join(f"<{tag}>{piece}</{tag}>" if number % 2 else piece for number, piece in enumerate(pieces))
    return text


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Reproduction - conddp</title>
<style>
:root { color-scheme: light dark; --ink: #1c1917; --paper: #fff; --line: #d6d3d1; --soft: #57534e; --tint: #ecfdf5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7e5e4; --paper: #1c1917; --line: #44403c; --soft: #a8a29e; --tint: #064e3b; }
  figure svg { background: #fff; border-radius: 6px; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0; }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem; }
p, li { max-width: 50rem; }
.made, small, caption { color: var(--soft); }
.wide { overflow-x: auto; margin: 1rem 0 2rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .4rem 0; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
th[scope=row], th:first-child, td:first-child { text-align: left; font-weight: 600; }
tr.untuned { background: var(--tint); }
small { font-weight: 400; }
figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; }
@media print { main { max-width: none; } .wide { overflow: visible; } section { break-before: page; } }
</style>
</head>
<body><main>
{body}
</main></body>
</html>
"""
