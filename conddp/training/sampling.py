"""Poisson sampling of the records of a step."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range, positive_integer

__all__ = ["PoissonSampler"]

SMALLEST_PROBABILITY = 1e-12  # gaps must fit into 64 bits


@dataclass(frozen=True)
class PoissonSampler:
    """Samples each record with the same probability, independently of all others.

    A sample may be empty; the step then consists of noise only. Sums are divided by the expected size ``n * q``, which
    is public, and never by the actual size.

    Parameters
    ----------
    num_records : int
        Number of records n.
    sampling_probability : float
        Probability q of each record.
    generator : numpy.random.Generator
        Generator for the samples.
    """

    num_records: int
    sampling_probability: float
    generator: np.random.Generator

    def __post_init__(self) -> None:
        positive_integer(num_records=self.num_records)
        in_range(SMALLEST_PROBABILITY, 1.0, sampling_probability=self.sampling_probability)

    @property
    def expected_size(self) -> float:
        """Expected number of records in a sample."""
        return self.num_records * self.sampling_probability

    def draw(self) -> NDArray[np.int64]:
        """Draw the positions of one sample, in increasing order.

        The gaps between consecutive sampled records are geometric. Drawing the gaps takes time proportional to the
        sample size rather than to n.
        """
        if self.sampling_probability == 1.0:
            return np.arange(self.num_records)
        return self._join(iter(()))

    def draw_several(self, num_samples: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw samples, with the same random numbers as one after another.

        Returns
        -------
        positions, ends : arrays
            Positions of the records of all samples, and where each sample ends among them.
        """
        walks = self._walk(num_samples)
        sizes = (walks < self.num_records).sum(axis=1)
        if sizes.max() < walks.shape[1]:  # almost always: all of them go past n
            return walks[np.arange(walks.shape[1]) < sizes[:, None]], sizes.cumsum()
        ready = iter(walks)
        samples = [self._join(ready) for _ in range(num_samples)]
        return np.concatenate(samples), np.cumsum([len(each) for each in samples])

    def _join(self, ready: Iterator[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Make a sample of as many walks as it takes to go past n. New ones are drawn if none is ready."""

        def follow() -> NDArray[np.int64]:
            known = next(ready, None)
            return self._walk() if known is None else known

        positions = follow()
        while positions[-1] < self.num_records:
            positions = np.concatenate([positions, positions[-1] + 1 + follow()])
        return positions[: positions.searchsorted(self.num_records)]

    def _walk(self, *several: int) -> NDArray[np.int64]:
        """Draw positions from 0 upwards, almost always past n; an array of this shape has several such walks."""
        at_once = int(self.expected_size + 6 * math.sqrt(self.expected_size)) + 10
        gaps = self.generator.geometric(self.sampling_probability, size=(*several, at_once))
        np.maximum(gaps, 1, out=gaps)  # a gap of zero (probability 2^-53, by rounding) would repeat a record
        gaps[..., 0] -= 1
        return gaps.cumsum(axis=-1)
