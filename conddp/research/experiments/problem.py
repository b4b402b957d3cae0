"""A data set by name, prepared and split, with its test error and non-private references."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from conddp._validate import one_of
from conddp.algorithms import NonPrivate
from conddp.data.records import Records
from conddp.privacy.budget import PrivacyBudget
from conddp.research.datasets import prepare_dataset

__all__ = ["DELTA", "Preparation", "Problem"]

DELTA = 1e-6
Preparation = Literal["paper", "ours"]


@dataclass(frozen=True)
class Problem:
    """One split of a data set. Errors are in the paper's units of the label; no test label is clamped.

    Privacy
        Looks at test labels and fits non-private references: for research on data that need no protection.

    Parameters
    ----------
    name : str
        The data set; "synthetic 0.5" is the synthetic one with that decay of its spectrum.
    preparation : {"paper", "ours"}
        "paper" is what could be recovered of the paper's set-up: columns as they are, no intercept, the label's range
        taken from the data. "ours" has an intercept and a label range declared beforehand.
    train, test : Records
        The parts.
    """

    name: str
    preparation: Preparation
    train: Records
    test: Records

    @classmethod
    def of(cls, name: str, preparation: Preparation, *, random_state: int = 42) -> "Problem":
        """The problem on one split, with a fifth of the records for the test."""
        one_of(("paper", "ours"), preparation=preparation)
        return _make(name, preparation, random_state)

    @property
    def fit_intercept(self) -> bool:
        """Whether models have an intercept."""
        return self.preparation == "ours"

    def compute_error(self, predictions: NDArray[np.float64]) -> float:
        """Mean squared error on the test set."""
        return float(np.mean((predictions - self.test.label.values) ** 2))

    @cached_property
    def optimum(self) -> float:
        """Test error of non-private least squares on the same columns."""
        fitted = NonPrivate().fit(self.train, PrivacyBudget(1.0, 0.0), fit_intercept=self.fit_intercept)
        return self.compute_error(fitted.model.predict(self.test.public))

    @cached_property
    def constant(self) -> float:
        """Test error of the mean of the training labels."""
        return self.compute_error(np.full(self.test.num_records, self.train.label.values.mean()))


@lru_cache(maxsize=4)
def _make(name: str, preparation: Preparation, random_state: int) -> Problem:
    train, test = prepare_dataset(name, preparation).split(random_state=random_state)
    return Problem(name, preparation, train, test)
