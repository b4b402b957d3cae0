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
from conddp.features.whitening import WhitenedRows
from conddp.heads.folding import move_parameters
from conddp.heads.head import Head, Inputs, Layout
from conddp.heads.jacobian import compute_jacobian
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import make_optimizer

__all__ = ["Student", "learn_together"]

BATCH_SIZE = 1000
PRECISION = np.float32  # of training
SCHEDULE = ((600, 0.01), (600, 0.003), (300, 0.001))  # numbers of steps and learning rates, from random initial weights
REVISION = ((600, 0.003), (300, 0.001))  # same, from previously learned weights
NUM_STARTS = 2
MOST_COLUMNS = 2000  # largest number of Jacobian columns that are used directly
LARGEST_KEPT = 2**24  # entries of a Jacobian that is kept in memory
NUM_COMBINATIONS = 600  # number of random combinations of columns for a wider Jacobian


@dataclass
class Student:
    """A head that is trained to reproduce released predictions on public rows.

    Training uses conditioned columns, as in Cond-DP, because it converges faster on them, with or without privacy.

    Privacy
        Post-processing: reads public columns and released predictions only. Adds no noise and does not clip.

    Parameters
    ----------
    head, layout : Head, Layout
        Model to train.
    conditioning : ConditioningMatrix
        Conditioning matrix of the public columns.
    inputs : Inputs
        Conditioned public rows.
    compact : Inputs
        The same in float32, for training: nothing private is summed, and it takes half the time.
    parameters : array of shape (P,), optional
        Learned parameters, in terms of the conditioned columns.
    weights : RowWeights, optional
        Public weights of the records; all are equal if None.
    """

    head: Head
    layout: Layout
    conditioning: ConditioningMatrix
    inputs: Inputs
    compact: Inputs
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
        """
        C = ConditioningMatrix.from_spectrum(Spectrum.of(public_features, constant=constant, weights=weights))
        rows = C.transform(public_features)
        given = None if weights is None else RowWeights.give(weights)
        layout, compact = head.layout(C.num_parameters, 0), Inputs.of(rows.astype(PRECISION))
        return cls(head, layout, C, Inputs.of(rows), compact, weights=given)

    def learn(self, predictions: NDArray[Any], rng: np.random.Generator) -> None:
        """Train on predictions. The first call keeps the best of several random starts; later calls continue from it.

        Parameters
        ----------
        predictions : array of shape (n,)
            Predictions to reproduce; already released.
        rng : numpy.random.Generator
            Generator for initial weights and batches.
        """
        learn_together([self], [predictions], rng)

    def compute_tangents(self, rows: WhitenedRows, *, at_most: int, seed: int = 0) -> WhitenedRows:
        r"""Compute tangent directions of the head, orthogonal to the existing directions.

        These are the directions in which predictions change for small changes of the parameters: the columns of the
        Jacobian J of the predictions. J depends on public rows and on parameters learned from released predictions
        only, so :math:`J^\top J` is public too.

        Parameters
        ----------
        rows : WhitenedRows
            Rows with the existing directions.
        at_most : int
            Maximum number of directions. Those with the largest variance are kept.
        seed : int
            Seed of the random combinations that replace the columns if there are very many parameters.
        """
        parameters = self._get_learned()
        combine: NDArray[np.float64] | None = None
        if self.layout.size > MOST_COLUMNS:
            combine = np.random.default_rng(seed).normal(size=(self.layout.size, NUM_COMBINATIONS))

        def columns(part: slice) -> NDArray[np.float64]:
            return compute_jacobian(self.head, self.layout, parameters, self.inputs.take(part), combine)

        width = self.layout.size if combine is None else combine.shape[1]
        if len(rows.values) * width <= LARGEST_KEPT:  # it is read twice
            return rows.complement(columns(slice(None)).__getitem__, at_most=at_most)
        return rows.complement(columns, at_most=at_most)

    def export(self) -> NDArray[np.float64]:
        """Return the learned parameters in terms of the original public columns."""
        moved = move_parameters(self.head, self._get_learned()[None], num_private=0, source=self.conditioning)
        return np.asarray(moved[0])

    def _get_learned(self) -> NDArray[np.float64]:
        if self.parameters is None:
            raise RuntimeError("the student has not been trained yet. Call learn first.")
        return self.parameters


def learn_together(
    students: Sequence[Student], predictions: Sequence[NDArray[Any]], rng: np.random.Generator, *, briefly: bool = False
) -> None:
    """Train students of the same kind, each on its own predictions, with the same initial weights and batches.

    Every student learns as if it were alone (:meth:`Student.learn`), up to rounding.

    Parameters
    ----------
    students : sequence of S Student
        Students with the same head, inputs and weights, all of them trained before, or none.
    predictions : sequence of S arrays of shape (n,)
        Predictions to reproduce; already released.
    rng : numpy.random.Generator
        Generator for initial weights and batches.
    briefly : bool
        Whether to take half of the steps, and to give up the worse starts after the first of them. Errors of models
        then differ by about as much as with other random numbers.
    """
    first, S = students[0], len(students)
    parameters: NDArray[Any]
    schedule: tuple[tuple[int, float], ...]
    if first.parameters is None:
        drawn = np.stack([first.head.initialize(first.layout, rng) for _ in range(NUM_STARTS)])
        parameters, schedule = np.concatenate([drawn] * S), SCHEDULE
    else:
        parameters, schedule = np.stack([each._get_learned() for each in students]), REVISION
    targets = np.stack(predictions)
    probability = min(1.0, BATCH_SIZE / targets.shape[1])
    parameters = parameters.astype(PRECISION)
    for stage, (num_steps, rate) in enumerate(schedule):
        compact = targets[0] if S == 1 else np.repeat(targets, len(parameters) // S, axis=0)
        parameters = train(
            TrainingPlan(num_steps // 2 if briefly else num_steps, None, 0.0, probability, averaging=0.3),
            first.head,
            first.layout,
            first.compact,
            compact.astype(PRECISION),
            parameters,
            optimizer=make_optimizer("adam", rate),
            curator=None,
            rng=rng,
            weights=first.weights,
        )
        if briefly and stage == 0:
            parameters = _keep_best(first, parameters, targets)
    best = _keep_best(first, parameters.astype(np.float64), targets)
    for student, own in zip(students, best, strict=True):
        student.parameters = own


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
