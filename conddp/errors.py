"""Exceptions of conddp, as one tree.

::

    CondDPError
    ├── SchemaError             (ValueError)  columns, roles, bounds or values are not what was declared
    ├── OutputExists            (FileExistsError) the file to write exists, and overwriting was not asked for
    ├── PrivacyError
    │   ├── BudgetExceeded      (ValueError)  the cost exceeds the remaining budget of the ledger
    │   ├── PrivateDataLeak     (TypeError)   private data were passed where only public data are allowed
    │   └── NotCalibrated       (ValueError)  no noise multiplier can give the requested guarantee
    ├── CheckpointError         (ValueError)  a checkpoint is damaged, or belongs to another fit
    ├── LedgerError             (ValueError)  the ledger file is damaged, changed, read-only, or of another table
    ├── RankMismatch            (ValueError)  processes that share a fit have different records, settings or versions
    ├── RankLost                (RuntimeError) a process of a fit on several processes has ended or does not answer
    ├── saving.ModelFileError   (ValueError)  a saved model is damaged, from a newer version, or exists already
    ├── datasets.DatasetNotFound (FileNotFoundError), datasets.DatasetDamaged (ValueError)
    ├── fetching.FetchFailed    (OSError)
    ├── MissingExtra            (ImportError) a required package from an optional extra is not installed
    ├── tasks.PassFailed        (RuntimeError) the function of a pass cannot be sent to workers, or failed there
    ├── tasks.WorkerDied        (RuntimeError) a worker process ended before its work was done
    ├── dask.ClusterError       (ConnectionError) a cluster cannot be reached, or has no usable workers
    └── experiments.reproduce.NothingAtHand (FileNotFoundError)

    PrivacyWarning              (UserWarning) a use that is allowed, but weakens privacy or is not covered

Messages name columns and settings. They never contain a label, a private cell, a row number or a count that depends on
private values.
"""

from importlib.util import find_spec
from pathlib import Path

__all__ = [
    "BudgetExceeded",
    "CheckpointError",
    "CondDPError",
    "LedgerError",
    "MissingExtra",
    "NotCalibrated",
    "OutputExists",
    "PrivacyError",
    "PrivacyWarning",
    "PrivateDataLeak",
    "RankLost",
    "RankMismatch",
    "SchemaError",
    "refuse_existing",
    "require_package",
]


class CondDPError(Exception):
    """Base class of all exceptions of conddp."""


class SchemaError(CondDPError, ValueError):
    """Columns, roles, bounds or values are not what was declared."""


class OutputExists(CondDPError, FileExistsError):  # noqa: N818  (reads as what happened)
    """The file to write exists already."""


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise if a file exists and may not be overwritten, or is a folder. Call this before long computations."""
    if path.is_dir():
        raise OutputExists(f"'{path}' is a folder. Name another file.")
    if path.exists() and not overwrite:
        raise OutputExists(f"'{path}' exists already. Name another file, or pass overwrite=True.")


class PrivacyError(CondDPError):
    """Continuing would break the privacy guarantee, or no guarantee can be given."""


class PrivacyWarning(UserWarning):
    """A use of the library that is allowed, but weakens privacy or is not covered by the guarantee of a fit."""


class BudgetExceeded(PrivacyError, ValueError):  # noqa: N818  (reads as what happened)
    """The cost exceeds the remaining budget of the ledger."""


class PrivateDataLeak(PrivacyError, TypeError):  # noqa: N818  (reads as what happened)
    """Private data were passed to a function that accepts public data only."""


class NotCalibrated(PrivacyError, ValueError):  # noqa: N818  (reads as what happened)
    """No noise multiplier in the search range gives the requested guarantee."""


class MissingExtra(CondDPError, ImportError):  # noqa: N818  (reads as what happened)
    """A required package from an optional extra is not installed."""


def require_package(package: str, *, extra: str, purpose: str) -> None:
    """Raise unless a package is installed. Call this before long computations."""
    if find_spec(package) is None:
        raise MissingExtra(f"{purpose} needs {package}, which comes with the extra conddp[{extra}].")


class CheckpointError(CondDPError, ValueError):
    """A checkpoint cannot be read or written, or belongs to another fit."""


class LedgerError(CondDPError, ValueError):
    """A ledger cannot be read or written, was changed, or belongs to another table."""


class RankMismatch(CondDPError, ValueError):  # noqa: N818  (reads as what happened)
    """Processes that share a fit have different records, settings or versions. Nothing is spent."""


class RankLost(CondDPError, RuntimeError):  # noqa: N818  (reads as what happened)
    """A process that takes part in a fit has ended, failed or does not answer."""
