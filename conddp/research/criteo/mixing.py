"""Pseudo-random numbers that depend on keys only: the same on every machine, in any order."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

__all__ = ["as_normal", "as_uniform", "mix", "scale_to_bins"]

Keys = NDArray[np.uint64]
Floats = NDArray[np.float64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
STREAM = 0xD1B54A32D192ED03  # odd and unrelated to GOLDEN, so that streams are not shifted copies of each other
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)


def mix(keys: NDArray[np.integer], salt: int) -> Keys:
    """One 64-bit number for each key: the finalizer of SplitMix64 with ``salt`` as its stream.

    Examples
    --------
    >>> mix(np.arange(3), salt=0).tolist()
    [9370218965779684112, 3246858695411730098, 8468297219712610898]
    """
    mixed = keys.astype(np.uint64)
    mixed *= GOLDEN
    mixed += np.uint64((salt + 1) * STREAM % 2**64)
    mixed ^= mixed >> np.uint64(30)
    mixed *= FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def as_uniform(mixed: Keys) -> Floats:
    """Numbers strictly between 0 and 1."""
    return np.asarray(((mixed >> np.uint64(11)) + 0.5) * 2.0**-53)


def as_normal(mixed: Keys) -> Floats:
    """Standard normal numbers."""
    return np.asarray(ndtri(as_uniform(mixed)))


def scale_to_bins(mixed: Keys, num_bins: int) -> NDArray[np.int32]:
    """Whole numbers from 0 to ``num_bins`` - 1, from the upper 32 bits."""
    return (((mixed >> np.uint64(32)) * np.uint64(num_bins)) >> np.uint64(32)).astype(np.int32)
