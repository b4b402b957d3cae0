"""All reproduced results on one page: Markdown for the documentation, and an HTML report."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conddp.report.document import Block, Bullets, Document, Figure, Section, Table, Text
from conddp.research.experiments.claims import state_claims
from conddp.research.experiments.experiment import Experiment
from conddp.research.experiments.rows import Row
from conddp.research.experiments.tables import list_epsilons, list_sets, make_lines, render_markdown, show_epsilon

__all__ = ["ExperimentResults", "render_page_markdown", "report_reproduction"]

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

Predictions and test labels are clamped to the label's range. That moves test labels of ca_housing only, in the last
kind of line, from 5.00001 to the declared 5. RR-on-Bins is pure epsilon-DP under REPLACE and Weighted-LLP is stated
under REPLACE, so they have no line of the second kind; both run as published, without tuning."""
LINES = {"paper": "paper", "tuned": "ours, as the paper", "untuned": "ours, REPLACE, nothing tuned"}


@dataclass(frozen=True)
class ExperimentResults:
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
        """Data sets that were not measured."""
        remarks = []
        measured = list_sets(self.rows)
        for data in self.experiment.sets:
            if data not in measured:
                remarks.append(f"{data} is not at hand, so it was not measured.")
        return remarks

    @property
    def claims(self) -> tuple[str, ...]:
        """Data sets that were not measured, and how the results compare with the paper."""
        return (*self.remarks, *state_claims(self.experiment.name, self.rows))


def render_page_markdown(results: Sequence[ExperimentResults], spectra: str) -> str:
    """The page for the documentation."""
    parts = ["# Reproduction", INTRODUCTION]
    for each in results:
        parts.append(f"## {each.experiment.title}")
        parts.append(f"Made by {'; '.join(each.header)}.")
        parts.append("\n".join(f"- {claim}" for claim in each.claims))
        parts.append(f"![Test MSE against epsilon]({each.figure})")
        parts.append(render_markdown(each.rows).strip())
    if spectra:
        parts += ["## Spectra", "![Singular values](spectra.svg)", spectra.strip()]
    return "\n\n".join(part for part in parts if part) + "\n"


def report_reproduction(
    results: Sequence[ExperimentResults], figures: Mapping[str, str], spectra: str = ""
) -> Document:
    """The page as a report.

    Parameters
    ----------
    results : sequence of ExperimentResults
        What was measured.
    figures : mapping
        SVG text by file name.
    spectra : str
        The table about spectra, as Markdown; empty if there is none.
    """
    lead, *rest = INTRODUCTION.split("\n\n")
    first, _, more = lead.partition(". ")
    sections = [Section("How to read the tables", tuple(_read_paragraph(each) for each in (more, *rest)))]
    for each in results:
        title = each.experiment.title
        blocks: list[Block] = [Text(f"Made by {_drop_marks('; '.join(each.header))}.")]
        if each.claims:
            blocks.append(Bullets(each.claims))
        blocks.append(Figure(f"Test MSE against epsilon: {title}", figures[each.figure], each.figure))
        blocks += [_make_table(each.rows, data) for data in list_sets(each.rows)]
        sections.append(Section(title, tuple(blocks)))
    if spectra:
        figure = Figure("Singular values of the public columns", figures["spectra.svg"], "spectra.svg")
        sections.append(Section("Spectra", (figure, _read_table(spectra))))
    return Document("Reproduction", f"{_drop_marks(first)}.", tuple(sections))


def _make_table(rows: Sequence[Row], data: str) -> Table:
    first = next(row for row in rows if row.data == data)
    lines = list(make_lines(rows, data))
    return Table(
        f"{data}. Not private: least squares {first.optimum:.4g}, the mean alone {first.constant:.4g}.",
        ("method", "", *(f"epsilon {show_epsilon(epsilon)}" for epsilon in list_epsilons(rows))),
        tuple((line.method, LINES[line.kind], *(f"{mse}\n{ratio}" for mse, ratio in line.cells)) for line in lines),
        num_text=2,
        highlighted=tuple(place for place, line in enumerate(lines) if line.kind == "untuned"),
    )


def _read_table(markdown: str) -> Table:
    """A table from its Markdown."""
    heads, _, *rows = (
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in markdown.strip().splitlines()
    )
    return Table("Public columns of the training part, as they are", heads, tuple(rows))


def _read_paragraph(markdown: str) -> Text:
    """A paragraph from its Markdown; a term in bold at its start is what it explains."""
    match = re.fullmatch(r"\*\*(.+?)\*\*: (.*)", markdown, re.DOTALL)
    return Text(_drop_marks(match[2]), match[1]) if match else Text(_drop_marks(markdown))


def _drop_marks(markdown: str) -> str:
    """Text without line breaks and marks for code."""
    return " ".join(markdown.replace("`", "").split())
