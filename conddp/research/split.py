"""A data set split into a training and a test part, with test errors of algorithms and of non-private references."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from conddp._validate import one_of
from conddp.algorithms import NonPrivate
from conddp.algorithms.algorithm import Algorithm
from conddp.data.records import Records
from conddp.errors import NotCalibrated
from conddp.heads.head import Head
from conddp.models.fitted import FittedModel
from conddp.planning.budgets import DELTA, EPSILONS
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.research.datasets import prepare_dataset

__all__ = ["Preparation", "Split", "Sweep", "load_split"]

Preparation = Literal["paper", "ours"]


@dataclass(frozen=True)
class Sweep:
    """Test errors of algorithms over budgets and noise seeds.

    Parameters
    ----------
    epsilons : tuple of float
        The budgets.
    errors : mapping
        Test MSE by algorithm, one row per epsilon and one column per seed; NaN where an algorithm refuses the budget.
    optimum, constant : float
        Test MSE of non-private least squares and of the non-private mean.
    """

    epsilons: tuple[float, ...]
    errors: Mapping[str, NDArray[np.float64]]
    optimum: float
    constant: float

    @property
    def num_seeds(self) -> int:
        """Fits behind every mean."""
        return int(next(iter(self.errors.values())).shape[1])

    def compute_means(self, algorithm: str) -> NDArray[np.float64]:
        """Mean test MSE at every epsilon."""
        return np.asarray(self.errors[algorithm].mean(axis=1))

    def compute_ratios(self, algorithm: str) -> NDArray[np.float64]:
        """Mean test MSE at every epsilon, over that of least squares."""
        return self.compute_means(algorithm) / self.optimum


@dataclass(frozen=True)
class Split:
    """A training and a test part of the same records.

    Errors are mean squared errors on test labels that are clamped to the declared bounds, as predictions are: a label
    beyond its bounds is one that the schema says cannot occur. Where bounds were taken from the data, as the paper
    seems to have done, clamping changes nothing.

    Privacy
        Looks at test labels and fits non-private references: for research on data that need no protection.

    Parameters
    ----------
    train, test : Records
        The parts.
    fit_intercept : bool
        Whether models have an intercept.
    """

    train: Records
    test: Records
    fit_intercept: bool = True

    @classmethod
    def of(cls, dataset: Records, *, random_state: int = 42, fit_intercept: bool = True) -> "Split":
        """The split of scikit-learn's ``train_test_split``, with a fifth of the records for the test."""
        return cls(*dataset.split(random_state=random_state), fit_intercept)

    def compute_error(self, predictions: NDArray[np.float64]) -> float:
        """Test MSE of predictions."""
        label = self.test.label
        return float(np.mean((predictions - label.bounds.clamp(label.values)) ** 2))

    def measure(self, model: FittedModel) -> float:
        """Test MSE of a model."""
        return self.compute_error(model.predict(self.test.public, self.test.private))

    @cached_property
    def optimum(self) -> float:
        """Test MSE of non-private least squares on the same columns."""
        fitted = NonPrivate().fit(self.train, PrivacyBudget(1.0, 0.0), fit_intercept=self.fit_intercept)
        return self.measure(fitted.model)

    @cached_property
    def constant(self) -> float:
        """Test MSE of the non-private mean of the training labels."""
        label = self.train.label
        return self.compute_error(np.full(self.test.num_records, label.bounds.clamp(label.values).mean()))

    def measure_fit(
        self,
        algorithm: Algorithm,
        epsilon: float,
        *,
        seed: int,
        head: Head | None = None,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
    ) -> float:
        """Test MSE of one fit with delta 1e-6."""
        fitted = algorithm.fit(
            self.train,
            PrivacyBudget(epsilon, DELTA),
            head=head,
            neighbouring=neighbouring,
            fit_intercept=self.fit_intercept,
            random_source=RandomSource.of(seed),
        )
        return self.measure(fitted.model)

    def sweep(
        self,
        algorithms: Mapping[str, Algorithm],
        *,
        epsilons: Sequence[float] = EPSILONS,
        seeds: Iterable[int] = range(5),
        head: Head | None = None,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
    ) -> Sweep:
        """Test errors of algorithms at every epsilon with every seed.

        Parameters
        ----------
        algorithms : mapping
            By name.
        epsilons : sequence of float
            Budgets, with delta 1e-6.
        seeds : iterable of int
            Of the noise.
        head : Head, optional
            The model; linear if None.
        neighbouring : Neighbouring
            The relation.
        """
        seeds = tuple(seeds)

        def measure_seeds(algorithm: Algorithm, epsilon: float) -> list[float]:
            try:
                return [
                    self.measure_fit(algorithm, epsilon, seed=seed, head=head, neighbouring=neighbouring)
                    for seed in seeds
                ]
            except NotCalibrated:
                return [np.nan] * len(seeds)

        errors = {
            name: np.array([measure_seeds(algorithm, epsilon) for epsilon in epsilons])
            for name, algorithm in algorithms.items()
        }
        return Sweep(tuple(epsilons), errors, self.optimum, self.constant)


def load_split(name: str, preparation: Preparation, *, random_state: int = 42) -> Split:
    """A data set by name, prepared and split.

    Parameters
    ----------
    name : str
        The data set; "synthetic 0.5" is the synthetic one with that decay of its spectrum.
    preparation : {"paper", "ours"}
        "paper" is what could be recovered of the paper's set-up: columns as they are, no intercept, the label's range
        taken from the data. "ours" has an intercept and a label range declared beforehand. Both have the label in the
        paper's units.
    random_state : int
        Of the split.
    """
    one_of(("paper", "ours"), preparation=preparation)
    return _load_split(name, preparation, random_state)


@lru_cache(maxsize=4)
def _load_split(name: str, preparation: Preparation, random_state: int) -> Split:
    records = prepare_dataset(name, preparation)
    return Split.of(records, random_state=random_state, fit_intercept=preparation == "ours")
