"""Least squares without privacy: numpy and scikit-learn. All have an intercept."""

from typing import Any

import numpy as np

from .fitting import Model, serve_fits

__all__ = ["make_lstsq", "make_sklearn"]


def make_lstsq() -> Model:
    """``numpy.linalg.lstsq`` on the columns and a constant."""

    def fit(X: Any, y: Any) -> Any:
        weights = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
        return lambda rows: rows @ weights[:-1] + weights[-1]

    return fit


def make_sklearn(*, kind: str, **settings: Any) -> Model:
    """A linear model of scikit-learn."""
    from sklearn import linear_model

    return lambda X, y: getattr(linear_model, kind)(**settings).fit(X, y).predict


if __name__ == "__main__":
    serve_fits({"lstsq": make_lstsq, "sklearn": make_sklearn})
