r"""Noise that is exact: a private number plus ideal noise, rounded to a public grid.

A sampler in floating point does not reach every double, and which doubles it reaches differs from one private sum to
the next. The low-order bits of ``float(sum + noise)`` can therefore prove what the sum was. Here, a release is the
multiple of a public power of two g that is nearest to the sum plus the noise,

.. math:: g \cdot \mathrm{round}\big((S + \sigma Z) / g\big), \qquad 2^{-21} \sigma < g \le 2^{-20} \sigma,

with an ideal random variable Z, and the nearest multiple is found without any error. This is post-processing of the
ideal mechanism, whose accounting therefore holds as it stands. All private sums give the same set of possible outputs.

How the nearest multiple is found
    Z is a random sign times :math:`Q(V)`, where V is uniform on (0, 1) and Q is the inverse of the survival function
    :math:`P(|Z| > t)`. V has infinitely many random bits, of which 63 are drawn at first. Dividing by g is exact, and
    so is separating S / g into an integer and a fraction f. If :math:`f + (\sigma / g) Z`, computed in float64, is
    farther from the middle between two integers than the error of Q can be, the nearest integer is certain.
    Otherwise, and if V is below :data:`SMALLEST_TAIL`, the answer is found by comparing V with the survival function at
    the ends of the cell, in multiple-precision arithmetic; more bits of V are drawn until the comparison is decided.
    This happens once in some million draws.

    The one assumption is that Q is computed in float64 with an error below the tolerance, which is :math:`2^{-44}` of
    the scale for Gaussian noise. The tests compare it with multiple-precision arithmetic.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from conddp.privacy.fused_noise import FILL_NORMALS, ROUND_TO_GRID, make_quantile_table
from conddp.privacy.noisy_steps import GridRule, NoisySteps

__all__ = [
    "NoiseShape",
    "NoiseStream",
    "compute_grid",
    "discrete_laplace",
    "draw_integers",
    "draw_outcomes",
    "gaussian",
    "laplace",
    "staircase",
]

Vector = NDArray[np.float64]

GRID_BITS = 20  # the grid is 2**-20 to 2**-21 times the scale of the noise
SMALLEST_TAIL = 2.0**-20  # below this tail probability, 63 bits may be too few
LARGEST_MULTIPLE = 2.0**51  # sums are clamped to this multiple of the grid, so that all arithmetic on it is exact
BITS = 63  # random bits of a tail probability that are drawn at first


@dataclass(frozen=True)
class NoiseShape:
    """A symmetric distribution of unit scale, given by the tail probabilities of its absolute value.

    Parameters
    ----------
    quantile : callable
        The t with P(|Z| > t) = v, for an array of v between :data:`SMALLEST_TAIL` and 1, in float64.
    survival : callable
        P(|Z| > t) for a multiple-precision number t above 0. It may return more than 1, which counts as 1.
    tolerance : float
        Bound on the error of the quantile.
    is_normal : bool
        Whether it is the standard normal distribution, for which there is a kernel.
    """

    quantile: Callable[[Vector], Vector]
    survival: Callable[[Any], Any]
    tolerance: float = 2.0**-44
    is_normal: bool = False


def gaussian() -> NoiseShape:
    """Standard normal distribution."""
    return NoiseShape(lambda v: -ndtri(0.5 * v), lambda t: _mp().erfc(t / _mp().sqrt(2)), is_normal=True)


def laplace() -> NoiseShape:
    """Laplace distribution of scale 1."""
    return NoiseShape(lambda v: -np.log(v), lambda t: _mp().exp(-t), tolerance=2.0**-41)


def discrete_laplace(scale: float) -> NoiseShape:
    r"""Distribution whose integer part, in units of the scale, has probabilities proportional to :math:`e^{-|z|/s}`."""
    factor = math.log1p(math.exp(-1 / scale)) - math.log(2)
    return NoiseShape(
        lambda v: np.maximum(-np.log(v) - factor, 0.0),
        lambda t: 2 * _mp().exp(-t) / (1 + _mp().exp(-1 / _mp().mpf(scale))),
        tolerance=2.0**-41,
    )


def staircase(epsilon: float) -> NoiseShape:
    r"""Staircase distribution (Geng and Viswanath 2014) for a sensitivity of ``epsilon``, so that its scale is about 1.

    The density is constant on the pieces of each step of length ``epsilon``, which is split at the fraction
    :math:`\gamma = 1 / (1 + e^{\epsilon/2})`, and falls by :math:`e^{-\epsilon}` from one step to the next.
    """
    gamma, fall = 1 / (1 + math.exp(epsilon / 2)), math.exp(-epsilon)
    mass = -math.expm1(-epsilon)  # of a step, relative to its whole tail
    inner = mass * gamma / (gamma + (1 - gamma) * fall)  # of the first piece of a step
    outer = mass * (1 - gamma) * fall / (gamma + (1 - gamma) * fall)  # and of the second

    def quantile(v: Vector) -> Vector:
        step = np.floor(-np.log(v) / epsilon)
        left = np.clip(v * np.exp(epsilon * step), fall, 1.0)  # tail probability, relative to that of the step
        first, second = gamma * (1 - left) / inner, 1 - (1 - gamma) * (left - fall) / outer
        return np.asarray(epsilon * (step + np.where(left > fall + outer, first, second)))

    def survival(t: Any) -> Any:
        mp = _mp()
        exact = mp.mpf(epsilon)
        gamma, fall = 1 / (1 + mp.exp(exact / 2)), mp.exp(-exact)
        mass = 1 - fall
        inner = mass * gamma / (gamma + (1 - gamma) * fall)
        step = mp.floor(t / exact)
        part = t / exact - step
        before = inner * part / gamma if part < gamma else inner + (mass - inner) * (part - gamma) / (1 - gamma)
        return mp.exp(-exact * step) * (1 - before)

    return NoiseShape(quantile, survival, tolerance=2.0**-36)


def compute_grid(scale: Any) -> Any:
    """Compute the power of two to whose multiples numbers with noise of this scale are rounded.

    Examples
    --------
    >>> float(compute_grid(3.0)) == 2.0**-19
    True
    """
    exponent = np.frexp(scale)[1]
    return np.ldexp(1.0, exponent - 1 - GRID_BITS)


class NoiseStream:
    """Adds ideal noise of one shape to private numbers and returns the nearest points of the public grid.

    Privacy
        Post-processing of the ideal mechanism that releases the numbers plus noise. Numbers beyond
        :data:`LARGEST_MULTIPLE` grid steps, more than a billion times the scale of the noise, are clamped, which does
        not increase their sensitivity; so is NaN.

    Parameters
    ----------
    shape : NoiseShape
        Distribution of the noise.
    rng : numpy.random.Generator
        Generator of the random bits.
    """

    def __init__(self, shape: NoiseShape, rng: np.random.Generator) -> None:
        self._shape, self._rng = shape, rng
        self._drawn, self._used = _Draws.of(0, shape, rng), 0

    def add(self, values: Vector, scale: Any) -> Vector:
        """Add noise to private numbers.

        Parameters
        ----------
        values : array of shape (P,)
            Private numbers in float64.
        scale : float, or array of shape (P,)
            Scale of the noise: its standard deviation for Gaussian noise.
        """
        kernel = ROUND_TO_GRID.get() if isinstance(scale, float) else None
        if kernel is not None and values.flags.carray and values.dtype == np.float64:
            return self._add_fused(kernel, values, scale)
        grid = compute_grid(scale)
        multiples = np.fmin(np.fmax(values * (1 / grid), -LARGEST_MULTIPLE), LARGEST_MULTIPLE)
        nearest = np.rint(multiples)
        nearest += self._take(len(values)).round(multiples - nearest, scale * (1 / grid))
        nearest *= grid
        return np.asarray(nearest)

    def _add_fused(self, kernel: Callable[..., int], values: Vector, scale: float) -> Vector:
        """Add noise to private numbers in one pass, and decide on doubtful ones as above."""
        drawn, start = self._reserve(len(values))
        rule = self._make_rule(scale)
        noisy, doubtful = np.empty(len(values)), np.empty(len(values), dtype=np.int64)
        noise = drawn.values[start : start + len(values)]
        count = kernel(values, noise, *rule, noisy, doubtful)
        for place in doubtful[:count].tolist():
            noisy[place] = self._decide(drawn, start + place, values[place], rule)
        return noisy

    def add_to_steps(self, steps: NoisySteps, scale: float, num_steps: int) -> None:
        """Add noise to the sums of several steps, each of which depends on the noisy sums of those before.

        The numbers are those of one :meth:`add` per step. The steps stop at a sum with doubtful numbers, and go on when
        these are decided.

        Parameters
        ----------
        steps : NoisySteps
            Steps, and the sum of the current one.
        scale : float
            Scale of the noise of all numbers.
        num_steps : int
            Number of steps to take.
        """
        rule, size = self._make_rule(scale), len(steps.sums)
        while num_steps > 0:
            drawn, start = self._reserve(size)
            count = min(num_steps, (len(drawn.bits) - start) // size)
            self._used = start + count * size  # for these steps and no others
            noise = drawn.values[start : start + count * size].reshape(count, size)
            steps.prepare(count)
            done, num_doubtful = steps.advance(noise, rule, is_decided=False)
            while done < count:
                first = start + done * size
                for place in steps.doubtful[:num_doubtful].tolist():
                    steps.noisy[place] = self._decide(drawn, first + place, steps.sums[place], rule)
                more, num_doubtful = steps.advance(noise[done:], rule, is_decided=True)
                done += more
            num_steps -= count

    def _make_rule(self, scale: float) -> GridRule:
        """How sums with noise of this scale are rounded."""
        grid = math.ldexp(1.0, math.frexp(scale)[1] - 1 - GRID_BITS)  # as compute_grid, which takes longer
        return GridRule(grid, scale * (1 / grid), self._shape.tolerance, LARGEST_MULTIPLE)

    @staticmethod
    def _decide(drawn: "_Draws", place: int, value: float, rule: GridRule) -> float:
        """Point of the grid nearest to a number plus one of the variables, without error."""
        multiple = np.fmin(np.fmax(value * (1 / rule.grid), -rule.largest), rule.largest)
        nearest = np.rint(multiple)
        return float((nearest + drawn.decide(place, float(multiple - nearest), rule.ratio)) * rule.grid)

    def _take(self, size: int) -> "_Draws":
        drawn, start = self._reserve(size)
        return drawn[start : start + size]

    def _reserve(self, size: int) -> tuple["_Draws", int]:
        """Draw ahead, in blocks of growing size: a thousand short releases then cost little more than one long one.

        Returns the block and the first of the variables in it that are for this release and no other.
        """
        if self._used + size > len(self._drawn.bits):
            self._drawn = _Draws.of(max(size, min(2 * len(self._drawn.bits) + 64, 8192)), self._shape, self._rng)
            self._used = 0
        self._used += size
        return self._drawn, self._used - size


@dataclass(frozen=True)
class _Draws:
    """Random variables: their first bits, the last of which is the sign, and values in float64 (NaN far out)."""

    shape: NoiseShape
    rng: np.random.Generator
    bits: NDArray[np.uint64]
    values: Vector

    @classmethod
    def of(cls, size: int, shape: NoiseShape, rng: np.random.Generator) -> "_Draws":
        drawn = _draw_bits(size, rng)
        kernel = FILL_NORMALS.get() if shape.is_normal else None
        if kernel is not None:
            values = np.empty(size)
            kernel(drawn, make_quantile_table(), values)
            return cls(shape, rng, drawn, values)
        tails = (drawn >> np.uint64(1)) * 2.0**-BITS
        values = _signs(drawn) * shape.quantile(np.maximum(tails, SMALLEST_TAIL))
        values[tails < SMALLEST_TAIL] = np.nan
        return cls(shape, rng, drawn, values)

    def __getitem__(self, span: slice) -> "_Draws":
        return _Draws(self.shape, self.rng, self.bits[span], self.values[span])

    @property
    def signs(self) -> Vector:
        """Signs of the variables."""
        return _signs(self.bits)

    def round(self, offsets: Vector, ratio: Any) -> Vector:
        """Integers nearest to the offsets plus the ratio times the random variables, without error."""
        noisy = offsets + ratio * self.values
        nearest = np.rint(noisy)
        noisy -= nearest
        clear = np.abs(noisy, out=noisy) < 0.5 - ratio * self.shape.tolerance - 2.0**-50
        if not clear.all():
            ratio = np.broadcast_to(ratio, offsets.shape)
            for place in np.flatnonzero(~clear):
                nearest[place] = self.decide(int(place), float(offsets[place]), float(ratio[place]))
        return np.asarray(nearest)

    def decide(self, place: int, offset: float, ratio: float) -> int:
        """Integer nearest to the offset plus the ratio times one variable, in multiple precision."""
        sign = -1 if int(self.bits[place]) & 1 else 1
        return sign * self._decide(place, sign * offset, ratio)

    def _decide(self, place: int, offset: float, ratio: float) -> int:
        """Integer nearest to the offset plus the ratio times the absolute value of one variable."""
        first, bits, mp = int(self.bits[place]) >> 1, BITS, _mp()
        tail = max(first, 0.5) * 2.0**-BITS
        nearest = round(offset + ratio * float(self.shape.quantile(np.array([tail]))[0]))

        def reaches(integer: int) -> bool:
            """Whether the noisy number is at least ``integer - 1/2``, that is, V is at most the tail beyond it."""
            nonlocal first, bits
            while True:
                with mp.workprec(bits + 128):
                    distance = (mp.mpf(integer) - 0.5 - mp.mpf(offset)) / mp.mpf(ratio)
                    if distance <= 0:
                        return True
                    tail = mp.ldexp(self.shape.survival(distance), bits)
                    if first + 1 < tail * (1 - mp.ldexp(1, -bits)):
                        return True
                    if first > tail * (1 + mp.ldexp(1, -bits)):
                        return False
                first, bits = _extend(first, bits, self.rng)

        while not reaches(nearest):
            nearest -= 1
        while reaches(nearest + 1):
            nearest += 1
        return nearest


def draw_integers(size: int, *, scale: float, rng: np.random.Generator) -> Vector:
    r"""Draw integers with probabilities exactly proportional to :math:`e^{-|z| / scale}` (discrete Laplace)."""
    drawn = _Draws.of(size, discrete_laplace(scale), rng)
    # The integer part of the absolute value is the integer nearest to it less one half.
    return drawn.round(-0.5 * drawn.signs, scale)


def draw_outcomes(weights: Sequence[float], size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw positions with probabilities exactly proportional to these weights."""
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    ends, reached = [], Fraction(0)
    for weight in exact:
        reached += weight / total
        ends.append(reached)
    floors = np.array([min(math.floor(end * 2**BITS), 2**BITS - 1) for end in ends[:-1]], dtype=np.uint64)
    drawn = _draw_bits(size, rng) >> np.uint64(1)
    outcomes = np.searchsorted(floors, drawn, side="right")
    for place in np.flatnonzero(np.isin(drawn, floors)):  # the first bits do not decide on which side of an end it is
        outcomes[place] = _count_ends(int(drawn[place]), ends, rng)
    return outcomes


def _count_ends(first: int, ends: Sequence[Fraction], rng: np.random.Generator) -> int:
    """Number of ends below a uniform number of which the first bits are given; draws as many more as it takes."""
    bits = BITS
    while True:
        low, high = Fraction(first, 2**bits), Fraction(first + 1, 2**bits)
        below = sum(end <= low for end in ends)
        if below == sum(end < high for end in ends):
            return below
        first, bits = _extend(first, bits, rng)


def _signs(bits: NDArray[np.uint64]) -> Vector:
    return np.asarray(1.0 - 2.0 * (bits & np.uint64(1)))


def _draw_bits(size: int, rng: np.random.Generator) -> NDArray[np.uint64]:
    return rng.integers(0, 2**64 - 1, size=size, dtype=np.uint64, endpoint=True)


def _extend(first: int, bits: int, rng: np.random.Generator) -> tuple[int, int]:
    """Append 64 random bits."""
    return (first << 64) | int(_draw_bits(1, rng)[0]), bits + 64


def _mp() -> Any:
    from mpmath import mp  # takes a while to import, and is needed once in many fits

    return mp
