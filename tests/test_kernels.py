"""Compiled kernels are trusted only after they computed examples right; damaged files of them are compiled again."""

import importlib
import pkgutil
import struct
import sys
from collections.abc import Iterator
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import conddp
from conddp import _fused
from conddp._fused import Kernel, make_numbers

FACTOR = 1.2345678901234567


def list_kernels() -> dict[str, Kernel]:
    found: dict[str, Kernel] = {}
    for module in pkgutil.walk_packages(conddp.__path__, "conddp."):
        source = find_spec(module.name)
        assert source is not None and source.origin is not None
        if "= Kernel(" in Path(source.origin).read_text():
            members = vars(importlib.import_module(module.name))
            found |= {name: each for name, each in members.items() if isinstance(each, Kernel)}
    return found


KERNELS = list_kernels()


def scale(values: Any, out: Any) -> None:
    for i in range(values.shape[0]):
        out[i] = values[i] * FACTOR


def make_kernel() -> Kernel:
    return Kernel(
        scale, ["void(float64[::1], float64[::1])"], examples=lambda: iter([[make_numbers(75), np.empty(75)]])
    )


@pytest.fixture
def folder(kernels: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where numba keeps what it compiles in this test."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    return tmp_path


def compiled_from(kernel: Kernel) -> str:
    """Whether the kernel was found on disk."""
    loaded: Any = kernel.get()
    assert loaded is not None
    out = np.empty(3)
    loaded(np.array([1.0, 2.0, -3.0]), out)
    assert out.tolist() == [FACTOR, 2 * FACTOR, -3 * FACTOR]
    if not loaded.stats.cache_path:
        return "memory"
    return "disk" if sum(loaded.stats.cache_hits.values()) else "source"


def test_there_are_kernels() -> None:
    assert {"SUM_COLUMNS", "SUM_RESIDUALS", "CLIP_BLOCK", "FILL_NORMALS", "ROUND_TO_GRID", "ADAM"} <= set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_examples_take_a_kernel_through_all_its_lines(name: str) -> None:
    function: Any = KERNELS[name]._function
    seen: set[int] = set()

    def watch(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code is not function.__code__:
            return None
        seen.add(frame.f_lineno)
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        with np.errstate(all="ignore"):
            for arguments in KERNELS[name]._examples():
                function(*arguments)
    finally:
        sys.settrace(before)
    first = function.__code__.co_firstlineno
    lines = {line for _, _, line in function.__code__.co_lines() if line is not None and line > first}
    assert lines <= seen | {first}, sorted(lines - seen)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", KERNELS)
def test_examples_show_a_small_error_in_any_result(name: str) -> None:
    kernel = KERNELS[name]
    compiled: Any = kernel.get()
    assert compiled is not None and kernel.is_right(compiled)
    error = 1e-11 if kernel._any_order else 2.0**-52
    written = list(_find_results(kernel))
    assert written
    for place in written:

        def wrong(*arguments: Any, at: int = place) -> Any:
            returned = compiled(*arguments)
            known = np.flatnonzero(np.isfinite(arguments[at]) & (arguments[at] != 0))
            arguments[at].reshape(-1)[known[-1]] += error * np.maximum(
                1, np.abs(arguments[at][np.isfinite(arguments[at])]).max()
            )
            return returned

        assert not kernel.is_right(wrong), place


def _find_results(kernel: Kernel) -> Iterator[int]:
    """Places of the arguments that the kernel writes numbers to."""
    for arguments in kernel._examples():
        copied = deepcopy(arguments)
        with np.errstate(all="ignore"):
            kernel._function(*arguments)
        for place, (each, before) in enumerate(zip(arguments, copied, strict=True)):
            if isinstance(each, np.ndarray) and each.dtype == np.float64 and each.tobytes() != before.tobytes():
                yield place
        return


def test_what_was_compiled_is_found_on_disk_and_damage_to_it_is_noticed(folder: Path) -> None:
    assert compiled_from(make_kernel()) == "source"
    assert compiled_from(make_kernel()) == "disk"
    index, code, seal = (next(folder.rglob(f"*.{kind}")) for kind in ("nbi", "nbc", "sha256"))
    for path, place in ((code, code.stat().st_size // 2), (index, 20), (seal, 3)):
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)
        assert compiled_from(make_kernel()) == "source", path
        assert compiled_from(make_kernel()) == "disk", path
    seal.write_bytes(b"\xff")  # not text
    assert compiled_from(make_kernel()) == "source"
    seal.unlink()
    assert compiled_from(make_kernel()) == "source"


def test_wrong_code_under_a_right_digest_is_noticed_by_the_examples(folder: Path) -> None:
    assert compiled_from(make_kernel()) == "source"
    path = next(folder.rglob("*.nbc"))
    content = path.read_bytes()
    assert struct.pack("<d", FACTOR) in content
    path.write_bytes(content.replace(struct.pack("<d", FACTOR), struct.pack("<d", FACTOR * (1 + 2.0**-52))))
    kernel = make_kernel()
    _fused._Files(path.parent, kernel._name()[1]).seal()
    loaded, out = kernel._load(), np.empty(1)
    loaded(np.ones(1), out)
    assert sum(loaded.stats.cache_hits.values()) and out[0] != FACTOR  # the damaged code was loaded
    assert compiled_from(make_kernel()) == "memory"


def test_names_of_files_depend_on_what_is_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def name(**settings: Any) -> str:
        return Kernel(scale, ["void(float64[::1], float64[::1])"], examples=lambda: iter(()), **settings)._name()[1]

    names = {name(), name(any_order=True), KERNELS["ADAM"]._name()[1]}
    assert name() in names
    monkeypatch.setattr(_fused, "FAST_MATH", {"contract"})
    names |= {name(any_order=True)}
    monkeypatch.setattr("numba.__version__", "0.0")
    names |= {name()}
    monkeypatch.setattr(_fused, "version", lambda _: "0.0")
    names |= {name()}
    assert len(names) == 6


CALLED: Any = None


def call(values: Any, out: Any) -> None:
    CALLED(values, out)
    for i in range(out.shape[0]):
        out[i] += 1.0


def make_caller(callee: Kernel, examples: int = 1) -> Kernel:
    signatures = ["void(float64[::1], float64[::1])"]
    return Kernel(
        call,
        signatures,
        examples=lambda: ([make_numbers(75), np.empty(75)] for _ in range(examples)),
        calls={"CALLED": callee},
    )


def total(values: Any, out: Any) -> None:
    out[0] = 0.0
    for i in range(values.shape[0]):
        out[0] += values[i]


def test_a_kernel_calls_others_with_the_settings_of_each(folder: Path) -> None:
    settings: dict[str, Any] = {"examples": lambda: iter([[make_numbers(75), np.zeros(75)]])}
    signatures = ["void(float64[::1], float64[::1])"]
    callees = [
        make_kernel(),
        Kernel(total, signatures, **settings),
        Kernel(total, signatures, any_order=True, **settings),
    ]
    values, names = make_numbers(1000), set()
    for callee in callees:
        caller = make_caller(callee)
        for _ in range(2):  # from source and from disk
            compiled, alone = make_caller(callee).get(), callee.get()
            assert compiled is not None and alone is not None
            found, expected = np.zeros(1000), np.zeros(1000)
            compiled(values, found)
            alone(values, expected)
            np.testing.assert_array_equal(found, expected + 1.0)
        assert caller._any_order == callee._any_order
        assert "fastmath" not in caller._settings
        names.add(caller._name()[1])
    assert len(names) == 3  # what is called is part of what is compiled


def test_a_kernel_that_calls_wrong_code_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callee = make_kernel()
    monkeypatch.setattr(callee, "_link", lambda function: lambda values, out: None)
    with pytest.warns(RuntimeWarning, match="call"):
        assert make_caller(callee).get() is None


def test_an_aligned_array_is_the_same_array() -> None:
    for order in ("C", "F"):
        array = np.asarray(make_numbers(33, 7), order=order)
        for start in range(3):
            part = array.reshape(-1, order=order)[start : start + 77].reshape(11, 7, order=order)
            found = _fused.align(part)
            assert found.ctypes.data % 64 == 0 and found.flags.carray == part.flags.carray
            assert found.flags.f_contiguous == part.flags.f_contiguous and found.flags.behaved
            np.testing.assert_array_equal(found, part)
    large = np.empty(_fused.LARGEST_ALIGNED // 8 + 9)[1:]
    assert _fused.align(large) is large


def test_a_compiler_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_kernel(signatures: Any = None, **_: Any) -> Any:
        return lambda function: lambda values, out: None

    monkeypatch.setattr(_fused, "_numba", SimpleNamespace(njit=compile_kernel, __version__="1"))
    monkeypatch.setattr(_fused, "_are_used", True)
    kernel = make_kernel()
    with pytest.warns(RuntimeWarning, match="scale"):
        assert kernel.get() is None
    assert kernel.get() is None


def test_a_damaged_cache_or_compiler_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def compile_kernel(signatures: Any = None, *, cache: bool = False, **_: Any) -> Any:
        asked.append(cache)
        if cache or is_broken:
            raise RuntimeError("no locator available")
        return lambda function: function

    monkeypatch.setattr(_fused, "_numba", SimpleNamespace(njit=compile_kernel, __version__="1"))
    monkeypatch.setattr(_fused, "_are_used", True)
    is_broken = False
    assert make_kernel().get() is scale
    assert asked == [True, False]
    is_broken = True
    kernel = make_kernel()
    assert kernel.get() is None and kernel.get() is None
    assert len(asked) == 4
