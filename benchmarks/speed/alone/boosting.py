"""The differentially private boosting machine of interpret: all columns and the label private."""

from typing import Any

from ..tables import BOUNDS
from .fitting import Model, serve_fits

__all__ = ["make_boosting"]


def make_boosting(*, ranges: list[tuple[float, float]], bounds: tuple[float, float] = BOUNDS, **settings: Any) -> Model:
    """Its default at epsilon 1, with declared ranges of columns and label."""
    from interpret.privacy import DPExplainableBoostingRegressor

    given = {
        "epsilon": 1.0,
        "delta": 1e-7,
        "privacy_bounds": {number: tuple(pair) for number, pair in enumerate(ranges)},
        "privacy_target_min": bounds[0],
        "privacy_target_max": bounds[1],
        "n_jobs": 1,
        **settings,
    }
    return lambda X, y: DPExplainableBoostingRegressor(**given).fit(X, y).predict


if __name__ == "__main__":
    serve_fits({"boosting": make_boosting})
