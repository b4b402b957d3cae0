"""Maps from public columns to the fixed features that a model is linear in."""

from dataclasses import dataclass
from typing import Protocol

from conddp.data.parts import PublicFeatures, require_public

__all__ = ["FeatureMap", "IdentityMap"]


class FeatureMap(Protocol):
    """Map of public columns, fitted on public columns only.

    Privacy
        Reads public columns only: no cost. The output is public.
    """

    @property
    def num_added(self) -> int:
        """Number of features in addition to the columns."""

    def transform(self, public_features: PublicFeatures) -> PublicFeatures:
        """Return the columns followed by the added features."""


@dataclass(frozen=True)
class IdentityMap:
    """Map that leaves the columns unchanged."""

    @property
    def num_added(self) -> int:
        """Number of added features, 0."""
        return 0

    def transform(self, public_features: PublicFeatures) -> PublicFeatures:
        """Return the columns unchanged."""
        return require_public(public_features, function="IdentityMap.transform")
