"""The paper's theorems as functions that return bounds, corrected where the printed form is wrong.

The distance to the optimum and the initial loss depend on labels. Values passed for them must be public or assumed.
"""

from conddp.theory.bound import Bound
from conddp.theory.convergence import bound_convex, bound_nonconvex, bound_strongly_convex
from conddp.theory.linear_regression import (
    Improvement,
    Optimum,
    compute_factors,
    compute_improvement,
    solve_optimum,
)
from conddp.theory.privacy import bound_gradient, calibrate_noise

__all__ = [
    "Bound",
    "Improvement",
    "Optimum",
    "bound_convex",
    "bound_gradient",
    "bound_nonconvex",
    "bound_strongly_convex",
    "calibrate_noise",
    "compute_factors",
    "compute_improvement",
    "solve_optimum",
]
