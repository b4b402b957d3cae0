"""Compiled kernels: functions that numba compiles, if it is installed (``pip install conddp[fast]``).

A kernel is an ordinary Python function of arrays. It is compiled for given types when it is first needed, and kept on
disk, so that other processes need not compile it again. Importing numba takes half a second. It is therefore imported
only for work that takes longer than that, or if the environment variable ``CONDDP_FAST`` is 1. If the variable is 0,
kernels are never used. Every kernel has a counterpart in NumPy that gives the same numbers up to rounding.

Trust in compiled code
    Wrong machine code would release wrong numbers without any sign of it. Three things guard against that.

    * Files on disk are named after a hash of the source file, the settings and the versions of numba and llvmlite, so
      that code compiled from anything else is not found.
    * Beside them is a file with their SHA-256 digests. Files that do not have these digests are deleted before anything
      is loaded from them. This shows damage; it is no defence against somebody who may write to the folder.
    * A kernel runs once on small fixed examples, also right after it was compiled. If its results are not those of the
      Python function that it was compiled from, it is compiled again without the disk. If they still differ, NumPy is
      used instead.

    A kernel may call others, which are then compiled together with it. Its files are named after theirs too.

    What remains is damage in memory after the examples, and an error of the compiler that the examples do not show.
"""

import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Kernel", "align", "as_contiguous", "load_kernels", "make_numbers"]

PAYS_OFF = 2e9  # multiplications of a run that take some seconds with NumPy
CACHE_LINE = 64  # bytes
LARGEST_ALIGNED = 1 << 23  # bytes of an array
FAST_MATH = {"reassoc", "contract"}  # sums in any order, fused multiply-add; nothing that changes infinities or NaN
WRONG = (
    "numba compiles {} to code that does not compute what it should on this machine. NumPy is used instead, which is "
    "slower. Install another version of numba, and check the memory of the machine."
)

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


