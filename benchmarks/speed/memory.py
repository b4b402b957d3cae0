"""Memory of this process, read from Linux."""

from pathlib import Path

__all__ = ["measure_peak", "measure_size", "reset_peak"]

STATUS, REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak() -> None:
    """Start counting the peak anew, where the kernel allows it."""
    REFERENCES.write_text("5")


def measure_size() -> int:
    """Bytes in memory now."""
    return _read("VmRSS")


def measure_peak() -> int:
    """Most bytes that were in memory since :func:`reset_peak`."""
    return _read("VmHWM")


def _read(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024
