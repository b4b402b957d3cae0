"""Steps of PyTorch without privacy, in float32."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .descent import Descent, Network

__all__ = ["HalfSquaredLoss", "Scalar", "TorchSteps", "make_rule", "read_parameters", "repeat"]

Batch = tuple[tuple[Tensor, ...], Tensor]


class HalfSquaredLoss(nn.Module):
    """Half the squared error, the loss of conddp; Opacus sets ``reduction`` where it needs the loss of every record."""

    def __init__(self) -> None:
        super().__init__()
        self.reduction = "mean"

    def forward(self, predictions: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        losses = 0.5 * (predictions - target) ** 2
        return losses.mean() if self.reduction == "mean" else losses


class Scalar(nn.Module):
    """A network whose output has shape (n,). Ghost clipping of Opacus 1.6 is wrong for shape (n, 1) and this loss."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number, (below, width) in enumerate(zip(network.widths, (*network.hidden, 1), strict=True)):
            layers += [nn.Linear(below, width, bias=number > 0), nn.ReLU()]
        self.net = nn.Sequential(*layers[:-1])
        nn.utils.vector_to_parameters(torch.from_numpy(network.parameters.astype(np.float32)), self.net.parameters())

    def forward(self, x: Tensor) -> Tensor:
        """Predictions of shape (n,)."""
        output: Tensor = self.net(x)
        return output.flatten()


def make_rule(descent: Descent, net: nn.Module) -> torch.optim.Optimizer:
    """The update rule."""
    kind: Any = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[descent.rule]
    rule: torch.optim.Optimizer = kind(net.parameters(), lr=descent.learning_rate)
    return rule


def read_parameters(net: nn.Module) -> NDArray[np.float64]:
    """Parameters of a network as one vector."""
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy().astype(np.float64)


def repeat(batches: Any) -> Iterator[Batch]:
    """Batches of a loader, epoch after epoch."""
    while True:
        for *inputs, label in batches:
            yield tuple(inputs), label


class TorchSteps:
    """Steps without privacy.

    Parameters
    ----------
    descent : Descent
        Settings; clip norm and noise are not used.
    net : nn.Module
        The model.
    inputs, label : Tensor
        Records.
    batches : {"loader", "gather"}
        How samples are drawn: by PyTorch's ``DataLoader``, as usual, or by indexing tensors, which is faster.
    """

    def __init__(
        self,
        descent: Descent,
        net: nn.Module,
        inputs: tuple[Tensor, ...],
        label: Tensor,
        *,
        batches: Literal["loader", "gather"] = "loader",
    ) -> None:
        self.net, self.loss, self.rule = net, HalfSquaredLoss(), make_rule(descent, net)
        self.batches = self._repeat(inputs, label, descent.batch_size, batches)

    @classmethod
    def of(cls, descent: Descent, network: Network, X: NDArray[Any], y: NDArray[Any], **settings: Any) -> "TorchSteps":
        """Steps on dense columns."""
        return cls(descent, Scalar(network), (torch.from_numpy(X),), torch.from_numpy(y), **settings)

    @staticmethod
    def _repeat(inputs: tuple[Tensor, ...], label: Tensor, batch_size: int | None, kind: str) -> Iterator[Batch]:
        if batch_size is None:
            return iter(lambda: (inputs, label), None)
        if kind == "gather":

            def draw() -> Batch:
                chosen = torch.randint(len(label), (batch_size,))
                return tuple(each[chosen] for each in inputs), label[chosen]

            return iter(draw, None)
        data = torch.utils.data.TensorDataset(*inputs, label)
        return repeat(torch.utils.data.DataLoader(data, batch_size=batch_size, shuffle=True))

    def run(self, num_steps: int) -> None:
        """Take so many further steps."""
        for _ in range(num_steps):
            inputs, label = next(self.batches)
            self.rule.zero_grad()
            self.loss(self.net(*inputs), label).backward()
            self.rule.step()

    def read(self) -> NDArray[np.float64]:
        """Parameters now."""
        return read_parameters(self.net)
