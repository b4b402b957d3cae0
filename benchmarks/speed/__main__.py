"""``python benchmarks/speed``: measure, or write the page."""

import sys
from pathlib import Path

# Opacus installs a package named "benchmarks" too, so this one is imported as "speed".
HERE = Path(__file__).resolve().parent
sys.path[0:1] = [str(HERE.parent), str(HERE.parents[1])]

from speed.command import main  # noqa: E402  (after the path)

main()
