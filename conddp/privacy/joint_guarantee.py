"""Privacy guarantee of several models of one fit, which differ in their label."""

import math
from dataclasses import dataclass

from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.guarantee import Guarantee

__all__ = ["JointGuarantee"]


@dataclass(frozen=True)
class JointGuarantee:
    """Guarantee of models for several labels of the same records. Printing it gives a precise statement.

    Parameters
    ----------
    budget : PrivacyBudget
        (epsilon, delta) of all models together.
    guarantees : tuple of Guarantee
        Guarantee of each model alone.
    """

    budget: PrivacyBudget
    guarantees: tuple[Guarantee, ...]

    def __post_init__(self) -> None:
        if not self.guarantees:
            raise ValueError("a joint guarantee needs at least one model.")

    @property
    def epsilon(self) -> float:
        """Epsilon of all models together."""
        return self.budget.epsilon

    @property
    def delta(self) -> float:
        """Delta of all models together."""
        return self.budget.delta

    def __str__(self) -> str:
        if len(self.guarantees) == 1:
            return str(self.guarantees[0])
        number = len(self.guarantees)
        if math.isinf(self.epsilon):
            return f"These {number} models are NOT differentially private: {self.guarantees[0].mechanism}"
        first = self.guarantees[0]
        amount = f"({self.epsilon:g}, {self.delta:g})" if self.delta else f"{self.epsilon:g}"
        labels = ", ".join(
            f"'{each.label}' (declared range [{each.label_bounds.low:g}, {each.label_bounds.high:g}])"
            for each in self.guarantees
        )
        private = ", ".join(f"'{name}'" for name in first.private_columns)
        columns = f" and the private columns {private}" if private else ""
        whose = f"any one of {first.num_records} training records"
        of_whom = "record"
        if first.unit:
            whose = f"all training records with any one of {first.num_units:,} values of '{first.unit}'"
            of_whom = f"value of '{first.unit}'"
        return (
            f"These {number} models together are {amount}-differentially private with respect to the labels {labels}"
            f"{columns} of {whose}. Neighbouring data sets may differ in all of these at once, for one {of_whom}. The "
            "noise of the models is independent, and their cost was composed before the first of them read private "
            f"values. The guarantee of each model alone follows. {' '.join(map(str, self.guarantees))}"
        )
