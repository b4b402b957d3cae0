"""Diagnostics of a fit, computed from public and released numbers only."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from conddp.models.effects import Effects
from conddp.stored import decode, require

__all__ = ["Diagnostics"]


@dataclass(frozen=True)
class Diagnostics:
    """Convergence of a fit, and standard deviations of its coefficients or effects.

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
        terms, then the intercept. It accounts for the noise (and, for CondNewton, for sampling and shrinkage), but
        not for the bias from clamping residuals. Empty if it is not known, for example with private columns.
    effects : Effects, optional
        Effects of the columns of an additive model, with standard deviations.
    """

    steps: tuple[int, ...] = ()
    distances: tuple[float, ...] = ()
    residual_deviations: tuple[float, ...] = ()
    coefficient_deviations: tuple[float, ...] = ()
    effects: Effects | None = None

    @classmethod
    def from_json(cls, stored: Any) -> "Diagnostics":
        """Read diagnostics from their stored form.

        Raises
        ------
        SchemaError
            If it is not what :meth:`to_json` gives.
        """
        made: Diagnostics = decode(cls, stored, "diagnostics")
        require(
            len(made.distances) == len(made.steps)
            and len(made.residual_deviations) in (0, len(made.steps))
            and min((*made.distances, *made.residual_deviations, *made.coefficient_deviations), default=0.0) >= 0,
            "'diagnostics' must have a distance of at least 0 for each step, and no negative standard deviation",
        )
        return made

    def to_json(self) -> dict[str, Any]:
        """Return the diagnostics in their stored form. Values that are not finite are not known, and left out."""
        stored = asdict(self)
        effects = stored.pop("effects")
        kept = {name: list(values) if all(map(math.isfinite, values)) else [] for name, values in stored.items()}
        kept = kept if len(kept["distances"]) == len(kept["steps"]) else Diagnostics().to_json()
        return kept if effects is None or not _is_finite(effects) else {**kept, "effects": effects}


def _is_finite(value: Any) -> bool:
    """Whether no number in a stored value is infinite or not a number."""
    if isinstance(value, (dict, list, tuple)):
        return all(_is_finite(each) for each in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
