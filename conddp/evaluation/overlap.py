"""Whether a model is evaluated on the records that it was trained on."""

import warnings

from conddp.data.records import Records
from conddp.errors import PrivacyWarning
from conddp.models.result import FitResult
from conddp.theory.design import Design

__all__ = ["warn_of_training_records"]


def warn_of_training_records(records: Records, result: FitResult, *, stacklevel: int) -> None:
    """Warn if public columns show that these are the records of the fit.

    Privacy
        Reads public columns only.

    Parameters
    ----------
    records : Records
        Records for an evaluation.
    result : FitResult
        The model.
    stacklevel : int
        As in ``warnings.warn``.
    """
    if _is_training_table(records, result):
        warnings.warn(
            "these look like the records that the model was trained on. The figures are then too good, and the costs "
            "of the fit and of the evaluation add up: charge both to one ledger.",
            PrivacyWarning,
            stacklevel=stacklevel,
        )


def _is_training_table(records: Records, result: FitResult) -> bool:
    tables = [entry.table for entry in result.ledger.entries if entry.table is not None and entry.side is None]
    if any(table.matches(records.fingerprint) for table in tables):
        return True
    if result.design is None or records.num_records != result.guarantee.num_records:
        return False
    return Design.of(records.public.keep_moments()).deviations == result.design.deviations
