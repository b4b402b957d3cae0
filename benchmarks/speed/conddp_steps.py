"""Steps of conddp: the library's own loop, with noise from its cryptographic generator."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.heads.head import Head, Inputs
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import make_optimizer

from .descent import Descent, Network

__all__ = ["ConddpSteps"]


class ConddpSteps:
    """Steps on rows that the head can read.

    Parameters
    ----------
    descent : Descent
        Settings.
    head : Head
        The model.
    inputs, label
        Records.
    parameters : array of shape (K, P)
        Of K configurations.
    num_public : int
        Columns of the rows.
    """

    def __init__(
        self, descent: Descent, head: Head, inputs: Inputs, label: Any, *, parameters: Any, num_public: int
    ) -> None:
        os.environ.setdefault("CONDDP_FAST", "1")  # kernels from the first step, as in long runs
        self.descent, self.head, self.inputs, self.label = descent, head, inputs, label
        self.parameters, self.layout = parameters, head.layout(num_public, 0)
        source = RandomSource.of(None)
        self.generators = [source.generator(f"noise {k}") for k in range(len(parameters))]

    @classmethod
    def of(
        cls, descent: Descent, network: Network, X: NDArray[Any], y: NDArray[Any], *, dtype: str = "float64", K: int = 1
    ) -> "ConddpSteps":
        """Steps on dense columns, in the layout that the algorithms choose."""
        X, y = X.astype(dtype), y.astype(dtype)
        head: Head = MLP(hidden=network.hidden) if network.hidden else Linear()
        inputs = Inputs.of(np.asfortranarray(X) if descent.batch_size is None else X)
        start = np.tile(network.parameters.astype(dtype), (K, 1))
        return cls(descent, head, inputs, y, parameters=start, num_public=X.shape[1])

    def run(self, num_steps: int) -> None:
        """Train from the initial parameters."""
        n = self.label.shape[0]
        probability = 1.0 if self.descent.batch_size is None else self.descent.batch_size / n
        self.trained = train(
            TrainingPlan(num_steps, self.descent.clip_norm, self.descent.noise_multiplier, probability),
            self.head,
            self.layout,
            self.inputs,
            self.label,
            self.parameters,
            optimizer=make_optimizer(self.descent.rule, self.descent.learning_rate),
            curator=Curator(self.generators, num_records=n, float32_without_guarantee=True),
            rng=self.generators[0],
        )

    def read(self) -> NDArray[np.float64]:
        """Parameters after the last run."""
        return np.asarray(self.trained[0], dtype=np.float64)
