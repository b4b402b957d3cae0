"""Library messages rewritten for the command line: options instead of arguments, commands instead of calls."""

import re

__all__ = ["name_options"]

# Pattern in a library message, and its replacement.
OPTIONS = (
    (r"\b([Nn]ame another (?:file|folder))(?! with)", r"\1 with --out"),
    (r"\bpass overwrite=True", "overwrite it with --force"),
    (r"\bName it in algorithms\b", "Try it with --algorithm"),
    (r"\bnum_workers=(\d+)", r"--workers \1"),
    (r"\bfetch_dataset\('(\w+)'\)", r"`conddp data fetch \1`"),
    (r"\bfetch_dataset\(name\)", "`conddp data fetch NAME`"),
    (r"\bPrivacyLedger\.load\(path, other_rows=True\)", "--other-rows"),
    (r"\bPrivacyLedger\.load\(path\)", "`conddp fit --ledger FILE`"),
)


def name_options(message: str) -> str:
    """Replace arguments and calls in a message by options and commands.

    Examples
    --------
    >>> name_options("'a.html' exists already. Name another file, or pass overwrite=True.")
    "'a.html' exists already. Name another file with --out, or overwrite it with --force."
    """
    for said, meant in OPTIONS:
        message = re.sub(said, meant, message)
    return message
