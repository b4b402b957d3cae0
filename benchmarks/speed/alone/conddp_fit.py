"""The default fit of conddp, as a user calls it."""

from typing import Any

from ..tables import BOUNDS
from .fitting import Model, serve_fits

__all__ = ["make_default"]


def make_default(**settings: Any) -> Model:
    """``PrivateRegressor`` with its defaults at epsilon 1, apart from what is given."""
    from conddp import PrivateRegressor

    given = {"epsilon": 1.0, "delta": 1e-7, "label_bounds": BOUNDS, **settings}

    def fit(X: Any, y: Any) -> Any:
        return PrivateRegressor(**given).fit(X, y).predict

    return fit


if __name__ == "__main__":
    serve_fits({"default": make_default})
