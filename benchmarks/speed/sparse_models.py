"""Models of PyTorch for categories in bins; their outputs have shape (n,)."""

import torch
from torch import Tensor, nn

__all__ = ["Bins", "Dense"]


class Bins(nn.Module):
    """One weight per bin, or embeddings followed by a network.

    Parameters
    ----------
    num_bins, num_numbers : int
        Of a record.
    width : int
        Of an embedding; 1 for the linear model.
    widths : tuple of int
        Inputs and hidden layers of the network; none for the linear model.
    """

    def __init__(self, num_bins: int, num_numbers: int, *, width: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.table = nn.Embedding(num_bins, width)
        layers: list[nn.Module] = []
        for below, above in zip(widths, (*widths[1:], 1) if widths else (), strict=True):
            layers += [nn.Linear(below, above), nn.ReLU()]
        self.net: nn.Module = nn.Sequential(*layers[:-1]) if widths else nn.Linear(num_numbers, 1)
        self.is_linear = not widths

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predictions."""
        looked_up = self.table(codes)
        if self.is_linear:
            output: Tensor = looked_up.sum(dim=(1, 2)) + self.net(numbers).flatten()
        else:
            output = self.net(torch.cat([looked_up.flatten(1), numbers], dim=1)).flatten()
        return output


class Dense(nn.Module):
    """A linear model on indicators."""

    def __init__(self, num_columns: int) -> None:
        super().__init__()
        self.net = nn.Linear(num_columns, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """Predictions."""
        output: Tensor = self.net(rows)
        return output.flatten()
