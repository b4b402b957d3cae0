"""Contestants in processes of their own: requests and answers are lines of JSON.

Workers inherit the affinity and the limits on threads of the process that starts them.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .turns import Absent, Timing

__all__ = ["PATHS", "ROOT", "Worker", "serve"]

ROOT = Path(__file__).resolve().parents[2]
PATHS = (str(ROOT), str(ROOT / "benchmarks"))


class Worker:
    """A process that answers requests, the other end of :func:`serve`.

    Parameters
    ----------
    module : str
        A module of ``speed.alone``.
    python : Path, optional
        Interpreter of another environment.
    """

    def __init__(self, module: str, python: Path | None = None) -> None:
        self.said = tempfile.TemporaryFile()  # a pipe that nobody reads would fill up
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [str(python or sys.executable), "-m", f"speed.alone.{module}"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, name: str, /, *, timeout: float = 600.0, **arguments: Any) -> Any:
        """Send a request and wait for the answer.

        Raises
        ------
        Absent
            If the process fails or takes longer than ``timeout`` seconds; it is then ended.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its last words say why
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            self.process.kill()
            raise Absent(f"took longer than {timeout:g} seconds")
        line = self.process.stdout.readline()
        if not line:
            self.said.seek(0)
            said = self.said.read().decode().strip().splitlines()
            raise Absent(said[-1] if said else f"the process ended with code {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Absent(answer["error"])
        return answer["value"]

    def time(self, num_steps: int) -> Timing:
        """Have the process time a run of its own."""
        wall, busy, found = self.call("run", num_steps=num_steps)
        return Timing(wall, busy, found)

    def close(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.said.close()


def serve(requests: Mapping[str, Callable[..., Any]]) -> None:
    """Answer requests until the other end closes. What libraries print does not get in the way."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"value": requests[name](**arguments)}
        except Exception as error:
            traceback.print_exc()
            first = (str(error).strip().splitlines() or [""])[0]
            answer = {"error": f"{type(error).__name__}: {first}"[:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
