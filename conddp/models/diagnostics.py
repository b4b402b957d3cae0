"""Diagnostics of a fit, computed from public and released numbers only."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Diagnostics"]


@dataclass(frozen=True)
class Diagnostics:
    """Convergence of a fit, and standard deviations of its coefficients.

    Privacy
        Computed from released parameters, public rows and known noise: no cost.

    Parameters
    ----------
    steps : tuple of int
        Numbers of the releases after which progress was recorded.
    distances : tuple of float
        Root mean square distance between the predictions after each of these releases and the final predictions, over
        public rows, in the units of the label.
    residual_deviations : tuple of float
        Estimated standard deviation of the residuals after each of these releases, in the units of the label. Empty if
        the algorithm does not estimate it.
    coefficient_deviations : tuple of float
        Standard deviation of each coefficient given the releases, in the original units: public columns, private
        columns, then the intercept. It accounts for the noise (and, for CondNewton, for sampling and shrinkage), but
        not for the bias from clamping residuals. Empty if it is not known, for example with private columns.
    """

    steps: tuple[int, ...] = ()
    distances: tuple[float, ...] = ()
    residual_deviations: tuple[float, ...] = ()
    coefficient_deviations: tuple[float, ...] = ()

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Diagnostics":
        """Read diagnostics from their stored form."""
        return cls(**{name: tuple(values) for name, values in stored.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the diagnostics in their stored form."""
        return {name: list(values) for name, values in asdict(self).items()}
