"""Check the gradients of heads that do not come with conddp: they are part of the privacy argument."""

import numpy as np
from numpy.typing import NDArray

from conddp.errors import PrivacyError
from conddp.heads.head import Head, Inputs
from conddp.heads.jacobian import compute_jacobian

__all__ = ["check_head"]

NUM_PUBLIC, NUM_PRIVATE, NUM_RECORDS = 3, 2, 6
NUM_DIRECTIONS = 8  # random directions in which gradients are compared with differences of predictions
STEP, TOLERANCE = 1e-5, 1e-4


def check_head(head: Head) -> None:
    """Raise unless the gradients of a head are those of its predictions.

    Clipping divides by the gradient norms that a head computes, so a norm that is too small breaks the guarantee of
    every algorithm that clips gradients. Algorithms call this function for every head that does not come with conddp.

    Privacy
        Uses simulated records only: no cost.

    Raises
    ------
    PrivacyError
        If ``forward`` and ``predict`` disagree, if ``vjp`` does not return sums of gradients, or if a gradient norm is
        too small.
    """
    rng, name = np.random.default_rng(0), type(head).__name__
    layout = head.layout(NUM_PUBLIC, NUM_PRIVATE)
    parameters = head.initialize(layout, rng) + 0.3 * rng.normal(size=layout.size)
    public, private = rng.normal(size=(NUM_RECORDS, NUM_PUBLIC)), rng.normal(size=(NUM_RECORDS, NUM_PRIVATE))
    inputs = Inputs.of(public, private)

    def predict(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(head.predict(layout.views(values[None]), public, private)[0])

    trace = head.forward(layout.views(parameters[None]), inputs)
    if not np.allclose(trace.predictions[0], predict(parameters), rtol=1e-9, atol=1e-9):
        raise PrivacyError(f"forward and predict of the head {name} return different predictions.")
    jacobian = compute_jacobian(head, layout, parameters, inputs)
    for direction in rng.normal(size=(NUM_DIRECTIONS, layout.size)):
        unit = direction / np.linalg.norm(direction)
        slopes = (predict(parameters + STEP * unit) - predict(parameters - STEP * unit)) / (2 * STEP)
        if not np.allclose(jacobian @ unit, slopes, rtol=TOLERANCE, atol=TOLERANCE):
            raise PrivacyError(f"vjp of the head {name} does not return sums of the gradients of its predictions.")
    norms = np.linalg.norm(jacobian, axis=1)
    if (np.broadcast_to(np.asarray(trace.jacobian_norms), (1, NUM_RECORDS))[0] < norms * (1 - TOLERANCE)).any():
        raise PrivacyError(
            f"forward of the head {name} returns gradient norms that are too small. Gradients would not be clipped to "
            "the clip norm, and the guarantee would not hold."
        )
