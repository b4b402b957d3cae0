"""From a file to a saved model, and from a saved model to predictions: what the command line calls."""

from pathlib import Path

from conddp._validate import one_of, positive
from conddp.accounting import check_delta
from conddp.algorithms.algorithm import Algorithm
from conddp.data import Dataset, load_features
from conddp.errors import SchemaError
from conddp.estimators import ALGORITHMS, HEADS
from conddp.ledger import PrivacyBudget, PrivacyLedger
from conddp.noise import RandomSource
from conddp.saving import SavedModel, check_folder, load_model, save_model
from conddp.schema import Schema

__all__ = ["fit_file", "predict_file"]


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
    seed: int | None = None,
) -> SavedModel:
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
    seed : int, optional
        For research only.
    """
    positive(epsilon=epsilon)
    check_delta(delta)
    one_of(ALGORITHMS, algorithm=algorithm)
    one_of(HEADS, head=head)
    check_folder(out)
    chosen: Algorithm = ALGORITHMS[algorithm]
    budget = PrivacyBudget(epsilon, delta)
    cost = chosen.cost(budget)
    paying = PrivacyLedger(cost) if ledger is None else PrivacyLedger.load(ledger)
    paying.check(f"fitting with epsilon={epsilon:g}", cost, paying.neighbouring)
    dataset = Dataset.load(data, schema)
    result = chosen.fit(
        dataset,
        budget,
        head=HEADS[head],
        neighbouring=paying.neighbouring,
        random_source=RandomSource.of(seed),
        ledger=paying,
    )
    save_model(out, result, schema, paying)
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
        raise SchemaError(f"'{out}' exists already. Name another file, or overwrite it.")
    saved = load_model(model)
    predictions = saved.predict(*load_features(data, saved.schema))
    table = pyarrow.table({saved.schema.label.name: predictions})
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".parquet":
        pyarrow.parquet.write_table(table, out)
    else:
        pyarrow.csv.write_csv(table, out)
    return len(predictions)
