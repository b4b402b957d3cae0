"""How much memory is available, to refuse what cannot fit before anything is spent."""

import math
from pathlib import Path

__all__ = ["find_available_memory"]

SYSTEM = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")  # limits of a container


def find_available_memory() -> float:
    """Bytes that this process can use without others being swapped out; infinite if the system does not tell.

    Examples
    --------
    >>> find_available_memory() > 0
    True
    """
    available = math.inf
    try:
        for line in SYSTEM.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = 1024.0 * int(line.split()[1])
        limit, used = ((GROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        if limit != "max":
            available = min(available, max(0.0, float(limit) - float(used)))
    except (OSError, ValueError, IndexError):  # another system, or no container
        pass
    return available
