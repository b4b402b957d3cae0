"""Tables with text, categories, dates and gaps, from CSV to a model, predictions and a report, with no code.

Every table of ``benchmarks/tables.py`` is split 80 to 20 at random and written to CSV files. Then ``conddp fit``,
``conddp predict`` and ``conddp report`` run as a user would run them, with the time and the memory that they take.
The functions behind these commands give the test R2 at every epsilon, as a mean over noise seeds, under replacement
with delta 1e-6. Beside it stand ridge regression without privacy on the same features, and both on "numbers only": the
columns of numbers, with gaps filled by the median. All models are trained on labels clamped to the declared range, and
their predictions are clamped to it. R2 is relative to the mean of the training labels; test labels are not clamped.

Writes ``benchmarks/results/real_tables.json``, and a Markdown table to standard output. Tables that are in the file are
not measured again.

    python benchmarks/real_tables.py [TABLE ...]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tables import TABLES, Table

from conddp.algorithms.request import FitRequest
from conddp.bounds import Bounds
from conddp.data.column import Kind
from conddp.data.parts import PrivateFeatures, PublicFeatures
from conddp.data.public_table import PublicTable
from conddp.data.readers import read_table
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.features.reading import read_features, read_records

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "real_tables.json"
EPSILONS, SEEDS, DELTA = (0.25, 1.0, 4.0), (0, 1, 2), 1e-6
TEST_FRACTION, SPLIT = 0.2, 0
PENALTIES = np.logspace(-1, 6, 8)

Vector = NDArray[np.float64]


def run_command(arguments: list[str], folder: Path) -> tuple[float, float]:
    """Run ``conddp`` with arguments; returns seconds and peak memory in gigabytes, at least that of this process."""
    command = [str(Path(sys.executable).parent / "conddp"), *arguments]
    begin = time.perf_counter()
    with (folder / "log.txt").open("a") as log:
        log.write(f"$ conddp {' '.join(arguments)}\n")
        log.flush()
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"conddp {' '.join(arguments)} failed:\n{(folder / 'log.txt').read_text()}")
    return time.perf_counter() - begin, usage.ru_maxrss / 2**20


def write_files(table: Table, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Write training records, new records and the schema to a folder."""
    frame = table.load()
    order = np.random.default_rng(SPLIT).permutation(len(frame))
    number = int(TEST_FRACTION * len(frame))
    new, train = frame.iloc[order[:number]], frame.iloc[order[number:]]
    train.to_csv(folder / "train.csv", index=False)
    new.to_csv(folder / "new.csv", index=False)
    (folder / "schema.toml").write_text(table.schema.to_toml())
    return train, new


def compute_r2(truth: Vector, predictions: Vector, mean: float) -> float:
    """One minus the squared error over that of the mean of the training labels, where the label is known."""
    known = ~np.isnan(truth)
    return float(1 - np.mean((truth - predictions)[known] ** 2) / np.mean((truth[known] - mean) ** 2))


def fit_ridge(X: Any, y: Vector, X_new: Any, bounds: tuple[float, float]) -> Vector:
    """Predictions of ridge regression without privacy, its penalty chosen by cross-validation.

    As for conddp, labels and predictions are clamped to the declared range.
    """
    model = make_pipeline(StandardScaler(), RidgeCV(PENALTIES, cv=5))
    predictions: Vector = model.fit(X, np.clip(y, *bounds)).predict(X_new)
    return np.clip(predictions, *bounds)


def fit_privately(records: Records, new: tuple[Any, Any], truth: Vector, mean: float) -> dict[str, float]:
    """Test R2 of the default at every epsilon, a mean over noise seeds."""
    found = {}
    for epsilon in EPSILONS:
        scores = []
        for seed in SEEDS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the joint cost of these fits
                result = FitRequest(epsilon, DELTA, random_state=seed).run(records)
            scores.append(compute_r2(truth, result.predict(*new), mean))
        found[f"{epsilon:g}"] = float(np.mean(scores))
    return found


def list_numbers(public: PublicTable) -> list[str]:
    """Public columns of numbers and flags."""
    return [name for name, column in public.columns.items() if column.kind in (Kind.NUMBER, Kind.BOOLEAN)]


def fill_numbers(public: PublicTable, names: list[str], medians: Mapping[str, float]) -> PublicFeatures:
    """Columns of numbers as they are, with gaps filled."""
    columns = [np.nan_to_num(public.columns[name].values, nan=medians[name]) for name in names]
    return PublicFeatures(np.column_stack(columns) if columns else np.zeros((len(public), 0)), tuple(names))


def list_kinds(schema: Schema) -> dict[str, Kind]:
    """Declared kinds, by column."""
    return {column.name: column.kind for column in schema.columns if column.kind is not None}


