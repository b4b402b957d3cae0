"""Libraries that can compute training steps: NumPy, or PyTorch if it is installed."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["BACKENDS", "load_backend"]

BACKENDS = ("numpy", "torch")


def load_backend(name: str) -> Callable[[Any], Any]:
    """Return the function that hands arrays over to a library. Other objects, such as sparse rows, are left to NumPy.

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    """
    if name == "numpy":
        return lambda array: array
    try:
        torch = import_module("torch")
    except ImportError:
        raise ImportError(
            "backend='torch' needs PyTorch, which is not installed. Install it with `pip install conddp[torch]`, or "
            "leave backend out."
        ) from None

    def convert(array: Any) -> Any:
        if not isinstance(array, np.ndarray):
            raise ValueError("backend='torch' needs public features in memory, got sparse rows. Leave backend out.")
        return torch.from_numpy(np.ascontiguousarray(array))

    return convert
