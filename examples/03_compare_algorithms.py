"""Compare the test error of linear models, fitted by several algorithms, with the non-private optimum at one epsilon.

The guarantee does not cover scores on held-out labels. They are used here only to compare algorithms on public data.
"""

from sklearn.model_selection import train_test_split
from statsmodels.datasets import randhie

from conddp import PrivacyBudget, PrivacyLedger, PrivateRegressor

table = randhie.load_pandas().data
X, y = table.drop(columns="mdvis"), table["mdvis"].clip(0, 30)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=42)

# One ledger for all fits on these records. The data are public, so even a fit without privacy may be charged to it.
ledger = PrivacyLedger(PrivacyBudget(float("inf"), 1e-5))
for algorithm in ("auto", "cond-dp", "dpsgd", "one-shot", "rr-on-bins", "laplace", "mean", "non-private"):
    model = PrivateRegressor(1.0, label_bounds=(0, 30), algorithm=algorithm, head="linear", ledger=ledger)
    model.fit(X_train, y_train)
    error = ((model.predict(X_test) - y_test) ** 2).mean()
    print(f"{algorithm:<12} test MSE {error:6.2f}")
