"""Evaluation of a saved model on the records of files. The command line calls it."""

from collections.abc import Sequence
from pathlib import Path

from conddp.data.readers import read_tables, require_names
from conddp.data.schema import Schema
from conddp.data.stored_table import list_files
from conddp.errors import SchemaError
from conddp.evaluation.overlap import warn_of_training_records
from conddp.evaluation.run import NUM_BINS, evaluate_model
from conddp.features.encoding import Encoding
from conddp.features.reading import read_records
from conddp.models.evaluation import Evaluation
from conddp.models.result import FitResult
from conddp.models.saving import load_model
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.randomness import RandomSource

__all__ = ["evaluate_file"]


def evaluate_file(
    model: Path,
    data: Path | Sequence[Path],
    *,
    epsilon: float,
    delta: float | None = None,
    ledger: Path | None = None,
    other_rows: bool = False,
    seed: int | None = None,
    num_bins: int = NUM_BINS,
    level: float = 0.95,
) -> tuple[FitResult, Evaluation]:
    """Evaluate a saved model on the records of files with its columns and its label, and return both.

    Privacy
        Costs (epsilon, delta) with respect to labels and private columns of these records, under the relation of the
        ledger or, without one, of the model. Columns, types and bounds are those of the model; no other column is read.
        If the records are the training records, by their public columns, a :class:`~conddp.errors.PrivacyWarning` says
        so.

    Parameters
    ----------
    model : Path
        Folder of a saved model.
    data : Path or sequence of Path
        The held-out records: files, or folders of Parquet files.
    epsilon : float
        Privacy budget.
    delta : float, optional
        That of the model if None.
    ledger : Path, optional
        A ledger file that pays. If None, these records have a ledger of their own.
    other_rows : bool
        Whether the ledger may be charged for other rows than those of earlier fits.
    seed : int, optional
        For research only.
    num_bins : int
        Largest number of bins of the calibration curve.
    level : float
        Level of the intervals.
    """
    paying = None if ledger is None else PrivacyLedger.load(ledger, other_rows=other_rows)
    saved = load_model(model)
    budget = PrivacyBudget(epsilon, saved.guarantee.delta if delta is None else delta)
    schema, encoding = saved.schema, saved.encoding or Encoding.plain(saved.schema.public)
    files = list_files([data] if isinstance(data, Path) else data)
    for path in files:
        _require(path, schema)
    private = {column.name: column.kind for column in schema.private_columns if column.kind is not None}
    table = read_tables(files, schema.names, kinds={**schema.kinds, **encoding.kinds, **private})
    records, _ = read_records(table, schema, encoding=encoding)
    warn_of_training_records(records, saved, stacklevel=3)
    evaluation = evaluate_model(
        saved,
        records,
        budget,
        ledger=paying,
        random_source=RandomSource.of(seed),
        num_bins=num_bins,
        level=level,
    )
    return saved, evaluation


def _require(path: Path, schema: Schema) -> None:
    """Raise unless a file has all columns of the model; if it is the label that is missing, say what it is for."""
    try:
        require_names(path, [*schema.public, *schema.private, *([] if schema.unit is None else [schema.unit])])
        others = None
    except SchemaError as error:
        others = error
    if others is None:
        try:
            require_names(path, [schema.label.name])
        except SchemaError as error:
            raise SchemaError(
                f"{str(error).rstrip('.')}. An evaluation compares predictions with the label '{schema.label.name}', "
                "so the held-out records must have it. Predictions alone need no label."
            ) from None
        return
    raise others
