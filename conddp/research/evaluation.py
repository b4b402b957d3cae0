"""Test errors of algorithms on one split of a data set, beside the non-private references."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms import NonPrivate
from conddp.algorithms.algorithm import Algorithm
from conddp.data.records import Records
from conddp.heads.head import Head
from conddp.models.fitted import FittedModel
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource

__all__ = ["DELTA", "Evaluation"]

DELTA = 1e-6


@dataclass(frozen=True)
class Evaluation:
    """A data set split in two, and the test MSE of what is not private. Labels and predictions are clamped alike.

    Privacy
        Looks at test labels and fits non-private references: for research on data that need no protection.

    Parameters
    ----------
    train, test : Records
        The parts.
    optimum : float
        Test MSE of non-private least squares with intercept.
    constant : float
        Test MSE of the non-private mean of the training labels.
    """

    train: Records
    test: Records
    optimum: float
    constant: float

    @classmethod
    def of(cls, dataset: Records, *, random_state: int = 42) -> "Evaluation":
        """Evaluation on the split of scikit-learn's ``train_test_split`` with a fifth of the records for the test."""
        train, test = dataset.split(random_state=random_state)
        least_squares = NonPrivate().fit(train, PrivacyBudget(1.0, 0.0)).model
        mean = train.label.bounds.clamp(train.label.values).mean()
        return cls(
            train,
            test,
            _compute_error(test, least_squares.predict(test.public, test.private)),
            _compute_error(test, np.full(test.num_records, mean)),
        )

    def compute_error(
        self,
        algorithm: Algorithm,
        epsilon: float,
        seed: int,
        head: Head | None = None,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
    ) -> float:
        """Test MSE of one fit with delta 1e-6."""
        budget, source = PrivacyBudget(epsilon, DELTA), RandomSource.of(seed)
        fit = algorithm.fit(self.train, budget, head=head, neighbouring=neighbouring, random_source=source)
        return self.measure(fit.model)

    def measure(self, model: FittedModel) -> float:
        """Test MSE of a model."""
        return _compute_error(self.test, model.predict(self.test.public, self.test.private))

    def compute_ratio(self, algorithm: Algorithm, epsilon: float, *, num_seeds: int, head: Head | None = None) -> float:
        """Mean test MSE over noise seeds, over that of least squares."""
        errors = [self.compute_error(algorithm, epsilon, seed, head) for seed in range(num_seeds)]
        return float(np.mean(errors)) / self.optimum


def _compute_error(test: Records, predictions: NDArray[np.float64]) -> float:
    return float(np.mean((predictions - test.label.bounds.clamp(test.label.values)) ** 2))
