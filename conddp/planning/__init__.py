"""What to expect of a fit, from public columns and simulated labels."""

from conddp.planning.budgets import DELTA, EPSILONS
from conddp.planning.comparison import Comparison, compare_algorithms
from conddp.planning.plan import Plan, make_plan
from conddp.planning.runner import ProgressCallback, Store, WorkerDied, run_cells
from conddp.planning.storage import load_record, save_record

__all__ = [
    "DELTA",
    "EPSILONS",
    "Comparison",
    "Plan",
    "ProgressCallback",
    "Store",
    "WorkerDied",
    "compare_algorithms",
    "load_record",
    "make_plan",
    "run_cells",
    "save_record",
]
