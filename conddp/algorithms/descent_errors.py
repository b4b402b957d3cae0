"""Errors of linear models that plain gradient descent has trained, whose distribution is known exactly."""

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.task import Task
from conddp.data.scaling import scale_bounds
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.row_weights import RowWeights
from conddp.features.spectrum import Spectrum
from conddp.features.stored_features import StoredFeatures
from conddp.heads.head import Linearity
from conddp.models.uncertainty import MOST_STORED, Uncertainty
from conddp.training.loop import TrainingPlan
from conddp.training.recursion import Recursion

__all__ = ["describe_errors"]


def describe_errors(
    parameters: NDArray[np.float64],
    task: Task,
    plan: TrainingPlan,
    spectrum: Spectrum,
    conditioning: ConditioningMatrix,
    *,
    learning_rate: float,
    weights: RowWeights | None,
) -> Uncertainty | None:
    """Describe the errors of parameters after plain steps, or return None if their distribution is not known.

    It is known for full batches and linear models of public columns. The second moments of private columns are not
    public, and the noise of sampled batches depends on the labels.

    Privacy
        Post-processing of released parameters, with public rows: no cost.

    Parameters
    ----------
    parameters : array of shape (P,)
        Parameters of the model, in terms of the original columns.
    task : Task
        The fit.
    plan : TrainingPlan
        Settings of the steps.
    spectrum : Spectrum
        Spectrum of the public columns.
    conditioning : ConditioningMatrix
        Matrix that the public columns were multiplied by.
    learning_rate : float
        Rate of the steps.
    weights : RowWeights or None
        Weights of the records.
    """
    C, is_linear = conditioning, task.head.linear_in is Linearity.COLUMNS
    if not is_linear or task.num_private or plan.sampling_probability < 1.0 or C.matrix.size > MOST_STORED:
        return None
    total, together = float(task.num_records), 1.0
    if weights is None:
        root = spectrum.coloring @ C.matrix
        gram = root.T @ root / total
    elif task.public.sparse is None and not isinstance(task.public, StoredFeatures):
        total, together = weights.total, max(1.0, weights.largest_total)
        Z = C.transform(task.public)
        gram = (Z * weights.values[:, None]).T @ Z / total
    else:
        return None
    noise_std = plan.noise_multiplier * plan.clip_norm * together / total
    num_averaged = max(1, round(plan.averaging * plan.num_steps))
    steps = Recursion(plan.num_steps, num_averaged, learning_rate, noise_std)
    ends = scale_bounds(task.schema.label_bounds, center=task.fit_intercept)
    return steps.describe(C.unfold(parameters), gram, matrix=C.matrix, farthest=max(map(abs, ends)))
