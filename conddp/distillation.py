"""A head that learns from predictions which are already released: no label takes part, so it costs nothing."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.conditioning import ConditioningMatrix, Spectrum
from conddp.data import PublicFeatures
from conddp.fitted import move_parameters
from conddp.models import Head, Inputs
from conddp.optimizers import make_optimizer
from conddp.training import TrainingPlan, train

__all__ = ["distill"]

BATCH_SIZE = 1000
SCHEDULE = ((600, 0.01), (600, 0.003), (300, 0.001))  # numbers of steps and learning rates
NUM_STARTS = 2


def distill(
    head: Head,
    public_features: PublicFeatures,
    predictions: NDArray[Any],
    *,
    constant: bool,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Parameters, on the public columns themselves, of a head that repeats released predictions.

    The head sees conditioned columns while it learns, as in Cond-DP: it learns faster on them, private or not.

    Privacy
        Post-processing: reads public columns and predictions that were released. Adds no noise, clips nothing.

    Parameters
    ----------
    head : Head
        The model that learns.
    public_features : PublicFeatures
        Public columns of the records.
    predictions : array of shape (n,)
        What it shall predict for them; released already.
    constant : bool
        Whether the model has an intercept.
    generator : numpy.random.Generator
        For initial weights and batches.
    """
    C = ConditioningMatrix.from_spectrum(Spectrum.of(public_features, constant=constant))
    inputs = Inputs.of(C.transform(public_features))
    layout = head.layout(C.num_parameters, 0)
    parameters = np.stack([head.initialize(layout, generator) for _ in range(NUM_STARTS)])
    probability = min(1.0, BATCH_SIZE / len(predictions))
    for num_steps, rate in SCHEDULE:
        parameters = train(
            TrainingPlan(num_steps, 1e9, 0.0, probability, averaging=0.3),
            head,
            layout,
            inputs,
            predictions,
            parameters,
            optimizer=make_optimizer("adam", rate),
            noise_generators=[generator] * NUM_STARTS,
            sampling_generator=generator,
        )
    repeated = head.predict(layout.views(parameters), inputs.public, None)
    best = int(np.argmin(((repeated - predictions) ** 2).mean(axis=1)))
    return np.asarray(move_parameters(head, parameters[best : best + 1], num_private=0, source=C)[0])
