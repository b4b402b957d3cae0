"""Steps of Opacus in all its modes, in float32."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.data_loader import DPDataLoader
from opacus.grad_sample import wrap_model
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from .descent import Descent, Network
from .torch_steps import Batch, HalfSquaredLoss, Scalar, make_rule, read_parameters, repeat

__all__ = ["MODES", "OpacusSteps"]

MODES = ("hooks", "functorch", "ew", "ghost")


class OpacusSteps:
    """Steps in one mode, on the full batch or on the Poisson samples of Opacus' own loader.

    Parameters
    ----------
    descent : Descent
        Settings.
    net : nn.Module
        The model, with outputs of shape (n,).
    inputs, label : Tensor
        Records.
    mode : {"hooks", "functorch", "ew", "ghost"}
        How gradients of single records, or their norms, are computed.
    """

    def __init__(
        self, descent: Descent, net: nn.Module, inputs: tuple[Tensor, ...], label: Tensor, *, mode: str
    ) -> None:
        warnings.filterwarnings("ignore", message="Full backward hook")  # Opacus warns about its own hooks
        is_ghost = mode == "ghost"
        settings = {"max_grad_norm": descent.clip_norm} if is_ghost else {}
        self.net = net
        self.model: Any = wrap_model(net, grad_sample_mode=mode, **settings)
        kind = DPOptimizerFastGradientClipping if is_ghost else DPOptimizer
        self.optimizer: Any = kind(
            make_rule(descent, self.model),
            noise_multiplier=descent.noise_multiplier,
            max_grad_norm=descent.clip_norm,
            expected_batch_size=descent.batch_size or len(label),
        )
        self.loss: Any = HalfSquaredLoss()
        if is_ghost:
            self.loss = DPLossFastGradientClipping(self.model, self.optimizer, self.loss, "mean")
        self.batches: Iterator[Batch] = iter(lambda: (inputs, label), None)
        if descent.batch_size is not None:
            data = torch.utils.data.TensorDataset(*inputs, label)
            plain = torch.utils.data.DataLoader(data, batch_size=descent.batch_size)
            self.batches = repeat(DPDataLoader.from_data_loader(plain))

    @classmethod
    def of(cls, descent: Descent, network: Network, X: NDArray[Any], y: NDArray[Any], *, mode: str) -> "OpacusSteps":
        """Steps on dense columns."""
        return cls(descent, Scalar(network), (torch.from_numpy(X),), torch.from_numpy(y), mode=mode)

    def run(self, num_steps: int) -> None:
        """Take so many further steps."""
        for _ in range(num_steps):
            inputs, label = next(self.batches)
            self.optimizer.zero_grad()
            self.loss(self.model(*inputs), label).backward()
            self.optimizer.step()

    def read(self) -> NDArray[np.float64]:
        """Parameters now."""
        return read_parameters(self.net)
