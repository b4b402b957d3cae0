"""Environments of rivals that cannot be installed beside conddp, or should not be.

They are made once, with venv and pip, under ``bench`` in the cache folder of conddp.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .turns import Absent

__all__ = ["ENVIRONMENTS", "find", "get_folder", "prepare"]

# diffprivlib 0.6.6 imports a name that scikit-learn has removed since 1.6. interpret would replace pandas.
ENVIRONMENTS = {
    "jax-privacy": ("jax-privacy==2.0.0", "jax==0.10.2", "jaxlib==0.10.2"),
    "diffprivlib": ("diffprivlib==0.6.6", "scikit-learn==1.6.1"),
    "interpret": ("interpret-core==0.7.8",),
}
READY, FAILED = "requirements.txt", "failed.txt"


def get_folder() -> Path:
    """``CONDDP_BENCH_ENVIRONMENTS``, or ``bench`` in the cache folder of conddp."""
    given = os.environ.get("CONDDP_BENCH_ENVIRONMENTS")
    if given:
        return Path(given)
    from conddp.cache import cache_folder

    return cache_folder() / "bench"


def find(name: str) -> Path:
    """Interpreter of an environment.

    Raises
    ------
    Absent
        If it could not be made.
    """
    place = get_folder() / name
    failed = place / FAILED
    if failed.is_file():
        raise Absent(failed.read_text().strip())
    ready = place / READY
    if not ready.is_file() or ready.read_text().split() != list(ENVIRONMENTS[name]):
        raise Absent(f"its environment was not made: python benchmarks/speed environments --only {name}")
    return place / "bin" / "python"


def prepare(name: str) -> str:
    """Make an environment unless it is there; return what became of it."""
    try:
        return f"{name}: {find(name)}"
    except Absent:
        place, requirements = get_folder() / name, ENVIRONMENTS[name]
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    install = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(place)], [*install, *requirements]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
            (place / FAILED).write_text(f"cannot be installed: {said[-1] if said else 'pip says nothing'}\n")
            break
    else:
        (place / READY).write_text("\n".join(requirements) + "\n")
    try:
        return f"{name}: {find(name)}"
    except Absent as absent:
        return f"{name}: absent, {absent}"
