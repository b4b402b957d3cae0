"""Sources of random numbers: keyed by the operating system, or derived from a seed and from what a fit is."""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from randomgen import AESCounter

from conddp.privacy.digest import Part, update_digest

__all__ = ["RandomSource"]


@dataclass(frozen=True)
class RandomSource:
    """Source of random numbers, which records whether they can be reproduced from a seed.

    All generators are AES-128 in counter mode. Without a seed, the operating system provides a new key for every
    :meth:`generator`, so that no copy, pickle or fork of the source can ever repeat noise. With a seed, a fit derives
    its keys from the seed and from everything that makes it this fit (:meth:`bind`): the algorithm and its settings,
    the budget, and the records. The same fit then gives the same answer, and two different fits never share noise,
    which could cancel between them.

    Parameters
    ----------
    seed : bytes, optional
        The caller's seed. It gives no privacy against anyone who knows or guesses it.
    coupled : bool
        Whether all fits get the same random numbers, for audits and tests that compare neighbouring data sets.
    """

    seed: bytes | None = field(default=None, repr=False)
    coupled: bool = False

    @classmethod
    def of(cls, random_state: object = None) -> "RandomSource":
        """Create a source from a scikit-learn ``random_state``.

        None keys generators with entropy from the operating system. A non-negative integer of any size is a seed. A
        NumPy Generator or RandomState provides a new seed for every call, so that consecutive fits differ.
        """
        if random_state is None:
            return cls()
        if isinstance(random_state, np.random.Generator):
            return cls(random_state.bytes(32))
        if isinstance(random_state, np.random.RandomState):
            return cls(random_state.bytes(32))
        if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool) and random_state >= 0:
            return cls(str(int(random_state)).encode())
        raise ValueError(
            "random_state must be None, a non-negative integer, a NumPy Generator or a RandomState, "
            f"got random_state={random_state!r}."
        )

    @classmethod
    def for_neighbours(cls, seed: int) -> "RandomSource":
        """Create a source that gives all fits the same random numbers. Its noise protects nothing.

        Audits compare a fit with the fit of a neighbouring data set, which must draw the same samples.
        """
        return replace(cls.of(seed), coupled=True)

    @property
    def seeded(self) -> bool:
        """Whether the caller chose the seed."""
        return self.seed is not None

    def bind(self, parts: Iterable[Part]) -> "RandomSource":
        """Return the source for one fit, which these parts describe completely. Without a seed, they are not read."""
        if self.seed is None or self.coupled:
            return self
        return replace(self, seed=_hash(chain((b"fit", self.seed), parts)))

    def generator(self, purpose: str) -> np.random.Generator:
        """Return a generator for one purpose, such as "noise" or "samples".

        With a seed, the same purpose gives the same random numbers again.
        """
        if self.seed is None:
            return np.random.Generator(AESCounter(key=secrets.randbits(128)))
        key = _hash((b"generator", self.seed, purpose.encode()))[:16]
        return np.random.Generator(AESCounter(key=int.from_bytes(key, "little")))


def _hash(parts: Iterable[Part]) -> bytes:
    return bytes(update_digest(hashlib.sha256(), parts).digest())
