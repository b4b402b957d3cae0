"""The report of audits."""

from collections.abc import Mapping, Sequence

from conddp.auditing.result import Audit
from conddp.report.document import Block, Bullets, Document, Section, Table, Text, show

__all__ = ["report_audits"]

NO_LABEL = "All labels and private columns were simulated for this page; none was read."
KINDS = {
    "white-box": (
        "Neighbouring data sets were fitted with the same released numbers. The lower bound is the epsilon of the pair "
        "that was easiest to tell apart, with the noise that was really drawn."
    ),
    "black-box": (
        "Two neighbouring data sets were fitted many times, and the released models told apart. The lower bound "
        "follows from the error rates on fits that had no part in choosing the test."
    ),
    "one-run": (
        "The labels of canaries were decided by fair coins, and the coins guessed from one released model. The lower "
        "bound follows from the number of right guesses."
    ),
}


def report_audits(audits: Sequence[Audit], skipped: Mapping[str, str] | None = None) -> Document:
    """Report of audits, and of algorithms that could not be audited."""
    failed = [audit for audit in audits if not audit.passed]
    summary = f"{len(audits) - len(failed)} of {len(audits)} claims hold against what could be shown."
    if failed:
        names = ", ".join(dict.fromkeys(audit.algorithm for audit in failed))
        summary = f"The claims of {names} are contradicted. {summary}"
    rows = tuple(
        (
            audit.algorithm,
            audit.kind,
            audit.verdict,
            show(audit.claim.epsilon),
            f"{audit.claim.delta:g}",
            show(audit.lower_bound),
            f"{audit.num_fits:,}",
            show(audit.seconds),
        )
        for audit in audits
    )
    heads = ("algorithm", "kind", "verdict", "claimed epsilon", "delta", "lower bound", "fits", "seconds")
    marked = tuple(number for number, audit in enumerate(audits) if not audit.passed)
    blocks: list[Block] = [Text(text) for kind, text in KINDS.items() if any(each.kind == kind for each in audits)]
    blocks.append(Table("Claims and lower bounds under replacement", heads, rows, num_text=3, highlighted=marked))
    if audits:
        confidence = min(audit.confidence for audit in audits)
        blocks.append(
            Text(
                f"Bounds hold with confidence {confidence:g}. A claim that holds is not proved: a better audit might "
                "show more."
            )
        )
    findings = tuple(f"{audit.algorithm}: {each}" for audit in audits for each in audit.findings)
    if findings:
        blocks.append(Bullets(findings))
    if skipped:
        blocks.append(Table("Not audited", ("algorithm", "why"), tuple(skipped.items()), num_text=2))
    return Document("Audit of privacy claims", summary, (Section("Audits", tuple(blocks)),), NO_LABEL)