def align(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy in the same order that starts where a cache line does, unless the array does or is large.

    Kernels that wait for the cache read it faster. Large arrays are read from memory, which takes longer anyway.
    """
    if array.ctypes.data % CACHE_LINE == 0 or array.nbytes > LARGEST_ALIGNED:
        return array
    memory: NDArray[Any] = np.empty(array.nbytes + CACHE_LINE, dtype=np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    order: Literal["C", "F"] = "C" if array.flags.c_contiguous else "F"
    found = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape, order=order)
    found[...] = array
    return found


def make_numbers(*shape: int, start: int = 1) -> NDArray[np.float64]:
    """Make an array of numbers between -1 and 1 that follow no simple pattern, for the examples of a kernel."""
    count = int(np.prod(shape))
    return np.sin(np.arange(start, start + count, dtype=np.float64) ** 2).reshape(shape)


class Kernel:
    """A function that numba compiles for given types, if kernels are in use.

    Parameters
    ----------
    function : callable
        Function of arrays and numbers. It must not raise, whatever its arguments contain.
    signatures : sequence of str
        Types of the arguments, as numba writes them.
    examples : callable
        Makes lists of arguments that take the function through all its branches, for all signatures. Loops should run
        often enough to reach code that takes several numbers at once, and the code for the rest.
    any_order : bool
        Whether sums may be added up in any order, so that they can be vectorised. If not, results must have the same
        bits as those of the function in Python.
    rounding : float
        Allowed difference between results of the examples in two orders, relative to the largest number.
    calls : mapping, optional
        Kernels that the function calls, by the names under which it calls them. They keep their own settings. If one of
        them adds up in any order, so does this one, as far as the examples are concerned.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signatures: Sequence[str],
        *,
        examples: Callable[[], Iterable[Sequence[Any]]],
        any_order: bool = False,
        rounding: float = 1e-12,
        calls: Mapping[str, "Kernel"] | None = None,
    ) -> None:
        self.signatures, self._examples, self._calls = list(signatures), examples, dict(calls or {})
        self._function: Callable[..., Any] = _bind(
            function, {name: each._function for name, each in self._calls.items()}
        )
        self._any_order: bool = any_order or any(each._any_order for each in self._calls.values())
        self._rounding = rounding
        self._settings: dict[str, Any] = {"error_model": "numpy", "nogil": True}
        if any_order:
            self._settings["fastmath"] = FAST_MATH
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

    def make_examples(self) -> Iterable[Sequence[Any]]:
        """Make the examples."""
        return self._examples()

    def _compile(self) -> None:
        """Compile for all signatures, or load the result from disk. Depends on no data."""
        for load in (self._load, self._compile_in_memory):  # the latter also if the folder cannot be written
            try:
                compiled = load()
                is_right = self.is_right(compiled)
            except Exception:
                continue
            if is_right:
                self._compiled = compiled
                return
            if load == self._compile_in_memory:
                warnings.warn(WRONG.format(self._function.__name__), RuntimeWarning, stacklevel=2)
        self._is_broken = True

    def _load(self) -> Any:
        """Load the compiled function from disk, or compile it and keep it there."""
        named, key = self._name()
        dispatcher = _numba.njit(cache=True, **self._settings)(self._link(named))
        files = _Files(Path(dispatcher.stats.cache_path), key)
        files.delete_damaged()
        for signature in self.signatures:
            dispatcher.compile(signature)
        if dispatcher.stats.cache_misses and self.is_right(dispatcher):
            files.seal()
        dispatcher.disable_compile()
        return dispatcher

    def _compile_in_memory(self) -> Any:
        """Compile the function without files."""
        return _numba.njit(self.signatures, **self._settings)(self._link(self._function))

    def _link(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Let the function call kernels that are compiled together with it."""
        callees = self._calls.items()
        return _bind(
            function, {name: _numba.njit(**each._settings)(each._link(each._function)) for name, each in callees}
        )

    def _name(self) -> tuple[Callable[..., Any], str]:
        """Copy the function under a name that ends in a hash of what it is compiled from; numba names files after it.

        Returns the copy and the hash.
        """
        function: Any = self._function
        facts = function.__qualname__, self.signatures, self._any_order, sorted(FAST_MATH), sys.version_info[:2]
        versions = _numba.__version__, version("llvmlite")
        callees = [(name, each._name()[1]) for name, each in self._calls.items()]
        source = Path(function.__code__.co_filename).read_bytes() + Path(__file__).read_bytes()
        made_from = facts, versions, sorted(self._settings), callees
        key = hashlib.sha256(repr(made_from).encode() + source).hexdigest()[:16]
        copied = FunctionType(function.__code__, function.__globals__, function.__name__)
        copied.__module__, copied.__qualname__ = function.__module__, f"{function.__qualname__}_{key}"
        return copied, key

    def is_right(self, compiled: Callable[..., Any]) -> bool:
        """Whether compiled code does to all examples what the function does in Python."""
        for arguments in self._examples():
            expected, found = deepcopy(list(arguments)), deepcopy(list(arguments))  # equal arrays stay equal
            with np.errstate(all="ignore"):
                expected.append(self._function(*expected))
                found.append(compiled(*found))
            if not all(self._agree(*each) for each in zip(expected, found, strict=True)):
                return False
        return True

    def _agree(self, expected: Any, found: Any) -> bool:
        """Whether two results have the same bits, or differ by rounding only if sums may be in any order."""
        if isinstance(expected, tuple):
            return all(self._agree(*each) for each in zip(expected, found, strict=True))
        one, other = np.asarray(expected, dtype=np.float64), np.asarray(found, dtype=np.float64)
        if not self._any_order:
            return one.tobytes() == other.tobytes()
        largest = np.max(np.abs(one), initial=1.0, where=np.isfinite(one))
        return np.allclose(one, other, rtol=0.0, atol=self._rounding * largest, equal_nan=True)


def _bind(function: Callable[..., Any], names: Mapping[str, Any]) -> Callable[..., Any]:
    """Copy a function for which these names of its module stand for something else."""
    if not names:
        return function
    bound = FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)
    bound.__module__, bound.__qualname__ = function.__module__, function.__qualname__
    return bound


@dataclass(frozen=True)
class _Files:
    """Files in which numba keeps a kernel, and the file with their digests.

    Parameters
    ----------
    folder : Path
        Folder of the files.
    key : str
        What the names of the files contain.
    """

    folder: Path
    key: str

    def delete_damaged(self) -> None:
        """Delete all files unless they are those that were sealed."""
        try:
            sealed = self._seal.read_text() if self._seal.exists() else ""
        except ValueError:  # damaged itself
            sealed = ""
        if sealed != self._digest():
            for path in self._list():
                path.unlink(missing_ok=True)

    def seal(self) -> None:
        """Write down the digests. If another process writes the same files meanwhile, they are compiled once more."""
        written = self._seal.with_suffix(f".{os.getpid()}.tmp")
        written.write_text(self._digest())
        written.replace(self._seal)

    @property
    def _seal(self) -> Path:
        return self.folder / f"{self.key}.sha256"

    def _list(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{self.key}*.nb[ic]"))

    def _digest(self) -> str:
        return "".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in self._list())
