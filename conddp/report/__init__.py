"""Reports: a page about a fit, a plan, a comparison or audits, as HTML, Markdown or JSON."""

from conddp.report.audit import report_audits
from conddp.report.coefficients import report_summaries
from conddp.report.comparison import report_comparison
from conddp.report.evaluation import report_evaluation
from conddp.report.fit import report_fit
from conddp.report.plan import report_plan
from conddp.report.rendering import render_html, render_json, render_markdown, write_report

__all__ = [
    "render_html",
    "render_json",
    "render_markdown",
    "report_audits",
    "report_comparison",
    "report_evaluation",
    "report_fit",
    "report_plan",
    "report_summaries",
    "write_report",
]
