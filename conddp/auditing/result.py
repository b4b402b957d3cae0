"""Result of an audit: a claim, what could be shown against it, and the verdict."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["Audit", "Evidence", "Kind"]

Kind = Literal["white-box", "black-box", "one-run"]
ROUNDING = 1e-6  # relative; claims are calibrated to about this precision


@dataclass(frozen=True)
class Evidence:
    """What an audit has to say about a claim.

    Parameters
    ----------
    lower_bound : float
        Lower bound on epsilon.
    method : str
        How it was computed.
    ceiling : float
        The largest bound that could have been found.
    num_fits : int
        Number of fits.
    findings : tuple of str
        Other things that contradict the claim.
    """

    lower_bound: float
    method: str
    ceiling: float
    num_fits: int
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Audit:
    """What an audit has found.

    Parameters
    ----------
    algorithm, head : str
        Name or class of the algorithm, and the model it fitted.
    kind : {"white-box", "black-box", "one-run"}
        Kind of the audit.
    claim : PrivacyBudget
        What the algorithm claims to cost.
    lower_bound : float
        Lower bound on the actual epsilon at the delta of the claim.
    method : str
        How the bound was computed.
    ceiling : float
        The largest bound that an audit of this kind and size can show.
    confidence : float
        Probability with which the bound holds.
    num_fits : int
        Number of fits.
    seconds : float
        Time taken.
    findings : tuple of str
        Other things that contradict the claim.
    neighbouring : Neighbouring
        The relation.
    """

    algorithm: str
    head: str
    kind: Kind
    claim: PrivacyBudget
    lower_bound: float
    method: str
    ceiling: float
    confidence: float
    num_fits: int
    seconds: float
    findings: tuple[str, ...] = ()
    neighbouring: Neighbouring = Neighbouring.REPLACE

    @property
    def exceeds(self) -> bool:
        """Whether the lower bound exceeds the claim."""
        return self.lower_bound > self.claim.epsilon * (1 + ROUNDING)

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the claim. It does not prove the claim."""
        return not self.exceeds and not self.findings

    @property
    def verdict(self) -> str:
        """A few words for a table."""
        if math.isinf(self.claim.epsilon):
            return "claims nothing"
        if self.exceeds:
            return "VIOLATED"
        return "SUSPECT" if self.findings else "holds"

    def to_json(self) -> dict[str, Any]:
        """Return all fields and the verdict as what JSON can hold."""
        return {**asdict(self), "neighbouring": self.neighbouring.value, "passed": self.passed, "verdict": self.verdict}
