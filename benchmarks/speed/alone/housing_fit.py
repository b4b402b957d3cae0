"""Fits of one call on the California housing table: the default of conddp, and other estimators."""

import time
import warnings
from collections.abc import Callable
from typing import Any

from ..housing import BOUNDS, Housing
from ..workers import serve
from .boosting import make_boosting
from .conddp_fit import make_default
from .diffprivlib_fit import make_linear
from .fitting import Model
from .least_squares import make_sklearn

__all__ = ["MODELS"]

Budget = dict[str, float]


def declare_conddp(X: Any, budget: Budget, **settings: Any) -> Model:
    """The default of conddp."""
    return make_default(**budget, label_bounds=BOUNDS, **settings)


def declare_sklearn(X: Any, budget: Budget, **settings: Any) -> Model:
    """Without privacy."""
    return make_sklearn(**settings)


def declare_diffprivlib(X: Any, budget: Budget) -> Model:
    """Pure epsilon, all columns private."""
    return make_linear(epsilon=budget["epsilon"], bounds_X=(X.min(axis=0), X.max(axis=0)), bounds_y=BOUNDS)


def declare_boosting(X: Any, budget: Budget) -> Model:
    """All columns private; their ranges are declared."""
    ranges = [(float(column.min()), float(column.max())) for column in X.T]
    return make_boosting(ranges=ranges, bounds=BOUNDS, **budget)


MODELS: dict[str, Callable[..., Model]] = {
    "conddp": declare_conddp,
    "sklearn": declare_sklearn,
    "diffprivlib": declare_diffprivlib,
    "boosting": declare_boosting,
}


class Fit:
    """Requests about one model."""

    def set_up(self, *, name: str, path: str, epsilon: float, delta: float, settings: dict[str, Any]) -> None:
        """Read the data and import; nothing is fitted yet."""
        warnings.simplefilter("ignore")
        self.housing = Housing.read(path)
        self.fit = MODELS[name](self.housing.X, {"epsilon": epsilon, "delta": delta}, **settings)

    def run(self) -> tuple[float, float, dict[str, float]]:
        """One fit: its time with accounting, and its test error."""
        wall, busy = time.perf_counter(), time.process_time()
        predict = self.fit(self.housing.X, self.housing.y)
        wall, busy = time.perf_counter() - wall, time.process_time() - busy
        return wall, busy, {"error": self.housing.compute_error(predict, scaled=False)}


if __name__ == "__main__":
    fit = Fit()
    serve({"set_up": fit.set_up, "run": fit.run})
