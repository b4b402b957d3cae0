"""What a fit can tell about itself beside the model: public and released numbers only."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Diagnostics"]


@dataclass(frozen=True)
class Diagnostics:
    """The course of a fit and the uncertainty of its coefficients.

    Privacy
        Computed from released parameters, public rows and known noise: no cost.

    Parameters
    ----------
    steps : tuple of int
        Numbers of the releases at which the course was recorded.
    distances : tuple of float
        Root mean square distance of the predictions after each of them from the final ones, in the label's units, over
        public rows.
    residual_deviations : tuple of float
        Standard deviation that residuals were believed to have after each of them, in the label's units, where the
        algorithm estimates it.
    coefficient_deviations : tuple of float
        Standard deviation of what the releases leave unknown of each coefficient, in the user's units: public columns,
        private columns, then the intercept. It covers the noise (and, for CondNewton, sampling and shrinkage), not the
        bias from clamping residuals. Empty where it is not known, as with private columns.
    """

    steps: tuple[int, ...] = ()
    distances: tuple[float, ...] = ()
    residual_deviations: tuple[float, ...] = ()
    coefficient_deviations: tuple[float, ...] = ()

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Diagnostics":
        """The diagnostics that were stored."""
        return cls(**{name: tuple(values) for name, values in stored.items()})

    def to_json(self) -> dict[str, Any]:
        """The diagnostics as they are stored."""
        return {name: list(values) for name, values in asdict(self).items()}
