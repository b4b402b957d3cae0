"""Fit a model with public features and a private label, and print its guarantee."""

from statsmodels.datasets import randhie

from conddp import PrivateRegressor

table = randhie.load_pandas().data
X, y = table.drop(columns="mdvis"), table["mdvis"]

model = PrivateRegressor(epsilon=1.0, delta=1e-6, label_bounds=(0, 30), head="linear").fit(X, y)

print(dict(zip(X.columns, model.coef_.round(2).tolist(), strict=True)))
print(model.guarantee_)
