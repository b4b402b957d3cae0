"""Run the command line: ``python -m conddp``."""

from conddp.cli.main import main

main()
