"""Functions from file to file: plan, compare, audit, predict and report. The command line calls them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from conddp.algorithms.request import FitRequest
from conddp.data.readers import load_features, load_public, load_records, load_units
from conddp.data.schema import Schema
from conddp.errors import SchemaError
from conddp.models.result import FitResult
from conddp.models.saving import check_folder, load_model, save_model
from conddp.planning.comparison import Comparison, compare_algorithms
from conddp.planning.plan import Plan, make_plan
from conddp.planning.storage import load_record
from conddp.privacy.ledger import PrivacyLedger
from conddp.report import report_comparison, report_fit, report_plan, write_report
from conddp.theory.design import Design

__all__ = ["compare_file", "fit_file", "load_audit_table", "plan_file", "predict_file", "report_file"]


def plan_file(data: Path, schema: Schema, **settings: Any) -> Plan:
    """Plan a fit to a Parquet or CSV file.

    Privacy
        Reads the public columns and the unit column of the file, and nothing else: no cost.

    Parameters
    ----------
    data : Path
        The table.
    schema : Schema
        Roles and bounds of its columns.
    **settings
        As in :func:`~conddp.planning.plan.make_plan`.
    """
    return make_plan(load_public(data, schema), schema, units=load_units(data, schema), **settings)


def compare_file(data: Path, schema: Schema, **settings: Any) -> Comparison:
    """Compare algorithms on labels simulated from the public columns of a Parquet or CSV file.

    Privacy
        Reads the public columns and the unit column of the file, and nothing else: no cost.

    Parameters
    ----------
    data : Path
        The table.
    schema : Schema
        Roles and bounds of its columns.
    **settings
        As in :func:`~conddp.planning.comparison.compare_algorithms`.
    """
    private = dict(zip(schema.private, schema.private_domains, strict=True))
    units = load_units(data, schema)
    return compare_algorithms(load_public(data, schema), private=private, units=units, **settings)


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
    return {"public": load_public(data, schema), "label_bounds": schema.label_bounds, "private": private}


def fit_file(
    data: Path,
    schema: Schema,
    out: Path,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    algorithm: str = "auto",
    head: str = "linear",
    ledger: Path | None = None,
    other_rows: bool = False,
    seed: int | None = None,
    checkpoint: Path | None = None,
) -> FitResult:
    """Train a model on a Parquet or CSV file and save it.

    Privacy
        One fit that costs (epsilon, delta) under the relation of the ledger, REPLACE if there is none, recorded before
        private columns are used. Settings, the folder and the ledger are checked before the file is opened.

    Parameters
    ----------
    data : Path
        The table.
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
    """
    paying = None if ledger is None else PrivacyLedger.load(ledger, other_rows=other_rows)
    request = FitRequest(epsilon, delta, algorithm, head, random_state=seed, ledger=paying, checkpoint=checkpoint)
    check_folder(out)
    records = load_records(data, schema)
    design = Design.of(records.arrange().public)  # now: what fails after the fit fails when budget has been spent
    request.run(records, deliver=lambda result: save_model(out, replace(result, schema=schema, design=design)))
    return load_model(out)


def predict_file(model: Path, data: Path, out: Path, *, overwrite: bool = False) -> int:
    """Write predictions for the records of a file, in their order; returns how many there are.

    Privacy
        The model is released: no cost. Private columns of new records are read to predict for them, and the predictions
        depend on them.
    """
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    if out.suffix not in (".parquet", ".csv"):
        raise SchemaError(f"predictions are written to .parquet or .csv, got '{out}'.")
    if out.exists() and not overwrite:
        raise SchemaError(f"'{out}' exists already. Name another file, or pass overwrite=True.")
    saved = load_model(model)
    predictions = saved.predict(*load_features(data, saved.schema))
    table = pyarrow.table({saved.schema.label.name: predictions})
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".parquet":
        pyarrow.parquet.write_table(table, out)
    else:
        pyarrow.csv.write_csv(table, out)
    return len(predictions)


def report_file(source: Path, out: Path, *, plan: Path | None = None, overwrite: bool = False) -> None:
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
    overwrite : bool
        Whether to replace an existing file.
    """
    expected = None if plan is None else load_record(plan)
    if expected is not None and not isinstance(expected, Plan):
        raise SchemaError(f"'{plan}' is a comparison, not a plan.")
    if source.is_dir() or not source.exists():
        saved = load_model(source)
        if expected is not None and (expected.schema, expected.design) != (saved.schema, saved.design):
            raise SchemaError(f"'{plan}' was made for other columns or records than the model in '{source}'.")
        document = report_fit(saved, expected)
    elif expected is not None:
        raise SchemaError(f"a plan can be shown with the folder of a model only, but '{source}' is a file.")
    else:
        record = load_record(source)
        document = report_plan(record) if isinstance(record, Plan) else report_comparison(record)
    write_report(document, out, overwrite=overwrite)
