"""Trials: fits to simulated labels, several of which are made together."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from conddp.data.records import Records
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.randomness import RandomSource

__all__ = ["Shared", "Trial"]

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Trial:
    """One of several fits to simulated labels of the same records.

    Parameters
    ----------
    records : Records
        Public columns and simulated labels.
    budget : PrivacyBudget
        Budget of the fit.
    random_source : RandomSource
        Source of its noise and of its initial weights.
    """

    records: Records
    budget: PrivacyBudget
    random_source: RandomSource


@dataclass(frozen=True)
class Shared:
    """What fits to the same public columns, units and weights have in common, computed once.

    Privacy
        Holds numbers that depend on public columns only.

    Parameters
    ----------
    briefly : bool
        Whether to learn fewer features, in fewer rounds, and to train nonlinear heads in fewer steps, to compare
        algorithms sooner.
    """

    briefly: bool = False
    known: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def get(self, key: Hashable, make: Callable[[], ResultT]) -> ResultT:
        """Return what is known by this key, which must name everything else that it depends on, or make it now."""
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]  # type: ignore[no-any-return]  # what was made by this key
