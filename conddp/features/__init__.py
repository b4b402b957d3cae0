"""Transformations of public columns at no privacy cost: encoding, spectrum, conditioning, whitening, hidden units."""

from conddp.features.bin_encoding import BinEncoding, hash_level
from conddp.features.code_spectrum import compute_spectral_table
from conddp.features.conditioned_rows import ConditionedRows
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.encoding import Encoding
from conddp.features.feature_map import FeatureMap, IdentityMap
from conddp.features.grouped_rows import GroupedRows, whiten
from conddp.features.noise_shape import compute_noise_shape
from conddp.features.public_rows import PublicRows
from conddp.features.random_features import RandomFeatures
from conddp.features.reading import read_features, read_records
from conddp.features.scaled_rows import ScaledRows
from conddp.features.spectrum import Spectrum
from conddp.features.standardization import Standardization
from conddp.features.whitening import WhitenedRows

__all__ = [
    "BinEncoding",
    "ConditionedRows",
    "ConditioningMatrix",
    "Encoding",
    "FeatureMap",
    "GroupedRows",
    "IdentityMap",
    "PublicRows",
    "RandomFeatures",
    "ScaledRows",
    "Spectrum",
    "Standardization",
    "WhitenedRows",
    "compute_noise_shape",
    "compute_spectral_table",
    "hash_level",
    "read_features",
    "read_records",
    "whiten",
]
