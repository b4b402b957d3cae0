"""Distillation: training a head on released predictions, at no privacy cost because no label is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.row_weights import RowWeights
from conddp.features.spectrum import Spectrum
from conddp.heads.folding import move_parameters
from conddp.heads.head import Head, Inputs, Layout
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import make_optimizer

__all__ = ["Student", "learn_together", "mix_rows"]

BATCH_SIZE = 1000
PRECISION = np.float32  # of training
SCHEDULE = ((2400, 0.01), (2400, 0.003), (1200, 0.001))  # numbers of steps and learning rates
BRIEF_FRACTION = 1 / 8  # of the steps, to compare algorithms sooner
NUM_STARTS = 2
MOST_MIXED = 20_000  # mixed rows
MOST_MIXED_CELLS = 2**22
MIXED_FRACTION = 0.25  # of the columns of a mixed row come from another record


@dataclass
class Student:
    """A head that is trained to reproduce released predictions on public rows.

    Training uses conditioned columns, as in Cond-DP, because it converges faster on them, with or without privacy.
    Rows are stored in float32: nothing private is summed, and it takes half the time.

    Privacy
        Post-processing: reads public columns and released predictions only. Adds no noise and does not clip.

    Parameters
    ----------
    head, layout : Head, Layout
        Model to train.
    conditioning : ConditioningMatrix
        Conditioning matrix of the public columns.
    inputs : Inputs
        Conditioned rows.
    parameters : array of shape (P,), optional
        Learned parameters, in terms of the conditioned columns.
    weights : RowWeights, optional
        Public weights of the rows; all are equal if None.
    """

    head: Head
    layout: Layout
    conditioning: ConditioningMatrix
    inputs: Inputs
    parameters: NDArray[np.float64] | None = None
    weights: RowWeights | None = None

    @classmethod
    def of(
        cls,
        head: Head,
        public_features: PublicFeatures,
        *,
        constant: bool,
        weights: NDArray[np.float64] | None = None,
        mixed: PublicFeatures | None = None,
    ) -> "Student":
        """Create an untrained student.

        Parameters
        ----------
        head : Head
            Model to train.
        public_features : PublicFeatures
            Public columns of the records.
        constant : bool
            Whether the model has an intercept.
        weights : array of shape (n,), optional
            Public weights of the records.
        mixed : PublicFeatures, optional
            Rows to learn on in addition to those of the records (:func:`mix_rows`). They have a mean weight.
        """
        C = ConditioningMatrix.from_spectrum(Spectrum.of(public_features, constant=constant, weights=weights))
        rows = C.transform(public_features).astype(PRECISION)
        if mixed is not None:
            rows = np.concatenate([rows, C.transform(mixed).astype(PRECISION)])
            if weights is not None:
                weights = np.concatenate([weights, np.full(len(mixed), weights.mean())])
        given = None if weights is None else RowWeights.give(weights)
        return cls(head, head.layout(C.num_parameters, 0), C, Inputs.of(rows), weights=given)

    def learn(self, predictions: NDArray[Any], rng: np.random.Generator) -> None:
        """Train on predictions, and keep the best of several random starts.

        Parameters
        ----------
        predictions : array of shape (n,)
            Predictions to reproduce, for all rows; already released.
        rng : numpy.random.Generator
            Generator for initial weights and batches.
        """
        learn_together([self], [predictions], rng)

    def export(self) -> NDArray[np.float64]:
        """Return the learned parameters in terms of the original public columns."""
        if self.parameters is None:
            raise RuntimeError("the student has not been trained yet. Call learn first.")
        moved = move_parameters(self.head, self.parameters[None], num_private=0, source=self.conditioning)
        return np.asarray(moved[0])


def mix_rows(public_features: PublicFeatures, *, seed: int = 0) -> PublicFeatures | None:
    """Make more public rows, on which a released predictor is as well known as on those of the records.

    A row is that of a random record, with a quarter of the columns from another one. Indicators of a category stay
    together. Rows that are longer than any of the records after conditioning are left out: they break a dependence
    between columns, so that nothing is known there. None if there are no others.

    Privacy
        Reads public columns only: no cost.

    Parameters
    ----------
    public_features : PublicFeatures
        Public columns of the records.
    seed : int
        Seed of the random numbers.
    """
    X, groups, rng = public_features.values, public_features.groups, np.random.default_rng(seed)
    n, d = X.shape
    number = min(MOST_MIXED, MOST_MIXED_CELLS // max(1, d))
    if not number:
        return None
    one, other = rng.integers(n, size=(2, number))
    of_column = np.arange(d) if groups is None else np.unique(groups, return_inverse=True)[1]
    replaced = rng.random((number, int(of_column.max(initial=0)) + 1)) < MIXED_FRACTION
    mixed = PublicFeatures.of_finite(np.where(replaced[:, of_column], X[other], X[one]), public_features.names)
    C = ConditioningMatrix.from_spectrum(Spectrum.of(public_features, constant=True))
    longest = np.linalg.norm(C.transform(public_features), axis=1).max(initial=0.0)
    kept = np.linalg.norm(C.transform(mixed), axis=1) <= longest
    return mixed[kept] if kept.any() else None


def learn_together(
    students: Sequence[Student], predictions: Sequence[NDArray[Any]], rng: np.random.Generator, *, briefly: bool = False
) -> None:
    """Train students of the same kind, each on its own predictions, with the same initial weights and batches.

    Every student learns as if it were alone (:meth:`Student.learn`), up to rounding.

    Parameters
    ----------
    students : sequence of S Student
        Untrained students with the same head, inputs and weights.
    predictions : sequence of S arrays of shape (n,)
        Predictions to reproduce, for all rows; already released.
    rng : numpy.random.Generator
        Generator for initial weights and batches.
    briefly : bool
        Whether to take an eighth of the steps, and to give up the worse starts after the first of them. Errors of
        models then differ by about as much as with other random numbers.
    """
    first, S = students[0], len(students)
    drawn = np.stack([first.head.initialize(first.layout, rng) for _ in range(NUM_STARTS)])
    parameters: NDArray[Any] = np.concatenate([drawn] * S).astype(PRECISION)
    targets = np.stack(predictions).astype(PRECISION)
    probability = min(1.0, BATCH_SIZE / targets.shape[1])
    for stage, (num_steps, rate) in enumerate(SCHEDULE):
        fraction = BRIEF_FRACTION if briefly else 1.0
        parameters = train(
            TrainingPlan(max(1, int(num_steps * fraction)), None, 0.0, probability, averaging=0.3),
            first.head,
            first.layout,
            first.inputs,
            targets[0] if S == 1 else np.repeat(targets, len(parameters) // S, axis=0),
            parameters,
            optimizer=make_optimizer("adam", rate),
            curator=None,
            rng=rng,
            weights=first.weights,
        )
        if briefly and stage == 0:
            parameters = _keep_best(first, parameters, targets)
    best = _keep_best(first, parameters, targets)
    for student, own in zip(students, best, strict=True):
        student.parameters = own.astype(np.float64)


def _keep_best(student: Student, parameters: NDArray[Any], targets: NDArray[Any]) -> NDArray[Any]:
    """Of several starts per student, shape (S * starts, P), keep those that reproduce the targets, (S, n), best."""
    S = len(targets)
    num_starts = len(parameters) // S
    if num_starts == 1:
        return parameters
    repeated = student.head.predict(student.layout.views(parameters), student.inputs.public, None)
    squares = (repeated - np.repeat(targets, num_starts, axis=0)) ** 2
    errors = squares.mean(axis=1) if student.weights is None else squares @ student.weights.values
    best = np.argmin(errors.reshape(S, num_starts), axis=1)
    kept: NDArray[Any] = parameters.reshape(S, num_starts, -1)[np.arange(S), best]
    return kept
