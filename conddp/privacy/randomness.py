"""Gaussian noise for a clipped sum, and where random numbers come from."""

import secrets
from dataclasses import dataclass

import numpy as np
from randomgen import AESCounter

__all__ = [
    "RandomSource",
]


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
