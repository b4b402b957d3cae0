"""Settings of a noisy descent that all contestants have in common, and records to descend on."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Descent", "Network", "make_records"]


@dataclass(frozen=True)
class Descent:
    """Noisy descent on half the squared error.

    Parameters
    ----------
    batch_size : int, optional
        Expected size of Poisson samples; the full batch if None.
    clip_norm, noise_multiplier, learning_rate : float
        As in every DP-SGD.
    rule : {"adam", "sgd"}
        Update rule.
    """

    batch_size: int | None = None
    clip_norm: float = 1.0
    noise_multiplier: float = 5.0
    learning_rate: float = 1e-3
    rule: Literal["adam", "sgd"] = "adam"


@dataclass(frozen=True)
class Network:
    """A linear model without intercept, or a network whose first layer has no bias, with initial parameters.

    The parameters are in the order of PyTorch, which is that of conddp: layer by layer, weights before biases.
    """

    widths: tuple[int, ...]  # of the columns and of hidden layers
    parameters: NDArray[np.float64]

    @classmethod
    def of(cls, num_columns: int, hidden: tuple[int, ...] = ()) -> "Network":
        """Random parameters, the same at every call."""
        widths = (num_columns, *hidden)
        rng, parts = np.random.default_rng(0), []
        for number, (below, width) in enumerate(zip(widths, (*hidden, 1), strict=True)):
            parts.append(rng.normal(scale=np.sqrt((2 if hidden else 0.01) / below), size=width * below))
            parts.append(np.zeros(width if number else 0))
        return cls(widths, np.concatenate(parts))

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return self.widths[1:]


def make_records(n: int, d: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Random features and labels in float32, which every contestant can represent."""
    rng = np.random.default_rng(0)
    X: Any = rng.normal(size=(n, d)).astype(np.float32)
    return X, (0.3 * rng.normal(size=n)).astype(np.float32)
