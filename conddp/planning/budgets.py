"""The budgets at which algorithms are compared."""

__all__ = ["DELTA", "EPSILONS"]

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
DELTA = 1e-6
