"""Transformations of public columns, at no privacy cost: spectrum, conditioning, whitening, random features."""

from conddp.features.conditioned_rows import ConditionedRows
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.feature_map import FeatureMap, IdentityMap
from conddp.features.grouped_rows import GroupedRows, whiten
from conddp.features.noise_shape import compute_noise_shape
from conddp.features.public_rows import PublicRows
from conddp.features.random_features import RandomFeatures
from conddp.features.spectrum import Spectrum
from conddp.features.standardization import Standardization
from conddp.features.whitening import WhitenedRows

__all__ = [
    "ConditionedRows",
    "ConditioningMatrix",
    "FeatureMap",
    "GroupedRows",
    "IdentityMap",
    "PublicRows",
    "RandomFeatures",
    "Spectrum",
    "Standardization",
    "WhitenedRows",
    "compute_noise_shape",
    "whiten",
]
