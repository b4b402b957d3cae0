"""The California housing table, split and prepared as users of other software would."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BOUNDS", "Housing"]

BOUNDS = (0.0, 5.0)  # of the label, in 100,000 dollars, declared beforehand


@dataclass(frozen=True)
class Housing:
    """Standardized training and test columns, and labels.

    Errors are test MSE over that of least squares without privacy on the columns as they are. Predictions are clamped
    to the declared range.
    """

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.float64]
    optimum: float

    @classmethod
    def load(cls, columns: str = "as they are", *, small: bool = False) -> "Housing":
        """Load the table.

        Parameters
        ----------
        columns : {"as they are", "standardized", "squashed"}
            What is done to columns, all of them public. "squashed" first takes the inverse hyperbolic sine of columns
            with values more than 20 standard deviations from their mean, as the default of conddp does.
        small : bool
            Use 500 records only.
        """
        from conddp.research.split import load_split

        split = load_split("ca_housing", "ours")
        num = 500 if small else None
        X: Any = split.train.public.values[:num]
        X_test: Any = split.test.public.values[:num]
        y: Any = split.train.label.values[:num]
        y_test: Any = split.test.label.values[:num]
        optimum = _fit_least_squares(X, y, X_test, y_test)
        if columns == "squashed":
            middle, spread = X.mean(axis=0), X.std(axis=0)
            heavy = (np.abs(X - middle) > 20 * spread).any(axis=0)
            X = np.where(heavy, np.arcsinh((X - middle) / spread), X)
            X_test = np.where(heavy, np.arcsinh((X_test - middle) / spread), X_test)
        if columns != "as they are":
            middle, spread = X.mean(axis=0), X.std(axis=0)
            X, X_test = (X - middle) / spread, (X_test - middle) / spread
        return cls(X, y, X_test, y_test, optimum)

    def save(self, path: str) -> None:
        """Write everything to a file, for processes without conddp."""
        np.savez(path, X=self.X, y=self.y, X_test=self.X_test, y_test=self.y_test, optimum=np.array(self.optimum))

    @classmethod
    def read(cls, path: str) -> "Housing":
        """Read what :meth:`save` wrote."""
        stored = np.load(path)
        return cls(stored["X"], stored["y"], stored["X_test"], stored["y_test"], float(stored["optimum"]))

    @property
    def scaled(self) -> NDArray[np.float64]:
        """Labels between -1 and 1."""
        return (self.y - sum(BOUNDS) / 2) / (BOUNDS[1] - BOUNDS[0]) * 2

    def compute_error(self, predict: Callable[[Any], Any], *, scaled: bool = True) -> float:
        """Test error of predictions, of scaled labels or of labels."""
        predictions = predict(self.X_test)
        if scaled:
            predictions = predictions * (BOUNDS[1] - BOUNDS[0]) / 2 + sum(BOUNDS) / 2
        return float(np.mean((np.clip(predictions, *BOUNDS) - self.y_test) ** 2) / self.optimum)


def _fit_least_squares(X: Any, y: Any, X_test: Any, y_test: Any) -> float:
    weights = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
    return float(np.mean((np.clip(X_test @ weights[:-1] + weights[-1], *BOUNDS) - y_test) ** 2))
