"""Section: how long programs take to start, as fresh processes."""

import os
import resource
import subprocess
import sys
import time
from functools import partial

from .results import Measured, Scope, Work
from .turns import Contestant, Timing, gather, take_turns
from .workers import PATHS, ROOT

__all__ = ["list_works"]

FIT = """
import numpy as np
from conddp import PrivateRegressor
rng = np.random.default_rng(0)
X = rng.normal(size=(16512, 8))
y = X @ rng.normal(size=8) / 3 + rng.normal(size=16512)
PrivateRegressor(epsilon=1.0, delta=1e-6, label_bounds=(-5, 5)).fit(X, y)
"""
LEAST_SQUARES = """
import numpy as np
from sklearn.linear_model import LinearRegression
rng = np.random.default_rng(0)
X = rng.normal(size=(16512, 8))
y = X @ rng.normal(size=8) / 3 + rng.normal(size=16512)
LinearRegression().fit(X, y)
"""
IMPORTS = {
    "Python itself": "pass",
    "import numpy": "import numpy",
    "import conddp": "import conddp",
    "from conddp import PrivateRegressor": "from conddp import PrivateRegressor",
    "from sklearn.base import BaseEstimator": "from sklearn.base import BaseEstimator",
    "from sklearn.linear_model import LinearRegression": "from sklearn.linear_model import LinearRegression",
    "import torch": "import torch",
    "import opacus": "import opacus",
}
BASE = "from conddp import PrivateRegressor"


def list_works(scope: Scope) -> dict[str, Work]:
    """Imports, the command line, and whole programs."""
    if scope.threads > 1:
        return {}
    if scope.tiny:
        return {"imports": partial(compare, scope, {BASE: ["-c", "pass"], "Python itself": ["-c", "pass"]}, BASE)}
    command = {f"conddp {each}": ["-m", "conddp", *each.split()] for each in ("--version", "--help", "fit --help")}
    programs = {"import and default fit, 16,512 x 8": ["-c", FIT]}
    programs["import and LinearRegression of scikit-learn, not private"] = ["-c", LEAST_SQUARES]
    return {
        "imports": partial(compare, scope, {name: ["-c", code] for name, code in IMPORTS.items()}, BASE),
        "command line": partial(compare, scope, {"Python itself": ["-c", "pass"], **command}, "conddp --version"),
        "whole programs": partial(compare, scope, programs, "import and default fit, 16,512 x 8"),
    }


def compare(scope: Scope, programs: dict[str, list[str]], base: str) -> Measured:
    """Take turns; the first turn fills the cache of the disk."""
    builders = {
        name: partial(lambda given: Contestant(partial(_run, given), num_steps=1), given)
        for name, given in programs.items()
    }
    ready, absent = gather(builders, base=base, warm=not scope.quick)
    return Measured(take_turns(ready, base=base, turns=scope.pick(11, 2, 1)), absent)


def _run(arguments: list[str], num_steps: int) -> Timing:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "PYTHONWARNINGS": "ignore"}
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(num_steps):
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, check=True, capture_output=True)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return Timing(time.perf_counter() - began, busy)
