"""Gaussian noise for a clipped sum, and where random numbers come from."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np
from randomgen import AESCounter

from conddp.clipping import ClippedSum
from conddp.models import Array

__all__ = ["RandomSource", "add_noise"]


@dataclass(frozen=True)
class RandomSource:
    """Where random numbers come from, and whether somebody else could repeat them.

    Without a seed it holds no state: every :meth:`generator` is keyed anew by the operating system, so that no copy,
    pickle or fork of it can ever repeat noise.

    Parameters
    ----------
    seeded_generator : numpy.random.Generator, optional
        A generator with a seed that the caller chose: good for research, worthless as a promise to anyone who knows
        the seed.
    """

    seeded_generator: np.random.Generator | None = None

    @classmethod
    def of(cls, random_state: object = None) -> "RandomSource":
        """Source for a scikit-learn ``random_state``.

        None gives AES-128 in counter mode, keyed with the operating system's entropy; a whole number, a NumPy
        generator or a RandomState gives a repeatable stream and counts as seeded.
        """
        if random_state is None:
            return cls()
        if isinstance(random_state, np.random.Generator):
            return cls(random_state)
        if isinstance(random_state, np.random.RandomState):
            return cls(np.random.default_rng(random_state.randint(0, 2**32, size=8, dtype=np.uint32)))
        if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool) and random_state >= 0:
            return cls(np.random.default_rng(int(random_state)))
        raise ValueError(
            "random_state must be None, a whole number of at least 0, a NumPy Generator or a RandomState, "
            f"got random_state={random_state!r}."
        )

    @property
    def seeded(self) -> bool:
        """Whether the caller chose the seed."""
        return self.seeded_generator is not None

    def generator(self) -> np.random.Generator:
        """The seeded generator, or a new cryptographic one."""
        if self.seeded_generator is not None:
            return self.seeded_generator
        return np.random.Generator(AESCounter(key=secrets.randbits(128)))


def add_noise(clipped: ClippedSum, *, noise_multiplier: Any, generators: Sequence[np.random.Generator]) -> Array:
    """The clipped sum with Gaussian noise of standard deviation ``noise_multiplier * clip_norm`` on every coordinate.

    Privacy
        This is the only place where private data become public. One release of the Gaussian mechanism per
        configuration; :mod:`conddp.accounting` says what ``noise_multiplier`` must be.

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
