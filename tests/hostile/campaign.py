"""Many attacks under limits of memory and time: ``python -m tests.hostile.campaign --cases 2000``."""

import argparse
import os
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

from tests.hostile.targets import TARGETS

MOST_MEMORY = 4 << 30  # bytes of address space
LONGEST_CASE = 30.0  # seconds


def attack(name: str, numbers: range, folder: Path) -> tuple[int, float, list[str]]:
    """Run numbered cases of one target: how many were refused, the longest time, and what went wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    case, refused, longest, failures = TARGETS[name](folder), 0, 0.0, []
    for number in numbers:
        started = time.monotonic()
        try:
            refused += case(Random(f"{name} {number}"))
        except Exception:
            failures.append(f"{name} {number}: {traceback.format_exc(limit=-9)}")
        spent = time.monotonic() - started
        longest = max(longest, spent)
        if spent > LONGEST_CASE:
            failures.append(f"{name} {number}: took {spent:.0f} s")
    return refused, longest, failures


def main() -> int:
    """Attack all targets, or one; the exit code tells whether something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="of each target")
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--target", choices=list(TARGETS), help="only this one")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    numbers = range(arguments.start, arguments.start + arguments.cases)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CONDDP_CACHE"] = str(Path(folder) / "cache")
        print("| target | cases | refused | failures | longest case |\n|---|---|---|---|---|", flush=True)
        for name in [arguments.target] if arguments.target else TARGETS:
            refused, longest, failures = attack(name, numbers, Path(folder) / name)
            wrong += len(failures)
            print(f"| {name} | {len(numbers):,} | {refused:,} | {len(failures)} | {longest:.1f} s |", flush=True)
            for failure in failures[:10]:
                print(failure, file=sys.stderr, flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"\nlargest memory in use: {memory / 1024:.0f} MB")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
