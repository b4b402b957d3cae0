"""Privacy budgets and costs, as (epsilon, delta)."""

import math
from dataclasses import dataclass

__all__ = ["PrivacyBudget"]

LARGEST = 1e300
_ROUNDING = 1e-9  # relative tolerance, so that a cost of 0.1 + 0.2 fits into a budget of 0.3
_LARGEST_DELTA = math.nextafter(1.0, 0.0)


@dataclass(frozen=True)
class PrivacyBudget:
    """An amount of privacy loss, (epsilon, delta). Amounts add up by basic composition.

    A release without any protection costs an infinite epsilon, which no finite budget covers.

    Examples
    --------
    >>> PrivacyBudget(1.0, 1e-6) + PrivacyBudget(0.5, 1e-6)
    PrivacyBudget(epsilon=1.5, delta=2e-06)
    >>> PrivacyBudget(2.0, 1e-5).covers(PrivacyBudget(1.5, 2e-6))
    True
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for name, value in (("epsilon", self.epsilon), ("delta", self.delta)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise ValueError(f"{name} must be a non-negative number, got {name}={value!r}.")
            if isinstance(value, int) and value > LARGEST:
                raise ValueError(f"{name} must be a number within the range of floating point, or infinite.")
        if self.delta >= 1:
            raise ValueError(f"delta must be below 1, got {self!r}.")

    def __add__(self, other: "PrivacyBudget") -> "PrivacyBudget":
        return PrivacyBudget(self.epsilon + other.epsilon, min(self.delta + other.delta, _LARGEST_DELTA))

    def covers(self, cost: "PrivacyBudget") -> bool:
        """Return whether a cost fits into this budget."""
        return cost.epsilon <= self.epsilon * (1 + _ROUNDING) and cost.delta <= self.delta * (1 + _ROUNDING)

    def minus(self, cost: "PrivacyBudget") -> "PrivacyBudget":
        """Return the budget left after a cost, never below zero."""
        epsilon = self.epsilon if math.isinf(self.epsilon) else max(0.0, self.epsilon - cost.epsilon)
        return PrivacyBudget(epsilon, max(0.0, self.delta - cost.delta))

    def __str__(self) -> str:
        return f"epsilon={self.epsilon:g} at delta={self.delta:g}"
