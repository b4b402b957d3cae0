"""Declare private features, and keep a ledger in a file that refuses a fit beyond the budget."""

import tempfile
from pathlib import Path

from statsmodels.datasets import randhie

from conddp import BudgetExceeded, PrivacyBudget, PrivacyLedger, PrivateRegressor

table = randhie.load_pandas().data
X, y = table.drop(columns="mdvis"), table["mdvis"]
health = {"physlm": (0, 1), "disea": (0, 60), "hlthg": (0, 1), "hlthf": (0, 1), "hlthp": (0, 1)}

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "ledger.jsonl"
    ledger = PrivacyLedger(PrivacyBudget(epsilon=1.2, delta=1e-6), path=path)
    model = PrivateRegressor(epsilon=0.8, label_bounds=(0, 30), private_columns=health, ledger=ledger)
    model.fit(X, y).fit(X, y)
    try:
        model.fit(X, y)
    except BudgetExceeded as refused:
        print(refused)
    for entry in PrivacyLedger.load(path).entries:
        print(f"{entry.what:<22} {entry.cost}  ({entry.reason})")
