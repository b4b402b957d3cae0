"""Reports: a page about a fit, a plan or a comparison, as HTML, Markdown or JSON."""

from conddp.report.builders import report_comparison, report_fit, report_plan
from conddp.report.rendering import render_html, render_json, render_markdown, write_report

__all__ = [
    "render_html",
    "render_json",
    "render_markdown",
    "report_comparison",
    "report_fit",
    "report_plan",
    "write_report",
]
