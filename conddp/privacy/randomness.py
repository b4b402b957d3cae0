"""Sources of random numbers: a cryptographic generator, or a seeded one for research."""

import secrets
from dataclasses import dataclass

import numpy as np
from randomgen import AESCounter

__all__ = [
    "RandomSource",
]


@dataclass(frozen=True)
class RandomSource:
    """Source of random numbers, which records whether they can be reproduced from a seed.

    A source without a seed holds no state. The operating system provides a new key for every :meth:`generator`, so
    that no copy, pickle or fork of the source can ever repeat noise.

    Parameters
    ----------
    seeded_generator : numpy.random.Generator, optional
        Generator with a seed chosen by the caller. Use it for research only: it gives no privacy against anyone who
        knows the seed.
    """

    seeded_generator: np.random.Generator | None = None

    @classmethod
    def of(cls, random_state: object = None) -> "RandomSource":
        """Create a source from a scikit-learn ``random_state``.

        None gives AES-128 in counter mode, keyed with entropy from the operating system. A non-negative integer, a
        NumPy Generator or a RandomState gives a reproducible stream and counts as seeded.
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
            "random_state must be None, a non-negative integer, a NumPy Generator or a RandomState, "
            f"got random_state={random_state!r}."
        )

    @property
    def seeded(self) -> bool:
        """Whether the caller chose the seed."""
        return self.seeded_generator is not None

    def generator(self) -> np.random.Generator:
        """Return the seeded generator, or a new cryptographic one."""
        if self.seeded_generator is not None:
            return self.seeded_generator
        return np.random.Generator(AESCounter(key=secrets.randbits(128)))
