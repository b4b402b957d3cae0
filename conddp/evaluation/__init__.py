"""Private evaluation of a released model on held-out records."""

from conddp.evaluation.run import evaluate_model

__all__ = ["evaluate_model"]
