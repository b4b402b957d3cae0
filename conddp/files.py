"""Functions from file to file: plan, compare, audit, predict and report. The command line calls them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.request import FitRequest
from conddp.data.column import Kind
from conddp.data.parts import PublicFeatures, as_column
from conddp.data.passes import get_executor, run_in_order, use_executor
from conddp.data.readers import list_failures, read_tables, require_names, stream_table
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.data.stored_table import list_files
from conddp.data.tasks import count_cores
from conddp.data.units import Units
from conddp.data.writers import WRITERS, replace_when_done
from conddp.errors import SchemaError, refuse_existing
from conddp.execution import open_executor
from conddp.features.encoding import Encoding
from conddp.features.reading import read_public, read_records
from conddp.features.stored_norms import use_scratch
from conddp.features.stored_reading import fits_into_memory, open_records
from conddp.models.result import FitResult
from conddp.models.saving import check_folder, load_model, save_model
from conddp.planning.comparison import Comparison, compare_algorithms
from conddp.planning.plan import Plan, make_plan
from conddp.planning.storage import load_record
from conddp.privacy.ledger import PrivacyLedger
from conddp.report import report_comparison, report_fit, report_plan, write_report
from conddp.theory.design import Design
from conddp.training.loop import StepCounter
from conddp.training.ranks import get_ranks

__all__ = [
    "compare_file",
    "fit_file",
    "load_audit_table",
    "load_public",
    "load_records",
    "load_units",
    "plan_file",
    "predict_file",
    "report_file",
]


def plan_file(data: Path | Sequence[Path], schema: Schema, **settings: Any) -> Plan:
    """Plan a fit to a Parquet or CSV file, or to several files, whose public columns are read into memory.

    Privacy
        Reads the public columns and the unit column of the file, and nothing else: no cost.

    Parameters
    ----------
    data : Path or sequence of Path
        The table.
    schema : Schema
        Roles and bounds of its columns.
    **settings
        As in :func:`~conddp.planning.plan.make_plan`.
    """
    public, encoding, simulate_from = _load_for_head(data, schema, **settings)
    units = load_units(data, schema)
    return make_plan(public, schema, units=units, encoding=encoding, simulate_from=simulate_from, **settings)


def compare_file(data: Path | Sequence[Path], schema: Schema, **settings: Any) -> Comparison:
    """Compare algorithms on labels simulated from the public columns of a Parquet or CSV file, or of several files.

    Privacy
        Reads the public columns and the unit column of the file, and nothing else: no cost.

    Parameters
    ----------
    data : Path or sequence of Path
        The table.
    schema : Schema
        Roles and bounds of its columns.
    **settings
        As in :func:`~conddp.planning.comparison.compare_algorithms`.
    """
    private = dict(zip(schema.private, schema.private_domains, strict=True))
    units = load_units(data, schema)
    public, _, simulate_from = _load_for_head(data, schema, **settings)
    return compare_algorithms(public, private=private, units=units, simulate_from=simulate_from, **settings)


def _load_for_head(
    data: Path | Sequence[Path], schema: Schema, *, head: str = "linear", **_: Any
) -> tuple[PublicFeatures, Encoding, PublicFeatures | None]:
    """Load public columns as a fit of this head does; if it takes bins of categories, also with indicators."""
    request = FitRequest(head=head)
    public, encoding = load_public(data, schema, splines=request.splines, num_bins=request.num_bins)
    return public, encoding, None if request.num_bins is None else load_public(data, schema)[0]


def load_audit_table(data: Path, schema: Schema) -> dict[str, Any]:
    """Load what an audit needs of a Parquet or CSV file.

    Privacy
        Reads the public columns of the file and nothing else: no cost.

    Parameters
    ----------
    data : Path
        The table.
    schema : Schema
        Roles and bounds of its columns.

    Returns
    -------
    dict
        Arguments of :func:`~conddp.auditing.audit.audit_algorithm`: public columns and declared bounds.
    """
    if schema.unit is not None:
        raise SchemaError("audits are for single records. Leave [unit] out of the schema to audit an algorithm.")
    private = dict(zip(schema.private, schema.private_domains, strict=True))
    return {"public": load_public(data, schema)[0], "label_bounds": schema.label_bounds, "private": private}


def fit_file(
    data: Path | Sequence[Path],
    schema: Schema,
    out: Path,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    algorithm: str = "auto",
    head: str = "auto",
    ledger: Path | None = None,
    other_rows: bool = False,
    seed: int | None = None,
    checkpoint: Path | None = None,
    evaluation_fraction: float | None = None,
    show_step: Callable[[int, int], None] | None = None,
    show_work: Callable[[float, int, str], None] | None = None,
    num_workers: int | None = None,
    cluster: str | None = None,
    scratch: Path | None = None,
) -> FitResult:
    """Train a model on a Parquet or CSV file, or on several files with the same columns, and save it.

    Parquet files with more than 8 million cells are read block by block, as often as the algorithm needs, and never as
    a whole (:func:`~conddp.features.stored_reading.open_records`). So are smaller ones if a cluster is named.

    Privacy
        One fit that costs (epsilon, delta) under the relation of the ledger, REPLACE if there is none, recorded before
        private columns are used. Settings, the folder and the ledger are checked before the file is opened. On several
        ranks (:mod:`conddp.distributed`), rank 0 alone writes.

    Parameters
    ----------
    data : Path or sequence of Path
        The table: files, or folders of Parquet files.
    schema : Schema
        Roles and bounds of its columns; no other column is read.
    out : Path
        Folder for the model, which must not exist.
    epsilon, delta : float
        Budget of the fit.
    algorithm, head : str
        By name, as in :class:`~conddp.estimators.PrivateRegressor`.
    ledger : Path, optional
        A ledger file that pays; a ledger with just this budget if None.
    other_rows : bool
        Whether the ledger may be charged for other rows of the same people's data than those of earlier fits.
    seed : int, optional
        For research only.
    checkpoint : Path, optional
        File that keeps what is released while the fit runs, and is deleted when the model is saved. If it exists, the
        interrupted fit goes on at no further cost.
    evaluation_fraction : float, optional
        Fraction of the records that are held out to evaluate the model, with the same budget.
    show_step : callable, optional
        Called with the number of noisy steps done and their total number. It sees nothing that is released.
    show_work : callable, optional
        Called during long computations between steps, as in :class:`~conddp.training.loop.StepCounter`.
    num_workers, cluster
        Where passes over a table that is read block by block run, as in :func:`~conddp.execution.open_executor`. By
        default on the executor that :func:`~conddp.data.passes.use_executor` has set, or else on one process per core.
    scratch : Path, optional
        Folder for temporary files, which hold numbers computed from public columns.
    """
    paying = None if ledger is None else PrivacyLedger.load(ledger, other_rows=other_rows)
    request = FitRequest(
        *(epsilon, delta, algorithm, head),
        random_state=seed,
        ledger=paying,
        checkpoint=checkpoint,
        evaluation_fraction=evaluation_fraction,
    )
    check_folder(out)
    files = _list(data)
    with ExitStack() as stack:
        stack.enter_context(use_scratch(scratch))
        in_blocks = _is_stored(files, schema, small=cluster is not None)
        if in_blocks:
            if num_workers is not None or cluster is not None or get_executor() is run_in_order:
                workers = num_workers if num_workers is not None or cluster is not None else count_cores()
                stack.enter_context(use_executor(stack.enter_context(open_executor(workers, cluster))))
        elif cluster is not None:
            raise SchemaError(
                "a cluster is for tables that are read block by block: .parquet files without private columns and "
                "units."
            )
        records, encoding = load_records(
            files, schema, splines=request.splines, num_bins=request.num_bins, small=in_blocks
        )
        # Now: what fails after the fit fails when budget has been spent.
        training, held_out = request.divide(records)
        design = Design.of(training.arrange().public.keep_moments())
        result = request.run(
            training,
            held_out=held_out,
            callback=None if show_step is None else StepCounter(show_step, show_work),
            deliver=lambda result: save_model(out, replace(result, design=design, encoding=encoding)),
        )
    ranks = get_ranks()
    if ranks is not None and ranks.rank > 0:
        return replace(result, design=design, encoding=encoding)
    return load_model(out)


def load_records(
    data: Path | Sequence[Path],
    schema: Schema,
    *,
    splines: bool = True,
    num_bins: int | None = None,
    small: bool = False,
) -> tuple[Records, Encoding]:
    """Load records from files, with the encoding of their public columns.

    Large Parquet files are only opened; their records are read when they are needed. With units or private columns all
    records are read into memory.

    Parameters
    ----------
    data : Path or sequence of Path
        The table.
    schema : Schema
        Roles and bounds of its columns.
    splines : bool
        Whether numbers of a large table get piecewise linear features.
    num_bins : int, optional
        Number of bins that categories are hashed into, for heads that look them up.
    small : bool
        Whether small Parquet files are only opened too.
    """
    files = _list(data)
    if _is_stored(files, schema, small=small):
        return open_records(files, schema, splines=splines, num_bins=num_bins)
    table = read_tables(files, schema.names, kinds=_list_kinds(schema))
    return read_records(table, schema, splines=splines, num_bins=num_bins)


def _list(data: Path | Sequence[Path]) -> list[Path]:
    return list_files([data] if isinstance(data, Path) else data)


def _is_stored(files: Sequence[Path], schema: Schema, *, small: bool) -> bool:
    """Whether a table is read block by block rather than into memory."""
    if schema.unit is not None or schema.private or any(path.suffix.lower() != ".parquet" for path in files):
        return False
    return small or not fits_into_memory(files, schema)


def load_public(
    data: Path | Sequence[Path], schema: Schema, *, splines: bool = True, num_bins: int | None = None
) -> tuple[PublicFeatures, Encoding]:
    """Load the public columns of a Parquet or CSV file as features, with their encoding, as :func:`load_records` does.

    Privacy
        Cells of the label and of private columns are not decoded, but the file must contain these columns. If the
        schema declares that everyone may know which labels are missing, this is read, and these records are left out.
    """
    if not schema.public:
        raise SchemaError("the schema has no public column, so there is nothing to read at no privacy cost.")
    # If the name of the label is misspelt, the label itself could be declared a public column.
    for path in _list(data):
        require_names(path, schema.names)
    table = read_public(read_tables(_list(data), schema.public, kinds=schema.kinds), schema)
    labelled = _find_labelled(data, schema)
    table = table if labelled is None else table[labelled]
    encoding = Encoding.of(table, splines=splines, num_bins=num_bins)
    return encoding.transform(table), encoding


def load_units(data: Path | Sequence[Path], schema: Schema) -> Units | None:
    """Load the unit column of a Parquet or CSV file, which is public; None if the schema has no unit."""
    if schema.unit is None:
        return None
    column = read_tables(_list(data), [schema.unit])[schema.unit]
    units, labelled = Units.of(column, name=schema.unit, max_rows=schema.max_rows), _find_labelled(data, schema)
    return units if labelled is None else units[labelled]


def _find_labelled(data: Path | Sequence[Path], schema: Schema) -> NDArray[np.intp] | None:
    """Positions of the records whose label is not missing, if that is public; None if it is not, or none is missing."""
    if not schema.label.missing_is_public:
        return None
    label = nw.from_native(read_tables(_list(data), [schema.label.name]), eager_only=True)[schema.label.name]
    kept = ~np.isnan(as_column(label, what=f"label '{schema.label.name}'", finite=False, gaps=True))
    return None if kept.all() else np.flatnonzero(kept)


def _list_kinds(schema: Schema, encoding: Encoding | None = None) -> dict[str, Kind]:
    """Kinds of all columns whose kind is declared or known from training."""
    private = {column.name: column.kind for column in schema.private_columns if column.kind is not None}
    return {**schema.kinds, **({} if encoding is None else encoding.kinds), **private}


def predict_file(
    model: Path, data: Path | Sequence[Path], out: Path, *, keep: Sequence[str] = (), overwrite: bool = False
) -> int:
    """Write predictions for the records of files, in their order; returns how many there are.

    Files are read, and predictions are written, piece by piece, so they may be larger than memory. Columns are read by
    name, in any order. The column of predictions is named after the label, ``<label>_predicted``.

    Privacy
        The model is released: no cost. Private columns of new records are read to predict for them, and the predictions
        depend on them.

    Parameters
    ----------
    model : Path
        Folder of a saved model.
    data : Path or sequence of Path
        The new records: files, or folders of Parquet files.
    out : Path
        The file to write, Parquet or CSV by its suffix.
    keep : sequence of str
        Columns of the new records to copy to the output, such as a customer number.
    overwrite : bool
        Whether to replace an existing file.
    """
    if out.suffix not in WRITERS:
        raise SchemaError(f"predictions are written to .parquet or .csv, got '{out}'.")
    refuse_existing(out, overwrite=overwrite)
    saved = load_model(model)
    target = f"{saved.schema.label.name}_predicted"
    if target in keep:
        raise SchemaError(f"column '{target}' cannot be kept, because the predictions have this name.")
    features = [*saved.schema.public, *saved.schema.private]
    names = list(dict.fromkeys([*keep, *features]))
    kinds = _list_kinds(saved.schema, saved.encoding)
    out.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with replace_when_done(out) as temporary, ExitStack() as stack:
        writer = None
        files = _list(data)
        for piece in chain.from_iterable(stream_table(path, names, kinds=kinds) for path in files):
            if not len(piece):
                continue
            predictions = saved.predict_table(piece)
            written = piece.select(list(keep)).append_column(target, [predictions])
            if writer is None:
                schema = written.schema.remove_metadata()
                writer = stack.enter_context(WRITERS[out.suffix](temporary, schema))
            writer.write_table(_cast(written, schema))
            count += len(predictions)
        if writer is None:
            raise SchemaError("the table has no rows.")
    return count


def _cast(table: Any, schema: Any) -> Any:
    """Predictions and kept columns with the types of the first file."""
    cast = None
    try:
        cast = table.cast(schema)
    except list_failures():
        pass
    if cast is None:
        raise SchemaError("a column that is kept has types that do not go together in different files.")
    return cast


def report_file(
    source: Path,
    out: Path,
    *,
    plan: Path | None = None,
    about: Mapping[str, str | None] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a report on a saved model, or on a stored plan or comparison.

    Privacy
        Shows what is public, declared or released: no cost.

    Parameters
    ----------
    source : Path
        Folder of a model, or a JSON file.
    out : Path
        The file: HTML, Markdown or JSON by its suffix.
    plan : Path, optional
        A stored plan to show with a model.
    about : mapping of str to str, optional
        Owner, purpose and source, as in :func:`~conddp.report.report_fit`; of a model only.
    overwrite : bool
        Whether to replace an existing file.
    """
    expected = None if plan is None else load_record(plan)
    known: dict[str, Any] = {name: value for name, value in (about or {}).items() if value}
    if expected is not None and not isinstance(expected, Plan):
        raise SchemaError(f"'{plan}' is a comparison, not a plan.")
    if source.is_dir() or not source.exists():
        saved = load_model(source)
        if expected is not None and (expected.schema, expected.design) != (saved.schema, saved.design):
            raise SchemaError(f"'{plan}' was made for other columns or records than the model in '{source}'.")
        document = report_fit(saved, expected, **known)
    elif known:
        raise SchemaError(f"{', '.join(known)} can be shown with the folder of a model only, but '{source}' is a file.")
    elif expected is not None:
        raise SchemaError(f"a plan can be shown with the folder of a model only, but '{source}' is a file.")
    else:
        record = load_record(source)
        document = report_plan(record) if isinstance(record, Plan) else report_comparison(record)
    write_report(document, out, overwrite=overwrite)