def measure(table: Table, folder: Path) -> dict[str, Any]:
    """All numbers of a table."""
    train, new = write_files(table, folder)
    seconds, memory = run_command(
        ["fit", "train.csv", "--schema", "schema.toml", "--epsilon", "1", "--seed", "0", "--out", "model"], folder
    )
    predicting, _ = run_command(["predict", "model", "new.csv", "--out", "predictions.csv"], folder)
    run_command(["report", "model", "--out", "report.html"], folder)
    schema = Schema.load(folder / "schema.toml")
    kinds = list_kinds(schema)
    frame = read_table(folder / "train.csv", schema.names, kinds=kinds)
    records, encoding = read_records(frame, schema)
    frame_new = read_table(folder / "new.csv", schema.names, kinds={**kinds, **encoding.kinds})
    fresh = read_features(frame_new, schema, encoding)
    y = np.asarray(train[table.label].dropna(), dtype=np.float64)
    truth, mean = np.asarray(new[table.label], dtype=np.float64), float(y.mean())
    written = np.asarray(pd.read_csv(folder / "predictions.csv")[f"{table.label}_predicted"])
    print(f"{table.name}: predictions of the command line, R2 {compute_r2(truth, written, mean):.3f}", file=sys.stderr)
    private = [encode_private(part, schema) for part in (records.private, fresh[1])]
    X, X_new = (
        join(part, extra) for part, extra in ((records.public.values, private[0]), (fresh[0].values, private[1]))
    )
    kept = ~train[table.label].isna().to_numpy()
    public = PublicTable.of(frame, schema.public, kinds=schema.kinds)
    public_new = PublicTable.of(frame_new, schema.public, kinds={**schema.kinds, **encoding.kinds})
    names = list_numbers(public)
    medians = {name: float(np.nan_to_num(np.nanmedian(public.columns[name].values))) for name in names}
    plain = fill_numbers(public[np.flatnonzero(kept)], names, medians)
    plain_new = fill_numbers(public_new, names, medians)
    numbers = Records(plain, records.private, records.label)
    return {
        "source": table.source,
        "label": table.label,
        "meaning": table.meaning,
        "bounds": table.bounds,
        "records": len(y),
        "columns": len(schema.names) - 1,
        "private_columns": len(schema.private),
        "features": len(encoding.features) + (0 if private[0] is None else private[0].shape[1]),
        "number_columns": len(names),
        "seconds": seconds,
        "gigabytes": memory,
        "seconds_to_predict": predicting,
        "conddp": fit_privately(records, fresh, truth, mean),
        "ridge": compute_r2(truth, fit_ridge(X, y, X_new, table.bounds), mean),
        "conddp_numbers": fit_privately(numbers, (plain_new, fresh[1]), truth, mean),
        "ridge_numbers": compute_r2(
            truth,
            fit_ridge(join(plain.values, private[0]), y, join(plain_new.values, private[1]), table.bounds),
            mean,
        ),
    }


def encode_private(private: PrivateFeatures | None, schema: Schema) -> NDArray[np.float64] | None:
    """Private columns as a non-private model would see them: clamped, and indicators of categories."""
    if private is None:
        return None
    parts = [
        np.clip(column, domain.low, domain.high)[:, None]
        if isinstance(domain, Bounds)
        else np.equal.outer(column, np.arange(len(domain)))
        for column, domain in zip(private.values.T, schema.private_domains, strict=True)
    ]
    return np.hstack(parts).astype(np.float64)


def join(values: Any, extra: Any) -> Any:
    """Public and private features side by side, dense."""
    return values if extra is None else np.hstack([values, extra])


def show(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The results as a Markdown table."""
    heads = [
        "table",
        "n",
        "columns",
        "features",
        *(f"{epsilon:g}" for epsilon in EPSILONS),
        "ridge",
        *(f"numbers, {epsilon:g}" for epsilon in EPSILONS),
        "numbers, ridge",
        "seconds",
    ]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for table in TABLES:
        row = found.get(table.name)
        if row is None:
            continue
        cells = [
            table.name,
            f"{row['records']:,}",
            str(row["columns"]),
            str(row["features"]),
            *(f"{value:.3f}" for value in row["conddp"].values()),
            f"{row['ridge']:.3f}",
            *(f"{value:.3f}" for value in row["conddp_numbers"].values()),
            f"{row['ridge_numbers']:.3f}",
            f"{row['seconds']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is not in the file yet, and print all."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for table in TABLES:
        if table.name in found or (sys.argv[1:] and table.name not in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found[table.name] = measure(table, Path(folder))
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(show(found))


if __name__ == "__main__":
    main()
