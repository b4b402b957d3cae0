"""Compiled kernels: functions that numba compiles, if it is installed (``pip install conddp[fast]``).

A kernel is an ordinary Python function of arrays. It is compiled for given types when it is first needed, and kept on
disk, so that other processes need not compile it again. Importing numba takes half a second. It is therefore imported
only for work that takes longer than that, or if the environment variable ``CONDDP_FAST`` is 1. If the variable is 0,
kernels are never used. Every kernel has a counterpart in NumPy that gives the same numbers up to rounding.
"""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Kernel", "as_contiguous", "load_kernels"]

PAYS_OFF = 2e9  # multiplications of a run that take some seconds with NumPy
FAST_MATH = {"reassoc", "contract"}  # sums in any order, fused multiply-add; nothing that changes infinities or NaN

_numba: Any = None
_is_missing = False
_are_used = False


def load_kernels(work: float = 0.0) -> bool:
    """Load numba if it pays off for so many multiplications, and return whether kernels are used from now on.

    They are also used for little work if numba has been loaded already. The environment variable is read again.

    Parameters
    ----------
    work : float
        Approximate number of multiplications, from public sizes.
    """
    global _numba, _is_missing, _are_used
    setting = os.environ.get("CONDDP_FAST")
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":  # kernels would run as Python, which is slow
        setting = "0"
    if setting != "0" and _numba is None and not _is_missing and (work >= PAYS_OFF or setting == "1"):
        try:
            _numba = import_module("numba")
        except Exception:  # not installed, or not made for this version of NumPy or Python
            _is_missing = True
    _are_used = setting != "0" and _numba is not None
    return _are_used


def as_contiguous(*arrays: Any) -> list[NDArray[Any]] | None:
    """Return arrays, or tensors in the memory of the processor, as NumPy arrays; None if kernels cannot take one.

    Kernels take arrays that are contiguous, aligned and writeable, also those that they only read.
    """
    found = []
    for each in arrays:
        if not isinstance(each, np.ndarray):
            if each.device.type != "cpu":
                return None
            each = each.numpy()  # shares its memory
        if not each.flags.carray:
            return None
        found.append(each)
    return found


class Kernel:
    """A function that numba compiles for given types, if kernels are in use.

    Parameters
    ----------
    function : callable
        Function of arrays and numbers. It must not raise, whatever its arguments contain.
    signatures : sequence of str
        Types of the arguments, as numba writes them.
    any_order : bool
        Whether sums may be added up in any order, so that they can be vectorised.
    """

    def __init__(self, function: Callable[..., Any], signatures: Sequence[str], *, any_order: bool = False) -> None:
        self._function, self._signatures, self._any_order = function, list(signatures), any_order
        self._compiled: Any = None
        self._is_broken = False

    def get(self) -> Callable[..., Any] | None:
        """Return the compiled function; None if kernels are not in use or this one cannot be compiled."""
        if not _are_used:
            return None
        if self._compiled is None and not self._is_broken:
            self._compile()
        compiled: Callable[..., Any] | None = self._compiled
        return compiled

    def _compile(self) -> None:
        """Compile for all signatures, or load the result from disk. Depends on no data.

        A kernel on disk is found by its own file and the processor. It is not compiled again if only the settings below
        change, so a change of these must go with one of the files of kernels.
        """
        settings: dict[str, Any] = {"error_model": "numpy", "nogil": True}
        if self._any_order:
            settings["fastmath"] = FAST_MATH
        for cache in (True, False):  # without the cache if its folder cannot be written, or a file in it cannot be read
            try:
                self._compiled = _numba.njit(self._signatures, cache=cache, **settings)(self._function)
                return
            except Exception:
                continue
        self._is_broken = True
