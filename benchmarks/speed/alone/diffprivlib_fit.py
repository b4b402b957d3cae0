"""The private linear regression of diffprivlib: pure epsilon, all columns and the label private."""

from typing import Any

from ..tables import BOUNDS
from .fitting import Model, serve_fits

__all__ = ["make_linear"]


def make_linear(**settings: Any) -> Model:
    """Its ``LinearRegression``; columns lie within five standard deviations."""
    from diffprivlib.models import LinearRegression

    given = {"epsilon": 1.0, "bounds_X": (-5.0, 5.0), "bounds_y": BOUNDS, **settings}
    return lambda X, y: LinearRegression(**given).fit(X, y).predict


if __name__ == "__main__":
    serve_fits({"linear": make_linear})
