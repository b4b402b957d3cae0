"""DP-SGD by Opacus as its tutorial has it: a loader, a module, an optimizer, and the engine that finds the noise."""

import time
import warnings
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: F401  (imports everything that a fit needs)
from torch import nn

from ..housing import Housing
from ..workers import serve

__all__ = ["train"]


class Net(nn.Module):
    """A linear model or a network, with outputs of shape (n,)."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for below, above in zip(widths, (*widths[1:], 1), strict=True):
            layers += [nn.Linear(below, above), nn.ReLU()]
        self.net = nn.Sequential(*layers[:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Predictions."""
        output: torch.Tensor = self.net(x)
        return output.flatten()


def train(X: Any, y: Any, setting: dict[str, Any], *, hidden: tuple[int, ...], epsilon: float, delta: float) -> Any:
    """Train with one setting; return a function from columns to scaled predictions."""
    rows, label = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    net: Any = Net((X.shape[1], *hidden))
    rule: Any = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[setting["rule"]]
    data = torch.utils.data.TensorDataset(rows, label)
    net, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=net,
        optimizer=rule(net.parameters(), lr=setting["learning_rate"]),
        data_loader=torch.utils.data.DataLoader(data, batch_size=setting["batch_size"]),
        target_epsilon=epsilon,
        target_delta=delta,
        epochs=setting["epochs"],
        max_grad_norm=setting["clip_norm"],
    )
    for _ in range(setting["epochs"]):
        for x, target in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x), target).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()

    def predict(columns: Any) -> Any:
        with torch.no_grad():
            return net(torch.tensor(columns, dtype=torch.float32)).numpy().astype(np.float64)

    return predict


class Fit:
    """Requests about one kind of model."""

    def set_up(
        self, *, columns: str, hidden: list[int], epsilon: float, delta: float, threads: int, small: bool
    ) -> None:
        """Read the data."""
        warnings.simplefilter("ignore")
        torch.set_num_threads(threads)
        self.housing = Housing.load(columns, small=small)
        self.settings: dict[str, Any] = {"hidden": tuple(hidden), "epsilon": epsilon, "delta": delta}

    def run(self, *, setting: dict[str, Any], seed: int) -> tuple[float, float, dict[str, float]]:
        """One run of one setting: its time with accounting, and its test error."""
        torch.manual_seed(seed)
        wall, busy = time.perf_counter(), time.process_time()
        predict = train(self.housing.X, self.housing.scaled, setting, **self.settings)
        wall, busy = time.perf_counter() - wall, time.process_time() - busy
        return wall, busy, {"error": self.housing.compute_error(predict)}


if __name__ == "__main__":
    fit = Fit()
    serve({"set_up": fit.set_up, "run": fit.run})
