"""Training without noise on released labels: post-processing, at no privacy cost."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.bounds import Bounds
from conddp.data.parts import PrivateFeatures, PublicFeatures
from conddp.data.scaling import scale_private
from conddp.features.conditioned_rows import ConditionedRows
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.row_weights import RowWeights
from conddp.features.scaled_rows import ScaledRows
from conddp.features.spectrum import Spectrum
from conddp.heads.folding import move_parameters
from conddp.heads.head import Head, Linearity
from conddp.models.fitted import FittedModel
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import Adam

__all__ = ["fit_released_labels"]

BATCH_SIZE, NUM_STEPS, LEARNING_RATE = 512, 5000, 3e-3  # for heads other than linear


def fit_released_labels(
    head: Head,
    public: PublicFeatures,
    label: NDArray[Any],
    bounds: Bounds,
    *,
    fit_intercept: bool,
    rng: np.random.Generator,
    private: PrivateFeatures | None = None,
    weights: NDArray[np.float64] | None = None,
) -> FittedModel:
    """Fit a linear head by least squares, or any other head with Adam on conditioned features.

    Privacy
        Costs nothing if ``label`` has been released and ``private`` is None. Otherwise the result is not private.

    Parameters
    ----------
    head : Head
        Model to fit.
    public : PublicFeatures
        Public columns.
    label : array of shape (n,)
        Released labels, in the original units. They may lie outside the bounds.
    bounds : Bounds
        Declared range of the true label, used to scale labels and clamp predictions.
    fit_intercept : bool
        Whether to fit an intercept.
    rng : numpy.random.Generator
        Generator for initial parameters and mini-batches.
    private : PrivateFeatures, optional
        Private columns, for non-private references only.
    weights : array of shape (n,), optional
        Public weights of the records; all are equal if None.
    """
    scaled = (np.asarray(label, dtype=np.float64) - (bounds.midpoint if fit_intercept else 0.0)) / bounds.width
    codes = head.num_codes
    spectrum = Spectrum.of(public.drop_codes(codes), constant=fit_intercept, weights=weights)
    C = ConditioningMatrix.from_spectrum(spectrum).keep_codes(codes)
    Z = C.apply(public)
    assert not isinstance(Z, ScaledRows)  # C is not diagonal
    Q = None if private is None else scale_private(private, center=fit_intercept)
    num_private = 0 if Q is None else Q.shape[1]
    layout = head.layout(C.num_parameters, num_private)
    if head.linear_in is Linearity.COLUMNS:
        parameters = _solve(Z, Q, scaled, weights)[None]
    else:
        n = len(scaled)
        plan = TrainingPlan(NUM_STEPS, None, 0.0, min(1.0, BATCH_SIZE / n), averaging=0.2)
        parameters = train(
            plan,
            head,
            layout,
            head.prepare(Z, Q),
            scaled,
            head.initialize_on(public, layout, rng, conditioned=False)[None],
            optimizer=Adam(LEARNING_RATE),
            curator=None,
            rng=rng,
            weights=None if weights is None else RowWeights.give(weights),
        )
    folded = move_parameters(head, parameters, num_private=num_private, source=C)
    after = head.layout(C.num_columns, num_private)
    return FittedModel(head, after, folded[0], fit_intercept, bounds, () if private is None else private.domains)


def _solve(
    Z: NDArray[Any] | ConditionedRows,
    Q: NDArray[Any] | None,
    label: NDArray[Any],
    weights: NDArray[np.float64] | None,
) -> NDArray[Any]:
    """Least squares on rows whose weighted second moment is the identity, and on private columns beside them."""
    n = len(Z)
    relative = np.ones(n) if weights is None else weights * (n / weights.sum())
    root = np.sqrt(relative)
    if not isinstance(Z, ConditionedRows):
        rows = Z if Q is None else np.hstack([Z, Q])
        if weights is not None:
            rows, label = rows * root[:, None], label * root
        return np.asarray(np.linalg.lstsq(rows, label, rcond=None)[0])
    if Q is None:
        return np.asarray(((label * relative)[None] @ Z)[0] / n)
    along = ((Q * relative[:, None]).T @ Z) / n  # eliminate the whitened rows
    left = Q - (along @ Z.T).T
    of_private = np.linalg.lstsq(left * root[:, None], label * root, rcond=None)[0]
    return np.concatenate([(((label - Q @ of_private) * relative)[None] @ Z)[0] / n, of_private])
