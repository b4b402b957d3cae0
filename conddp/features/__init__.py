"""What is made of public columns, at no privacy cost: spectrum, conditioning, whitening, random features."""

from conddp.features.conditioning import ConditioningMatrix
from conddp.features.noise_shape import compute_noise_shape
from conddp.features.random_features import Expansion
from conddp.features.spectrum import Spectrum
from conddp.features.whitening import Directions

__all__ = ["ConditioningMatrix", "Directions", "Expansion", "Spectrum", "compute_noise_shape"]
