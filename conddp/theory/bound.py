"""A bound with its value, terms and assumptions."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Bound"]


@dataclass(frozen=True)
class Bound:
    """Bound of a theorem, evaluated for given numbers.

    Parameters
    ----------
    value : float
        Value of the bound.
    terms : mapping
        Terms of the bound, by name.
    symbols : mapping
        Inputs, by their symbol in the paper.
    assumptions : tuple of str
        Assumptions of the theorem.
    printed : float, optional
        Value of the formula printed in the paper, if it differs. Its hidden constants are taken as one.
    """

    value: float
    terms: Mapping[str, float]
    symbols: Mapping[str, float]
    assumptions: tuple[str, ...]
    printed: float | None = field(default=None)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value:.4g}" for name, value in self.terms.items())
        printed = "" if self.printed is None else f"; as printed {self.printed:.4g}"
        return f"{self.value:.4g} ({parts}{printed})"
