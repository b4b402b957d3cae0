"""From public columns to the numbers that a model is linear in."""

from dataclasses import dataclass
from typing import Protocol

from conddp.data.parts import PublicFeatures, require_public

__all__ = ["FeatureMap", "IdentityMap"]


class FeatureMap(Protocol):
    """A map of public columns, fitted on public columns only.

    Privacy
        Sees public columns and nothing else: no cost, and what comes out is public.
    """

    @property
    def num_added(self) -> int:
        """Features beside the columns themselves."""

    def transform(self, public_features: PublicFeatures) -> PublicFeatures:
        """The columns, and the added features after them."""


@dataclass(frozen=True)
class IdentityMap:
    """Columns as they are."""

    @property
    def num_added(self) -> int:
        """None."""
        return 0

    def transform(self, public_features: PublicFeatures) -> PublicFeatures:
        """The columns themselves."""
        return require_public(public_features, function="IdentityMap.transform")
