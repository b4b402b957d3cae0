"""Library messages rewritten for the command line: options instead of arguments, commands instead of calls."""

import re
from collections.abc import Callable

__all__ = ["name_options"]

HEADS = {
    "AutoHead": "auto",
    "Additive": "additive",
    "Embeddings": "embeddings",
    "FactorizationMachine": "fm",
    "Learned": "learned",
    "Linear": "linear",
    "MLP": "mlp",
    "Wide": "wide",
}
ALGORITHMS = {
    "CondNewton": "cond-newton",
    "CondDP": "cond-dp",
    "SwitchCondDP": "switch-cond-dp",
    "DPSGD": "dpsgd",
    "OneShot": "one-shot",
    "RROnBins": "rr-on-bins",
    "WeightedLLP": "weighted-llp",
    "PrivateMean": "mean",
    "NonPrivate": "non-private",
}
# Pattern in a library message, and its replacement.
OPTIONS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\b([Nn]ame another (?:file|folder))(?! with)", r"\1 with --out"),
    (r"set missing_labels='public'", 'write missing = "public" under [label] in a schema file'),
    (r"\bpass overwrite=True", "overwrite it with --force"),
    (r"\bName it in algorithms, or 'all'", "Name it with --algorithm, or pass --algorithm all"),
    (r"\bname what to try in algorithms\b", "name what to try with --algorithm"),
    (r"\bPlan with the head 'wide'", "Plan with --head wide"),
    (r"\bhead=(\w+)\((?:[^()]|\([^()]*\))*\)", lambda found: f"--head {HEADS.get(found[1], found[1])}"),
    (r"\bpass ledger=PrivacyLedger\(budget\) to every fit", "charge every fit to one ledger with --ledger FILE"),
    (r"\bLower num_steps or raise epsilon\b", "Raise --epsilon"),
    (r"\bGive \(low, high\)", "Give [low, high]"),
    (r"\bnum_workers=(\d+)", r"--workers \1"),
    (r"\bevaluation_fraction(=|\b)", lambda found: f"--evaluation-fraction{' ' if found[1] else ''}"),
    (r"\bfetch_dataset\('(\w+)'\)", r"`conddp data fetch \1`"),
    (r"\bfetch_dataset\(name\)", "`conddp data fetch NAME`"),
    (r"\bconvert_criteo\('([^']*)', folder\)", r"`conddp data convert criteo '\1' --out FOLDER`"),
    (r"\bconvert_criteo\(log, folder\)", "`conddp data convert criteo LOG --out FOLDER`"),
    (r"\bwrite_simulation\(folder, num_rows\)", "`conddp data simulate criteo --out FOLDER`"),
    (r"\bdescribe_dataset\('(\w+)'\)", r"`conddp data show \1`"),
    (r"\b([Aa]llow more)\b", r"\1 with --max-damaged"),
    (r"\bmax_damaged=", "--max-damaged "),
    (r"\bPrivacyLedger\.load\(path, other_rows=True\)", "--other-rows"),
    (r"\bPrivacyLedger\.load\(path\)", "`conddp fit --ledger FILE`"),
    (rf"\b({'|'.join(ALGORITHMS)})\b", lambda found: ALGORITHMS[found[1]]),
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
