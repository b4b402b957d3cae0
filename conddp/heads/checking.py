"""A check of heads that users bring along: their gradients are part of the privacy argument."""

import functools

import numpy as np

from conddp.errors import PrivacyError
from conddp.heads.head import Head, Inputs

__all__ = ["check_head"]

NUM_PUBLIC, NUM_PRIVATE, NUM_RECORDS, NUM_CONFIGURATIONS = 3, 2, 6, 2
STEP, TOLERANCE = 1e-5, 1e-4  # of central differences, and of what they are compared with


@functools.lru_cache(maxsize=64)
def check_head(head: Head) -> None:
    """Raise unless the gradients of a head are those of its predictions.

    Clipping divides by the norms that a head computes, so a norm that is too small breaks the guarantee of every
    algorithm that clips gradients. Algorithms call this once for every head that does not come with conddp.

    Privacy
        Sees made-up records only: no cost.

    Raises
    ------
    PrivacyError
        If a norm is smaller than that of the gradient, or ``vjp`` does not give sums of gradients.
    """
    rng = np.random.default_rng(0)
    layout = head.layout(NUM_PUBLIC, NUM_PRIVATE)
    parameters = np.stack([head.initialize(layout, rng) for _ in range(NUM_CONFIGURATIONS)])
    parameters = parameters + 0.3 * rng.normal(size=parameters.shape)
    public, private = rng.normal(size=(NUM_RECORDS, NUM_PUBLIC)), rng.normal(size=(NUM_RECORDS, NUM_PRIVATE))
    inputs, name = Inputs.of(public, private), type(head).__name__

    def predict(values: np.ndarray) -> np.ndarray:
        return np.asarray(head.predict(layout.views(values), public, private))

    trace = head.forward(layout.views(parameters), inputs)
    if not np.allclose(trace.predictions, predict(parameters), rtol=1e-9, atol=1e-9):
        raise PrivacyError(f"forward and predict of the head {name} do not give the same predictions.")
    jacobian = np.empty((NUM_CONFIGURATIONS, NUM_RECORDS, layout.size))
    for number in range(layout.size):
        moved = np.zeros_like(parameters)
        moved[:, number] = STEP
        jacobian[:, :, number] = (predict(parameters + moved) - predict(parameters - moved)) / (2 * STEP)
    norms = np.linalg.norm(jacobian, axis=2)
    if (np.broadcast_to(np.asarray(trace.jacobian_norms), norms.shape) < norms * (1 - TOLERANCE) - TOLERANCE).any():
        raise PrivacyError(
            f"forward of the head {name} gives gradient norms that are too small: gradients would be clipped too "
            "little, and the guarantee would not hold."
        )
    coefficients = rng.normal(size=norms.shape)
    found = np.zeros_like(parameters)
    head.vjp(layout.views(parameters), inputs, trace, coefficients, layout.views(found))
    expected = np.einsum("kn,knp->kp", coefficients, jacobian)
    if not np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE * max(1.0, float(np.abs(expected).max()))):
        raise PrivacyError(f"vjp of the head {name} does not give the sum of coefficients times gradients.")
