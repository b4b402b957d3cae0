"""A bound: its value, the terms that it is made of, and what it assumes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Bound"]


@dataclass(frozen=True)
class Bound:
    """What a theorem says about given numbers.

    Parameters
    ----------
    value : float
        The bound.
    terms : mapping
        What it is made of, by name.
    symbols : mapping
        The numbers that went in, by their symbol in the paper.
    assumptions : tuple of str
        What must hold.
    printed : float, optional
        The same by the formula that the paper prints, where that is another one; its hidden constants are taken as one.
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
