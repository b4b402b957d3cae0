from typing import Any

import numpy as np
import pytest
import torch

from conddp.training.optimizers import Optimizer, make_optimizer

RATES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_steps_equal_those_of_torch(rng: np.random.Generator, name: Any, engine: str) -> None:
    start, gradients = rng.normal(size=(2, 5)), rng.normal(size=(20, 2, 5))
    rates = np.array([0.1, 0.01])
    optimizer: Optimizer = make_optimizer(name, rates)
    parameters: Any = start.copy() if engine == "numpy" else torch.from_numpy(start.copy())
    for gradient in gradients:
        optimizer.update(parameters, gradient if engine == "numpy" else torch.from_numpy(gradient))
    for k, rate in enumerate(rates):
        reference = torch.from_numpy(start[k].copy()).requires_grad_()
        rival = RATES[name]([reference], lr=float(rate))
        for gradient in gradients:
            reference.grad = torch.from_numpy(gradient[k].copy())
            rival.step()
        assert np.allclose(np.asarray(parameters[k]), reference.detach().numpy(), rtol=1e-10, atol=1e-12)
