"""Fit nonlinear models with a private label, and choose an algorithm on simulated labels."""

import numpy as np

from conddp import Auto, PrivacyBudget, PrivacyLedger, PrivateRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(8000, 3))  # public
y = np.abs(X[:, 0]) + np.sin(2 * X[:, 1]) + 0.2 * rng.normal(size=8000)  # private
train, test = slice(0, 6000), slice(6000, None)

ledger = PrivacyLedger(PrivacyBudget(3.0, 1e-6))  # adds up what several fits on the same records cost
for head in ("linear", "wide", "mlp"):
    model = PrivateRegressor(epsilon=1.0, label_bounds=(-2, 4), head=head, ledger=ledger, random_state=0)
    model.fit(X[train], y[train])
    error = np.mean((model.predict(X[test]) - y[test]) ** 2)
    print(f"{head:<7} test MSE {error:.3f} (label variance {y[test].var():.3f})")

# Simulated labels show which algorithm and settings suit these public columns, at no privacy cost.
auto = Auto(num_simulations=1)
chosen = PrivateRegressor(epsilon=1.0, label_bounds=(-2, 4), algorithm=auto, ledger=ledger, random_state=0)
chosen.fit(X[train], y[train])
print(chosen.guarantee_.choice)
print(f"all fits together: {ledger.spent}")
