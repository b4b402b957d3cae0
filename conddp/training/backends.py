"""Libraries that can compute training steps: NumPy, or PyTorch if it is installed."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from conddp.errors import PrivacyError

__all__ = ["BACKENDS", "load_backend"]

BACKENDS = ("numpy", "torch")


def load_backend(name: str) -> Callable[[Any], Any]:
    """Return the function that hands arrays over to a library. Other objects, such as sparse rows, are left to NumPy.

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    PrivacyError
        If PyTorch is set to a precision that the bounds on rounding errors do not cover.
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
    try:
        exact = torch.get_float32_matmul_precision() == "highest" and not torch.is_autocast_enabled("cpu")
    except RuntimeError:  # if it was set by both of PyTorch's interfaces
        exact = False
    if not exact:  # the bound on rounding errors assumes float32
        raise PrivacyError(
            "PyTorch multiplies float32 matrices in a lower precision, whose rounding errors are not covered. Call "
            "torch.set_float32_matmul_precision('highest') before the fit, and leave torch.autocast."
        )

    def convert(array: Any) -> Any:
        if not isinstance(array, np.ndarray):
            raise ValueError("backend='torch' needs public features in memory, got sparse rows. Leave backend out.")
        return torch.from_numpy(np.ascontiguousarray(array))

    return convert
