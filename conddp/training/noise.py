"""Gaussian noise for a clipped sum."""

from collections.abc import Sequence
from typing import Any

import array_api_compat
import numpy as np

from conddp.heads.head import Array
from conddp.training.clipping import ClippedSum

__all__ = ["add_noise"]


def add_noise(clipped: ClippedSum, *, noise_multiplier: Any, generators: Sequence[np.random.Generator]) -> Array:
    """The clipped sum with Gaussian noise of standard deviation ``noise_multiplier * clip_norm`` on every coordinate.

    Privacy
        This is the only place where private data become public. One release of the Gaussian mechanism per
        configuration; :mod:`conddp.privacy.accounting` says what ``noise_multiplier`` must be.

    Parameters
    ----------
    clipped : ClippedSum
        Of shape (K, P).
    noise_multiplier : array of shape (K,)
        Standard deviation over clip norm; 0 gives no privacy and is for tests and non-private references.
    generators : sequence of K generators
        One per configuration, so that K configurations at once equal K runs of one.
    """
    K, P = clipped.value.shape
    is_numpy = isinstance(clipped.value, np.ndarray)
    dtype = np.float64 if clipped.value.dtype.itemsize == 8 else np.float32
    if K == 1:
        noise: Array = generators[0].standard_normal((1, P), dtype=dtype)
    else:
        noise = np.stack([generator.standard_normal(P, dtype=dtype) for generator in generators])
    if not is_numpy:
        xp = array_api_compat.array_namespace(clipped.value)
        noise = xp.asarray(noise, device=clipped.value.device)
    noise *= (noise_multiplier * clipped.clip_norm)[:, None]
    noise += clipped.value
    return noise
