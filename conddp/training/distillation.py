"""A head that learns from predictions which are already released: no label takes part, so it costs nothing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.features.whitening import WhitenedRows
from conddp.heads.folding import move_parameters
from conddp.heads.head import Head, Inputs, Layout
from conddp.heads.jacobian import compute_jacobian
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import make_optimizer

__all__ = ["Student"]

BATCH_SIZE = 1000
SCHEDULE = ((600, 0.01), (600, 0.003), (300, 0.001))  # numbers of steps and learning rates, from a random start
REVISION = ((600, 0.003), (300, 0.001))  # and from what was learned before
NUM_STARTS = 2
MOST_COLUMNS = 2000  # of the Jacobian
NUM_COMBINATIONS = 600  # of the columns of a wider one, at random


@dataclass
class Student:
    """A head that repeats released predictions on public rows.

    It sees conditioned columns while it learns, as in Cond-DP: it learns faster on them, private or not.

    Privacy
        Post-processing: reads public columns and predictions that were released. Adds no noise, clips nothing.

    Parameters
    ----------
    head, layout : Head, Layout
        The model that learns.
    conditioning : ConditioningMatrix
        Of the public columns.
    inputs : Inputs
        Conditioned public rows.
    parameters : array of shape (P,), optional
        On conditioned columns, after it has learned.
    """

    head: Head
    layout: Layout
    conditioning: ConditioningMatrix
    inputs: Inputs
    parameters: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, head: Head, public_features: PublicFeatures, *, constant: bool) -> "Student":
        """A student that has learned nothing yet.

        Parameters
        ----------
        head : Head
            The model that learns.
        public_features : PublicFeatures
            Public columns of the records.
        constant : bool
            Whether the model has an intercept.
        """
        C = ConditioningMatrix.from_spectrum(Spectrum.of(public_features, constant=constant))
        return cls(head, head.layout(C.num_parameters, 0), C, Inputs.of(C.transform(public_features)))

    def learn(self, predictions: NDArray[Any], rng: np.random.Generator) -> None:
        """Learn to repeat predictions: from the best of a few random starts, or from what was learned before.

        Parameters
        ----------
        predictions : array of shape (n,)
            What to predict for the records; released already.
        rng : numpy.random.Generator
            For initial weights and batches.
        """
        if self.parameters is None:
            parameters = np.stack([self.head.initialize(self.layout, rng) for _ in range(NUM_STARTS)])
        else:
            parameters = self.parameters[None]
        probability = min(1.0, BATCH_SIZE / len(predictions))
        for num_steps, rate in SCHEDULE if self.parameters is None else REVISION:
            parameters = train(
                TrainingPlan(num_steps, 1e9, 0.0, probability, averaging=0.3),
                self.head,
                self.layout,
                self.inputs,
                predictions,
                parameters,
                optimizer=make_optimizer("adam", rate),
                curator=None,
                rng=rng,
            )
        repeated = self.head.predict(self.layout.views(parameters), self.inputs.public, None)
        self.parameters = parameters[int(np.argmin(((repeated - predictions) ** 2).mean(axis=1)))]

    def compute_tangents(self, rows: WhitenedRows, *, at_most: int, seed: int = 0) -> WhitenedRows:
        r"""Directions in which predictions can change when the parameters move a little, beyond those there are.

        They are the columns of the Jacobian J of the predictions. It depends on public rows and on parameters that
        were learned from released predictions, so :math:`J^\top J` is as public as they are.

        Parameters
        ----------
        rows : WhitenedRows
            With the directions there are.
        at_most : int
            The strongest ones are kept.
        seed : int
            Of the combinations that are taken of very many parameters.
        """
        parameters = self._get_learned()
        combine: NDArray[np.float64] | None = None
        if self.layout.size > MOST_COLUMNS:
            combine = np.random.default_rng(seed).normal(size=(self.layout.size, NUM_COMBINATIONS))

        def columns(part: slice) -> NDArray[np.float64]:
            return compute_jacobian(self.head, self.layout, parameters, self.inputs.take(part), combine)

        return rows.complement(columns, at_most=at_most)

    def export(self) -> NDArray[np.float64]:
        """Parameters on the public columns themselves."""
        moved = move_parameters(self.head, self._get_learned()[None], num_private=0, source=self.conditioning)
        return np.asarray(moved[0])

    def _get_learned(self) -> NDArray[np.float64]:
        if self.parameters is None:
            raise RuntimeError("the student has not learned anything yet.")
        return self.parameters
