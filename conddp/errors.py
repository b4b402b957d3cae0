"""What can go wrong, as one tree.

::

    CondDPError
    ├── SchemaError             (ValueError)  columns, roles, bounds or values are not what was declared
    ├── PrivacyError
    │   ├── BudgetExceeded      (ValueError)  the ledger has not enough left
    │   ├── PrivateDataLeak     (TypeError)   private data were given where only public data may go
    │   └── NotCalibrated       (ValueError)  no noise multiplier can give the requested guarantee
    ├── LedgerError             (ValueError)  the ledger file is damaged, or from a newer version
    ├── saving.ModelFileError   (ValueError)  a saved model is damaged, from a newer version, or in the way
    ├── datasets.DatasetNotFound (FileNotFoundError), datasets.DatasetDamaged (ValueError)
    ├── fetching.FetchFailed    (OSError)
    ├── MissingExtra            (ImportError) a package is needed that comes with an extra
    ├── runner.WorkerDied       (RuntimeError)
    └── experiments.reproduce.NothingAtHand (FileNotFoundError)

Messages name columns and settings, never a label, a private cell, a row number or a count that depends on them.
"""

from importlib.util import find_spec

__all__ = [
    "BudgetExceeded",
    "CondDPError",
    "LedgerError",
    "MissingExtra",
    "NotCalibrated",
    "PrivacyError",
    "PrivateDataLeak",
    "SchemaError",
    "require_package",
]


class CondDPError(Exception):
    """Anything that conddp refuses to do."""


class SchemaError(CondDPError, ValueError):
    """Columns, roles, bounds or values are not what was declared."""


class PrivacyError(CondDPError):
    """Going on would break, or could not give, the guarantee."""


class BudgetExceeded(PrivacyError, ValueError):  # noqa: N818  (reads as what happened)
    """The ledger has less left than the work needs."""


class PrivateDataLeak(PrivacyError, TypeError):  # noqa: N818  (reads as what happened)
    """Private data were given to a function that must not see them."""


class NotCalibrated(PrivacyError, ValueError):  # noqa: N818  (reads as what happened)
    """No noise multiplier within reach gives the requested guarantee."""


class MissingExtra(CondDPError, ImportError):  # noqa: N818  (reads as what happened)
    """A package is needed that is not installed; it comes with an extra."""


def require_package(package: str, *, extra: str, purpose: str) -> None:
    """Raise unless a package is installed; to be called before hours of work, not after them."""
    if find_spec(package) is None:
        raise MissingExtra(f"{purpose} needs {package}, which comes with the extra conddp[{extra}].")


class LedgerError(CondDPError, ValueError):
    """A ledger file cannot be read or may not be written."""
