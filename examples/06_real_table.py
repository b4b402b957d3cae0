"""A table with text, dates and gaps: declare what is private, fit, save, and predict for new records by name."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from conddp import PrivateRegressor

rng = np.random.default_rng(0)
n = 10_000
visits = pd.DataFrame(
    {
        "clinic": pd.Series(rng.choice(["north", "south", "harbour", ""], n, p=[0.5, 0.3, 0.15, 0.05])).replace(
            "", None
        ),
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D"),
        "referred": rng.random(n) < 0.4,
        "distance": rng.lognormal(2, 1, n).round(1),
        "age": rng.integers(18, 90, n),
    }
)
cost = 80 + 30 * (visits["clinic"] == "harbour") + 25 * visits["referred"] + 0.8 * visits["age"] + rng.normal(0, 20, n)

model = PrivateRegressor(
    epsilon=1.0,
    label_bounds=(0, 400),
    private_columns={"age": (18, 100)},  # all other columns are public
    head="linear",  # for coefficients
)
model.fit(visits, cost.rename("cost"))
for remark in model.encoding_.list_remarks():
    print(remark)
for name, value in zip(model.coef_names_, model.coef_, strict=True):
    print(f"{name:28} {value:8.2f}")

with tempfile.TemporaryDirectory() as folder:
    loaded = PrivateRegressor.load(model.save(Path(folder) / "model"))
new = visits[["age", "distance", "clinic", "referred", "day"]].head(3).assign(patient=[1, 2, 3])
print(loaded.predict(new).round(1))  # by name, in any order; other columns are ignored
