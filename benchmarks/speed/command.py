"""Command line of the benchmark.

python benchmarks/speed                        # everything: about an hour on two quiet cores
python benchmarks/speed --quick                # a shorter look
python benchmarks/speed --only steps fits      # some sections
python benchmarks/speed --resume               # go on after an interruption
python benchmarks/speed page                   # write docs/speed.md and its figures from the stored results
python benchmarks/speed environments           # make the environments of rivals

Every section runs in a process of its own. With one thread, the process and its workers are tied to one core.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from .environments import ENVIRONMENTS, prepare
from .results import FOLDER, Measured, Scope, measure
from .sections import SECTIONS
from .text import print_section
from .workers import PATHS, ROOT

__all__ = ["main"]

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def main() -> None:
    """Parse arguments and act."""
    parser = argparse.ArgumentParser(
        prog="python benchmarks/speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", default="run", choices=["run", "page", "environments", "section"])
    parser.add_argument("--only", nargs="+", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="small sizes and few turns")
    parser.add_argument("--resume", action="store_true", help="keep works that are stored for the same commit")
    parser.add_argument("--threads", type=int, nargs="+", help="numbers of threads; those of each section if not given")
    parser.add_argument("--environments", type=Path, help="folder of the environments of rivals")
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder of the results")
    given = parser.parse_args()
    known = ENVIRONMENTS if given.what == "environments" else SECTIONS
    names = list(given.only or known)
    if not set(names) <= set(known):
        parser.error(f"--only takes {', '.join(known)}; got {', '.join(names)}")
    if given.environments:
        os.environ["CONDDP_BENCH_ENVIRONMENTS"] = str(given.environments.resolve())
    if given.what == "environments":
        for name in names:
            print(prepare(name), flush=True)
    elif given.what == "page":
        from .page import write_page

        for path in write_page(given.results):
            print(path.relative_to(ROOT))
    elif given.what == "section":
        scope = Scope(threads=given.threads[0], quick=given.quick)
        run_section(names[0], scope, resume=given.resume, results=given.results)
    else:
        run(names, given)


def run(names: list[str], given: argparse.Namespace) -> None:
    """Measure sections, each in a process of its own, and print their tables."""
    for environment in sorted({each for name in names for each in SECTIONS[name].environments}):
        print(prepare(environment), flush=True)
    describe_here(given)
    failed = []
    for name in names:
        for threads in given.threads or SECTIONS[name].threads[: 1 if given.quick else None]:
            command = [sys.executable, str(Path(__file__).parent), "section", "--only", name, "--threads", str(threads)]
            command += ["--quick"] if given.quick else []
            command += ["--resume"] if given.resume else []
            command += ["--results", str(given.results)]
            limits = dict.fromkeys(LIMITS, str(threads))
            done = subprocess.run(
                command, env={**os.environ, **limits, "PYTHONPATH": os.pathsep.join(PATHS)}, check=False
            )
            if done.returncode:
                failed.append(f"{name} on {threads} threads")
        print_section(name, quick=given.quick, folder=given.results)
    if failed:
        raise SystemExit(f"These sections ended with an error: {', '.join(failed)}.")


def describe_here(given: argparse.Namespace) -> None:
    """Store facts about the machine."""
    from .machine import describe_machine

    works = {"machine": lambda: Measured([], facts=describe_machine())}
    measure("machine", works, Scope(quick=given.quick), resume=False, folder=given.results)


def run_section(name: str, scope: Scope, *, resume: bool, results: Path) -> None:
    """Measure one section in this process, on so many threads."""
    if scope.threads == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # JAX has no other way to limit its threads
    try:
        import torch

        torch.set_num_threads(scope.threads)
    except ImportError:
        pass  # its contestants are then absent
    measure(name, SECTIONS[name].list_works(scope), scope, resume=resume, folder=results)
