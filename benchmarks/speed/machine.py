"""Facts about the machine, without which times mean little."""

import os
import platform
import statistics
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

__all__ = ["describe_machine", "get_load", "list_versions"]

PACKAGES = ("conddp", "numpy", "scipy", "scikit-learn", "numba", "torch", "opacus", "dp-accounting")
CPU = Path("/sys/devices/system/cpu/cpu0")
SIZES = {"L2 cache": 1 << 20, "L3 cache": 1 << 24, "memory": 1 << 30}  # bytes that are read again and again


def get_load() -> float:
    """Mean number of running processes in the last minute."""
    return round(os.getloadavg()[0], 1)


def list_versions() -> dict[str, str]:
    """Versions of the packages of this environment; those that are not installed are missing."""
    found = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def describe_machine(*, small: bool = False) -> dict[str, Any]:
    """Processor, caches, memory, BLAS, and what one thread reads and multiplies per second."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    blas: dict[str, Any] = next((each for each in threadpool_info() if each["user_api"] == "blas"), {})
    with threadpool_limits(1):
        sizes = {name: min(size, 1 << 20) if small else size for name, size in SIZES.items()}
        bandwidth = {name: round(_measure_reading(size), 1) for name, size in sizes.items()}
        products = {dtype: round(_measure_products(dtype, 64 if small else 1024)) for dtype in ("float64", "float32")}
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "caches": _list_caches(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "blas": " ".join(str(blas.get(key, "")) for key in ("internal_api", "version", "architecture")).strip(),
        "reading_gb_per_second": bandwidth,
        "gflop_per_second": products,
        "versions": list_versions(),
        "load": get_load(),
    }


def _list_caches() -> dict[str, str]:
    found = {}
    for place in sorted((CPU / "cache").glob("index*")):
        kind = (place / "type").read_text().strip()
        if kind != "Instruction":
            found[f"L{(place / 'level').read_text().strip()}"] = (place / "size").read_text().strip()
    return found


def _measure_reading(num_bytes: int) -> float:
    """Gigabytes that an inner product reads per second, from two arrays of this size together."""
    a, b = np.ones(num_bytes // 16), np.ones(num_bytes // 16)
    repeats = max(1, (1 << 28) // num_bytes)
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(repeats):
            a @ b
        taken.append(time.perf_counter() - began)
    return repeats * num_bytes / min(taken[1:]) / 1e9


def _measure_products(dtype: str, size: int) -> float:
    a = np.ones((size, size), dtype=dtype)
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        a @ a
        taken.append(time.perf_counter() - began)
    return 2 * size**3 / statistics.median(taken[1:]) / 1e9
